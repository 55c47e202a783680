//! Destinations: the list, one destination with what the last check found, and its form.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect};
use holdfast_app::{AppError, Resource, destinations, overview};
use holdfast_core::destination::{DestinationInput, DestinationKind};
use holdfast_core::ids::DestinationId;
use holdfast_core::input::{Errors, Field};
use holdfast_core::limits;
use holdfast_core::run::RunKind;
use holdfast_store::destinations::DestinationRow;

use crate::Ui;
use crate::fields::{Fields, Group, Values};
use crate::form::Form;
use crate::frame::{Frame, Place};
use crate::human::Markup;
use crate::page::{PageError, PageResult, done, render};
use crate::session::SignedIn;
use crate::view::{FormPage, Pager, advice, listing, state};
use crate::words::Words;

#[derive(Template)]
#[template(path = "destinations.html")]
struct DestinationsPage {
    frame: Frame,
    search: String,
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
    is_s3: bool,
    bucket: String,
    region: String,
    endpoint: String,
    state: Markup,
    error: Option<(String, String)>,
    checked: Option<Markup>,
}

fn parse(id: &str) -> Result<DestinationId, PageError> {
    let id: i64 = id.parse().map_err(|_| AppError::NotFound(Resource::BackupDestination))?;
    Ok(DestinationId(id))
}

fn reach(t: Words, row: &DestinationRow) -> Markup {
    let (class, word) = match row.status.as_str() {
        "reachable" => ("good", t.say("reach-reachable")),
        "unreachable" => ("failed", t.say("reach-unreachable")),
        _ => ("", t.say("reach-unknown")),
    };
    state(class, &word)
}

fn kind_word(t: Words, kind: &str) -> String {
    match DestinationKind::parse(kind) {
        Some(DestinationKind::Local) | None => t.say("destination-local"),
        Some(DestinationKind::S3) => "S3".to_owned(),
        Some(DestinationKind::CustomS3) => t.say("destination-custom"),
    }
}

pub(crate) async fn list(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let page = destinations::list(&ui.app, &listing(&person.caller, &person.query, false)).await?;
    let pager = Pager::of(&person.reader, &page, "/destinations", &person.query);
    let t = person.t();
    let line = |row: DestinationRow| Line {
        id: row.id,
        kind: kind_word(t, &row.kind),
        place: row.s3_bucket.clone().unwrap_or_default(),
        state: reach(t, &row),
        checked: row.last_checked_at.map(|at| person.reader.when(at.0)),
        label: row.label,
    };
    let page = DestinationsPage {
        frame: person.frame(&ui, Place::Destinations).await?,
        search: person.query.text("search"),
        destinations: page.items.into_iter().map(line).collect(),
        pager,
    };
    Ok(render(StatusCode::OK, &page))
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let row = destinations::show(&ui.app, &person.caller, parse(&id)?).await?;
    let t = person.t();
    let live = overview::live_runs(&ui.app, &person.caller).await?;
    let is_check = |kind: &str| RunKind::parse(kind) == Some(RunKind::CheckDestination);
    let is_checking = live.iter().any(|run| run.destination_id == Some(row.id) && is_check(&run.kind));
    let code = row.last_error_code.clone().unwrap_or_default();
    let page = DestinationPage {
        frame: person.frame(&ui, Place::Destinations).await?,
        id: row.id,
        kind: kind_word(t, &row.kind),
        is_s3: row.s3_bucket.is_some(),
        bucket: row.s3_bucket.clone().unwrap_or_default(),
        region: row.s3_region.clone().unwrap_or_default(),
        endpoint: row.s3_endpoint.clone().unwrap_or_default(),
        state: if is_checking { state("running", &t.say("server-checking")) } else { reach(t, &row) },
        error: row.last_error.clone().map(|text| (text, advice(t, &code))),
        checked: row.last_checked_at.map(|at| person.reader.when(at.0)),
        label: row.label,
    };
    Ok(render(StatusCode::OK, &page))
}

/// On update an empty key stays as it is.
fn input(form: &Form, is_new: bool) -> DestinationInput {
    let is_s3 = form.text("type") != DestinationKind::Local.as_str();
    let key = |name: &str| if is_new && is_s3 { form.required(name) } else { form.secret(name) };
    let is_custom = form.text("type") == DestinationKind::CustomS3.as_str();
    let text = |name: &str| if is_s3 { form.optional(name) } else { Field::Absent };
    DestinationInput {
        label: form.required("label"),
        kind: form.required("type"),
        s3_access_key: key("s3_access_key"),
        s3_secret_key: key("s3_secret_key"),
        s3_bucket_name: text("s3_bucket_name"),
        s3_region: text("s3_region"),
        custom_s3_endpoint: text("custom_s3_endpoint"),
        path_style_endpoint: if is_custom { Field::Value(form.is_on("path_style_endpoint")) } else { Field::Absent },
    }
}

fn values(row: &DestinationRow) -> Values {
    Values::default()
        .set("label", &row.label)
        .set("type", &row.kind)
        .set("s3_bucket_name", row.s3_bucket.clone().unwrap_or_default())
        .set("s3_region", row.s3_region.clone().unwrap_or_default())
        .set("custom_s3_endpoint", row.s3_endpoint.clone().unwrap_or_default())
        .switch("path_style_endpoint", row.s3_path_style)
}

