//! The entries of the route table: method, path, access, handler, and OpenAPI description.

use std::sync::Arc;

use axum::handler::Handler;
use axum::http::Method;
use axum::middleware;
use axum::routing::{MethodFilter, MethodRouter, on};
use holdfast_app::Resource;
use holdfast_core::fields::FieldSpec;
use utoipa::ToSchema;

use crate::access::Access;
use crate::answer::Queued;
use crate::guard::{Guarded, guard};
use crate::json::Message;
use crate::openapi::doc::{AnswerDoc, QueryDoc, SchemaDoc};
use crate::preferences::KnownFields;
use crate::state::Api;

pub struct Route {
    pub method: Method,
    pub path: &'static str,
    pub access: Access,
    /// The resource that `{id}` in the path identifies.
    pub resource: Option<Resource>,
    pub summary: &'static str,
    pub(crate) body: Option<BodyDoc>,
    pub(crate) answer: Option<AnswerDoc>,
    pub(crate) query: &'static [QueryDoc],
    handler: MethodRouter<Arc<Api>>,
}

pub(crate) struct BodyDoc {
    pub schema: SchemaDoc,
    /// Every field may be omitted.
    pub partial: bool,
    /// The whole body may be omitted.
    pub optional: bool,
}

macro_rules! methods {
    ($($name:ident = $method:ident),*) => {$(
        pub(crate) fn $name<H, T>(path: &'static str, access: impl Into<Access>, handler: H) -> Route
        where
            H: Handler<T, Arc<Api>>,
            T: 'static,
        {
            Route {
                method: Method::$method,
                path,
                access: access.into(),
                resource: None,
                summary: "",
                body: None,
                answer: None,
                query: &[],
                handler: on(MethodFilter::$method, handler),
            }
        }
    )*};
}

methods!(get = GET, post = POST, put = PUT, patch = PATCH, delete = DELETE);

impl Route {
    pub fn takes_body(&self) -> bool {
        self.body.is_some()
    }

    pub fn needs_body(&self) -> bool {
        self.body.as_ref().is_some_and(|body| !body.optional)
    }

    /// Whether a request can say which version it is about.
    pub(crate) fn takes_if_match(&self) -> bool {
        [Method::PUT, Method::PATCH, Method::DELETE].contains(&self.method)
    }

    /// Whether it creates a resource.
    pub fn creates_resource(&self) -> bool {
        matches!(self.answer, Some(AnswerDoc::Data(201, _)))
    }

    /// Whether a request can be a dry run: it creates, changes or deletes something that people edit as a whole.
    pub fn has_dry_run(&self) -> bool {
        let is_edited = match self.resource {
            Some(
                Resource::NotificationStream
                | Resource::BackupTask
                | Resource::BackupDestination
                | Resource::RemoteServer
                | Resource::Tag,
            ) => true,
            Some(
                Resource::BackupTaskLog
                | Resource::Backup
                | Resource::Run
                | Resource::Notice
                | Resource::Administration,
            )
            | None => false,
        };
        self.creates_resource() || is_edited && self.takes_if_match()
    }

    pub(crate) fn says(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    pub(crate) fn of(mut self, resource: Resource) -> Self {
        self.resource = Some(resource);
        self
    }

    pub(crate) fn asks(mut self, query: &'static [QueryDoc]) -> Self {
        self.query = query;
        self
    }

    pub(crate) fn takes<T: ToSchema>(mut self) -> Self {
        self.body = Some(BodyDoc { schema: SchemaDoc::of::<T>(), partial: false, optional: false });
        self
    }

    /// A body described by a field list.
    pub(crate) fn takes_fields(mut self, schema: SchemaDoc) -> Self {
        self.body = Some(BodyDoc { schema, partial: false, optional: false });
        self
    }

    pub(crate) fn takes_some_fields(mut self, schema: SchemaDoc) -> Self {
        self.body = Some(BodyDoc { schema, partial: true, optional: false });
        self
    }

    pub(crate) fn may_take<T: ToSchema>(mut self) -> Self {
        self.body = Some(BodyDoc { schema: SchemaDoc::of::<T>(), partial: false, optional: true });
        self
    }

    pub(crate) fn takes_part_of<T: ToSchema>(mut self) -> Self {
        self.body = Some(BodyDoc { schema: SchemaDoc::of::<T>(), partial: true, optional: false });
        self
    }

    /// The response also has these type-specific fields.
    pub(crate) fn with_shown(mut self, fields: impl Iterator<Item = &'static FieldSpec>) -> Self {
        self.answer = self.answer.map(|answer| answer.with_shown(fields));
        self
    }

    /// 200 with one resource.
    pub(crate) fn shows<T: ToSchema>(mut self) -> Self {
        self.answer = Some(AnswerDoc::Data(200, SchemaDoc::of::<T>()));
        self
    }

    /// 201 with the new resource.
    pub(crate) fn creates<T: ToSchema>(mut self) -> Self {
        self.answer = Some(AnswerDoc::Data(201, SchemaDoc::of::<T>()));
        self
    }

    /// 202 with the run that was queued.
    pub(crate) fn queues<T: ToSchema>(mut self) -> Self {
        self.answer = Some(AnswerDoc::Data(202, SchemaDoc::of::<T>()));
        self
    }

    /// 202 with a message and the id of the run that was queued.
    pub(crate) fn confirms_queued(mut self) -> Self {
        self.answer = Some(AnswerDoc::Bare(202, SchemaDoc::of::<Queued>()));
        self
    }

    /// 200 with bytes.
    pub(crate) fn sends_bytes(mut self) -> Self {
        self.answer = Some(AnswerDoc::Bytes);
        self
    }

    /// 200 with server-sent events.
    pub(crate) fn sends_events<T: ToSchema>(mut self) -> Self {
        self.answer = Some(AnswerDoc::Events(SchemaDoc::of::<T>()));
        self
    }

    /// 200 with a page of resources.
    pub(crate) fn lists<T: ToSchema>(mut self) -> Self {
        self.answer = Some(AnswerDoc::Page(SchemaDoc::of::<T>()));
        self
    }

    /// 200 with a complete list, without pagination.
    pub(crate) fn shows_all<T: ToSchema>(mut self) -> Self {
        self.answer = Some(AnswerDoc::All(SchemaDoc::of::<T>()));
        self
    }

    /// A message confirming that the operation was done (200) or queued (202).
    pub(crate) fn confirms(mut self, status: u16) -> Self {
        self.answer = Some(AnswerDoc::Bare(status, SchemaDoc::of::<Message>()));
        self
    }

    /// 200 with a body that is not wrapped in `data`.
    pub(crate) fn answers<T: ToSchema>(mut self) -> Self {
        self.answer = Some(AnswerDoc::Bare(200, SchemaDoc::of::<T>()));
        self
    }
}

/// The routes grouped for axum: one entry per path, every method behind its guard.
pub(crate) fn by_path(routes: Vec<Route>, api: &Arc<Api>) -> Vec<(&'static str, MethodRouter<Arc<Api>>)> {
    let mut paths: Vec<(&'static str, MethodRouter<Arc<Api>>)> = Vec::new();
    for route in routes {
        let known = route.body.as_ref().map(|body| KnownFields::of(&body.schema)).unwrap_or_default();
        let has_dry_run = route.has_dry_run();
        let state = Guarded { api: api.clone(), access: route.access, known, has_dry_run };
        let guarded = route.handler.route_layer(middleware::from_fn_with_state(state, guard));
        match paths.iter_mut().find(|(path, _)| *path == route.path) {
            Some((_, methods)) => *methods = std::mem::take(methods).merge(guarded),
            None => paths.push((route.path, guarded)),
        }
    }
    paths
}
