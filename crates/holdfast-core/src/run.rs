//! Runs: one execution of a backup, or of a check that was asked for.

words! {
    /// Where a run is. The last three are ends; a run that reached one never leaves it.
    RunStatus {
        Queued = "queued",
        Running = "running",
        Successful = "successful",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

words! {
    /// What a run does. Only backups belong to a task and are its logs.
    RunKind {
        Backup = "backup",
        CheckServer = "check-server",
        CheckDestination = "check-destination",
        TestStream = "test-stream",
    }
}

words! {
    /// Who asked for a run.
    Trigger { Schedule = "schedule", Manual = "manual", Webhook = "webhook", CatchUp = "catch-up" }
}

words! {
    /// What a task does at the moment. Paused is told by its own field.
    TaskStatus { Ready = "ready", Running = "running" }
}

/// Why a run failed, as a word that programs can rely on.
pub mod error_code {
    /// The run asks for something this build cannot do.
    pub const NOT_SUPPORTED: &str = "not_supported";
    /// The worker that had the run went away.
    pub const WORKER_LOST: &str = "worker_lost";
}

/// Text from a run as it may be stored: control characters out, so that a log line stays one line.
pub fn clean_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back() {
        for status in RunStatus::ALL {
            assert_eq!(RunStatus::parse(status.as_str()), Some(*status));
        }
        assert_eq!(RunStatus::parse("done"), None);
    }

    #[test]
    fn log_lines_cannot_forge_further_lines() {
        assert_eq!(clean_line("a\nb\u{1b}[31m"), "a\u{fffd}b\u{fffd}[31m");
    }
}
