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

    /// Whether a server can have several databases, told apart by their names. A backup of an engine without names is
    /// that of a file or of a whole server.
    pub fn has_names(self) -> bool {
        match self {
            Self::Mysql | Self::Postgresql => true,
            Self::Sqlite => false,
        }
    }

    /// Whether a backup can leave out tables.
    pub fn has_tables(self) -> bool {
        match self {
            Self::Mysql | Self::Postgresql => true,
            Self::Sqlite => false,
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
