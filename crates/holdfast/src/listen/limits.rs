//! The limits on connections and clients, and the reasons for closing a connection.

use std::time::Duration;

use holdfast_core::network::Network;
use holdfast_core::rate::MinimumRate;

/// How many connections there may be and how slow a client may be. All limits are settings.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The maximum number of open connections.
    pub total: usize,
    /// The maximum number of open connections per client, as defined by `ClientKey`.
    pub per_client: usize,
    /// Time limit from the first byte of a request, or the start of the connection, to the end of the headers.
    pub headers: Duration,
    /// Time limit between two requests.
    pub idle: Duration,
    /// The minimum rate of a request body or a response.
    pub least_rate: MinimumRate,
    /// Proxies forward many clients from one address, so `per_client` does not apply to them.
    pub proxies: Vec<Network>,
}

/// Always allowed, however few files the system permits.
pub(super) const LEAST_CONNECTIONS: usize = 16;

pub const OPEN: &str = "holdfast_connections_open";
pub const CLOSED: &str = "holdfast_connections_closed_total";

/// Why the service closed or refused a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    HeaderTimeout,
    IdleTimeout,
    SlowRequest,
    SlowAnswer,
    /// Closed in favour of a newer connection while it waited for its client.
    MadeRoom,
    ClientLimit,
    TotalLimit,
    AcceptFailed,
}

impl Reason {
    pub const ALL: [Self; 8] = [
        Self::HeaderTimeout,
        Self::IdleTimeout,
        Self::SlowRequest,
        Self::SlowAnswer,
        Self::MadeRoom,
        Self::ClientLimit,
        Self::TotalLimit,
        Self::AcceptFailed,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::HeaderTimeout => "header_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::SlowRequest => "slow_request",
            Self::SlowAnswer => "slow_answer",
            Self::MadeRoom => "made_room",
            Self::ClientLimit => "client_limit",
            Self::TotalLimit => "total_limit",
            Self::AcceptFailed => "accept_failed",
        }
    }

    /// The final response, for a client that still reads.
    pub(super) fn answer(self) -> Option<&'static [u8]> {
        match self {
            Self::HeaderTimeout | Self::SlowRequest => {
                Some(b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n")
            }
            Self::ClientLimit | Self::TotalLimit => Some(
                b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
            ),
            Self::IdleTimeout | Self::SlowAnswer | Self::MadeRoom | Self::AcceptFailed => None,
        }
    }
}
