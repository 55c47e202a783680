//! The parts of a route's OpenAPI description: its schemas, its response and its query parameters.

use std::collections::BTreeMap;

use holdfast_core::backup::Verification;
use holdfast_core::fields::FieldSpec;
use holdfast_core::notice::NoticeStatus;
use holdfast_core::page::Sort;
use holdfast_core::run::{RunStatus, TaskStatus};
use holdfast_core::source::TaskKind;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::words::kinds_of_listed_runs;

/// The named schema of a type, together with the schemas it refers to.
pub(crate) struct SchemaDoc {
    pub name: String,
    pub all: Vec<(String, Value)>,
}

impl SchemaDoc {
    pub(crate) fn of<T: ToSchema>() -> Self {
        let mut all = Vec::new();
        T::schemas(&mut all);
        all.push((T::name().into_owned(), T::schema()));
        let all = all.into_iter().map(|(name, schema)| (name, json!(schema))).collect();
        Self { name: T::name().into_owned(), all }
    }

    pub(crate) fn reference(&self) -> Value {
        reference(&self.name)
    }
}

pub(crate) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// The successful response of a route.
pub(crate) enum AnswerDoc {
    Data(u16, SchemaDoc),
    All(SchemaDoc),
    Page(SchemaDoc),
    Bare(u16, SchemaDoc),
    /// A file.
    Bytes,
    /// Server-sent events; the schema is that of their `data`.
    Events(SchemaDoc),
}

impl AnswerDoc {
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Data(status, _) | Self::Bare(status, _) => *status,
            Self::All(_) | Self::Page(_) | Self::Bytes | Self::Events(_) => 200,
        }
    }

    pub(crate) fn schema(&self) -> Option<&SchemaDoc> {
        match self {
            Self::Data(_, schema)
            | Self::Bare(_, schema)
            | Self::All(schema)
            | Self::Page(schema)
            | Self::Events(schema) => Some(schema),
            Self::Bytes => None,
        }
    }

    pub(crate) fn with_shown(self, fields: impl Iterator<Item = &'static FieldSpec>) -> Self {
        match self {
            Self::Data(status, schema) => Self::Data(status, schema.with_shown(fields)),
            Self::Bare(status, schema) => Self::Bare(status, schema.with_shown(fields)),
            Self::All(schema) => Self::All(schema.with_shown(fields)),
            Self::Page(schema) => Self::Page(schema.with_shown(fields)),
            Self::Events(schema) => Self::Events(schema.with_shown(fields)),
            Self::Bytes => Self::Bytes,
        }
    }

    pub(crate) fn content_type(&self) -> &'static str {
        match self {
            Self::Bytes => "application/octet-stream",
            Self::Events(_) => "text/event-stream",
            Self::Data(..) | Self::Bare(..) | Self::All(_) | Self::Page(_) => "application/json",
        }
    }

    pub(crate) fn body(&self) -> Value {
        let item = self.schema().map(SchemaDoc::reference).unwrap_or_default();
        let list = || json!({ "type": "array", "items": item });
        match self {
            Self::Bytes => json!({ "type": "string", "format": "binary" }),
            Self::Events(schema) => json!({
                "type": "string",
                "description": "Server-sent events. The `data` of each is a JSON object.",
                "contentSchema": schema.reference(),
            }),
            Self::Bare(_, schema) => schema.reference(),
            Self::Data(_, schema) => object(&[("data", schema.reference())]),
            Self::All(_) => object(&[("data", list())]),
            Self::Page(_) => object(&[("data", list()), ("links", reference("Links")), ("meta", reference("Meta"))]),
        }
    }
}

pub(crate) fn object(properties: &[(&str, Value)]) -> Value {
    let names: Vec<&str> = properties.iter().map(|(name, _)| *name).collect();
    let properties: BTreeMap<&str, &Value> = properties.iter().map(|(name, value)| (*name, value)).collect();
    json!({ "type": "object", "required": names, "properties": properties })
}

/// A query parameter.
pub(crate) struct QueryDoc {
    name: &'static str,
    about: &'static str,
    kind: QueryKind,
}

enum QueryKind {
    Text,
    Number { default: Option<i64> },
    Sort,
    SortWithoutLabel,
    Time,
    Cursor,
    RunStatus,
    TaskStatus,
    TaskType,
    Verification,
    NoticeStatus,
    RunKind,
    Switch,
    Path,
}

const fn query(name: &'static str, about: &'static str, kind: QueryKind) -> QueryDoc {
    QueryDoc { name, about, kind }
}

const PAGE: QueryDoc = query("page", "Page number, starting at 1", QueryKind::Number { default: Some(1) });
const PER_PAGE: QueryDoc =
    query("per_page", "Items per page; values above 100 are reduced to 100", QueryKind::Number { default: Some(15) });
