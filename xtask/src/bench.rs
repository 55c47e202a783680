//! placeholder
use crate::commands::Result;
pub fn api(_: &[&str]) -> Result<()> {
    Err("not yet".into())
}