async fn form_page(
    ui: &Ui,
    person: &SignedIn,
    row: Option<&DestinationRow>,
    values: &Values,
    errors: &Errors,
) -> Result<FormPage, PageError> {
    let t = person.t();
    let fields = Fields { t, values, errors };
    let kinds = DestinationKind::ALL.iter().map(|kind| (kind.as_str().to_owned(), kind_word(t, kind.as_str())));
    let keep = if row.is_some_and(|row| row.s3_bucket.is_some()) { t.say("form-secret-stays") } else { String::new() };
    let groups = vec![
        Group::new(
            String::new(),
            vec![
                fields.line("label", t.say("form-name")).required().limit(limits::TEXT_CHARS).focus(),
                fields.select("type", t.say("destination-kind"), kinds).hint(t.say("destination-kind-hint")),
            ],
        ),
        Group::new(
            t.say("destination-bucket-title"),
            vec![
                fields.line("s3_bucket_name", t.say("destination-bucket")).limit(limits::TEXT_CHARS),
                fields
                    .line("s3_region", t.say("destination-region"))
                    .placeholder("us-east-1")
                    .limit(limits::TEXT_CHARS),
                fields.password("s3_access_key", t.say("destination-access-key"), "off").hint(keep.clone()),
                fields.password("s3_secret_key", t.say("destination-secret-key"), "off").hint(keep),
            ],
        )
        .when("type=s3,custom_s3"),
        Group::new(
            t.say("destination-endpoint-title"),
            vec![
                fields
                    .of_type("url", "custom_s3_endpoint", t.say("destination-endpoint"))
                    .placeholder("https://s3.example.org")
                    .limit(limits::URL_CHARS),
                fields
                    .switch("path_style_endpoint", t.say("destination-path-style"))
                    .hint(t.say("destination-path-style-hint")),
            ],
        )
        .when("type=custom_s3"),
    ];
    let (title, action, up) = match row {
        Some(row) => {
            let address = format!("/destinations/{}", row.id);
            (t.say("destination-edit"), format!("{address}/edit"), (address, row.label.clone()))
        }
        None => {
            let up = ("/destinations".to_owned(), t.say("nav-destinations"));
            (t.say("destination-add"), "/destinations/new".to_owned(), up)
        }
    };
    Ok(FormPage {
        frame: person.frame(ui, Place::Destinations).await?,
        title,
        action,
        groups,
        submit: if row.is_some() { t.say("form-save") } else { t.say("destination-add-and-check") },
        up: Some(up),
        ..FormPage::default()
    })
}

pub(crate) async fn show_new(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let values = Values::default().set("type", "local").switch("path_style_endpoint", true);
    Ok(form_page(&ui, &person, None, &values, &Errors::default()).await?.show(StatusCode::OK))
}

pub(crate) async fn create(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    match destinations::create(&ui.app, &person.caller, &input(&form, true)).await {
        Ok(row) => {
            super::unless_busy(destinations::request_check(&ui.app, &person.caller, DestinationId(row.id)).await)?;
            Ok(done(&format!("/destinations/{}", row.id), "destination-added"))
        }
        Err(AppError::Invalid(errors)) => {
            let page = form_page(&ui, &person, None, &Values::of(&form), &errors).await?;
            Ok(page.show(StatusCode::UNPROCESSABLE_ENTITY))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn show_edit(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let row = destinations::show(&ui.app, &person.caller, parse(&id)?).await?;
    Ok(form_page(&ui, &person, Some(&row), &values(&row), &Errors::default()).await?.show(StatusCode::OK))
}

pub(crate) async fn update(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Form,
) -> PageResult {
    let id = parse(&id)?;
    match destinations::update(&ui.app, &person.caller, id, &input(&form, false)).await {
        Ok(_) => Ok(done(&format!("/destinations/{id}"), "saved")),
        Err(AppError::Invalid(errors)) => {
            let row = destinations::show(&ui.app, &person.caller, id).await?;
            let page = form_page(&ui, &person, Some(&row), &Values::of(&form), &errors).await?;
            Ok(page.show(StatusCode::UNPROCESSABLE_ENTITY))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn check(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let id = parse(&id)?;
    destinations::request_check(&ui.app, &person.caller, id).await?;
    Ok(Redirect::to(&format!("/destinations/{id}")).into_response())
}

pub(crate) async fn show_delete(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let row = destinations::show(&ui.app, &person.caller, parse(&id)?).await?;
    let page = delete_page(&ui, &person, &row, &Errors::default()).await?;
    Ok(page.show(StatusCode::OK))
}

async fn delete_page(ui: &Ui, person: &SignedIn, row: &DestinationRow, errors: &Errors) -> Result<FormPage, PageError> {
    let frame = person.frame(ui, Place::Destinations).await?;
    let means = person.t().say("destination-delete-means");
    Ok(super::delete_page(frame, &row.label, &format!("/destinations/{}", row.id), means, Vec::new(), errors))
}

pub(crate) async fn delete(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Form,
) -> PageResult {
    let row = destinations::show(&ui.app, &person.caller, parse(&id)?).await?;
    if let Some(errors) = super::wrong_name(&form, &row.label) {
        return Ok(delete_page(&ui, &person, &row, &errors).await?.show(StatusCode::UNPROCESSABLE_ENTITY));
    }
    destinations::delete(&ui.app, &person.caller, DestinationId(row.id)).await?;
    Ok(done("/destinations", "deleted"))
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
    let list = |destinations| DestinationsPage {
        frame: frame.clone(),
        search: hostile.into(),
        destinations,
        pager: Pager::default(),
    };
    let one = DestinationPage {
        frame: frame.clone(),
        id: 1,
        label: hostile.into(),
        kind: "S3".into(),
        is_s3: true,
        bucket: hostile.into(),
        region: hostile.into(),
        endpoint: hostile.into(),
        state: state("failed", "unreachable"),
        error: Some((hostile.into(), "Do this.".into())),
        checked: Some(Markup("<time>now</time>".into())),
    };
    vec![list(vec![line]).render().unwrap(), list(Vec::new()).render().unwrap(), one.render().unwrap()]
}
