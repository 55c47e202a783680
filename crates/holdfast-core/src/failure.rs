//! Why runs fail: a code, where its cause is, whether trying again can help, and advice.

string_enum! {
    /// Why a run failed, as a word that programs can rely on.
    FailureCode {
        // Connecting to the server.
        Connect = "connect",
        Dns = "dns",
        Timeout = "timeout",
        HostKeyChanged = "host_key_changed",
        Auth = "auth",
        Lost = "lost",
        Stalled = "stalled",
        // On the server.
        SourceMissing = "source_missing",
        SourceUnreadable = "source_unreadable",
        ToolMissing = "tool_missing",
        DatabaseAuth = "database_auth",
        DatabaseMissing = "database_missing",
        DatabaseUnreachable = "database_unreachable",
        EngineUnclear = "engine_unclear",
        RemoteFailed = "remote_failed",
        Incomplete = "incomplete",
        TargetNotEmpty = "target_not_empty",
        TargetUnwritable = "target_unwritable",
        TargetFull = "target_full",
        RolesMissing = "roles_missing",
        // At the destination.
        DestinationUnavailable = "destination_unavailable",
        DestinationDenied = "destination_denied",
        DestinationKeyChanged = "destination_key_changed",
        BucketMissing = "bucket_missing",
        ClockSkew = "clock_skew",
        DestinationFull = "destination_full",
        DestinationReadOnly = "destination_read_only",
        DestinationUnmounted = "destination_unmounted",
        DestinationFailed = "destination_failed",
        ForbiddenAddress = "forbidden_address",
        TooLarge = "too_large",
        Locked = "locked",
        // In a stored backup.
        Missing = "missing",
        Corrupt = "corrupt",
        WrongPassword = "wrong_password",
        HostileArchive = "hostile_archive",
        EntryMissing = "entry_missing",
        // Delivering notices.
        NotDelivered = "not_delivered",
        // Of the service itself.
        Cancelled = "cancelled",
        WorkerLost = "worker_lost",
        DatabaseAway = "database_away",
        Missed = "missed",
        Skipped = "skipped",
        WindowClosed = "window_closed",
        KeyMissing = "key_missing",
        NotSupported = "not_supported",
        Internal = "internal",
    }
}

/// Where the cause of a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The server could not be reached, or refused the login.
    Connection,
    /// The server, or what is on it: the source, the target, a tool or a database.
    Server,
    /// A transfer that broke off or was too slow. The code alone does not tell whether the server or the destination
    /// was at its other end.
    Transfer,
    /// The destination, not what is stored there.
    Destination,
    /// The stored backup: it is gone or cannot be read.
    Backup,
    /// What was backed up. The stored backup is as it was written.
    Content,
    /// What was asked for.
    Request,
    /// The channel that notices are delivered through.
    Channel,
    /// The service, a decision that it was given, or another program that is in its way.
    Service,
}

impl FailureCode {
    /// Where the cause is.
    pub fn blames(self) -> Blame {
        match self {
            Self::Connect | Self::Dns | Self::Timeout | Self::HostKeyChanged | Self::Auth => Blame::Connection,
            Self::Lost | Self::Stalled => Blame::Transfer,
            Self::SourceMissing
            | Self::SourceUnreadable
            | Self::ToolMissing
            | Self::DatabaseAuth
            | Self::DatabaseMissing
            | Self::DatabaseUnreachable
            | Self::EngineUnclear
            | Self::RemoteFailed
            | Self::Incomplete
            | Self::TargetNotEmpty
            | Self::TargetUnwritable
            | Self::TargetFull
            | Self::RolesMissing
            | Self::TooLarge => Blame::Server,
            // The last two can have their cause here, but it is the destination that cannot be used.
            Self::DestinationUnavailable
            | Self::DestinationDenied
            | Self::DestinationKeyChanged
            | Self::BucketMissing
            | Self::DestinationFull
            | Self::DestinationReadOnly
            | Self::DestinationUnmounted
            | Self::DestinationFailed
            | Self::ForbiddenAddress
            | Self::ClockSkew => Blame::Destination,
            Self::Missing | Self::Corrupt | Self::WrongPassword => Blame::Backup,
            Self::HostileArchive => Blame::Content,
            Self::EntryMissing => Blame::Request,
            Self::NotDelivered => Blame::Channel,
            Self::Cancelled
            | Self::WorkerLost
            | Self::DatabaseAway
            | Self::Missed
            | Self::Skipped
            | Self::WindowClosed
            | Self::KeyMissing
            | Self::NotSupported
            | Self::Locked
            | Self::Internal => Blame::Service,
        }
    }

    /// Whether trying again a little later can help.
    pub fn can_retry(self) -> bool {
        match self {
            Self::Connect
            | Self::Timeout
            | Self::Lost
            | Self::Stalled
            | Self::DestinationUnavailable
            | Self::Locked
            | Self::WorkerLost
            | Self::DatabaseAway
            | Self::KeyMissing => true,
            Self::Dns
            | Self::HostKeyChanged
            | Self::Auth
            | Self::SourceMissing
            | Self::SourceUnreadable
            | Self::ToolMissing
            | Self::DatabaseAuth
            | Self::DatabaseMissing
            | Self::DatabaseUnreachable
            | Self::EngineUnclear
            | Self::RemoteFailed
            | Self::Incomplete
            | Self::TargetNotEmpty
            | Self::TargetUnwritable
            | Self::TargetFull
            | Self::RolesMissing
            | Self::DestinationDenied
            | Self::DestinationKeyChanged
            | Self::BucketMissing
            | Self::ClockSkew
            | Self::DestinationFull
            | Self::DestinationReadOnly
            | Self::DestinationUnmounted
            | Self::DestinationFailed
            | Self::ForbiddenAddress
            | Self::TooLarge
            | Self::Missing
            | Self::Corrupt
            | Self::WrongPassword
            | Self::HostileArchive
            | Self::EntryMissing
            | Self::NotDelivered
            | Self::Cancelled
            | Self::Missed
            | Self::Skipped
            | Self::WindowClosed
            | Self::NotSupported
            | Self::Internal => false,
        }
    }

