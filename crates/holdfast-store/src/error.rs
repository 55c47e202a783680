//! What can go wrong with the database, sorted by what the caller can do about it.

use std::io;

/// `Unavailable` is temporary and becomes a 503, as do `Locked`, `Refused`, `Unreadable`, `DiskFull`, `ReadOnly`,
/// `Damaged` and `Gone`, which an operator can resolve; `Conflict` is a unique value that is taken; `InUse` is a row that
/// others refer to; `NotText` is a text that PostgreSQL cannot store, which is the client's fault; `NoKey` is a
/// master key that is missing or another one, which also becomes a 503; `Sealed` is a secret that cannot be opened; `Broken` is a bug in Holdfast.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("the database is not available: {0}")]
    Unavailable(String),
    #[error("the database is locked by another process: {0}")]
    Locked(String),
    #[error("{}: {text}", .refusal.advice())]
    Refused { refusal: ConnectRefusal, text: String },
    #[error("the database cannot be read or written: {0}")]
    Unreadable(String),
    #[error("the disk of the database is full: {0}")]
    DiskFull(String),
    #[error("the database is read-only: {0}")]
    ReadOnly(String),
    #[error("the database is damaged: {0}")]
    Damaged(String),
    #[error("the database is gone: {0}")]
    Gone(String),
    #[error("the database does not contain an installation: {0}")]
    NoTables(String),
    #[error("that value is taken")]
    Conflict,
    #[error("other rows refer to this one")]
    InUse,
    #[error("a text contains a character that cannot be stored")]
    NotText,
    #[error("the master key cannot be used: {0}")]
    NoKey(String),
    #[error("a sealed value cannot be opened: {0}")]
    Sealed(String),
    #[error("database error: {0}")]
    Broken(String),
}

impl StoreError {
    /// The database itself cannot be used, whatever was asked of it.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Unavailable(_)
            | Self::Locked(_)
            | Self::Refused { .. }
            | Self::Unreadable(_)
            | Self::DiskFull(_)
            | Self::ReadOnly(_)
            | Self::Damaged(_)
            | Self::Gone(_)
            | Self::NoTables(_) => true,
            Self::Conflict | Self::InUse | Self::NotText | Self::NoKey(_) | Self::Sealed(_) | Self::Broken(_) => false,
        }
    }
}

/// Why PostgreSQL answers but accepts no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectRefusal {
    Login,
    NoDatabase,
    TooManyConnections,
    /// It is starting, stopping or recovering.
    NotRunning,
}

impl ConnectRefusal {
    fn of(code: Option<&str>) -> Option<Self> {
        match code? {
            "28000" | "28P01" => Some(Self::Login),
            "3D000" => Some(Self::NoDatabase),
            "53300" => Some(Self::TooManyConnections),
            "57P03" => Some(Self::NotRunning),
            _ => None,
        }
    }

    /// What is wrong, and what to do.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Login => {
                "PostgreSQL does not accept the user or the password of the database URL; correct HOLDFAST_DATABASE_URL"
            }
            Self::NoDatabase => {
                "PostgreSQL does not have the database of the database URL; create it, or correct HOLDFAST_DATABASE_URL"
            }
            Self::TooManyConnections => {
                "PostgreSQL accepts no more connections; raise its limit, or lower HOLDFAST_DATABASE_CONNECTIONS"
            }
            Self::NotRunning => "PostgreSQL is starting, stopping or recovering; wait until it accepts connections",
        }
    }
}

/// Why the store could not be opened. Each message is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    MasterKey(String),
    #[error("{0}")]
    Database(String),
    #[error("{0}")]
    DiskFull(String),
    #[error("{0}")]
    Permission(String),
    #[error(
        "the database was written by a newer Holdfast (migration {found} is unknown here); start that version, or \
         restore the database from before the upgrade"
    )]
    NewerDatabase { found: i64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StartError {
    /// An error with the file of the master key.
    pub(crate) fn of_key_file(error: &io::Error, message: String) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull(message),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Self::Permission(message),
            _ => Self::MasterKey(message),
        }
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        match &error {
            E::Database(database) => match database.kind() {
                sqlx::error::ErrorKind::UniqueViolation => Self::Conflict,
                sqlx::error::ErrorKind::ForeignKeyViolation => Self::InUse,
                _ if is_not_text(database.code().as_deref()) => Self::NotText,
                _ if is_disk_full(database.code().as_deref()) => Self::DiskFull(database.message().to_owned()),
                _ if is_read_only(database.code().as_deref()) => Self::ReadOnly(database.message().to_owned()),
                _ if is_damaged(database.code().as_deref()) => Self::Damaged(database.message().to_owned()),
                _ if is_locked(database.code().as_deref()) => Self::Locked(database.message().to_owned()),
                _ if has_no_tables(database.code().as_deref()) => Self::NoTables(database.message().to_owned()),
                _ if is_unreadable(database.code().as_deref()) => Self::Unreadable(database.message().to_owned()),
                _ => match ConnectRefusal::of(database.code().as_deref()) {
                    Some(refusal) => Self::Refused { refusal, text: database.message().to_owned() },
                    None if is_passing(database.code().as_deref()) => Self::Unavailable(database.message().to_owned()),
                    None => Self::Broken(database.message().to_owned()),
                },
            },
            E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed | E::Protocol(_) => {
                Self::Unavailable(error.to_string())
            }
            _ => Self::Broken(error.to_string()),
        }
    }
}

