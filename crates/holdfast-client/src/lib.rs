//! A client for a Holdfast service elsewhere: it needs a URL and a token, and uses the public API.

pub mod apply;
mod call;

pub use call::{Client, ClientError};
