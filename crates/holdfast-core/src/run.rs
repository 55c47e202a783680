//! Runs: one execution of a backup, or of a check that was asked for.

use crate::limits;

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

/// Text from elsewhere as it may be stored: control characters out, so that a line stays one line, and no longer than
/// a line may be.
pub fn stored_line(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c });
    clean.take(limits::LINE_CHARS).collect()
}

/// The lines of a run as one text. Beyond the limit its beginning and its end are kept: how it started and how it
/// went.
pub fn join_output<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let text = lines.into_iter().collect::<Vec<_>>().join("\n");
    if text.len() <= limits::OUTPUT_BYTES {
        return text;
    }
    let head = text.floor_char_boundary(limits::OUTPUT_BYTES / 2);
    let tail = text.ceil_char_boundary(text.len() - limits::OUTPUT_BYTES / 2);
    format!("{}\n[{} bytes left out]\n{}", &text[..head], tail - head, &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        assert_eq!(join_output(["a", "b"]), "a\nb");
        let middle = "ä".repeat(limits::OUTPUT_BYTES);
        let joined = join_output(["first", &middle, "last"]);
        assert!(joined.starts_with("first") && joined.ends_with("last") && joined.contains("bytes left out"));
        assert!(joined.len() < limits::OUTPUT_BYTES + 100);
    }

    #[test]
    fn words_read_back() {
        for status in RunStatus::ALL {
            assert_eq!(RunStatus::parse(status.as_str()), Some(*status));
        }
        assert_eq!(RunStatus::parse("done"), None);
    }

    #[test]
    fn log_lines_cannot_forge_further_lines() {
        assert_eq!(stored_line("a\nb\u{1b}[31m"), "a\u{fffd}b\u{fffd}[31m");
    }
}
