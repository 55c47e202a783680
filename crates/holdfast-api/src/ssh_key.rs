//! `/api/ssh-key`.

use axum::http::StatusCode;
use holdfast_app::ssh_key;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, data};
use crate::call::Call;

#[derive(Serialize, ToSchema)]
pub(crate) struct SshKeyResource {
    public_key: String,
    fingerprint: String,
    /// To be run on the server as the user that Holdfast connects as.
    install_command: String,
}

pub(crate) async fn show_ssh_key(call: Call) -> Answer {
    let key = ssh_key::show(&call.app, &call.caller).await?;
    let ssh_key::SshKey { public_key, fingerprint, install_command } = key;
    data(StatusCode::OK, SshKeyResource { public_key, fingerprint, install_command })
}
