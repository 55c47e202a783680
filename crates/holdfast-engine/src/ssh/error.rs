//! Why a connection or a command failed.

use holdfast_core::failure::FailureCode;

use crate::egress::Refused;
use crate::error::EngineError;

#[derive(Debug, Clone, thiserror::Error)]
pub enum SshError {
    #[error("cannot connect: {0}")]
    Connect(String),
    /// Any failure before the server presented its key. They all share one message: users who can have addresses
    /// checked must not learn which ports are open, closed or filtered. The reason is in the service's own log.
    #[error("cannot connect to the server: no SSH server answers at this address and port")]
    Unreachable,
    #[error("{0}")]
    Forbidden(Refused),
    #[error("cannot resolve the host name: {0}")]
    Dns(String),
    #[error("the server did not answer in time")]
    Timeout,
    #[error("the server shows a host key that is not the expected one: {offered}")]
    HostKeyChanged { offered: String, is_jump: bool },
    /// What the server refused: the key or the password.
    #[error("the server refused the {0}")]
    Auth(&'static str),
    #[error("the connection was lost: {0}")]
    Lost(String),
    #[error("SSH protocol error: {0}")]
    Protocol(String),
    #[error("the server refused to run the command")]
    ExecRefused,
}

impl SshError {
    /// Hides the details of a failure to connect that users must not see. `is_ssh` says whether the server has proved
    /// to be an SSH server, for example by presenting a key.
    pub(super) fn told(self, (host, port): (&str, u16), is_ssh: bool) -> Self {
        match self {
            Self::Connect(_) | Self::Timeout => {}
            Self::Lost(_) | Self::Protocol(_) if !is_ssh => {}
            other => return other,
        }
        tracing::info!(host, port, reason = %self, "cannot connect to a server");
        Self::Unreachable
    }

    pub(super) fn of_jump(self) -> Self {
        match self {
            Self::HostKeyChanged { offered, .. } => Self::HostKeyChanged { offered, is_jump: true },
            other => other,
        }
    }
}

impl From<SshError> for EngineError {
    fn from(error: SshError) -> Self {
        let code = match &error {
            // The code for forbidden addresses is reserved for destinations.
            SshError::Connect(_) | SshError::Unreachable | SshError::Forbidden(_) => FailureCode::Connect,
            SshError::Dns(_) => FailureCode::Dns,
            SshError::Timeout => FailureCode::Timeout,
            SshError::HostKeyChanged { .. } => FailureCode::HostKeyChanged,
            SshError::Auth(_) => FailureCode::Auth,
            SshError::Lost(_) => FailureCode::Lost,
            SshError::Protocol(_) | SshError::ExecRefused => FailureCode::RemoteFailed,
        };
        let text = error.to_string();
        let mut letters = text.chars();
        let first = letters.next().into_iter().flat_map(char::to_uppercase);
        Self::new(code, format!("{}{}.", first.collect::<String>(), letters.as_str()))
    }
}