const CURSOR: QueryDoc = query(
    "cursor",
    "The `meta.next_cursor` of the previous response, instead of a page; such pages have no totals",
    QueryKind::Cursor,
);
const SORT: QueryDoc = query("sort", "The order of the list", QueryKind::Sort);
const SORT_WITHOUT_LABEL: QueryDoc = query("sort", "The order of the list", QueryKind::SortWithoutLabel);
const CREATED_AFTER: QueryDoc = query("created_after", "Only items that were created after this time", QueryKind::Time);
const UPDATED_AFTER: QueryDoc = query("updated_after", "Only items that have changed since this time", QueryKind::Time);
const SEARCH: QueryDoc = query("search", "Only items whose label contains this", QueryKind::Text);
const LOG_STATUS: QueryDoc = query("status", "Only logs with this status", QueryKind::RunStatus);
pub(crate) const LIST: &[QueryDoc] = &[PAGE, PER_PAGE, CURSOR, SORT, CREATED_AFTER, UPDATED_AFTER, SEARCH];
pub(crate) const LIST_TASKS: &[QueryDoc] = &[
    PAGE,
    PER_PAGE,
    CURSOR,
    SORT,
    CREATED_AFTER,
    UPDATED_AFTER,
    SEARCH,
    query("status", "Only tasks with this status", QueryKind::TaskStatus),
    query("type", "Only tasks of this type", QueryKind::TaskType),
    query("tag_id", "Only tasks with this tag", QueryKind::Number { default: None }),
    query("remote_server_id", "Only tasks of this remote server", QueryKind::Number { default: None }),
    query("backup_destination_id", "Only tasks of this backup destination", QueryKind::Number { default: None }),
];
pub(crate) const LIST_LOGS: &[QueryDoc] = &[
    PAGE,
    PER_PAGE,
    CURSOR,
    SORT_WITHOUT_LABEL,
    CREATED_AFTER,
    UPDATED_AFTER,
    LOG_STATUS,
    query("backup_task_id", "Only logs of this backup task", QueryKind::Number { default: None }),
];
pub(crate) const LIST_TASK_LOGS: &[QueryDoc] =
    &[PAGE, PER_PAGE, CURSOR, SORT_WITHOUT_LABEL, CREATED_AFTER, UPDATED_AFTER, LOG_STATUS];
pub(crate) const LIST_BACKUPS: &[QueryDoc] = &[
    PAGE,
    PER_PAGE,
    CURSOR,
    SORT_WITHOUT_LABEL,
    CREATED_AFTER,
    UPDATED_AFTER,
    query("backup_task_id", "Only backups of this backup task", QueryKind::Number { default: None }),
    query("status", "Only backups whose verification has this status", QueryKind::Verification),
    query("deleted", "Include deleted backups", QueryKind::Switch),
];
pub(crate) const LIST_NOTICES: &[QueryDoc] = &[
    PAGE,
    PER_PAGE,
    CURSOR,
    SORT_WITHOUT_LABEL,
    CREATED_AFTER,
    UPDATED_AFTER,
    query("status", "Only notices with this status", QueryKind::NoticeStatus),
    query("notification_stream_id", "Only notices of this stream", QueryKind::Number { default: None }),
];
pub(crate) const LIST_AUDIT_EVENTS: &[QueryDoc] =
    &[PAGE, PER_PAGE, CURSOR, SORT_WITHOUT_LABEL, CREATED_AFTER, UPDATED_AFTER];
pub(crate) const LIST_ENTRIES: &[QueryDoc] =
    &[PAGE, PER_PAGE, CURSOR, query("path", "The folder to list; the root if omitted", QueryKind::Path)];
pub(crate) const DOWNLOAD: &[QueryDoc] =
    &[query("entry", "The path of one file; the whole stored object if omitted", QueryKind::Path)];
pub(crate) const LIST_RUNS: &[QueryDoc] = &[
    PAGE,
    PER_PAGE,
    CURSOR,
    SORT_WITHOUT_LABEL,
    CREATED_AFTER,
    UPDATED_AFTER,
    query("backup_id", "Only runs of this backup", QueryKind::Number { default: None }),
    query(
        "kind",
        "Only runs of this kind; those that look after repositories are listed only on request",
        QueryKind::RunKind,
    ),
    query("status", "Only runs with this status", QueryKind::RunStatus),
];
pub(crate) const DELETE_TASK: &[QueryDoc] =
    &[query("delete_backups", "Also delete the task's stored backups", QueryKind::Switch)];
pub(crate) const UPCOMING: &[QueryDoc] =
    &[query("limit", "How many runs; values above 100 are reduced to 100", QueryKind::Number { default: Some(20) })];
pub(crate) const TRIGGER: &[QueryDoc] =
    &[query("secret", "The task's secret, for clients that cannot send a header", QueryKind::Text)];

impl QueryDoc {
    pub(crate) fn parameter(&self) -> Value {
        let words = |words: Vec<&str>| json!({ "type": "string", "enum": words });
        let schema = match self.kind {
            QueryKind::Text => json!({ "type": "string", "maxLength": 255 }),
            QueryKind::Number { default: Some(default) } => {
                json!({ "type": "integer", "minimum": 1, "default": default })
            }
            QueryKind::Number { default: None } => {
                json!({ "type": "integer", "minimum": 1, "maximum": i64::MAX })
            }
            QueryKind::Sort => words(Sort::WORDS.to_vec()),
            QueryKind::SortWithoutLabel => {
                words(Sort::ALL.iter().filter(|sort| **sort != Sort::Label).map(|sort| sort.as_str()).collect())
            }
            QueryKind::Time => json!({ "type": "string", "format": "date-time" }),
            QueryKind::Cursor => json!({ "type": "string", "maxLength": 2048 }),
            QueryKind::Path => json!({ "type": "string", "maxLength": 4096 }),
            QueryKind::Switch => json!({ "type": "boolean", "default": false }),
            QueryKind::Verification => words(Verification::ALL.iter().map(|status| status.as_str()).collect()),
            QueryKind::NoticeStatus => words(NoticeStatus::ALL.iter().map(|status| status.as_str()).collect()),
            QueryKind::RunKind => words(kinds_of_listed_runs()),
            QueryKind::RunStatus => words(RunStatus::ALL.iter().map(|status| status.as_str()).collect()),
            QueryKind::TaskStatus => words(TaskStatus::ALL.iter().map(|status| status.as_str()).collect()),
            QueryKind::TaskType => words(TaskKind::ALL.iter().map(|kind| kind.as_str()).collect()),
        };
        json!({ "name": self.name, "in": "query", "description": self.about, "required": false, "schema": schema })
    }
}
