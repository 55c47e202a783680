//! The section of a MySQL or MariaDB backup that follows the rows: sequence values, routines, triggers, views, events.

use holdfast_core::backup::name_text;

use super::mysql_definitions::Asking;
use super::mysql_tables::Found;
use crate::error::Result;
use crate::mysql::definitions::section;

/// Reads this section from the server, once the rows have been read.
pub(super) struct AfterRows<'a> {
    pub asking: Asking<'a>,
    pub name: &'a str,
    pub found: &'a Found,
}

impl AfterRows<'_> {
    /// The text of the section; empty if there is too much of it, so that the owner of one database cannot make the
    /// backup of all others fail.
    pub(super) async fn text(&self) -> Result<String> {
        let definitions = self.asking.after_rows(self.name, self.found).await?;
        section(definitions).or_else(|error| {
            let name = name_text(self.name.as_bytes());
            self.asking.at.context.log.warn(format!("{name}: {} They are left out.", error.message));
            section(Vec::new())
        })
    }
}
