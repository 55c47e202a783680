//! Asks the server about the paths that a restore writes to.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use holdfast_core::failure::FailureCode;
use tokio::sync::mpsc;

use crate::Engine;
use crate::archive::ExistingKind;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::remote::{self, Pace, Script};
use crate::ssh::{Connection, Process};

impl Engine {
    /// Asks the server what is at each of the paths, one letter each.
    pub(super) async fn existing_kinds(
        &self,
        connection: &Connection,
        path: &str,
        paths: mpsc::Receiver<Vec<u8>>,
        context: &Context,
    ) -> Result<Vec<ExistingKind>> {
        const SCRIPT: &str = r#"
cd -- "$1" || exit 97
exec xargs -0 sh -c 'for p do
if [ -L "$p" ]; then printf l; elif [ -d "$p" ]; then printf d; elif [ -e "$p" ]; then printf f; else printf n; fi
done' sh
"#;
        let letters = self.answers(connection, &Script::new(SCRIPT, &[path]), paths, context, |asked| asked).await?;
        let kind = |letter: &u8| match letter {
            b'l' => ExistingKind::Symlink,
            b'd' => ExistingKind::Directory,
            b'n' => ExistingKind::Nothing,
            _ => ExistingKind::File,
        };
        Ok(letters.iter().map(kind).collect())
    }

    /// The output of a script for the paths on its standard input; fails if it has more bytes than `most` allows for
    /// the number of paths.
    pub(super) async fn answers(
        &self,
        connection: &Connection,
        script: &Script,
        mut paths: mpsc::Receiver<Vec<u8>>,
        context: &Context,
        most: impl Fn(usize) -> usize,
    ) -> Result<Vec<u8>> {
        let Process { mut stdin, mut stdout, control } = script.start(connection).await?;
        let (stall, cancel) = (self.settings.remote.stall, &context.cancel);
        let asked = AtomicUsize::new(0);
        let feeding = async {
            while let Some(piece) = paths.recv().await {
                asked.fetch_add(piece.iter().filter(|byte| **byte == 0).count(), Ordering::Relaxed);
                // If the process takes no more, its exit says why.
                if stdin.write_all(Bytes::from(piece)).await.is_err() {
                    return;
                }
            }
            let _unwanted = stdin.close().await;
        };
        let reading = async {
            let (mut found, mut pace) = (Vec::new(), Pace::patient(stall));
            while let Some(piece) = pace.next(&mut stdout, cancel).await? {
                // An answer that is longer than expected does not come from our script.
                if found.len() + piece.len() > most(asked.load(Ordering::Relaxed)) {
                    let message = "The server's answer was longer than expected, so nothing was written.";
                    return Err(EngineError::new(FailureCode::RemoteFailed, message));
                }
                found.extend_from_slice(&piece);
            }
            let exit = remote::end_of(&mut stdout, stall, cancel).await?;
            if exit.success() {
                return Ok(found);
            }
            let said = remote::lines(stdout.stderr()).join("; ");
            let message = format!("The server did not say what is in the target, so nothing was written: {said}");
            Err(EngineError::new(FailureCode::RemoteFailed, message))
        };
        let found = remote::while_feeding(feeding, reading).await;
        // Stops the task that goes through the backup.
        drop(paths);
        if found.is_err() {
            remote::stop(connection, &control, stdout.process_id(), context).await;
        }
        found
    }
}
