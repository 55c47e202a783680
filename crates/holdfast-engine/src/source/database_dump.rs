//! The dump of one database on its way to the archive.

use super::Outlet;
use super::database::judge;
use crate::error::Result;
use crate::remote::{self, Pace, Remote, Script, end_of};
use crate::ssh::Process;

/// A tool that writes a dump.
pub(super) struct Dumping {
    pub tool: &'static str,
    pub script: Script,
    /// What the script reads: the login, and what comes with it.
    pub input: String,
}

/// Sends the dump to `outlet`. Its end is proven by whoever reads it; its exit status here.
pub(super) async fn pump(at: Remote<'_>, dumping: Dumping, outlet: &mut Outlet) -> Result<()> {
    let Remote { connection, settings, context } = at;
    let Process { mut stdin, mut stdout, control } = dumping.script.start(connection).await?;
    let _unwanted = stdin.write_all(dumping.input.into_bytes()).await;
    let _unwanted = stdin.close().await;
    let reading = async {
        let mut pace = Pace::new(settings.stall);
        while let Some(chunk) = pace.next(&mut stdout, &context.cancel).await? {
            outlet.send(chunk).await?;
        }
        end_of(&mut stdout, settings.stall, &context.cancel).await
    };
    let exit = match reading.await {
        Ok(exit) => exit,
        Err(error) => {
            remote::stop(connection, &control, stdout.process_id(), context).await;
            return Err(error);
        }
    };
    if !stdout.has_started() {
        return Err(remote::no_commands());
    }
    judge(dumping.tool, &exit, &remote::lines(stdout.stderr()), context)
}
