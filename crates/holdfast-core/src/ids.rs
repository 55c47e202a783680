//! Identifiers: 64-bit integers, one type per resource, so that a task's id cannot be passed for a server's.

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub i64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }

        impl From<i64> for $name {
            fn from(id: i64) -> Self {
                Self(id)
            }
        }

        impl From<$name> for i64 {
            fn from(id: $name) -> i64 {
                id.0
            }
        }
    )*};
}

ids!(
    UserId,
    TokenId,
    StreamId,
    DestinationId,
    ServerId,
    TagId,
    TaskId,
    RunId,
    BackupId,
    CopyId,
    RepositoryId,
    NoticeId,
    IncidentId,
);