    /// What the user can do about it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Connect => {
                "Check that the server runs, that host and port are right, and that no firewall is in between."
            }
            Self::Dns => "Check the spelling of the host name.",
            Self::Timeout => "The server did not answer in time. Check that it runs and can be reached from here.",
            Self::HostKeyChanged => {
                "The server shows another host key than before. If you know why, accept the new key; if not, somebody may be intercepting the connection."
            }
            Self::Auth => {
                "Install your public SSH key on the server for this user; GET /api/ssh-key shows the command."
            }
            Self::Lost => "The connection broke; check the network if that happens again.",
            Self::Stalled => {
                "Hardly any data arrived for too long. Check the load of the server or destination, and the network."
            }
            Self::SourceMissing => "Check the source path of the task.",
            Self::SourceUnreadable => "Give the SSH user permission to read these files, or exclude them.",
            Self::ToolMissing => {
                "Install the tool on the server, and make sure that it is in the PATH of a non-interactive shell."
            }
            Self::DatabaseAuth => "Check database user and password of the remote server.",
            Self::DatabaseMissing => "Check the database name.",
            Self::DatabaseUnreachable => "Check that the database server runs on the remote server.",
            Self::EngineUnclear => "Set database_engine on the task to the engine to use.",
            Self::RemoteFailed => "The log shows what the server said.",
            Self::Incomplete => "The data was incomplete, so nothing was stored. The log shows what the server said.",
            Self::TargetNotEmpty => "Choose an empty database or another path, or restore with overwrite.",
            Self::TargetUnwritable => "Give the SSH user permission to write there, or choose another path.",
            Self::RolesMissing => "Create these roles on the server, or restore without owners (no_owner).",
            Self::TargetFull => {
                "Free some space on the server and restore again, with overwrite if files were written already."
            }
            Self::DestinationUnavailable => {
                "The destination did not answer properly. Check its address, or try again later."
            }
            Self::DestinationDenied => "Check the destination's user, keys or password, and what they may do.",
            Self::DestinationKeyChanged => {
                "The destination's server shows another host key than the trusted one. If you know why, enter its fingerprint in the destination's settings; if not, somebody may be intercepting the connection."
            }
            Self::BucketMissing => "Check the bucket's name and region.",
            Self::ClockSkew => "Correct the clock of this machine.",
            Self::DestinationFull => "Free some space, or keep fewer backups.",
            Self::DestinationReadOnly => {
                "The destination cannot be written to. Check how it is mounted and its permissions."
            }
            Self::DestinationUnmounted => {
                "This is not the folder that was used before. If it is on a disk or a share, mount it again; otherwise correct the destination's settings."
            }
            Self::DestinationFailed => "The log shows what the destination said.",
            Self::ForbiddenAddress => {
                "The operator decides which addresses may be reached, with HOLDFAST_EGRESS_ALLOW."
            }
            Self::TooLarge => "Split the source into several tasks.",
            Self::Locked => {
                "Another program uses the repository. Wait until it has ended; if it no longer runs, remove its lock with `restic unlock`."
            }
            Self::Missing => "The object is gone from the destination. Run the task again to have a backup.",
            Self::Corrupt => "Do not rely on this backup. Run the task again, and look into the destination's health.",
            Self::WrongPassword => "Use the password that was set when this backup was made.",
            Self::HostileArchive => "The backup contains something that could harm the server. Inspect it manually.",
            Self::EntryMissing => "Check the entry's path; GET /api/backups/{id}/entries lists them.",
            Self::NotDelivered => "Check the value of the notification stream, and what the channel answered.",
            Self::Cancelled => "The run was cancelled.",
            Self::WorkerLost => "The worker that executed this run stopped.",
            Self::DatabaseAway => {
                "The database of Holdfast itself did not answer during the run. `holdfast doctor` says what is wrong with it."
            }
            Self::Missed => "See why the service was not running at that time.",
            Self::Skipped => "Let the task run less often if this keeps happening.",
            Self::WindowClosed => "Make the window longer, or give the workers more room, if this keeps happening.",
            Self::KeyMissing => {
                "Ask the operator to restore Holdfast's master key; `holdfast doctor` says where it is expected."
            }
            Self::NotSupported => "Holdfast does not support that.",
            Self::Internal => "This is a bug in Holdfast. See its log for details.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_that_is_retried_is_not_the_fault_of_what_is_stored_or_asked_for() {
        for code in FailureCode::ALL {
            let is_lasting = matches!(code.blames(), Blame::Backup | Blame::Content | Blame::Request | Blame::Channel);
            assert!(!(is_lasting && code.can_retry()), "{code:?}");
            let is_named_for_it = code.as_str().starts_with("destination_");
            assert!(!is_named_for_it || code.blames() == Blame::Destination, "{code:?}");
        }
    }
}
