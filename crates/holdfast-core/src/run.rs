//! Runs: each executes a backup, a restore, a verification, a check, a test or the like once.

use crate::failure::FailureCode;
use crate::ids::{BackupId, DestinationId, RepositoryId, ServerId, StreamId, TaskId};
use crate::limits;

string_enum! {
    /// The state of a run. The last three are final.
    RunStatus {
        Queued = "queued",
        Running = "running",
        Successful = "successful",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

string_enum! {
    /// What a run does. Only backup runs belong to a task and appear as its logs.
    RunKind {
        Backup = "backup",
        CheckServer = "check-server",
        CheckDestination = "check-destination",
        TestStream = "test-stream",
        Restore = "restore",
        Verify = "verify",
        /// Looks at a server while a task is being set up.
        Probe = "probe",
        /// Checks whether everything on record is at a destination.
        Inventory = "inventory",
        /// Removes from a repository what no snapshot needs.
        Prune = "prune",
        /// Checks the structure of a repository, and reads a share of its packs.
        CheckRepository = "check-repository",
    }
}

impl RunKind {
    /// Whether it restores or verifies a stored backup.
    pub fn reads_stored_backup(self) -> bool {
        match self {
            Self::Restore | Self::Verify => true,
            Self::Backup
            | Self::CheckServer
            | Self::CheckDestination
            | Self::TestStream
            | Self::Probe
            | Self::Inventory
            | Self::Prune
            | Self::CheckRepository => false,
        }
    }

    /// Whether it looks after a repository.
    pub fn is_of_repository(self) -> bool {
        match self {
            Self::Prune | Self::CheckRepository => true,
            Self::Backup
            | Self::CheckServer
            | Self::CheckDestination
            | Self::TestStream
            | Self::Restore
            | Self::Verify
            | Self::Probe
            | Self::Inventory => false,
        }
    }

    /// Whether it copies or reads data and may take hours. The other kinds take seconds and have their own places.
    pub fn is_long(self) -> bool {
        match self {
            Self::Backup | Self::Restore | Self::Verify | Self::Inventory | Self::Prune | Self::CheckRepository => true,
            Self::CheckServer | Self::CheckDestination | Self::TestStream | Self::Probe => false,
        }
    }
}

impl RunStatus {
    /// The state of a run that has ended: with this failure, or with none.
    pub fn ended(failure: Option<FailureCode>) -> Self {
        match failure {
            None => Self::Successful,
            Some(FailureCode::Cancelled | FailureCode::WindowClosed) => Self::Cancelled,
            Some(_) => Self::Failed,
        }
    }

    /// Whether it waits for a worker or has one.
    pub fn is_live(self) -> bool {
        match self {
            Self::Queued | Self::Running => true,
            Self::Successful | Self::Failed | Self::Cancelled => false,
        }
    }
}

/// What a run works on; this also determines its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunSubject {
    Backup(TaskId),
    CheckServer(ServerId),
    CheckDestination(DestinationId),
    TestStream(StreamId),
    Restore(BackupId),
    Verify(BackupId),
    Probe(ServerId),
    Inventory(DestinationId),
    Prune(RepositoryId),
    CheckRepository(RepositoryId),
}

/// The ids of what a run can work on; each kind of run uses one of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunIds {
    pub task: Option<TaskId>,
    pub server: Option<ServerId>,
    pub destination: Option<DestinationId>,
    pub stream: Option<StreamId>,
    pub backup: Option<BackupId>,
    pub repository: Option<RepositoryId>,
}

impl RunSubject {
    /// What a run of this kind works on; `None` if its id is missing.
    pub fn of(kind: RunKind, ids: &RunIds) -> Option<Self> {
        match kind {
            RunKind::Backup => ids.task.map(Self::Backup),
            RunKind::CheckServer => ids.server.map(Self::CheckServer),
            RunKind::CheckDestination => ids.destination.map(Self::CheckDestination),
            RunKind::TestStream => ids.stream.map(Self::TestStream),
            RunKind::Restore => ids.backup.map(Self::Restore),
            RunKind::Verify => ids.backup.map(Self::Verify),
            RunKind::Probe => ids.server.map(Self::Probe),
            RunKind::Inventory => ids.destination.map(Self::Inventory),
            RunKind::Prune => ids.repository.map(Self::Prune),
            RunKind::CheckRepository => ids.repository.map(Self::CheckRepository),
        }
    }

