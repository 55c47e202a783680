//! `holdfast task|backup|run|server|destination|stream|tag …`: use a service over its API, with its URL and a token.

pub mod backups;
mod download;
mod follow;
pub mod resources;
mod source;
pub mod tasks;
mod words;

use holdfast_client::kinds::ResourceKind;

use self::backups::{BackupAction, RunAction};
use self::resources::ResourceAction;
use self::tasks::TaskAction;
use super::connection;
use crate::failure::Failure;
use crate::output::Printer;
use crate::settings::ClientSettings;

pub enum Remote {
    /// What all kinds of resources have.
    Resource(&'static ResourceKind, ResourceAction),
    Task(TaskAction),
    Backup(BackupAction),
    Run(RunAction),
}

pub async fn run(settings: &ClientSettings, command: Remote, printer: Printer) -> Result<(), Failure> {
    let client = connection::client(settings)?;
    match command {
        Remote::Resource(kind, action) => resources::run(&client, kind, action, printer).await,
        Remote::Task(action) => tasks::run(&client, action, printer).await,
        Remote::Backup(action) => backups::backups(&client, action, printer).await,
        Remote::Run(action) => backups::runs(&client, action, printer).await,
    }
}
