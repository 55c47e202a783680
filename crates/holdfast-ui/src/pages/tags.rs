//! Tags: words that people sort their tasks by.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use holdfast_app::{AppError, Resource, tags};
use holdfast_core::ids::TagId;
use holdfast_core::input::{Errors, Field};
use holdfast_core::limits;
use holdfast_core::tag::TagInput;
use holdfast_store::tags::TagRow;

use crate::Ui;
use crate::fields::{Fields, Group, Values};
use crate::form::Form;
use crate::frame::{Frame, Place};
use crate::page::{PageError, PageResult, done, render};
use crate::session::SignedIn;
use crate::view::{FormPage, Pager, listing};

/// What a tag without a colour begins with when it gets one.
const COLOUR: &str = "#0b5cad";

#[derive(Template)]
#[template(path = "tags.html")]
struct TagsPage {
    frame: Frame,
    tags: Vec<Line>,
    pager: Pager,
}

struct Line {
    id: i64,
    label: String,
    description: String,
    colour: Option<String>,
}

fn parse(id: &str) -> Result<TagId, PageError> {
    let id: i64 = id.parse().map_err(|_| AppError::NotFound(Resource::Tag))?;
    Ok(TagId(id))
}

pub(crate) async fn list(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let page = tags::list(&ui.app, &listing(&person.caller, &person.query, false)).await?;
    let line = |row: TagRow| Line {
        id: row.id,
        label: row.label,
        description: row.description.unwrap_or_default(),
        colour: row.colour,
    };
    let page = TagsPage {
        frame: person.frame(&ui, Place::Elsewhere).await?,
        pager: Pager::of(&person.reader, &page, "/tags", &person.query),
        tags: page.items.into_iter().map(line).collect(),
    };
    Ok(render(StatusCode::OK, &page))
}

fn input(form: &Form) -> TagInput {
    TagInput {
        label: form.required("label"),
        description: form.optional("description"),
        colour: if form.is_on("has_colour") { form.optional("colour") } else { Field::Null },
    }
}

async fn form_page(
    ui: &Ui,
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
    let (title, action) = match row {
        Some(row) => (t.say("tag-edit"), format!("/tags/{}/edit", row.id)),
        None => (t.say("tag-add"), "/tags/new".to_owned()),
    };
    Ok(FormPage {
        frame: person.frame(ui, Place::Elsewhere).await?,
        title,
        action,
        groups: vec![group],
        submit: t.say("form-save"),
        up: Some(("/tags".to_owned(), t.say("nav-tags"))),
        ..FormPage::default()
    })
}

pub(crate) async fn show_new(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let values = Values::default().set("colour", COLOUR);
    Ok(form_page(&ui, &person, None, &values, &Errors::default()).await?.show(StatusCode::OK))
}

pub(crate) async fn create(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    match tags::create(&ui.app, &person.caller, &input(&form)).await {
        Ok(_) => Ok(done("/tags", "saved")),
        Err(AppError::Invalid(errors)) => {
            let page = form_page(&ui, &person, None, &Values::of(&form), &errors).await?;
            Ok(page.show(StatusCode::UNPROCESSABLE_ENTITY))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn show_edit(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let row = tags::show(&ui.app, &person.caller, parse(&id)?).await?;
    let values = Values::default()
        .set("label", &row.label)
        .set("description", row.description.clone().unwrap_or_default())
        .set("colour", row.colour.as_deref().map_or_else(|| COLOUR.to_owned(), six_digits))
        .switch("has_colour", row.colour.is_some());
    Ok(form_page(&ui, &person, Some(&row), &values, &Errors::default()).await?.show(StatusCode::OK))
}

/// Fields for colours know only the long form.
fn six_digits(colour: &str) -> String {
    match colour.len() {
        4 => colour.chars().flat_map(|c| std::iter::repeat_n(c, if c == '#' { 1 } else { 2 })).collect(),
        _ => colour.to_owned(),
    }
}

pub(crate) async fn update(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Form,
) -> PageResult {
    let id = parse(&id)?;
    match tags::update(&ui.app, &person.caller, id, &input(&form)).await {
        Ok(_) => Ok(done("/tags", "saved")),
        Err(AppError::Invalid(errors)) => {
            let row = tags::show(&ui.app, &person.caller, id).await?;
            let page = form_page(&ui, &person, Some(&row), &Values::of(&form), &errors).await?;
            Ok(page.show(StatusCode::UNPROCESSABLE_ENTITY))
        }
        Err(error) => Err(error.into()),
    }
}

/// A tag is a word: it goes without further questions.
pub(crate) async fn delete(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    tags::delete(&ui.app, &person.caller, parse(&id)?).await?;
    Ok(done("/tags", "deleted"))
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let line = Line { id: 1, label: hostile.into(), description: hostile.into(), colour: Some(hostile.into()) };
    let list = |tags| TagsPage { frame: frame.clone(), tags, pager: Pager::default() };
    vec![list(vec![line]).render().unwrap(), list(Vec::new()).render().unwrap()]
}
