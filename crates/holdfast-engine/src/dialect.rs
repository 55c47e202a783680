//! The interface of database engines, and what they have in common. Implementations and the registry are in `dialects`.

use async_trait::async_trait;
use holdfast_core::content::Content;
use holdfast_core::database::DatabaseEngine;
use holdfast_core::failure::FailureCode;

use crate::Engine;
use crate::archive::Manifest;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::plan::{RestorePlan, RestoreReport};
use crate::remote::Remote;
use crate::source::PlainSink;
use crate::source::database::{DatabasePlan, Login};

/// The tools that an engine needs on a server.
pub(crate) struct Tools {
    /// Programs that write dumps; one of them is needed.
    pub dump: &'static [&'static str],
    /// The package to install if none of them is there.
    pub package: &'static str,
    /// All tools to look for, including those that write dumps.
    pub all: &'static [&'static str],
}

/// The databases of a server with their sizes, or why they cannot be listed.
pub(crate) type Listed = std::result::Result<Vec<(String, u64)>, EngineError>;

/// How much there is to copy. The entries are the tables of one database, or the databases of a server.
pub(crate) struct Size {
    pub entries: u64,
    pub bytes: u64,
}

#[async_trait]
pub(crate) trait Dialect: Send + Sync {
    fn engine(&self) -> DatabaseEngine;

    fn tools(&self) -> &'static Tools;

    /// Whether a server of this engine accepts the login and has the database, if a name is given.
    async fn has(&self, at: Remote<'_>, login: &Login, name: Option<&str>) -> Result<bool>;

    /// Lists the databases that can be backed up. Only a failed connection is an error.
    async fn list(&self, at: Remote<'_>, login: &Login) -> Result<Listed>;

    async fn size(&self, at: Remote<'_>, source: &DatabasePlan) -> Result<Size>;

    /// Adds to the manifest what a restore needs to know and the dump does not contain.
    async fn describe(&self, at: Remote<'_>, source: &DatabasePlan, manifest: &mut Manifest) -> Result<()>;

    /// Sends the dump to `sink`.
    async fn dump(&self, at: Remote<'_>, source: &DatabasePlan, sink: &mut PlainSink) -> Result<()>;

    async fn restore(&self, engine: &Engine, at: Remote<'_>, restore: &DatabaseRestore<'_>) -> Result<RestoreReport>;

    /// A text for users on what an interrupted restore may have left on the server. `has_written` says whether it had
    /// begun to change existing data.
    fn left_behind(&self, content: Content, has_written: bool) -> &'static str;
}

/// The restore of a dump.
pub(crate) struct DatabaseRestore<'a> {
    pub plan: &'a RestorePlan,
    pub into: RestoreInto<'a>,
}

/// Where a dump is restored to.
#[derive(Clone, Copy)]
pub(crate) enum RestoreInto<'a> {
    /// A database on a server; without a name, a whole server is restored.
    Server { name: Option<&'a str>, login: &'a Login },
    /// The path of a database that is a file.
    File(&'a str),
}

/// The error for content that an engine cannot restore to the requested target.
pub(crate) fn mismatch() -> EngineError {
    EngineError::internal("the restore target does not match the content of the backup")
}

/// Whether the output lists this database; without a name, any output will do.
pub(crate) fn names(stdout: &[u8], wanted: Option<&str>) -> bool {
    let text = String::from_utf8_lossy(stdout).into_owned();
    wanted.is_none_or(|wanted| text.lines().any(|found| found == wanted))
}

/// Parses lines of a text and a number separated by a tab.
pub(crate) fn counted_lines(stdout: &[u8]) -> Vec<(String, u64)> {
    let text = String::from_utf8_lossy(stdout).into_owned();
    let lines = text.lines().map(|line| line.rsplit_once('\t').unwrap_or((line, "0")));
    lines.map(|(word, number)| (word.to_owned(), number.trim().parse().unwrap_or(0))).collect()
}

/// Parses the result of a size query: a single line for one database, or one line per database.
pub(crate) fn size_of(stdout: &[u8], is_one: bool) -> Size {
    let rows = counted_lines(stdout);
    let entries = match rows.first() {
        Some((count, _)) if is_one => count.trim().parse().unwrap_or(0),
        _ => rows.len() as u64,
    };
    Size { entries, bytes: rows.iter().map(|(_, bytes)| bytes).sum() }
}

/// Shown for everything that is restored in place, statement by statement.
pub(crate) const HALF_REPLACED: &str = "What was there may be gone or half replaced. Restore again.";

/// Logs a warning when optional information could not be obtained; cancellation is still an error.
pub(crate) fn unless_cancelled<T>(asked: Result<Option<T>>, context: &Context, told: &str) -> Result<Option<T>> {
    match asked {
        Err(error) if error.code == FailureCode::Cancelled => Err(error),
        Err(error) => {
            context.log.warn(format!("{told}: {}", error.message));
            Ok(None)
        }
        Ok(found) => Ok(found),
    }
}
