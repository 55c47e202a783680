//! `holdfast audit …`.

use holdfast_app::audit_log;
use holdfast_core::Timestamp;
use holdfast_store::Migrations;

use crate::audit_line::audit_line;
use crate::cli::AuditCommand;
use crate::failure::Failure;
use crate::output::say;
use crate::settings::Settings;
use crate::wiring::open_app;

pub async fn run(settings: &Settings, command: AuditCommand) -> Result<(), Failure> {
    let AuditCommand::Export { since } = command;
    let since = since.as_deref().map(parse).transpose()?.unwrap_or(Timestamp::MIN);
    let app = open_app(settings, Migrations::Never).await?;
    audit_log::read_all(&app, since, |event| say!("{}", audit_line(&event))).await?;
    app.store.close().await;
    Ok(())
}

fn parse(text: &str) -> Result<Timestamp, Failure> {
    let wrong = |_| Failure::settings(format!("--since must be a time such as 2025-03-31T12:00:00Z, not {text}"));
    text.parse().map_err(wrong)
}
