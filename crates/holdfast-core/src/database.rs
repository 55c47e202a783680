//! Database engines.

string_enum! {
    DatabaseEngine { Mysql = "mysql", Postgresql = "postgresql", Sqlite = "sqlite" }
}

impl DatabaseEngine {
    /// Whether a database of this engine is a single file without a database server. Tasks and restores then specify
    /// its path.
    pub fn is_file(self) -> bool {
        match self {
            Self::Mysql | Self::Postgresql => false,
            Self::Sqlite => true,
        }
    }

    /// The product name, for display.
    pub fn human(self) -> &'static str {
        match self {
            Self::Mysql => "MySQL, MariaDB",
            Self::Postgresql => "PostgreSQL",
            Self::Sqlite => "SQLite",
        }
    }
}
