//! Talking to a Holdfast service from elsewhere, by its URL and a token, over the same API that everybody uses.

pub mod apply;
mod call;

pub use call::{Client, ClientError};
