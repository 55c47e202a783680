//! Downloads from a service, to a file or to standard output.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_client::Client;

use super::source::Source;
use crate::commands::watch;
use crate::failure::Failure;
use crate::output::{Printer, complain};

/// Downloads to a file, which gets its final name only when it is complete.
pub async fn to_file(client: &Client, path: &str, output: &Path, printer: Printer) -> Result<u64, Failure> {
    let failed = |error: std::io::Error| Failure::io(&error, output);
    if output.exists() {
        return Err(Failure::settings(format!("{} already exists; choose another file", output.display())));
    }
    let mut name = output.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let mut source = Source::open(client, path).await?;
    // Overwrite what an earlier attempt left behind.
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&part);
    let mut file = file.map_err(|error| Failure::io(&error, &part))?;
    let bar = watch::Bar::new("Downloading", printer.is_json);
    let copied: Result<(), Failure> = async {
        while let Some(piece) = source.next().await? {
            file.write_all(&piece).map_err(failed)?;
            bar.show(source.done, source.total);
        }
        file.sync_all().and_then(|()| std::fs::rename(&part, output)).map_err(failed)
    }
    .await;
    bar.end();
    if copied.is_err()
        && let Err(error) = std::fs::remove_file(&part)
    {
        complain!("holdfast: could not remove {}: {error}", part.display());
    }
    copied.map(|()| source.done)
}

/// Downloads to standard output, for example into a pipe. A reader that stops early makes the download incomplete.
pub async fn to_stdout(client: &Client, path: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io(&error, Path::new("standard output"));
    let mut source = Source::open(client, path).await?;
    while let Some(piece) = source.next().await? {
        std::io::stdout().write_all(&piece).map_err(failed)?;
    }
    std::io::stdout().flush().map_err(failed)
}
