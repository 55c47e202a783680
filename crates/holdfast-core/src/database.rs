//! Kinds of databases.

string_enum! {
    DatabaseEngine { Mysql = "mysql", Postgresql = "postgresql", Sqlite = "sqlite" }
}

impl DatabaseEngine {
    /// A database of this engine is a file, which no server stands before: tasks name its path, and restores write to
    /// one.
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
