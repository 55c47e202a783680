//! Where backups are stored: one interface for folders, buckets and servers, and decorators for all of them.

mod check;
mod decorators;
mod local;
mod object;
mod open;
mod parts;
mod plan;
mod s3;
mod sftp;
mod store;
mod upload;

pub use check::{Checked, check};
pub use decorators::{Metered, RetryPolicy, Retrying, Throttle, Throttled};
pub use local::Local;
pub(crate) use object::Blocks;
pub use object::{ObjectReader, VerifiedBlocks};
pub use open::Opened;
pub use parts::{PartBody, PartLimits, PartPlan, SpooledPart};
pub use plan::{DestinationPlan, DestinationSettings};
pub use s3::{S3, S3Config};
pub use sftp::Sftp;
pub use store::{Accepted, BlobStore, ListedObject, PartLayout, Stat};
pub use upload::Journal;
pub(crate) use upload::{PERMIT_BYTES, Sink, Upload, UploadReceiver, Uploaded, put_confirmed};
