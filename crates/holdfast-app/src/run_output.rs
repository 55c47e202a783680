//! Runs together with what they wrote.

use holdfast_core::page::Page;
use holdfast_core::run;
use holdfast_store::Tx;
use holdfast_store::runs::{self, RunRow};

use crate::Result;

pub(crate) async fn with_output(tx: &mut Tx, run: RunRow) -> Result<(RunRow, String)> {
    let lines = runs::list_lines(tx, &[run.id.0]).await?;
    let output = run::join_output(lines.iter().map(|(_, text)| text.as_str()));
    Ok((run, output))
}

pub(crate) async fn with_outputs(tx: &mut Tx, page: Page<RunRow>) -> Result<Page<(RunRow, String)>> {
    let ids: Vec<i64> = page.items.iter().map(|run| run.id.0).collect();
    let lines = runs::list_lines(tx, &ids).await?;
    Ok(page.map(|run| {
        let own = lines.iter().filter(|(id, _)| *id == run.id.0).map(|(_, text)| text.as_str());
        let output = run::join_output(own);
        (run, output)
    }))
}