/// PostgreSQL cannot store NUL characters in texts. Names are validated long before; search texts and other values that
/// are only compared arrive here as they were sent.
fn is_not_text(code: Option<&str>) -> bool {
    matches!(code, Some("22021" | "22P05"))
}

/// The primary code of an SQLite error: extended codes have it in their low byte. PostgreSQL's codes, which have five
/// characters, give `None`.
fn sqlite_code(code: Option<&str>) -> Option<u32> {
    let number = code.filter(|code| code.len() != 5)?.parse::<u32>().ok()?;
    Some(number & 0xff)
}

fn is_disk_full(code: Option<&str>) -> bool {
    sqlite_code(code) == Some(13) || code == Some("53100")
}

fn is_read_only(code: Option<&str>) -> bool {
    sqlite_code(code) == Some(8) || code == Some("25006")
}

/// SQLite: corrupt, not a database. PostgreSQL: damaged data, damaged index, I/O error.
fn is_damaged(code: Option<&str>) -> bool {
    matches!(sqlite_code(code), Some(11 | 26)) || matches!(code, Some("XX001" | "XX002" | "58030"))
}

/// SQLite: I/O error, such as a disk that fails, a file system that became read-only, or an exceeded quota.
fn is_unreadable(code: Option<&str>) -> bool {
    sqlite_code(code) == Some(10)
}

/// PostgreSQL: undefined table, invalid schema name. Our statements name tables of every migration that is there, so another
/// database is in place of ours. SQLite has no code for it, and its file is watched.
fn has_no_tables(code: Option<&str>) -> bool {
    matches!(code, Some("42P01" | "3F000"))
}

/// SQLite: busy, locked.
fn is_locked(code: Option<&str>) -> bool {
    matches!(sqlite_code(code), Some(5 | 6))
}

/// SQLite: cannot open. PostgreSQL: connection, transaction rollback, resources, operator intervention, lock timeout.
fn is_passing(code: Option<&str>) -> bool {
    if let Some(number) = sqlite_code(code) {
        return number == 14;
    }
    let classes = ["08", "40", "53", "57"];
    code.is_some_and(|code| code == "55P03" || classes.iter().any(|class| code.starts_with(class)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_errors_are_distinguished_from_bugs() {
        assert!(["5", "517", "6"].iter().all(|code| is_locked(Some(code)) && !is_passing(Some(code))));
        for code in ["14", "57P01", "08006", "40P01", "53300", "55P03"] {
            assert!(is_passing(Some(code)), "{code}");
        }
        for code in ["1", "10", "778", "19", "42601", "23505", "22021"] {
            assert!(!is_passing(Some(code)), "{code}");
        }
        assert!(["13", "53100"].iter().all(|code| is_disk_full(Some(code))));
        assert!(["8", "1032", "25006"].iter().all(|code| is_read_only(Some(code))));
        assert!(["11", "267", "26", "XX001", "58030"].iter().all(|code| is_damaged(Some(code))));
        assert!(["1", "10", "42601", "53100"].iter().all(|code| !is_damaged(Some(code))));
        assert!(["10", "778", "2570"].iter().all(|code| is_unreadable(Some(code))));
        assert!(["1", "13", "53300"].iter().all(|code| !is_unreadable(Some(code))));
        assert!(["42P01", "3F000"].iter().all(|code| has_no_tables(Some(code))));
        assert!(["1", "42601", "42703"].iter().all(|code| !has_no_tables(Some(code))));
        assert!(["1", "53300", "42501"].iter().all(|code| !is_disk_full(Some(code)) && !is_read_only(Some(code))));
    }

    #[test]
    fn what_postgresql_refuses_a_connection_for_is_named() {
        use ConnectRefusal as R;
        let expected = [("28P01", R::Login), ("28000", R::Login), ("3D000", R::NoDatabase)];
        let expected = expected.into_iter().chain([("53300", R::TooManyConnections), ("57P03", R::NotRunning)]);
        for (code, refusal) in expected {
            assert_eq!(ConnectRefusal::of(Some(code)), Some(refusal));
        }
        assert!(["57P01", "14", "08006"].iter().all(|code| ConnectRefusal::of(Some(code)).is_none()));
    }
}
