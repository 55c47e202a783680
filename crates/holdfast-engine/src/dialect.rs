//! Database engines behind one interface. An engine is a file below, an entry in [`DIALECTS`], its words in core, and
//! how its dumps are proven to be whole in `archive::inspect`.

mod mysql;
mod postgresql;

use async_trait::async_trait;
use holdfast_core::content::Content;
use holdfast_core::database::DatabaseEngine;
use holdfast_core::run::FailureCode;

use crate::Engine;
use crate::archive::Manifest;
use crate::context::Context;
use crate::error::{EngineError, Result};
use crate::plan::{RestorePlan, RestoreReport};
use crate::remote::{Remote, Script};
use crate::source::Outlet;
use crate::source::database::{DatabaseSource, Login};

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

    async fn size(&self, at: Remote<'_>, source: &DatabaseSource) -> Result<Size>;

    /// Adds what a restore has to know and no dump says.
    async fn describe(&self, at: Remote<'_>, source: &DatabaseSource, manifest: &mut Manifest) -> Result<()>;

    /// Sends the dump to `outlet`.
    async fn dump(&self, at: Remote<'_>, source: &DatabaseSource, outlet: &mut Outlet) -> Result<()>;

    async fn restore(&self, engine: &Engine, at: Remote<'_>, restore: &DatabaseRestore<'_>) -> Result<RestoreReport>;

    /// What a restore that ended early may have left on the server, for people. It `has_written` when it had begun to
    /// change what was there.
    fn left_behind(&self, content: Content, has_written: bool) -> &'static str;
}

/// A dump on its way back.
pub(crate) struct DatabaseRestore<'a> {
    pub plan: &'a RestorePlan,
    /// `None` puts back a whole server.
    pub name: Option<&'a str>,
    pub login: &'a Login,
}

pub(crate) const DIALECTS: &[&dyn Dialect] = &[&postgresql::Postgresql, &mysql::Mysql];

pub(crate) fn of(engine: DatabaseEngine) -> &'static dyn Dialect {
    match engine {
        DatabaseEngine::Postgresql => &postgresql::Postgresql,
        DatabaseEngine::Mysql => &mysql::Mysql,
    }
}

/// For content that an engine does not restore in the way that was asked for.
fn misfit() -> EngineError {
    EngineError::internal("the target does not fit what is in the backup")
}

/// Which engine it is, and so what the backup will hold.
pub(crate) async fn find(at: Remote<'_>, source: &DatabaseSource) -> Result<&'static dyn Dialect> {
    if let Some(password) = &source.login.password {
        at.context.log.hide(password);
    }
    if let Some(engine) = source.engine {
        return Ok(of(engine));
    }
    match installed(at).await?[..] {
        [] => Err(EngineError::new(FailureCode::ToolMissing, none_installed())),
        [dialect] => Ok(dialect),
        ref several => find_answering(at, source, several).await,
    }
}

fn none_installed() -> String {
    let tools: Vec<&str> = DIALECTS.iter().flat_map(|dialect| dialect.tools().dump.iter().copied()).collect();
    format!("The server has none of {}.", tools.join(", "))
}

/// Those whose tools the server has.
async fn installed(at: Remote<'_>) -> Result<Vec<&'static dyn Dialect>> {
    let looks = DIALECTS.iter().map(|dialect| {
        let finds: Vec<String> = dialect.tools().dump.iter().map(|tool| format!("command -v {tool}")).collect();
        format!("{{ {}; }} >/dev/null 2>&1 && echo {}\n", finds.join(" || "), dialect.engine().as_str())
    });
    let script = format!("{}exit 0\n", looks.collect::<String>());
    let answer = at.ask(&Script::new(&script, &[]), "").await?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    Ok(text.lines().filter_map(DatabaseEngine::parse).map(of).collect())
}

/// Several are installed: the one that lets us in and has the database.
async fn find_answering(
    at: Remote<'_>,
    source: &DatabaseSource,
    installed: &[&'static dyn Dialect],
) -> Result<&'static dyn Dialect> {
    let mut fitting = Vec::new();
    for &dialect in installed {
        if dialect.has(at, &source.login, source.name.as_deref()).await? {
            fitting.push(dialect);
        }
    }
    match fitting[..] {
        [dialect] => Ok(dialect),
        _ => {
            let names: Vec<&str> = installed.iter().map(|dialect| dialect.engine().human()).collect();
            let message = format!("The server has tools for {}; choose the engine in the task.", names.join(" and "));
            Err(EngineError::new(FailureCode::EngineUnclear, message))
        }
    }
}

/// Whether an answer that lists databases names this one; without a name every answer will do.
fn names(stdout: &[u8], wanted: Option<&str>) -> bool {
    let text = String::from_utf8_lossy(stdout).into_owned();
    wanted.is_none_or(|wanted| text.lines().any(|found| found == wanted))
}

/// Lines of a word and a number between tabs.
fn counted_lines(stdout: &[u8]) -> Vec<(String, u64)> {
    let text = String::from_utf8_lossy(stdout).into_owned();
    let lines = text.lines().map(|line| line.rsplit_once('\t').unwrap_or((line, "0")));
    lines.map(|(word, number)| (word.to_owned(), number.trim().parse().unwrap_or(0))).collect()
}

/// What a query told of one database in a single line, or of all in a line each.
fn size_of(stdout: &[u8], is_one: bool) -> Size {
    let rows = counted_lines(stdout);
    let entries = match rows.first() {
        Some((count, _)) if is_one => count.trim().parse().unwrap_or(0),
        _ => rows.len() as u64,
    };
    Size { entries, bytes: rows.iter().map(|(_, bytes)| bytes).sum() }
}

/// The same sentence for everything that is restored in place, statement by statement.
const HALF_REPLACED: &str = "What was there may be gone or half replaced. Restore again.";

impl Engine {
    /// What a restore of this content that ended early may have left on the server, for people; nothing for files.
    pub fn left_behind(content: Content, has_written: bool) -> &'static str {
        content.database_engine().map_or("", |engine| of(engine).left_behind(content, has_written))
    }
}

/// The dump tools that tasks of an engine need on a server and that are not among these, for people.
pub(crate) fn missing_tool(engine: DatabaseEngine, has: impl Fn(&str) -> bool) -> Option<String> {
    let tools = of(engine).tools();
    let is_missing = !tools.dump.iter().any(|tool| has(tool));
    is_missing.then(|| format!("{} (install {})", tools.dump.join(" or "), tools.package))
}

/// A failure to learn something that a backup can do without is told; being cancelled ends the run.
fn unless_cancelled<T>(asked: Result<Option<T>>, context: &Context, told: &str) -> Result<Option<T>> {
    match asked {
        Err(error) if error.code == FailureCode::Cancelled => Err(error),
        Err(error) => {
            context.log.warn(format!("{told}: {}", error.message));
            Ok(None)
        }
        Ok(found) => Ok(found),
    }
}
