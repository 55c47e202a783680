//! `/api/backup-destinations`.

use axum::http::StatusCode;
use holdfast_app::{Resource, destinations};
use holdfast_core::clock::rfc3339;
use holdfast_core::destination::{self, DestinationKind, DestinationSpec};
use holdfast_core::failure::FailureCode;
use holdfast_core::fields::{FieldKind, FieldSpec};
use holdfast_core::ids::DestinationId;
use holdfast_store::destinations::DestinationRow;
use serde::{Serialize, Serializer};
use serde_json::Value;
use utoipa::ToSchema;

use crate::answer::{Answer, deleted, queued, resource};
use crate::body::Body;
use crate::call::Call;
use crate::list;
use crate::openapi::doc::SchemaDoc;
use crate::preferences::TypedFields;

#[derive(Serialize, ToSchema)]
pub(crate) struct DestinationResource {
    id: i64,
    user_id: i64,
    label: String,
    r#type: &'static str,
    type_human: &'static str,
    /// The fields of the destination's type.
    #[serde(flatten)]
    #[schema(ignore)]
    of_type: OfType,
    /// Only for `s3` and `custom_s3`: whether the bucket keeps deleted objects as older versions, as of the last check.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    keeps_versions: Option<bool>,
    status: &'static str,
    last_checked_at: Option<String>,
    last_error: Option<String>,
    /// The class of the last error.
    error_code: Option<&'static str>,
    created_at: String,
    updated_at: String,
}

/// The body of a create or update request.
pub(crate) fn destination_body() -> SchemaDoc {
    SchemaDoc::of_fields("DestinationBody", "The fields of a backup destination.", destination::fields())
}

/// The type-specific fields that responses include, in the order of the field list.
struct OfType(Vec<(&'static str, Value)>);

impl Serialize for OfType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

fn of_type(spec: &DestinationSpec) -> OfType {
    let values = spec.write();
    let is_shown = |field: &&FieldSpec| field.is_shown(|_| spec.kind().as_str().to_owned());
    let shown = |field: &FieldSpec| {
        let value = match field.kind {
            FieldKind::Switch => values.boolean(field.name).value().map(|on| Value::Bool(*on)),
            FieldKind::Integer { .. } => values.integer(field.name).value().map(|number| Value::from(*number)),
            FieldKind::Id => values.integer(field.name).value().map(|id| Value::from(*id)),
            FieldKind::Ids { .. } => values.integers(field.name).value().map(|ids| Value::from(ids.as_slice())),
            FieldKind::Lines { .. } => values.texts(field.name).value().map(|lines| Value::from(lines.as_slice())),
            FieldKind::Line { .. } | FieldKind::Paragraph { .. } | FieldKind::Choice(_) => {
                values.text(field.name).value().map(|text| Value::from(text.as_str()))
            }
            // Responses only tell whether a secret is set.
            FieldKind::Secret { .. } => values.boolean(field.name).value().map(|is_set| Value::Bool(*is_set)),
        };
        Some((field.shown_at?.trim_start_matches('/'), value?))
    };
    OfType(destination::shown_fields().filter(is_shown).filter_map(shown).collect())
}

fn shape(row: DestinationRow) -> DestinationResource {
    let kind = row.spec.kind();
    DestinationResource {
        id: row.id.0,
        user_id: row.user_id.0,
        label: row.label,
        r#type: kind.as_str(),
        type_human: kind.human(),
        of_type: of_type(&row.spec),
        keeps_versions: row.spec.reports_versions().then_some(row.keeps_versions),
        status: row.status.as_str(),
        last_checked_at: row.last_checked_at.map(|at| rfc3339(at.0)),
        last_error: row.last_error,
        error_code: row.last_error_code.map(FailureCode::as_str),
        created_at: rfc3339(row.created_at.0),
        updated_at: rfc3339(row.updated_at.0),
    }
}

fn typed(current: Option<DestinationKind>) -> TypedFields {
    TypedFields {
        fields: destination::fields().collect(),
        kind: |word| DestinationKind::parse(word).map(DestinationKind::as_str),
        current: current.map(DestinationKind::as_str),
    }
}

pub(crate) async fn list_destinations(call: Call) -> Answer {
    let page = destinations::list(&call.app, &call.listing()?).await?;
    list::page(&call, page, shape)
}

pub(crate) async fn create_destination(call: Call, body: Body) -> Answer {
    let row = destinations::create(&call.app, &call.caller, &body.typed_input(&typed(None))?).await?;
    resource(StatusCode::CREATED, row, shape)
}

pub(crate) async fn show_destination(call: Call) -> Answer {
    let row = destinations::show(&call.app, &call.caller, call.id(Resource::BackupDestination)?).await?;
    resource(StatusCode::OK, row, shape)
}

pub(crate) async fn update_destination(call: Call, body: Body) -> Answer {
    let id: DestinationId = call.id(Resource::BackupDestination)?;
    let row = destinations::show(&call.app, &call.caller, id).await?;
    let input = body.typed_input(&typed(Some(row.spec.kind())))?;
    let row = destinations::update(&call.app, &call.caller, id, &input).await?;
    resource(StatusCode::OK, row, shape)
}

pub(crate) async fn delete_destination(call: Call) -> Answer {
    destinations::delete(&call.app, &call.caller, call.id(Resource::BackupDestination)?).await?;
    deleted(&call, Resource::BackupDestination)
}

pub(crate) async fn check_destination(call: Call) -> Answer {
    let run = destinations::request_check(&call.app, &call.caller, call.id(Resource::BackupDestination)?).await?;
    queued("Backup destination check initiated successfully.", run)
}
