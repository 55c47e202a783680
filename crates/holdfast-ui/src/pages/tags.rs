//! Tags, which organize tasks.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use holdfast_app::{App, Caller, Resource, tags};
use holdfast_core::ids::TagId;
use holdfast_core::input::{Errors, Input, Value};
use holdfast_core::limits;
use holdfast_core::tag;
use holdfast_store::tags::TagRow;

use crate::fields::{Fields, Group, Values};
use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::page::render;
use crate::pages::form_resource::{FormResource, List, Outcome};
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;
use crate::view::{FormPage, Pager, listing};

/// The colour that the form preselects for a tag without one.
const COLOUR: &str = "#0b5cad";

#[derive(Template)]
#[template(path = "tags.html")]
struct TagsPage {
    frame: Frame,
    list: List,
    tags: Vec<Line>,
    pager: Pager,
}

struct Line {
    id: i64,
    label: String,
    description: String,
    colour: Option<String>,
}

pub(crate) async fn list(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let page = tags::list(&ui.app, &listing(&person.caller, &person.query, false)).await?;
    let line = |row: TagRow| Line {
        id: row.id.0,
        label: row.label,
        description: row.description.unwrap_or_default(),
        colour: row.colour,
    };
    let page = TagsPage {
        frame: person.frame(&ui, Section::Elsewhere).await?,
        list: List::of::<Tag>(&person, page.items.is_empty()),
        pager: Pager::of(&person.reader, &page, Tag::HOME, &person.query),
        tags: page.items.into_iter().map(line).collect(),
    };
    Ok(render(StatusCode::OK, &page))
}

fn input(form: &Form) -> Input {
    let mut input = form.input(tag::fields());
    if !form.is_on("has_colour") {
        input.set("colour", Value::Null);
    }
    input
}

/// Tags as a [`FormResource`].
pub(crate) struct Tag;

impl FormResource for Tag {
    type Row = TagRow;
    const HOME: &'static str = "/tags";
    const HAS_PAGES: bool = false;
    const LIST: &'static str = "nav-tags";
    const SECTION: Section = Section::Elsewhere;
    const RESOURCE: Resource = Resource::Tag;
    const ADD: &'static str = "tag-add";
    const ADDED: &'static str = "saved";
    /// A tag is easily created again.
    const DELETE_MEANS: Option<&'static str> = None;

    fn blank() -> Values {
        Values::default().set("colour", COLOUR)
    }

    fn values(row: &TagRow) -> Values {
        Values::default()
            .set("label", &row.label)
            .set("description", row.description.clone().unwrap_or_default())
            .set("colour", row.colour.as_deref().map_or_else(|| COLOUR.to_owned(), six_digits))
            .switch("has_colour", row.colour.is_some())
    }

    fn id(row: &TagRow) -> i64 {
        row.id.0
    }

    fn label(row: &TagRow) -> &str {
        &row.label
    }

    async fn form(
        _: &Ui,
        person: &SignedIn,
        row: Option<&TagRow>,
        values: &Values,
        errors: &Errors,
    ) -> Result<FormPage, PageError> {
        let t = person.t();
        let fields = Fields { t, values, errors };
        let group = Group::new(
            String::new(),
            vec![
                fields.line("label", t.say("form-name")).required().limit(limits::TEXT_CHARS).focus(),
                fields.area("description", t.say("form-description")),
                fields.switch("has_colour", t.say("tag-has-colour")),
                fields.of_type("color", "colour", t.say("tag-colour")),
            ],
        );
        Ok(FormPage {
            title: if row.is_some() { t.say("tag-edit") } else { t.say("tag-add") },
            groups: vec![group],
            submit: t.say("form-save"),
            ..FormPage::default()
        })
    }

    async fn find(app: &App, caller: &Caller, id: i64) -> Outcome<TagRow> {
        tags::show(app, caller, TagId(id)).await
    }

    async fn create(app: &App, caller: &Caller, form: &Form) -> Outcome<TagRow> {
        tags::create(app, caller, &input(form)).await
    }

    async fn update(app: &App, caller: &Caller, id: i64, form: &Form) -> Outcome<TagRow> {
        tags::update(app, caller, TagId(id), &input(form)).await
    }

    async fn delete(app: &App, caller: &Caller, id: i64) -> Outcome<()> {
        tags::delete(app, caller, TagId(id)).await
    }
}

/// The long form of a colour, because `<input type="color">` does not accept the short one.
fn six_digits(colour: &str) -> String {
    match colour.len() {
        4 => colour.chars().flat_map(|c| std::iter::repeat_n(c, if c == '#' { 1 } else { 2 })).collect(),
        _ => colour.to_owned(),
    }
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let line = Line { id: 1, label: hostile.into(), description: hostile.into(), colour: Some(hostile.into()) };
    let list = |tags: Vec<Line>| TagsPage {
        frame: frame.clone(),
        list: List::sample::<Tag>(hostile, tags.is_empty()),
        tags,
        pager: Pager::default(),
    };
    vec![list(vec![line]).render().unwrap(), list(Vec::new()).render().unwrap()]
}
