//! Downloads from a service, to a file or to standard output.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use futures_util::StreamExt as _;
use holdfast_client::Client;

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
    let response = client.download(path).await?;
    let total = response.content_length();
    // Overwrite what an earlier attempt left behind.
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&part);
    let mut file = file.map_err(|error| Failure::io(&error, &part))?;
    let bar = watch::Bar::new("Downloading", printer.is_json);
    let (mut pieces, mut size) = (response.bytes_stream(), 0);
    let copied: Result<(), Failure> = async {
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| Failure::unreachable(format!("the download failed: {error}")))?;
            file.write_all(&piece).map_err(failed)?;
            size += piece.len() as u64;
            bar.show(size, total);
        }
        if total.is_some_and(|total| total != size) {
            return Err(Failure::unreachable("the download ended before it was complete"));
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
    copied.map(|()| size)
}

/// Downloads to standard output, for example into a pipe. A reader that stops early makes the download incomplete.
pub async fn to_stdout(client: &Client, path: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::io(&error, Path::new("standard output"));
    let response = client.download(path).await?;
    let total = response.content_length();
    let (mut pieces, mut size) = (response.bytes_stream(), 0);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| Failure::unreachable(format!("the download failed: {error}")))?;
        std::io::stdout().write_all(&piece).map_err(failed)?;
        size += piece.len() as u64;
    }
    if total.is_some_and(|total| total != size) {
        return Err(Failure::unreachable("the download ended before it was complete"));
    }
    std::io::stdout().flush().map_err(failed)
}
