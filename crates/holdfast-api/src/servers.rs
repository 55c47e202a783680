//! `/api/remote-servers`.

use axum::http::StatusCode;
use holdfast_app::{Resource, servers};
use holdfast_core::clock::rfc3339;
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::ServerId;
use holdfast_core::input::{Errors, Field};
use holdfast_core::server;
use holdfast_core::{limits, rules};
use holdfast_store::servers::ServerRow;
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, deleted, queued, resource};
use crate::body::Body;
use crate::call::Call;
use crate::error::ApiError;
use crate::list;
use crate::openapi::doc::SchemaDoc;

#[derive(Serialize, ToSchema)]
pub(crate) struct ServerResource {
    id: i64,
    user_id: i64,
    label: String,
    connection: Connection,
    status: ServerStatus,
    created_at: String,
    updated_at: String,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Connection {
    host: String,
    /// The same as `host`.
    ip_address: String,
    username: String,
    port: i64,
    database_username: Option<String>,
    is_database_password_set: bool,
    /// Pinned on the first connection.
    host_key_fingerprint: Option<String>,
    /// A different key that the server presented later. It is not trusted until it is accepted.
    offered_host_key_fingerprint: Option<String>,
    /// The remote server used as a jump host to reach this one.
    jump_server_id: Option<i64>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct ServerStatus {
    connectivity: &'static str,
    last_connected_at: Option<String>,
    last_checked_at: Option<String>,
    last_error: Option<String>,
    /// The class of the last error.
    error_code: Option<&'static str>,
    latency_ms: Option<f64>,
    /// The tools that the last check found on the server.
    tools: Vec<Tool>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct Tool {
    name: String,
    version: String,
}

/// The body of a create or update request.
pub(crate) fn server_body() -> SchemaDoc {
    SchemaDoc::of_fields("ServerBody", "The fields of a remote server.", server::fields())
}

/// Which key to trust.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document")]
pub(crate) struct AcceptHostKeyBody {
    /// The fingerprint that you verified, from `offered_host_key_fingerprint`. If the server has presented another key
    /// since, the request fails with 409. If omitted, the key that the server presented last is trusted.
    #[schema(required = false, nullable = false, min_length = 1, max_length = 255)]
    fingerprint: Option<String>,
}

fn shape(row: ServerRow) -> ServerResource {
    ServerResource {
        id: row.id.0,
        user_id: row.user_id.0,
        label: row.label,
        connection: Connection {
            ip_address: row.host.clone(),
            host: row.host,
            username: row.username,
            port: row.port,
            database_username: row.database_username,
            is_database_password_set: row.has_database_password,
            host_key_fingerprint: row.host_key,
            offered_host_key_fingerprint: row.offered_host_key,
            jump_server_id: row.jump_server_id.map(|id| id.0),
        },
        status: ServerStatus {
            connectivity: row.connectivity.as_str(),
            last_connected_at: row.last_connected_at.map(|at| rfc3339(at.0)),
            last_checked_at: row.last_checked_at.map(|at| rfc3339(at.0)),
            last_error: row.last_error,
            error_code: row.last_error_code.map(FailureCode::as_str),
            latency_ms: row.latency_micros.map(|micros| micros as f64 / 1000.0),
            tools: row.tools.lines().filter_map(shape_tool).collect(),
        },
        created_at: rfc3339(row.created_at.0),
        updated_at: rfc3339(row.updated_at.0),
    }
}

fn shape_tool(line: &str) -> Option<Tool> {
    let (name, version) = line.split_once(' ')?;
    Some(Tool { name: name.to_owned(), version: version.to_owned() })
}

pub(crate) async fn list_servers(call: Call) -> Answer {
    let page = servers::list(&call.app, &call.listing()?).await?;
    list::page(&call, page, shape)
}

pub(crate) async fn create_server(call: Call, body: Body) -> Answer {
    let row = servers::create(&call.app, &call.caller, &body.input()?).await?;
    resource(StatusCode::CREATED, row, shape)
}

pub(crate) async fn show_server(call: Call) -> Answer {
    let row = servers::show(&call.app, &call.caller, call.id(Resource::RemoteServer)?).await?;
    resource(StatusCode::OK, row, shape)
}

pub(crate) async fn update_server(call: Call, body: Body) -> Answer {
    let id: ServerId = call.id(Resource::RemoteServer)?;
    servers::show(&call.app, &call.caller, id).await?;
    let row = servers::update(&call.app, &call.caller, id, &body.input()?).await?;
    resource(StatusCode::OK, row, shape)
}

pub(crate) async fn delete_server(call: Call) -> Answer {
    servers::delete(&call.app, &call.caller, call.id(Resource::RemoteServer)?).await?;
    deleted(&call, Resource::RemoteServer)
}

pub(crate) async fn check_server(call: Call) -> Answer {
    let run = servers::request_check(&call.app, &call.caller, call.id(Resource::RemoteServer)?).await?;
    queued("Remote server check initiated successfully.", run)
}

/// Without a body, accepts the key that the server presented last.
pub(crate) async fn accept_host_key(call: Call, body: Body) -> Answer {
    let id: ServerId = call.id(Resource::RemoteServer)?;
    servers::show(&call.app, &call.caller, id).await?;
    let mut errors = Errors::default();
    let seen = match body.optional_input()?.text("fingerprint") {
        Field::Absent => None,
        given => rules::required_line(&mut errors, "fingerprint", &given, limits::TEXT_CHARS, None),
    };
    if !errors.is_empty() {
        return Err(ApiError::from(errors));
    }
    let row = servers::accept_host_key(&call.app, &call.caller, id, seen.as_deref()).await?;
    resource(StatusCode::OK, row, shape)
}
