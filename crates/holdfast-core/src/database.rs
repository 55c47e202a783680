//! Kinds of databases.

string_enum! {
    DatabaseEngine { Mysql = "mysql", Postgresql = "postgresql" }
}

impl DatabaseEngine {
    /// The product's name, for people.
    pub fn human(self) -> &'static str {
        match self {
            Self::Mysql => "MySQL, MariaDB",
            Self::Postgresql => "PostgreSQL",
        }
    }
}
