//! `/api/tags`.

use axum::http::StatusCode;
use holdfast_app::{Resource, tags};
use holdfast_core::clock::rfc3339;
use holdfast_core::ids::TagId;
use holdfast_core::tag;
use holdfast_store::tags::TagRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, deleted, resource};
use crate::body::Body;
use crate::call::Call;
use crate::list;
use crate::openapi::doc::SchemaDoc;

#[derive(Serialize, ToSchema)]
pub(crate) struct TagResource {
    id: i64,
    user_id: i64,
    label: String,
    description: Option<String>,
    colour: Option<String>,
    created_at: String,
    updated_at: String,
}

/// The body of a create or update request.
pub(crate) fn tag_body() -> SchemaDoc {
    SchemaDoc::of_fields("TagBody", "The fields of a tag.", tag::fields())
}

fn shape(row: TagRow) -> TagResource {
    TagResource {
        id: row.id.0,
        user_id: row.user_id.0,
        label: row.label,
        description: row.description,
        colour: row.colour,
        created_at: rfc3339(row.created_at.0),
        updated_at: rfc3339(row.updated_at.0),
    }
}

pub(crate) async fn list_tags(call: Call) -> Answer {
    let page = tags::list(&call.app, &call.listing()?).await?;
    list::page(&call, page, shape)
}

pub(crate) async fn create_tag(call: Call, body: Body) -> Answer {
    let row = tags::create(&call.app, &call.caller, &body.input()?).await?;
    resource(StatusCode::CREATED, row, shape)
}

pub(crate) async fn show_tag(call: Call) -> Answer {
    let row = tags::show(&call.app, &call.caller, call.id(Resource::Tag)?).await?;
    resource(StatusCode::OK, row, shape)
}

pub(crate) async fn update_tag(call: Call, body: Body) -> Answer {
    let id: TagId = call.id(Resource::Tag)?;
    tags::show(&call.app, &call.caller, id).await?;
    let row = tags::update(&call.app, &call.caller, id, &body.input()?).await?;
    resource(StatusCode::OK, row, shape)
}

pub(crate) async fn delete_tag(call: Call) -> Answer {
    tags::delete(&call.app, &call.caller, call.id(Resource::Tag)?).await?;
    deleted(&call, Resource::Tag)
}
