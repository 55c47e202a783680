//! `holdfast export --yaml`: writes the configuration of an account, for `apply`.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use holdfast_client::apply;
use serde_json::json;

use super::connection;
use crate::failure::Failure;
use crate::output::{self, Printer};
use crate::settings::ClientSettings;

/// Without a file, to standard output.
pub async fn run(settings: &ClientSettings, output: Option<&Path>, printer: Printer) -> Result<(), Failure> {
    let text = apply::export(&connection::client(settings)?).await?;
    let Some(path) = output.filter(|path| path.as_os_str() != "-") else {
        output::print(format_args!("{text}"));
        return Ok(());
    };
    // An existing file may have secrets added by hand.
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::settings(format!("{} already exists; choose another file", path.display()))
        }
        _ => Failure::io(&error, path),
    })?;
    let file = path.display().to_string();
    printer.one(&json!({"file": file}), |_| format!("Wrote {file}."));
    Ok(())
}
