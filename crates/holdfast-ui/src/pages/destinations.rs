//! Destinations: the list, the page of one destination with the result of its last check, and the form.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect};
use holdfast_app::{App, Caller, Resource, destinations, overview};
use holdfast_core::destination::{self, DestinationKind, DestinationSpec, Reachability};
use holdfast_core::fields::FieldSpec;
use holdfast_core::ids::DestinationId;
use holdfast_core::input::{Errors, Input};
use holdfast_core::limits;
use holdfast_core::run::RunSubject;
use holdfast_store::destinations::DestinationRow;

use crate::fields::{Fields, Group, Values};
use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::human::Markup;
use crate::page::{done, render};
use crate::pages::form_resource::{self, FormResource, List, Outcome};
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;
use crate::translator::Translator;
use crate::view::{FormPage, Pager, advice, listing, state};

#[derive(Template)]
#[template(path = "destinations.html")]
struct DestinationsPage {
    frame: Frame,
    list: List,
    destinations: Vec<Line>,
    pager: Pager,
}

struct Line {
    id: i64,
    label: String,
    kind: String,
    place: String,
    state: Markup,
    checked: Option<Markup>,
}

#[derive(Template)]
#[template(path = "destination.html")]
struct DestinationPage {
    frame: Frame,
    id: i64,
    label: String,
    kind: String,
    /// Labels and values of the fields of its type.
    place: Vec<(String, String)>,
    state: Markup,
    error: Option<(String, String)>,
    checked: Option<Markup>,
    is_looking: bool,
    /// When it was last searched for missing backups.
    looked: Option<Markup>,
    /// How many backups are missing or damaged.
    damaged: i64,
    catalogue: Option<Markup>,
    catalogue_error: Option<String>,
    keeps_versions: bool,
}

pub(crate) fn reach(t: Translator, row: &DestinationRow) -> Markup {
    let (class, word) = match row.status {
        Reachability::Reachable => ("good", t.say("reach-reachable")),
        Reachability::Unreachable => ("failed", t.say("reach-unreachable")),
        Reachability::Unknown => ("", t.say("reach-unknown")),
    };
    state(class, &word)
}

fn kind_word(t: Translator, kind: DestinationKind) -> String {
    t.say(&format!("destination-type-{}", kind.as_str()))
}

/// Labels and values of the fields of the destination's type.
fn place(t: Translator, spec: &DestinationSpec) -> Vec<(String, String)> {
    let values = spec.write();
    let shown = |field: &FieldSpec| {
        let number = || values.integer(field.name).value().map(i64::to_string);
        let text = values.text(field.name).value().cloned().or_else(number)?;
        Some((t.say(&format!("field-{}", field.name)), text))
    };
    destination::type_fields().filter_map(shown).collect()
}

pub(crate) async fn list(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let page = destinations::list(&ui.app, &listing(&person.caller, &person.query, false)).await?;
    let t = person.t();
    let line = |row: DestinationRow| Line {
        id: row.id.0,
        kind: kind_word(t, row.spec.kind()),
        place: row.spec.short_place(),
        state: reach(t, &row),
        checked: row.last_checked_at.map(|at| person.reader.when(at.0)),
        label: row.label,
    };
    let page = DestinationsPage {
        frame: person.frame(&ui, Section::Destinations).await?,
        list: List::of::<Destination>(&person, page.items.is_empty()),
        pager: Pager::of(&person.reader, &page, Destination::HOME, &person.query),
        destinations: page.items.into_iter().map(line).collect(),
    };
    Ok(render(StatusCode::OK, &page))
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let row = destinations::show(&ui.app, &person.caller, form_resource::parse::<Destination>(&id).map(DestinationId)?)
        .await?;
    let t = person.t();
    let live = overview::live_runs(&ui.app, &person.caller).await?;
    let is_checking = live.iter().any(|run| run.subject == RunSubject::CheckDestination(row.id));
    let is_looking = live.iter().any(|run| run.subject == RunSubject::Inventory(row.id));
    let (looked, damaged) = destinations::last_inventory(&ui.app, &person.caller, row.id).await?;
    let code = row.last_error_code;
    let (written, catalogue_error) = destinations::catalogue(&ui.app, &person.caller, row.id).await?;
    let page = DestinationPage {
        frame: person.frame(&ui, Section::Destinations).await?,
        id: row.id.0,
        kind: kind_word(t, row.spec.kind()),
        place: place(t, &row.spec),
        state: if is_checking { state("running", &t.say("server-checking")) } else { reach(t, &row) },
        error: row.last_error.clone().map(|text| (text, advice(t, code))),
        checked: row.last_checked_at.map(|at| person.reader.when(at.0)),
        is_looking,
        looked: looked.map(|at| person.reader.when(at.0)),
        damaged,
        catalogue: written.map(|at| person.reader.when(at.0)),
        catalogue_error,
        keeps_versions: row.keeps_versions,
        label: row.label,
    };
    Ok(render(StatusCode::OK, &page))
}

/// Whether a secret is set. Secrets without a flag in responses are always set.
fn has_secret(spec: &DestinationSpec, field: &FieldSpec) -> bool {
    field.shown_at.is_none() || spec.write().boolean(field.name).value() == Some(&true)
}

