//! `/api/audit-events`.

use holdfast_app::audit_log;
use holdfast_core::clock::rfc3339;
use holdfast_store::audit::EventRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::Answer;
use crate::call::Call;
use crate::list;

/// Something that the user, or somebody acting for them, did.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuditEventResource {
    id: i64,
    user_id: Option<i64>,
    /// How they came in, such as `session`, `token 7` or `command line (uid 0, root)`.
    actor: String,
    /// What was done, such as `backup_task.updated`. Later versions know more of these words.
    action: String,
    /// To what, and what changed. Secrets are never shown.
    detail: String,
    /// The address of the client.
    address: Option<String>,
    request_id: Option<String>,
    created_at: String,
}

fn shape(row: EventRow) -> AuditEventResource {
    AuditEventResource {
        id: row.id,
        user_id: row.user_id,
        actor: row.actor,
        action: row.action,
        detail: row.detail,
        address: row.address,
        request_id: row.request_id,
        created_at: rfc3339(row.at.0),
    }
}

pub(crate) async fn list_audit_events(call: Call) -> Answer {
    let page = audit_log::list(&call.app, &call.listing_without_labels()?).await?;
    list::page(&call, page, shape)
}
