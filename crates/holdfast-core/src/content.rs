//! What a backup contains, and therefore how it is read.

use crate::database::DatabaseEngine;
use crate::source::TaskKind;

string_enum! {
    /// The format of a backup's plain stream, before compression and encryption.
    Content {
        /// A tar archive.
        Files = "files",
        /// One PostgreSQL database in `pg_dump`'s custom format.
        PostgresDatabase = "postgresql",
        /// All PostgreSQL databases and roles, as SQL from `pg_dumpall`: the format of the first release.
        PostgresServerSql = "postgresql-all",
        /// All PostgreSQL databases, each in `pg_dump`'s custom format, and the roles as data, in a tar archive.
        PostgresServer = "postgresql-server",
        /// One MySQL or MariaDB database, as SQL.
        MysqlDatabase = "mysql",
        /// All MySQL or MariaDB databases, as one SQL dump: the format of the first release.
        MysqlServerSql = "mysql-all",
        /// All MySQL or MariaDB databases, each as an SQL dump, in a tar archive.
        MysqlServer = "mysql-server",
        /// An SQLite database, as copied by SQLite's own tool.
        SqliteDatabase = "sqlite",
    }
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
    coverage: Coverage,
    /// The file extension that tools expect for the plain stream.
    extension: &'static str,
    /// The word for the content in a source key. Formats of the same databases share it: they are the same source.
    source: &'static str,
}

impl Content {
    fn facts(self) -> Facts {
        use DatabaseEngine::{Mysql, Postgresql, Sqlite};
        let facts = |coverage, extension, source| Facts { coverage, extension, source };
        match self {
            Self::Files => facts(Coverage::Files, "tar", "files"),
            Self::PostgresDatabase => facts(Coverage::Database(Postgresql), "dump", "postgresql"),
            Self::PostgresServerSql => facts(Coverage::ServerAsOne(Postgresql), "sql", "postgresql-all"),
            Self::PostgresServer => facts(Coverage::Server(Postgresql), "tar", "postgresql-all"),
            Self::MysqlDatabase => facts(Coverage::Database(Mysql), "sql", "mysql"),
            Self::MysqlServerSql => facts(Coverage::ServerAsOne(Mysql), "sql", "mysql-all"),
            Self::MysqlServer => facts(Coverage::Server(Mysql), "tar", "mysql-all"),
            Self::SqliteDatabase => facts(Coverage::Database(Sqlite), "sqlite3", "sqlite"),
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
    fn a_new_backup_of_every_engine_has_a_content_of_that_engine() {
        for engine in DatabaseEngine::ALL {
            for has_name in [true, false] {
                let content = Content::of_database(*engine, has_name);
                assert_eq!(content.database_engine(), Some(*engine));
                let is_one = engine.is_file() || (has_name && engine.has_names());
                assert_eq!(content.is_whole_server(), !is_one, "{content:?}");
            }
        }
    }
}
