//! What a whole stream held.

#[derive(Debug, Clone, Default)]
pub(crate) struct Inspected {
    /// Files, folders, links; tables of a dump, and what follows them as data.
    pub entries: u64,
    /// What is worth telling a person.
    pub notes: Vec<String>,
    /// What a person should know about.
    pub warnings: Vec<String>,
}
