//! `holdfast audit …`.

use holdfast_app::audit_log;
use holdfast_core::Timestamp;
use holdfast_core::clock::rfc3339;
use holdfast_store::Migrations;
use holdfast_store::audit::EventRow;
use serde_json::json;

use crate::cli::AuditCommand;
use crate::failure::Failure;
use crate::output::say;
use crate::settings::Settings;
use crate::wiring::open_app;

pub async fn run(settings: &Settings, command: AuditCommand) -> Result<(), Failure> {
    let AuditCommand::Export { since } = command;
    let since = since.as_deref().map(parse).transpose()?.unwrap_or(Timestamp::MIN);
    let app = open_app(settings, Migrations::Never).await?;
    audit_log::read_all(&app, since, |event| say!("{}", line(&event))).await?;
    app.store.close().await;
    Ok(())
}

fn parse(text: &str) -> Result<Timestamp, Failure> {
    let wrong = |_| Failure::settings(format!("--since must be a time such as 2025-03-31T12:00:00Z, not {text}"));
    text.parse().map_err(wrong)
}

/// An event in the form in which the API shows it.
fn line(event: &EventRow) -> serde_json::Value {
    json!({
        "id": event.id,
        "user_id": event.user_id,
        "actor": event.actor,
        "action": event.action,
        "detail": event.detail,
        "address": event.address,
        "request_id": event.request_id,
        "created_at": rfc3339(event.at.0),
    })
}
