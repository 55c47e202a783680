//! The restic repository format, version 2, as bytes: what is in each file of a repository, and how to write and read
//! it. Nothing here opens a connection or a file; the engine moves the bytes. See `docs/decisions/0041`.

pub mod chunker;
mod config;
mod error;
mod go_text;
mod id;
mod index;
mod key;
mod key_file;
mod lock;
mod pack;
mod snapshot;
mod time;
mod tree;
mod unpacked;

pub use chunker::{Chunker, Polynomial, Tables};
pub use config::Config;
pub use error::{RepositoryError, Result};
pub use id::{Id, InvalidId};
pub use index::{IndexFile, IndexedBlob, IndexedPack, Location, MasterIndex};
pub use key::{Key, SEAL_BYTES};
pub use key_file::{KeyFile, ScryptCost};
pub use lock::Lock;
pub use pack::{BlobKind, PackBuilder, PackedBlob, SealedBlob, read_header, read_header_length, seal_blob};
pub use snapshot::Snapshot;
pub use time::GoTime;
pub use tree::{Attribute, Node, NodeKind, Tree};
pub use unpacked::{seal_json, unseal};
