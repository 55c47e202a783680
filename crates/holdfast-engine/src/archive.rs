//! The archive format: plain stream → independent zstd frames → age when there is a password → one object.
//!
//! Every frame except the last holds the same number of plain bytes, and the object ends with a skippable zstd frame
//! that holds an index. Standard tools ignore the index: `age -d | zstd -d | tar -x` opens the object. With the index,
//! listing a backup reads only its last kilobytes, and a single file is fetched without reading the data before it.

mod forward;
mod frames;
mod index;
mod inspect;
mod inspected;
pub(crate) mod pgdump;
mod reader;
mod repack;
mod sealed;
mod selection;
pub(crate) mod server;
mod shown;
mod sql_dumps;
pub(crate) mod tar;
mod unpack;
mod writer;

pub(crate) use forward::{forward, read_through};
pub(crate) use frames::{WINDOW_LOG, decompress};
pub(crate) use index::tidy_path;
pub use index::{Entry, Manifest, MysqlFacts};
pub(crate) use inspect::inspect;
pub(crate) use inspected::Inspected;
pub use reader::Archive;
pub(crate) use reader::{Bounded, plain};
pub(crate) use repack::{MemberSink, repack};
pub(crate) use sealed::{KeyDerivation, WrittenBy};
pub use selection::Counted;
pub(crate) use selection::{
    Choice, Existing, ExistingKind, Options, PathLimits, Selection, SkipReason, ancestors, is_too_deep, relative,
};
pub(crate) use shown::{shown, shown_short};
pub(crate) use unpack::{Facts, FileContent, Target, unpack};
pub(crate) use writer::{Out, Packed, Packing, Received, Tee, pack};

/// Plain bytes per frame. Small enough that fifty concurrent runs stay within their memory limits and that reading one
/// small file costs one frame; large enough that compressing each frame independently adds only one or two per cent to
/// the size.
pub const FRAME_BYTES: usize = 1024 * 1024;
