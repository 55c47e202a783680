//! `/api/backup-destinations`.

use axum::http::StatusCode;
use holdfast_app::{AppError, Resource, destinations};
use holdfast_core::clock::rfc3339;
use holdfast_core::destination::{DestinationInput, DestinationKind};
use holdfast_core::ids::DestinationId;
use holdfast_store::destinations::DestinationRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, data, message};
use crate::body::{Body, Object};
use crate::call::Call;
use crate::list;

#[derive(Serialize, ToSchema)]
pub(crate) struct DestinationResource {
    id: i64,
    user_id: i64,
    label: String,
    #[schema(pattern = "^(s3|custom_s3|local)$")]
    r#type: String,
    type_human: &'static str,
    /// Only for `s3` and `custom_s3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    s3_bucket_name: Option<String>,
    /// Only for `s3` and `custom_s3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    path_style_endpoint: Option<bool>,
    /// Only for `s3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    s3_region: Option<String>,
    /// Only for `custom_s3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    s3_endpoint: Option<String>,
    /// Only for `s3` and `custom_s3`: what is deleted stays there as an older version, as the last check found it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    keeps_versions: Option<bool>,
    #[schema(pattern = "^(unknown|reachable|unreachable)$")]
    status: String,
    last_checked_at: Option<String>,
    last_error: Option<String>,
    /// The class of the last error.
    error_code: Option<String>,
    created_at: String,
    updated_at: String,
}

/// What a destination is made of; see `DestinationInput`.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document")]
pub(crate) struct DestinationBody {
    #[schema(min_length = 1, max_length = 255)]
    label: String,
    #[schema(pattern = "^(s3|custom_s3|local)$")]
    r#type: String,
    /// Needed for `s3` and `custom_s3`. Never returned. An update keeps it when it is left out; a change of the endpoint, region,
    /// bucket or path style needs both keys in the same request.
    #[schema(nullable = false, min_length = 1, max_length = 1024, write_only)]
    s3_access_key: Option<String>,
    /// Needed for `s3` and `custom_s3`. Never returned. An update keeps it when it is left out; a change of the endpoint, region,
    /// bucket or path style needs both keys in the same request.
    #[schema(nullable = false, min_length = 1, max_length = 1024, write_only)]
    s3_secret_key: Option<String>,
    /// Needed for `s3` and `custom_s3`. Cannot change while the destination holds backups.
    #[schema(nullable = false, min_length = 3, max_length = 63)]
    s3_bucket_name: Option<String>,
    /// `us-east-1` unless said otherwise.
    #[schema(pattern = "^[A-Za-z0-9-]{1,64}$")]
    s3_region: Option<String>,
    /// The same as `s3_region`.
    #[schema(pattern = "^[A-Za-z0-9-]{1,64}$")]
    custom_s3_region: Option<String>,
    /// Needed for `custom_s3`: an http or https URL.
    #[schema(nullable = false, max_length = 2048, pattern = "^https?://")]
    custom_s3_endpoint: Option<String>,
    /// False for `s3` and true for `custom_s3`, unless said otherwise.
    #[schema(nullable = false)]
    path_style_endpoint: Option<bool>,
}

fn shape(row: DestinationRow) -> Result<DestinationResource, AppError> {
    let kind = row.kind()?;
    let s3 = row.s3();
    Ok(DestinationResource {
        id: row.id,
        user_id: row.user_id,
        label: row.label,
        r#type: row.kind,
        type_human: kind.human(),
        s3_bucket_name: s3.as_ref().map(|s3| s3.bucket.clone()),
        path_style_endpoint: s3.as_ref().map(|s3| s3.path_style),
        keeps_versions: s3.as_ref().map(|_| row.keeps_versions),
        s3_region: s3.as_ref().filter(|_| kind == DestinationKind::S3).map(|s3| s3.region.clone()),
        s3_endpoint: s3.and_then(|s3| s3.endpoint),
        status: row.status,
        last_checked_at: row.last_checked_at.map(|at| rfc3339(at.0)),
        last_error: row.last_error,
        error_code: row.last_error_code,
        created_at: rfc3339(row.created_at.0),
        updated_at: rfc3339(row.updated_at.0),
    })
}

fn read(body: &Object) -> DestinationInput {
    DestinationInput {
        label: body.text("label"),
        kind: body.text("type"),
        s3_access_key: body.text("s3_access_key"),
        s3_secret_key: body.text("s3_secret_key"),
        s3_bucket_name: body.text("s3_bucket_name"),
        s3_region: body.text("s3_region").or(body.text("custom_s3_region")),
        custom_s3_endpoint: body.text("custom_s3_endpoint"),
        path_style_endpoint: body.boolean("path_style_endpoint"),
    }
}

pub(crate) async fn list_destinations(call: Call) -> Answer {
    let page = destinations::list(&call.app, &call.listing()?).await?;
    list::try_page(&call, page, shape)
}

pub(crate) async fn create_destination(call: Call, body: Body) -> Answer {
    let row = destinations::create(&call.app, &call.caller, &read(&body.object()?)).await?;
    data(StatusCode::CREATED, shape(row)?)
}

pub(crate) async fn show_destination(call: Call) -> Answer {
    let row = destinations::show(&call.app, &call.caller, call.id(Resource::BackupDestination)?).await?;
    data(StatusCode::OK, shape(row)?)
}

pub(crate) async fn update_destination(call: Call, body: Body) -> Answer {
    let id: DestinationId = call.id(Resource::BackupDestination)?;
    destinations::show(&call.app, &call.caller, id).await?;
    let row = destinations::update(&call.app, &call.caller, id, &read(&body.object()?)).await?;
    data(StatusCode::OK, shape(row)?)
}

pub(crate) async fn delete_destination(call: Call) -> Answer {
    destinations::delete(&call.app, &call.caller, call.id(Resource::BackupDestination)?).await?;
    message(StatusCode::OK, "Backup destination successfully deleted")
}

pub(crate) async fn check_destination(call: Call) -> Answer {
    destinations::request_check(&call.app, &call.caller, call.id(Resource::BackupDestination)?).await?;
    message(StatusCode::ACCEPTED, "Backup destination check initiated successfully.")
}