fn input(form: &Form) -> Input {
    let mut input = form.input(destination::fields());
    // Amazon S3 expects the bucket in the host name, so the form does not ask.
    if form.text("type") == DestinationKind::S3.as_str() {
        input.remove("path_style_endpoint");
    }
    input
}

/// Destinations as a [`FormResource`].
pub(crate) struct Destination;

impl FormResource for Destination {
    type Row = DestinationRow;
    const HOME: &'static str = "/destinations";
    const LIST: &'static str = "nav-destinations";
    const SECTION: Section = Section::Destinations;
    const RESOURCE: Resource = Resource::BackupDestination;
    const ADD: &'static str = "destination-add";
    const ADDED: &'static str = "destination-added";
    const DELETE_MEANS: Option<&'static str> = Some("destination-delete-means");

    fn blank() -> Values {
        Values::defaults(destination::fields()).set("type", "local").switch("path_style_endpoint", true)
    }

    fn values(row: &DestinationRow) -> Values {
        // Of secrets, the specification says only whether they are set.
        let mut shown = row.spec.write();
        destination::type_fields().filter(|field| field.is_secret()).for_each(|field| shown.remove(field.name));
        Values::of_input(&shown).set("label", &row.label)
    }

    fn id(row: &DestinationRow) -> i64 {
        row.id.0
    }

    fn label(row: &DestinationRow) -> &str {
        &row.label
    }

    async fn form(
        _: &Ui,
        person: &SignedIn,
        row: Option<&DestinationRow>,
        values: &Values,
        errors: &Errors,
    ) -> Result<FormPage, PageError> {
        let t = person.t();
        let fields = Fields { t, values, errors };
        let kinds = DestinationKind::ALL.iter().map(|kind| (kind.as_str().to_owned(), kind_word(t, *kind)));
        let mut asked = vec![
            fields.line("label", t.say("form-name")).required().limit(limits::TEXT_CHARS).focus(),
            fields.select("type", t.say("destination-kind"), kinds).hint(t.say("destination-kind-hint")),
        ];
        for field in destination::type_fields() {
            let is_set = row.is_some_and(|row| has_secret(&row.spec, field));
            asked.push(match field.name {
                // Amazon S3 expects the bucket in the host name.
                "path_style_endpoint" => fields.listed(field, false).when("type=custom_s3"),
                _ => fields.listed(field, is_set),
            });
            asked.extend(fields.removal(field, is_set));
        }
        let groups = vec![Group::new(String::new(), asked)];
        Ok(FormPage {
            title: if row.is_some() { t.say("destination-edit") } else { t.say("destination-add") },
            groups,
            submit: if row.is_some() { t.say("form-save") } else { t.say("destination-add-and-check") },
            ..FormPage::default()
        })
    }

    async fn find(app: &App, caller: &Caller, id: i64) -> Outcome<DestinationRow> {
        destinations::show(app, caller, DestinationId(id)).await
    }

    async fn create(app: &App, caller: &Caller, form: &Form) -> Outcome<DestinationRow> {
        let row = destinations::create(app, caller, &input(form)).await?;
        super::unless_busy(destinations::request_check(app, caller, row.id).await)?;
        Ok(row)
    }

    async fn update(app: &App, caller: &Caller, id: i64, form: &Form) -> Outcome<DestinationRow> {
        let row = destinations::update(app, caller, DestinationId(id), &input(form)).await?;
        super::unless_busy(destinations::request_check(app, caller, row.id).await)?;
        Ok(row)
    }

    async fn delete(app: &App, caller: &Caller, id: i64) -> Outcome<()> {
        destinations::delete(app, caller, DestinationId(id)).await
    }
}

pub(crate) async fn check(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let id = form_resource::parse::<Destination>(&id).map(DestinationId)?;
    destinations::request_check(&ui.app, &person.caller, id).await?;
    Ok(Redirect::to(&format!("/destinations/{id}")).into_response())
}

pub(crate) async fn take_inventory(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    _: Form,
) -> PageResult {
    let id = form_resource::parse::<Destination>(&id).map(DestinationId)?;
    destinations::request_inventory(&ui.app, &person.caller, id).await?;
    Ok(done(&format!("/destinations/{id}"), "inventory-asked"))
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let line = Line {
        id: 1,
        label: hostile.into(),
        kind: "S3".into(),
        place: hostile.into(),
        state: state("good", "reachable"),
        checked: None,
    };
    let list = |destinations: Vec<Line>| DestinationsPage {
        frame: frame.clone(),
        list: List::sample::<Destination>(hostile, destinations.is_empty()),
        destinations,
        pager: Pager::default(),
    };
    let one = DestinationPage {
        frame: frame.clone(),
        id: 1,
        label: hostile.into(),
        kind: "S3".into(),
        place: vec![(hostile.into(), hostile.into())],
        state: state("failed", "unreachable"),
        error: Some((hostile.into(), "Do this.".into())),
        checked: Some(Markup("<time>now</time>".into())),
        is_looking: true,
        looked: Some(Markup("<time>now</time>".into())),
        damaged: 2,
        catalogue: Some(Markup("<time>now</time>".into())),
        catalogue_error: Some(hostile.into()),
        keeps_versions: true,
    };
    vec![list(vec![line]).render().unwrap(), list(Vec::new()).render().unwrap(), one.render().unwrap()]
}
