//! Kinds of databases.

string_enum! {
    DatabaseEngine { Mysql = "mysql", Postgresql = "postgresql", Sqlite = "sqlite" }
}

impl DatabaseEngine {
    /// A database of this engine is a single file without a database server: tasks and restores give its path.
    pub fn is_file(self) -> bool {
        match self {
            Self::Mysql | Self::Postgresql => false,
            Self::Sqlite => true,
        }
    }

    /// The product's name, for people.
    pub fn human(self) -> &'static str {
        match self {
            Self::Mysql => "MySQL, MariaDB",
            Self::Postgresql => "PostgreSQL",
            Self::Sqlite => "SQLite",
        }
    }
}
