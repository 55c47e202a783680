//! What can go wrong with the database, sorted by what the caller can do about it.

/// `Unavailable` goes away by itself and becomes a 503; `Conflict` is a unique value that is taken; `InUse` a row that
/// others point to; `NotText` is a text that PostgreSQL cannot hold, for which the sender is to blame; `Broken` is our own
/// mistake or a damaged database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the database is not available: {0}")]
    Unavailable(String),
    #[error("that value is taken")]
    Conflict,
    #[error("other rows refer to this one")]
    InUse,
    #[error("a text holds a character that cannot be stored")]
    NotText,
    #[error("a sealed value does not open: {0}")]
    Sealed(String),
    #[error("database error: {0}")]
    Broken(String),
}

/// Why the store could not be opened. Each is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("{0}")]
    MasterKey(String),
    #[error("{0}")]
    Database(String),
    #[error(
        "the database was written by a newer Holdfast (migration {found} is unknown here); start that version, or \
         restore the database from before the upgrade"
    )]
    NewerDatabase { found: i64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        match &error {
            E::Database(database) => match database.kind() {
                sqlx::error::ErrorKind::UniqueViolation => Self::Conflict,
                sqlx::error::ErrorKind::ForeignKeyViolation => Self::InUse,
                _ if is_not_text(database.code().as_deref()) => Self::NotText,
                _ if is_passing(database.code().as_deref()) => Self::Unavailable(database.message().to_owned()),
                _ => Self::Broken(database.message().to_owned()),
            },
            E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::PoolClosed | E::WorkerCrashed | E::Protocol(_) => {
                Self::Unavailable(error.to_string())
            }
            _ => Self::Broken(error.to_string()),
        }
    }
}

/// PostgreSQL holds no zero characters in texts. Names are checked long before; what people search for and what else is
/// only compared comes here as it was sent.
fn is_not_text(code: Option<&str>) -> bool {
    matches!(code, Some("22021" | "22P05"))
}

/// SQLite: busy, locked, read-only, I/O error, full, cannot open (with their extended codes, whose low byte is the
/// plain one). PostgreSQL: connection, transaction rollback, resources, operator intervention, a lock not had in time.
fn is_passing(code: Option<&str>) -> bool {
    let Some(code) = code else { return false };
    if code.len() == 5 {
        return code == "55P03" || ["08", "40", "53", "57"].iter().any(|class| code.starts_with(class));
    }
    code.parse::<u32>().is_ok_and(|number| matches!(number & 0xff, 5 | 6 | 8 | 10 | 13 | 14))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passing_troubles_are_told_from_mistakes() {
        for code in ["5", "517", "13", "10", "57P01", "08006", "40P01", "53100", "55P03"] {
            assert!(is_passing(Some(code)), "{code}");
        }
        for code in ["1", "19", "42601", "23505", "22021"] {
            assert!(!is_passing(Some(code)), "{code}");
        }
    }
}
