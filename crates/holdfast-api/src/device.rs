//! `/api/device-auth/token`: exchanges credentials for a token, if the operator has enabled it.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use holdfast_app::Context;
use holdfast_app::accounts::{self, Credentials, DeviceInput};
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::Answer;
use crate::body::Body;
use crate::json::json;
use crate::state::Api;

#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document")]
pub(crate) struct DeviceBody {
    #[schema(min_length = 1)]
    email: String,
    #[schema(min_length = 1, write_only)]
    password: String,
    #[schema(min_length = 1, max_length = 255)]
    device_name: String,
    /// The one-time code, for accounts with two-factor sign-in.
    otp: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct DeviceToken {
    token: String,
}

pub(crate) async fn create_device_token(
    State(api): State<Arc<Api>>,
    axum::Extension(context): axum::Extension<Context>,
    body: Body,
) -> Answer {
    let body = body.input()?;
    let input = DeviceInput {
        credentials: Credentials { email: body.text("email"), password: body.text("password"), otp: body.text("otp") },
        device_name: body.text("device_name"),
    };
    let token = accounts::issue_device_token(&api.app, &input, &context.origin("device")).await?;
    Ok(json(StatusCode::OK, &DeviceToken { token: token.reveal().to_owned() }))
}
