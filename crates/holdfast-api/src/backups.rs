//! `/api/backups`: browse, download, verify, restore and delete stored backups.

use axum::body::Body as HttpBody;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::IntoResponse as _;
use holdfast_app::{Download, EntryItem, Part, Resource, backups};
use holdfast_core::backup::DeletedReason;
use holdfast_core::backup::{RestoreInput, Verification};
use holdfast_core::clock::rfc3339;
use holdfast_core::ids::BackupId;
use holdfast_core::input::Errors;
use holdfast_core::page::{PageRequest, Sort};
use holdfast_core::storage::Format;
use holdfast_core::{limits, rules};
use holdfast_store::backups::{BackupFilter, BackupRow};
use serde::Serialize;
use utoipa::ToSchema;

use crate::answer::{Answer, message, queued_run, resource};
use crate::body::Body;
use crate::byte_range;
use crate::call::Call;
use crate::error::ApiError;
use crate::list;
use crate::runs;

#[derive(Serialize, ToSchema)]
pub(crate) struct BackupResource {
    id: i64,
    user_id: i64,
    /// Null when the task was deleted.
    backup_task_id: Option<i64>,
    backup_destination_id: i64,
    /// Null when the log was deleted.
    run_id: Option<i64>,
    /// The label of the task when the backup was made.
    task_label: String,
    /// The path or database that was backed up.
    source: String,
    content: &'static str,
    format: &'static str,
    /// The key of the object at the destination; in a repository, of the snapshot.
    key: String,
    /// The size of the object as it is stored; in a repository, what the backup added to it.
    size_bytes: i64,
    /// Checksum of the object as it is stored; in a repository, the ID of the snapshot.
    sha256: String,
    /// The size before compression and encryption.
    plain_bytes: i64,
    is_encrypted: bool,
    /// The number of files, folders and links, or of tables in a database.
    entries: i64,
    verification: VerificationResource,
    created_at: String,
    deleted_at: Option<String>,
    deleted_reason: Option<&'static str>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct VerificationResource {
    status: &'static str,
    checked_at: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct EntryResource {
    name: String,
    /// Relative to the source. Bytes that are not valid text are written as `\xHH`.
    path: String,
    #[serde(rename = "type")]
    kind: &'static str,
    size: u64,
    modified_at: String,
}

/// What to restore, and where to.
#[derive(ToSchema)]
#[expect(dead_code, reason = "describes the body for the document")]
pub(crate) struct RestoreBody {
    /// The server to restore to.
    #[schema(minimum = 1)]
    remote_server_id: i64,
    /// Required for files: the absolute path of a folder, which is created if it does not exist. Required for an SQLite
    /// database: the absolute path of its file.
    #[schema(nullable = false, max_length = 4096)]
    path: Option<String>,
    /// Restore only these files and folders. Everything is restored if omitted.
    #[schema(max_items = 1000)]
    entries: Option<Vec<String>>,
    /// Replace existing data. Otherwise existing files are kept, and a database must be empty.
    #[schema(nullable = false, default = false)]
    overwrite: Option<bool>,
    /// Required for the dump of a single database: the database to restore into, created if it does not exist. For a
    /// backup of a whole server: the one database to restore, under its original name. If omitted, all databases are
    /// restored, with users and privileges.
    #[schema(max_length = 255)]
    database_name: Option<String>,
    /// Do not restore owners or, for a database, privileges.
    #[schema(nullable = false, default = false)]
    no_owner: Option<bool>,
    /// Restore file owners by numeric ID instead of by name.
    #[schema(nullable = false, default = false)]
    numeric_owner: Option<bool>,
    /// Also restore device nodes; requires root on the server.
    #[schema(nullable = false, default = false)]
    restore_devices: Option<bool>,
    /// Write nothing. The log of the run lists what would be written, kept and refused.
    #[schema(nullable = false, default = false)]
    dry_run: Option<bool>,
}

fn shape(row: BackupRow) -> BackupResource {
    BackupResource {
        id: row.id.0,
        user_id: row.user_id.0,
        backup_task_id: row.task_id.map(|id| id.0),
        backup_destination_id: row.destination_id.0,
        run_id: row.run_id.map(|id| id.0),
        task_label: row.task_label,
        source: row.source,
        content: row.content.as_str(),
        format: row.format.as_str(),
        key: row.locator,
        size_bytes: row.size_bytes,
        sha256: row.sha256,
        plain_bytes: row.plain_bytes,
        is_encrypted: row.is_encrypted,
        entries: row.entries,
        verification: VerificationResource {
            status: row.verification.as_str(),
            checked_at: row.verified_at.map(|at| rfc3339(at.0)),
        },
        created_at: rfc3339(row.created_at.0),
        deleted_at: row.deleted_at.map(|at| rfc3339(at.0)),
        deleted_reason: row.deleted_reason.map(DeletedReason::as_str),
    }
}

fn shape_entry(entry: EntryItem) -> EntryResource {
    EntryResource {
        name: entry.name,
        path: entry.path,
        kind: entry.kind.as_str(),
        size: entry.size,
        modified_at: rfc3339(entry.modified_at),
    }
}

pub(crate) async fn list_backups(call: Call) -> Answer {
    let listing = call.listing_without_labels()?;
    let mut errors = Errors::default();
    let filter = BackupFilter {
        task: call.query.id_filter(&mut errors, "backup_task_id"),
        status: call.query.word_filter(&mut errors, "status", Verification::parse),
        is_damaged: false,
        with_deleted: call.query.switch(&mut errors, "deleted"),
    };
    if !errors.is_empty() {
        return Err(ApiError::from(errors));
    }
    let page = backups::list(&call.app, &listing, &filter).await?;
    list::page(&call, page, shape)
}

pub(crate) async fn show_backup(call: Call) -> Answer {
    let row = backups::show(&call.app, &call.caller, call.id(Resource::Backup)?).await?;
    resource(StatusCode::OK, row, shape)
}

pub(crate) async fn list_entries(call: Call) -> Answer {
    let id: BackupId = call.id(Resource::Backup)?;
    backups::show(&call.app, &call.caller, id).await?;
    let request = PageRequest::parse(call.query.get("page"), call.query.get("per_page"))?;
    let path = path_of(&call, "path")?;
    // The content of a backup does not change, so the cursor is the number of entries before it.
    let after = call.cursor(Sort::Id)?.map(|position| position.id.max(0));
    let path = path.unwrap_or_default();
    let page = backups::entries(&call.app, &call.caller, id, &path, request, after).await?;
    list::page(&call, page, shape_entry)
}

/// A path from the query; `None` if it is missing or empty.
fn path_of(call: &Call, name: &str) -> Result<Option<String>, ApiError> {
    let mut errors = Errors::default();
    let path = call.query.get(name).filter(|path| !path.trim_matches('/').is_empty());
    let path = path.and_then(|path| rules::exact_line(&mut errors, name, path, limits::PATH_CHARS));
    if errors.is_empty() { Ok(path) } else { Err(errors.into()) }
}

pub(crate) async fn download_backup(call: Call, headers: HeaderMap) -> Answer {
    let id: BackupId = call.id(Resource::Backup)?;
    let row = backups::show(&call.app, &call.caller, id).await?;
    if let Some(entry) = path_of(&call, "entry")? {
        let download = backups::download(&call.app, &call.caller, id, Part::Entry(&entry)).await?;
        // Finding the place of a byte in a file takes as long as sending everything before it.
        return Ok(send(download, vec![("accept-ranges", "none".to_owned())]));
    }
    match row.format {
        Format::Archive => {}
        // It is put together while it is sent, and has no hash of its own.
        Format::Repository => {
            let download = backups::download(&call.app, &call.caller, id, Part::Whole).await?;
            return Ok(send(download, vec![("accept-ranges", "none".to_owned())]));
        }
    }
    let (tag, size) = (format!("\"{}\"", row.sha256), u64::try_from(row.size_bytes).unwrap_or_default());
    let range = byte_range::asked(&headers, &tag, size)?;
    let part = range.clone().map_or(Part::Whole, Part::Range);
    let download = backups::download(&call.app, &call.caller, id, part).await?;
    let mut response = send(download, vec![("accept-ranges", "bytes".to_owned()), ("etag", tag)]);
    if let Some(range) = range {
        let text = format!("bytes {}-{}/{size}", range.start, range.end - 1);
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        response.headers_mut().extend(HeaderValue::from_str(&text).ok().map(|text| (header::CONTENT_RANGE, text)));
    }
    Ok(response)
}

fn send(download: Download, more: Vec<(&'static str, String)>) -> axum::response::Response {
    let headers = download.headers().into_iter().chain(more);
    let mut response = HttpBody::from_stream(Box::pin(download.into_stream())).into_response();
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

pub(crate) async fn verify_backup(call: Call) -> Answer {
    let run = backups::request_verification(&call.app, &call.caller, call.id(Resource::Backup)?).await?;
    queued_run(run.id, runs::shape_with_restore(&call.app, &run, String::new()).await?)
}

pub(crate) async fn restore_backup(call: Call, body: Body) -> Answer {
    let id: BackupId = call.id(Resource::Backup)?;
    backups::show(&call.app, &call.caller, id).await?;
    let body = body.input()?;
    let input = RestoreInput {
        remote_server_id: body.integer("remote_server_id"),
        path: body.text("path"),
        entries: body.texts("entries"),
        overwrite: body.boolean("overwrite"),
        database_name: body.text("database_name"),
        no_owner: body.boolean("no_owner"),
        numeric_owner: body.boolean("numeric_owner"),
        restore_devices: body.boolean("restore_devices"),
        dry_run: body.boolean("dry_run"),
    };
    let run = backups::request_restore(&call.app, &call.caller, id, &input).await?;
    queued_run(run.id, runs::shape_with_restore(&call.app, &run, String::new()).await?)
}

pub(crate) async fn delete_backup(call: Call) -> Answer {
    backups::delete(&call.app, &call.caller, call.id(Resource::Backup)?).await?;
    message(StatusCode::OK, "Backup successfully deleted")
}
