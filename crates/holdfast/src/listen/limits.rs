//! How many connections there may be, how long a client may keep us waiting, and why a connection is closed.

use std::time::Duration;

use holdfast_core::network::Network;
use holdfast_core::rate::LeastRate;

/// How many connections there may be and how long a client may keep us waiting; each can be set by the operator.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once.
    pub total: usize,
    /// Connections at once of one client, as `ClientKey` has it.
    pub per_client: usize,
    /// From the first byte of a request, or from the connection's start, to the end of the headers.
    pub headers: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// Of a body on its way here, or an answer on its way there.
    pub least_rate: LeastRate,
    /// Whole crowds come from these addresses, so `per_client` does not count for them.
    pub proxies: Vec<Network>,
}

/// However few files the system allows, somebody must be able to connect.
pub(super) const LEAST_CONNECTIONS: usize = 16;

pub const OPEN: &str = "holdfast_connections_open";
pub const CLOSED: &str = "holdfast_connections_closed_total";

/// Why a connection was ended by us, or not even begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    HeaderTimeout,
    IdleTimeout,
    SlowRequest,
    SlowAnswer,
    /// Made room for a newer connection while it kept us waiting.
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

    /// What a client that still listens is told.
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
