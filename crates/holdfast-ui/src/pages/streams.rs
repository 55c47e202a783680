//! Notification streams: the list with the last delivery result of each, and the form.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use holdfast_app::{App, Caller, Resource, streams};
use holdfast_core::ids::StreamId;
use holdfast_core::input::{Errors, Input};
use holdfast_core::limits;
use holdfast_core::stream::{self, StreamKind};
use holdfast_store::streams::StreamRow;

use crate::fields::{Control, Fields, Group, Values};
use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::human::Markup;
use crate::page::{done, render};
use crate::pages::form_resource::{self, FormResource, List, Outcome};
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;
use crate::translator::Translator;
use crate::view::{FormPage, Pager, listing, state};

#[derive(Template)]
#[template(path = "streams.html")]
struct StreamsPage {
    frame: Frame,
    list: List,
    streams: Vec<Line>,
    pager: Pager,
}

struct Line {
    id: i64,
    label: String,
    kind: String,
    tells: String,
    /// The result of the last message or test.
    state: Markup,
    answer: String,
    at: Option<Markup>,
}

fn tells(t: Translator, row: &StreamRow) -> String {
    match (row.on_success, row.on_failure) {
        (true, true) => t.say("stream-tells-all"),
        (true, false) => t.say("stream-tells-success"),
        (false, true) => t.say("stream-tells-failure"),
        (false, false) => t.say("stream-tells-nothing"),
    }
}

fn line(person: &SignedIn, row: StreamRow) -> Line {
    let t = person.t();
    let test = row.last_tested_at.map(|at| (at, row.last_test_succeeded, row.last_test_message.clone()));
    let delivery = row.last_delivery_at.map(|at| (at, row.last_delivery_succeeded, row.last_delivery_message.clone()));
    let last = test.into_iter().chain(delivery).max_by_key(|(at, ..)| at.0);
    let (state, answer, at) = match last {
        Some((at, succeeded, message)) => {
            let state = match succeeded {
                Some(true) => state("good", &t.say("stream-works")),
                _ => state("failed", &t.say("stream-fails")),
            };
            (state, message.unwrap_or_default(), Some(person.reader.when(at.0)))
        }
        None => (state("", &t.say("stream-untested")), String::new(), None),
    };
    let kind = row.kind.human().to_owned();
    Line { id: row.id.0, tells: tells(t, &row), label: row.label, kind, state, answer, at }
}

pub(crate) async fn list(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let page = streams::list(&ui.app, &listing(&person.caller, &person.query, false)).await?;
    let page = StreamsPage {
        frame: person.frame(&ui, Section::Notifications).await?,
        list: List::of::<Stream>(&person, page.items.is_empty()),
        pager: Pager::of(&person.reader, &page, Stream::HOME, &person.query),
        streams: page.items.into_iter().map(|row| line(&person, row)).collect(),
    };
    Ok(render(StatusCode::OK, &page))
}

/// Unlike other secrets, the address can be read while it is typed, so it has a field of its own kind.
const ADDRESS: &str = "value";

fn input(form: &Form, is_new: bool) -> Input {
    let mut input = form.input(stream::fields());
    if is_new {
        input.set_field(ADDRESS, form.required(ADDRESS));
    }
    input
}

fn address(fields: &Fields<'_>, is_new: bool) -> Control {
    let t = fields.t;
    let hint = t.say("stream-value-hint");
    let line = |hint| fields.line(ADDRESS, t.say("stream-value")).hint(hint).limit(limits::URL_CHARS);
    if is_new { line(hint).required() } else { line(format!("{hint} {}", t.say("form-secret-stays"))) }
}

/// Notification streams as a [`FormResource`].
pub(crate) struct Stream;

impl FormResource for Stream {
    type Row = StreamRow;
    const HOME: &'static str = "/notifications";
    const HAS_PAGES: bool = false;
    const LIST: &'static str = "nav-notifications";
    const SECTION: Section = Section::Notifications;
    const RESOURCE: Resource = Resource::NotificationStream;
    const ADD: &'static str = "stream-add";
    const ADDED: &'static str = "stream-added";
    const DELETE_MEANS: Option<&'static str> = Some("stream-delete-means");

