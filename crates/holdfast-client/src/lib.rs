//! A client for a Holdfast service elsewhere: it needs a URL and a token, and uses the public API.

pub mod apply;
mod call;
mod error;
mod field_change;
pub mod kinds;
pub mod profile;
pub mod resource;
mod yaml;

pub use call::{Change, Client, Condition, Events, Tried};
pub use error::ClientError;
pub use field_change::FieldChange;
