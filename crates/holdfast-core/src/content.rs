//! What a backup contains, and therefore how it is read.

use crate::database::DatabaseEngine;
use crate::source::TaskKind;

/// The format of a backup's plain stream, before compression and encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A tar archive.
    Files,
    /// One PostgreSQL database in `pg_dump`'s custom format.
    PostgresDatabase,
    /// All PostgreSQL databases and roles, as SQL from `pg_dumpall`: the format of the first release.
    PostgresServerSql,
    /// All PostgreSQL databases, each in `pg_dump`'s custom format, and the roles as data, in a tar archive.
    PostgresServer,
    /// One MySQL or MariaDB database, as SQL.
    MysqlDatabase,
    /// All MySQL or MariaDB databases, as one SQL dump: the format of the first release.
    MysqlServerSql,
    /// All MySQL or MariaDB databases, each as an SQL dump, in a tar archive.
    MysqlServer,
    /// An SQLite database, as copied by SQLite's own tool.
    SqliteDatabase,
}

/// How much of a server a backup contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    Files,
    Database(DatabaseEngine),
    /// Every database of a server, each in its own dump, so that one can be restored alone.
    Server(DatabaseEngine),
    /// Every database of a server in one dump, which can only be restored as a whole.
    ServerAsOne(DatabaseEngine),
}

struct Facts {
    /// The stored word for the content.
    word: &'static str,
    coverage: Coverage,
    /// The file extension that tools expect for the plain stream.
    extension: &'static str,
    /// The word for the content in a source key. Formats of the same databases share it: they are the same source.
    source: &'static str,
}

impl Content {
    pub const ALL: &'static [Self] = &[
        Self::Files,
        Self::PostgresDatabase,
        Self::PostgresServerSql,
        Self::PostgresServer,
        Self::MysqlDatabase,
        Self::MysqlServerSql,
        Self::MysqlServer,
        Self::SqliteDatabase,
    ];

    fn facts(self) -> Facts {
        use DatabaseEngine::{Mysql, Postgresql, Sqlite};
        let facts = |word, coverage, extension, source| Facts { word, coverage, extension, source };
        match self {
            Self::Files => facts("files", Coverage::Files, "tar", "files"),
            Self::PostgresDatabase => facts("postgresql", Coverage::Database(Postgresql), "dump", "postgresql"),
            Self::PostgresServerSql => {
                facts("postgresql-all", Coverage::ServerAsOne(Postgresql), "sql", "postgresql-all")
            }
            Self::PostgresServer => facts("postgresql-server", Coverage::Server(Postgresql), "tar", "postgresql-all"),
            Self::MysqlDatabase => facts("mysql", Coverage::Database(Mysql), "sql", "mysql"),
            Self::MysqlServerSql => facts("mysql-all", Coverage::ServerAsOne(Mysql), "sql", "mysql-all"),
            Self::MysqlServer => facts("mysql-server", Coverage::Server(Mysql), "tar", "mysql-all"),
            Self::SqliteDatabase => facts("sqlite", Coverage::Database(Sqlite), "sqlite3", "sqlite"),
        }
    }

    /// The content of a new backup of one database, or of all databases of a server.
    pub fn of_database(engine: DatabaseEngine, has_name: bool) -> Self {
        match (engine, has_name) {
            (DatabaseEngine::Postgresql, true) => Self::PostgresDatabase,
            (DatabaseEngine::Postgresql, false) => Self::PostgresServer,
            (DatabaseEngine::Mysql, true) => Self::MysqlDatabase,
            (DatabaseEngine::Mysql, false) => Self::MysqlServer,
            (DatabaseEngine::Sqlite, _) => Self::SqliteDatabase,
        }
    }

    pub fn as_str(self) -> &'static str {
        self.facts().word
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|content| content.as_str() == text)
    }

    pub fn coverage(self) -> Coverage {
        self.facts().coverage
    }

    pub fn extension(self) -> &'static str {
        self.facts().extension
    }

    /// The word for the content in a source key.
    pub(crate) fn source_word(self) -> &'static str {
        self.facts().source
    }

    pub fn kind(self) -> TaskKind {
        match self.coverage() {
            Coverage::Files => TaskKind::Files,
            Coverage::Database(_) | Coverage::Server(_) | Coverage::ServerAsOne(_) => TaskKind::Database,
        }
    }

    pub fn database_engine(self) -> Option<DatabaseEngine> {
        match self.coverage() {
            Coverage::Files => None,
            Coverage::Database(engine) | Coverage::Server(engine) | Coverage::ServerAsOne(engine) => Some(engine),
        }
    }

    /// Whether it is restored to a path on a server: files, and databases that are files.
    pub fn goes_to_path(self) -> bool {
        self.database_engine().is_none_or(DatabaseEngine::is_file)
    }

    /// Whether it holds every database of a server rather than one.
    pub fn is_whole_server(self) -> bool {
        matches!(self.coverage(), Coverage::Server(_) | Coverage::ServerAsOne(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_back() {
        for content in Content::ALL {
            assert_eq!(Content::parse(content.as_str()), Some(*content));
        }
        assert_eq!(Content::parse("tar"), None);
    }
}
