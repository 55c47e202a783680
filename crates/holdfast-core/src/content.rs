//! What is inside a backup, and so how it is opened.

use crate::database::DatabaseEngine;
use crate::source::TaskKind;

/// The form of a backup's plain stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// A tar archive.
    Files,
    /// One PostgreSQL database in `pg_dump`'s custom format.
    PostgresDatabase,
    /// All PostgreSQL databases and roles, as SQL of `pg_dumpall`: the form of the first release.
    PostgresServerSql,
    /// All PostgreSQL databases, each in `pg_dump`'s custom format, and the roles as data, in a tar archive.
    PostgresServer,
    /// One MySQL or MariaDB database, as SQL.
    MysqlDatabase,
    /// All MySQL or MariaDB databases, as one dump in SQL: the form of the first release.
    MysqlServerSql,
    /// All MySQL or MariaDB databases, each as a dump in SQL, in a tar archive.
    MysqlServer,
    /// An SQLite database, as its own tool copies it.
    SqliteDatabase,
}

/// How much of a server is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    Files,
    Database(DatabaseEngine),
    /// Every database of a server, each with a dump of its own, so that one can be restored by itself.
    Server(DatabaseEngine),
    /// Every database of a server in one dump, which goes back as a whole.
    ServerAsOne(DatabaseEngine),
}

struct Facts {
    /// How it is stored.
    word: &'static str,
    coverage: Coverage,
    /// What the plain stream is called by tools that open it.
    extension: &'static str,
    /// What tells sources apart. Another form of the same databases is no other source.
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

    /// What a backup of one database, or of all of a server, is made as.
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

    /// The word for it in the key of a source.
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

    /// Goes back to a path on a server: files, and databases that are files.
    pub fn goes_to_path(self) -> bool {
        self.database_engine().is_none_or(DatabaseEngine::is_file)
    }

    /// Holds every database of a server rather than one.
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
