//! Looks up what a server has for a user who creates a task: folders, databases, and how much there is to copy.

use holdfast_core::failure::FailureCode;
use holdfast_core::probe::{Answer, DatabaseItem, FOLDER_ITEMS};

use crate::Engine;
use crate::context::Context;
use crate::dialect::Size;
use crate::dialects::{self, served};
use crate::error::{EngineError, Result};
use crate::plan::Source;
use crate::remote::{self, Remote, Server, connect};
use crate::source::database::Login;
use crate::source::files::{self, COUNT_LIMIT};
use crate::source::sftp;

/// What to look up.
pub enum Probe {
    Folder(String),
    Databases(Login),
    Size(Source),
}

impl Engine {
    pub async fn probe(&self, server: &Server, probe: &Probe, context: &Context) -> Result<Answer> {
        let settings = &self.settings.remote;
        let connection = connect(server, settings, context).await?;
        let at = Remote { connection: &connection, settings, context };
        let looking = async {
            match probe {
                Probe::Folder(path) => {
                    let mut client = sftp::open(&connection, settings, context).await?;
                    let (items, is_cut) = sftp::list(&mut client, path, FOLDER_ITEMS).await?;
                    Ok(Answer::Folder { items, is_cut })
                }
                Probe::Databases(login) => list_databases(at, login).await,
                Probe::Size(Source::Files(source)) => {
                    let counted = files::estimate(&connection, source, settings, context).await?;
                    let uncounted = || {
                        let text = "The server cannot count its files: GNU find is not available to this user.";
                        EngineError::new(FailureCode::ToolMissing, text)
                    };
                    let (bytes, entries) = counted.ok_or_else(uncounted)?;
                    Ok(Answer::Size { entries, bytes })
                }
                Probe::Size(Source::Database(source)) => {
                    let Size { entries, bytes } = dialects::find(at, source).await?.size(at, source).await?;
                    Ok(Answer::Size { entries, bytes })
                }
            }
        };
        let found = tokio::select! {
            () = context.cancel.cancelled() => Err(EngineError::cancelled()),
            found = tokio::time::timeout(COUNT_LIMIT, looking) => found.unwrap_or_else(|_| {
                let text = format!("The server did not finish within {} seconds.", COUNT_LIMIT.as_secs());
                Err(EngineError::new(FailureCode::Timeout, text))
            }),
        };
        remote::leave(connection, context).await;
        found
    }
}

/// Lists the databases of every engine that accepts the login. If none does, the first refusal is returned.
async fn list_databases(at: Remote<'_>, login: &Login) -> Result<Answer> {
    if let Some(password) = &login.password {
        at.context.log.hide(password);
    }
    let (mut items, mut refusal, mut has_answer) = (Vec::new(), None, false);
    for dialect in served() {
        match dialect.list(at, login).await? {
            Ok(found) => {
                has_answer = true;
                let engine = dialect.engine();
                items.extend(found.into_iter().map(|(name, size)| DatabaseItem { engine, name, size }));
            }
            // A refusal by a server is more informative than a missing tool.
            Err(error) => {
                if refusal.as_ref().is_none_or(|known: &EngineError| known.code == FailureCode::ToolMissing) {
                    refusal = Some(error);
                }
            }
        }
    }
    match refusal {
        Some(error) if !has_answer => Err(error),
        _ => Ok(Answer::Databases(items)),
    }
}
