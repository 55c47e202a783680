//! The interface of database engines, and what they have in common. Implementations and the registry are in `dialects`.

use async_trait::async_trait;
use holdfast_core::content::Content;
use holdfast_core::database::DatabaseEngine;
use holdfast_core::run::FailureCode;

use crate::Engine;
use crate::archive::Manifest;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::plan::{RestorePlan, RestoreReport};
use crate::remote::Remote;
use crate::source::Outlet;
use crate::source::database::{DatabasePlan, Login};

/// What an engine needs on a server.
pub(crate) struct Tools {
    /// One of these writes dumps.
    pub dump: &'static [&'static str],
    /// What to install where none is.
    pub package: &'static str,
    /// All that are worth knowing about, those that write dumps among them.
    pub all: &'static [&'static str],
}

/// The databases of a server with their sizes, or why they are not told.
pub(crate) type Listed = std::result::Result<Vec<(String, u64)>, EngineError>;

/// What there is to copy: the tables of one database, or databases.
pub(crate) struct Size {
    pub entries: u64,
    pub bytes: u64,
}

#[async_trait]
pub(crate) trait Dialect: Send + Sync {
    fn engine(&self) -> DatabaseEngine;

    fn tools(&self) -> &'static Tools;

    /// Whether a server of this engine lets us in and has the database, if one is named.
    async fn has(&self, at: Remote<'_>, login: &Login, name: Option<&str>) -> Result<bool>;

    /// The databases that can be backed up. Only a connection that fails is an error.
    async fn list(&self, at: Remote<'_>, login: &Login) -> Result<Listed>;

    async fn size(&self, at: Remote<'_>, source: &DatabasePlan) -> Result<Size>;

    /// Adds what a restore has to know and no dump says.
    async fn describe(&self, at: Remote<'_>, source: &DatabasePlan, manifest: &mut Manifest) -> Result<()>;

    /// Sends the dump to `outlet`.
    async fn dump(&self, at: Remote<'_>, source: &DatabasePlan, outlet: &mut Outlet) -> Result<()>;

    async fn restore(&self, engine: &Engine, at: Remote<'_>, restore: &DatabaseRestore<'_>) -> Result<RestoreReport>;

    /// What a restore that ended early may have left on the server, for people. It `has_written` when it had begun to
    /// change what was there.
    fn left_behind(&self, content: Content, has_written: bool) -> &'static str;
}

/// A dump on its way back.
pub(crate) struct DatabaseRestore<'a> {
    pub plan: &'a RestorePlan,
    pub into: RestoreInto<'a>,
}

/// Where it goes.
#[derive(Clone, Copy)]
pub(crate) enum RestoreInto<'a> {
    /// A database of a server; `None` puts back a whole server.
    Server { name: Option<&'a str>, login: &'a Login },
    /// The path of a database that is a file.
    File(&'a str),
}

/// For content that an engine does not restore in the way that was asked for.
pub(crate) fn misfit() -> EngineError {
    EngineError::internal("the target does not fit what is in the backup")
}

/// Whether an answer that lists databases names this one; without a name every answer will do.
pub(crate) fn names(stdout: &[u8], wanted: Option<&str>) -> bool {
    let text = String::from_utf8_lossy(stdout).into_owned();
    wanted.is_none_or(|wanted| text.lines().any(|found| found == wanted))
}

/// Lines of a word and a number between tabs.
pub(crate) fn counted_lines(stdout: &[u8]) -> Vec<(String, u64)> {
    let text = String::from_utf8_lossy(stdout).into_owned();
    let lines = text.lines().map(|line| line.rsplit_once('\t').unwrap_or((line, "0")));
    lines.map(|(word, number)| (word.to_owned(), number.trim().parse().unwrap_or(0))).collect()
}

/// What a query told of one database in a single line, or of all in a line each.
pub(crate) fn size_of(stdout: &[u8], is_one: bool) -> Size {
    let rows = counted_lines(stdout);
    let entries = match rows.first() {
        Some((count, _)) if is_one => count.trim().parse().unwrap_or(0),
        _ => rows.len() as u64,
    };
    Size { entries, bytes: rows.iter().map(|(_, bytes)| bytes).sum() }
}

/// The same sentence for everything that is restored in place, statement by statement.
pub(crate) const HALF_REPLACED: &str = "What was there may be gone or half replaced. Restore again.";

/// A failure to learn something that a backup can do without is told; being cancelled ends the run.
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