    pub fn ids(self) -> RunIds {
        let none = RunIds::default();
        match self {
            Self::Backup(id) => RunIds { task: Some(id), ..none },
            Self::CheckServer(id) | Self::Probe(id) => RunIds { server: Some(id), ..none },
            Self::CheckDestination(id) | Self::Inventory(id) => RunIds { destination: Some(id), ..none },
            Self::TestStream(id) => RunIds { stream: Some(id), ..none },
            Self::Restore(id) | Self::Verify(id) => RunIds { backup: Some(id), ..none },
            Self::Prune(id) | Self::CheckRepository(id) => RunIds { repository: Some(id), ..none },
        }
    }

    pub fn kind(self) -> RunKind {
        match self {
            Self::Backup(_) => RunKind::Backup,
            Self::CheckServer(_) => RunKind::CheckServer,
            Self::CheckDestination(_) => RunKind::CheckDestination,
            Self::TestStream(_) => RunKind::TestStream,
            Self::Restore(_) => RunKind::Restore,
            Self::Verify(_) => RunKind::Verify,
            Self::Probe(_) => RunKind::Probe,
            Self::Inventory(_) => RunKind::Inventory,
            Self::Prune(_) => RunKind::Prune,
            Self::CheckRepository(_) => RunKind::CheckRepository,
        }
    }

    /// The task of a backup run. Only these runs change what a task does next.
    pub fn task(self) -> Option<TaskId> {
        self.ids().task
    }

    pub fn backup(self) -> Option<BackupId> {
        self.ids().backup
    }

    pub fn server(self) -> Option<ServerId> {
        self.ids().server
    }

    pub fn destination(self) -> Option<DestinationId> {
        self.ids().destination
    }

    pub fn stream(self) -> Option<StreamId> {
        self.ids().stream
    }

    pub fn repository(self) -> Option<RepositoryId> {
        self.ids().repository
    }
}

string_enum! {
    /// What started a run.
    Trigger { Schedule = "schedule", Manual = "manual", Webhook = "webhook", CatchUp = "catch-up" }
}

impl Trigger {
    /// Whether the run waits for the window of its task. What somebody requests starts at once.
    pub fn is_bound_to_window(self) -> bool {
        match self {
            Self::Schedule | Self::CatchUp => true,
            Self::Manual | Self::Webhook => false,
        }
    }
}

string_enum! {
    /// What a task is doing at the moment. Whether it is paused is a field of its own.
    TaskStatus { Ready = "ready", Running = "running" }
}

/// The lines of a run as one text. If it exceeds the limit, its beginning and its end are kept.
pub fn join_output<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let text = lines.into_iter().collect::<Vec<_>>().join("\n");
    if text.len() <= limits::OUTPUT_BYTES {
        return text;
    }
    let head = text.floor_char_boundary(limits::OUTPUT_BYTES / 2);
    let tail = text.ceil_char_boundary(text.len() - limits::OUTPUT_BYTES / 2);
    format!("{}\n[{} bytes omitted]\n{}", &text[..head], tail - head, &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_run_works_on_something() {
        let all = RunIds {
            task: Some(TaskId(1)),
            server: Some(ServerId(2)),
            destination: Some(DestinationId(3)),
            stream: Some(StreamId(4)),
            backup: Some(BackupId(5)),
            repository: Some(RepositoryId(6)),
        };
        for kind in RunKind::ALL {
            let subject = RunSubject::of(*kind, &all).unwrap();
            assert_eq!((subject.kind(), RunSubject::of(*kind, &subject.ids())), (*kind, Some(subject)));
            assert_eq!(subject.backup().is_some(), kind.reads_stored_backup(), "{kind:?}");
            assert_eq!(subject.task().is_some(), *kind == RunKind::Backup, "{kind:?}");
            assert_eq!(RunSubject::of(*kind, &RunIds::default()), None);
        }
    }

    #[test]
    fn long_output_keeps_its_beginning_and_its_end() {
        assert_eq!(join_output(["a", "b"]), "a\nb");
        let middle = "ä".repeat(limits::OUTPUT_BYTES);
        let joined = join_output(["first", &middle, "last"]);
        assert!(joined.starts_with("first") && joined.ends_with("last") && joined.contains("bytes omitted"));
        assert!(joined.len() < limits::OUTPUT_BYTES + 100);
    }

    #[test]
    fn words_read_back() {
        for status in RunStatus::ALL {
            assert_eq!(RunStatus::parse(status.as_str()), Some(*status));
        }
        assert_eq!(RunStatus::parse("done"), None);
    }
}
