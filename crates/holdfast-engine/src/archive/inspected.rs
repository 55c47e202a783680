//! The result of inspecting a whole stream.

#[derive(Debug, Clone, Default)]
pub(crate) struct Inspected {
    /// The number of files, folders and links; of a dump, its tables and the definitions that follow them as data.
    pub entries: u64,
    /// Remarks for the log.
    pub notes: Vec<String>,
    /// Warnings for the log.
    pub warnings: Vec<String>,
}
