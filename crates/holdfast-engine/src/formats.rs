//! The storage formats. To add one: a file below this module, a line in `of`, and its name and facts in
//! `core/storage.rs`; see docs/decisions/0033.

mod archive;
pub(crate) mod repository;

use holdfast_core::storage::Format;

use crate::format::BackupFormat;

pub(crate) fn of(format: Format) -> &'static dyn BackupFormat {
    match format {
        Format::Archive => &archive::ArchiveFormat,
        Format::Repository => &repository::RepositoryFormat,
    }
}
