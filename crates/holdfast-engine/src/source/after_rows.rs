//! What follows the rows of a MySQL or MariaDB database in a backup.

use holdfast_core::backup::name_text;

use super::mysql_definitions::Asking;
use super::mysql_tables::Found;
use crate::error::Result;
use crate::mysql::definitions::section;

/// What follows the rows of a database, which is asked for when they have been read.
pub(super) struct AfterRows<'a> {
    pub asking: Asking<'a>,
    pub name: &'a str,
    pub found: &'a Found,
}

impl AfterRows<'_> {
    /// Whoever owns a database could keep all others out of a backup with too much of it.
    pub(super) async fn text(&self) -> Result<String> {
        let definitions = self.asking.after_rows(self.name, self.found).await?;
        section(definitions).or_else(|error| {
            let name = name_text(self.name.as_bytes());
            self.asking.at.context.log.warn(format!("{name}: {} They are left out.", error.message));
            section(Vec::new())
        })
    }
}
