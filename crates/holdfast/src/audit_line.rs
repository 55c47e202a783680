//! Events of the audit log as JSON.

use holdfast_core::clock::rfc3339;
use holdfast_store::audit::EventRow;
use serde_json::{Value, json};

/// An event in the form in which the API shows it.
pub fn audit_line(event: &EventRow) -> Value {
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