    fn blank() -> Values {
        Values::defaults(stream::fields()).set("type", "email")
    }

    fn values(row: &StreamRow) -> Values {
        Values::of_input(&row.current().write())
    }

    fn id(row: &StreamRow) -> i64 {
        row.id.0
    }

    fn label(row: &StreamRow) -> &str {
        &row.label
    }

    async fn form(
        _: &Ui,
        person: &SignedIn,
        row: Option<&StreamRow>,
        values: &Values,
        errors: &Errors,
    ) -> Result<FormPage, PageError> {
        let t = person.t();
        let fields = Fields { t, values, errors };
        let kinds = StreamKind::ALL.iter().map(|kind| (kind.as_str().to_owned(), kind.human().to_owned()));
        let (mut asked, mut flags) = (Vec::new(), Vec::new());
        for field in stream::fields() {
            let is_set = row.is_some_and(|row| row.has_token && row.kind.token_field() == Some(field.name));
            match field.name {
                "label" => {
                    asked.push(fields.line("label", t.say("form-name")).required().limit(limits::TEXT_CHARS).focus());
                }
                "type" => asked.push(fields.select("type", t.say("stream-kind"), kinds.clone())),
                ADDRESS => asked.push(address(&fields, row.is_none())),
                _ if field.is_secret() => {
                    asked.push(fields.listed(field, is_set));
                    asked.extend(fields.removal(field, is_set));
                }
                _ => flags.push(fields.listed(field, false)),
            }
        }
        let groups = vec![Group::new(String::new(), asked), Group::new(t.say("stream-when"), flags)];
        let after = match row {
            Some(row) => Markup(format!(
                "<p class=\"actions\"><a class=\"button danger\" href=\"/notifications/{}/delete\">{}</a></p>",
                row.id,
                crate::human::escaped(&t.say("form-delete"))
            )),
            None => Markup::default(),
        };
        Ok(FormPage {
            title: if row.is_some() { t.say("stream-edit") } else { t.say("stream-add") },
            intro: t.say("stream-intro"),
            groups,
            submit: if row.is_some() { t.say("form-save") } else { t.say("stream-add-and-test") },
            after,
            ..FormPage::default()
        })
    }

    async fn find(app: &App, caller: &Caller, id: i64) -> Outcome<StreamRow> {
        streams::show(app, caller, StreamId(id)).await
    }

    async fn create(app: &App, caller: &Caller, form: &Form) -> Outcome<StreamRow> {
        let row = streams::create(app, caller, &input(form, true)).await?;
        super::unless_busy(streams::request_test(app, caller, row.id).await)?;
        Ok(row)
    }

    async fn update(app: &App, caller: &Caller, id: i64, form: &Form) -> Outcome<StreamRow> {
        streams::update(app, caller, StreamId(id), &input(form, false)).await
    }

    async fn delete(app: &App, caller: &Caller, id: i64) -> Outcome<()> {
        streams::delete(app, caller, StreamId(id)).await
    }
}

pub(crate) async fn test(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    streams::request_test(&ui.app, &person.caller, form_resource::parse::<Stream>(&id).map(StreamId)?).await?;
    Ok(done("/notifications", "test-sent"))
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let line = Line {
        id: 1,
        label: hostile.into(),
        kind: "Slack".into(),
        tells: "failures".into(),
        state: state("failed", "does not get through"),
        answer: hostile.into(),
        at: Some(Markup("<time>now</time>".into())),
    };
    let list = |streams: Vec<Line>| StreamsPage {
        frame: frame.clone(),
        list: List::sample::<Stream>(hostile, streams.is_empty()),
        streams,
        pager: Pager::default(),
    };
    vec![list(vec![line]).render().unwrap(), list(Vec::new()).render().unwrap()]
}
