//! The supported database engines, and which of them a server has. To add an engine: a file below this module, a line
//! in `of`, its names in core, and a completeness check for its dumps in `archive::inspect`.

mod mysql;
mod postgresql;
mod sqlite;

use holdfast_core::content::Content;
use holdfast_core::database::DatabaseEngine;
use holdfast_core::failure::FailureCode;

use crate::Engine;
use crate::dialect::Dialect;
use crate::error::{EngineError, Result};
use crate::remote::{Remote, Script};
use crate::source::database::DatabasePlan;

pub(crate) fn all() -> impl Iterator<Item = &'static dyn Dialect> {
    DatabaseEngine::ALL.iter().copied().map(of)
}

pub(crate) fn of(engine: DatabaseEngine) -> &'static dyn Dialect {
    match engine {
        DatabaseEngine::Postgresql => &postgresql::Postgresql,
        DatabaseEngine::Mysql => &mysql::Mysql,
        DatabaseEngine::Sqlite => &sqlite::Sqlite,
    }
}

/// Finds the engine of a database, which determines the content of the backup.
pub(crate) async fn find(at: Remote<'_>, source: &DatabasePlan) -> Result<&'static dyn Dialect> {
    if let Some(password) = &source.login.password {
        at.context.log.hide(password);
    }
    if let Some(engine) = source.engine {
        return Ok(of(engine));
    }
    match &installed(at).await?[..] {
        [] => Err(EngineError::new(FailureCode::ToolMissing, none_installed())),
        [dialect] => Ok(*dialect),
        several => find_answering(at, source, several).await,
    }
}

fn none_installed() -> String {
    let tools: Vec<&str> = served().flat_map(|dialect| dialect.tools().dump.iter().copied()).collect();
    format!("The server has none of these tools: {}.", tools.join(", "))
}

/// The engines that run as a server.
pub(crate) fn served() -> impl Iterator<Item = &'static dyn Dialect> {
    all().filter(|dialect| !dialect.engine().is_file())
}

/// The engines whose tools are installed on the server.
async fn installed(at: Remote<'_>) -> Result<Vec<&'static dyn Dialect>> {
    let looks = served().map(|dialect| {
        let finds: Vec<String> = dialect.tools().dump.iter().map(|tool| format!("command -v {tool}")).collect();
        format!("{{ {}; }} >/dev/null 2>&1 && echo {}\n", finds.join(" || "), dialect.engine().as_str())
    });
    let script = format!("{}exit 0\n", looks.collect::<String>());
    let answer = at.ask(&Script::new(&script, &[]), "").await?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    Ok(text.lines().filter_map(DatabaseEngine::parse).map(of).collect())
}

/// When several engines are installed, finds the one that accepts the login and has the database.
async fn find_answering(
    at: Remote<'_>,
    source: &DatabasePlan,
    installed: &[&'static dyn Dialect],
) -> Result<&'static dyn Dialect> {
    let mut fitting = Vec::new();
    for &dialect in installed {
        if dialect.has(at, &source.login, source.database.name.as_deref()).await? {
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

impl Engine {
    /// A text for users on what an interrupted restore of this content may have left on the server; empty for files.
    pub fn left_behind(content: Content, has_written: bool) -> &'static str {
        content.database_engine().map_or("", |engine| of(engine).left_behind(content, has_written))
    }
}

/// A text for users on the dump tools that tasks of an engine need, if the server has none of them.
pub(crate) fn missing_tool(engine: DatabaseEngine, has: impl Fn(&str) -> bool) -> Option<String> {
    let tools = of(engine).tools();
    let is_missing = !tools.dump.iter().any(|tool| has(tool));
    is_missing.then(|| format!("{} (install {})", tools.dump.join(" or "), tools.package))
}
