//! Downloads a folder of a backup as a tar archive.

use std::io;

use bytes::Bytes;
use holdfast_core::failure::FailureCode;

use crate::Engine;
use crate::archive::{Choice, Options, Selection, forward};
use crate::context::Context;
use crate::download::{Download, PIECE_BYTES};
use crate::entry_scan::EntryScan;
use crate::error::{Result, classify};
use crate::plan::StoredBackup;
use crate::scope::Scope;
use crate::thread::until_dropped;

impl Engine {
    /// Downloads a folder of the backup as a tar archive, terminated by an empty piece. If the backup turns out to be
    /// damaged, the download ends with an error instead.
    pub async fn download_folder(&self, backup: &StoredBackup, path: &str) -> Result<Download> {
        let choice = Choice::new(&[path.to_owned()]);
        let backup = &StoredBackup { scope: Scope::of(&choice), ..backup.clone() };
        let mut selection = self.choose(backup, choice).await?;
        let (stop, guard) = until_dropped();
        let (context, _lines) = Context::new(stop);
        let mut reader = self.open_plain(backup, &context).await?;
        let backup = backup.clone();
        Ok(Download::start(guard, move |pieces| {
            let mut out = io::BufWriter::with_capacity(PIECE_BYTES, pieces.clone());
            let forwarded = forward(&mut reader.plain, &mut selection, &mut |_| {}, (&mut out, false));
            // The last piece is held back until everything has been verified.
            let sent = forwarded.and_then(|()| reader.finish(&backup)).and_then(|()| {
                io::Write::flush(&mut out)
                    .map_err(|error| classify(&error, FailureCode::Lost, "The download was interrupted"))
            });
            // Discard what is still buffered.
            drop(out.into_parts());
            // An empty piece marks the end; without it the download is incomplete.
            pieces.send_last(sent.map(|()| Bytes::new()).map_err(io::Error::from));
        }))
    }

    /// The entries that these paths select, for a download: nothing can be in their way.
    async fn choose(&self, backup: &StoredBackup, choice: Choice) -> Result<Selection> {
        let scan = EntryScan::new(choice.clone(), None);
        let scanned = self.visit(backup, scan, EntryScan::visit).await?;
        let links = scanned.finish()?.links;
        let mut selection =
            Selection::new(choice, Options { with_owners: true, ..Options::default() }, None, |_, _| {});
        for link in links {
            selection.expect(&link)?;
        }
        Ok(selection)
    }
}
