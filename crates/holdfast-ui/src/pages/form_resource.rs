//! Resources that are created, edited and deleted with one form: servers, destinations, streams and tags.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use holdfast_app::{App, AppError, Caller, Resource};
use holdfast_core::input::Errors;

use crate::fields::Values;
use crate::form::Form;
use crate::frame::Section;
use crate::page::done;
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;
use crate::view::FormPage;

pub(crate) type Outcome<T> = holdfast_app::Result<T>;

/// One kind of resource.
pub(crate) trait FormResource: Sized + 'static {
    type Row: Send + Sync;
    /// The address of the list.
    const HOME: &'static str;
    /// Whether each resource has its own page besides the form.
    const HAS_PAGES: bool = true;
    /// Message key: the title of the list.
    const LIST: &'static str;
    const SECTION: Section;
    const RESOURCE: Resource;
    /// Message key: the label of the button that adds one.
    const ADD: &'static str;
    /// The confirmation (`said-…`) after one was created.
    const ADDED: &'static str;
    /// Message key: what deleting one means; `None` if it is deleted without confirmation.
    const DELETE_MEANS: Option<&'static str>;

    /// The initial values of the form for a new one.
    fn blank() -> Values;
    fn values(row: &Self::Row) -> Values;
    fn id(row: &Self::Row) -> i64;
    fn label(row: &Self::Row) -> &str;

    /// The confirmation (`said-…`) after one was changed.
    fn changed(_before: &Self::Row, _after: &Self::Row, _form: &Form) -> &'static str {
        "saved"
    }

    /// Where one is shown: its own page, or the list.
    fn address(id: i64) -> String {
        if Self::HAS_PAGES { format!("{}/{id}", Self::HOME) } else { Self::HOME.to_owned() }
    }

    /// The form, without the parts that are the same for all kinds: its action, its parent page and its frame.
    fn form(
        ui: &Ui,
        person: &SignedIn,
        row: Option<&Self::Row>,
        values: &Values,
        errors: &Errors,
    ) -> impl Future<Output = Result<FormPage, PageError>> + Send;

    fn find(app: &App, caller: &Caller, id: i64) -> impl Future<Output = Outcome<Self::Row>> + Send;
    fn create(app: &App, caller: &Caller, form: &Form) -> impl Future<Output = Outcome<Self::Row>> + Send;
    fn update(app: &App, caller: &Caller, id: i64, form: &Form) -> impl Future<Output = Outcome<Self::Row>> + Send;
    fn delete(app: &App, caller: &Caller, id: i64) -> impl Future<Output = Outcome<()>> + Send;
}

/// Everything on a list page except its rows.
pub(crate) struct List {
    pub title: &'static str,
    pub home: &'static str,
    pub add: &'static str,
    pub search: String,
    pub is_empty: bool,
}

impl List {
    pub(crate) fn of<K: FormResource>(person: &SignedIn, is_empty: bool) -> Self {
        Self { title: K::LIST, home: K::HOME, add: K::ADD, search: person.query.text("search"), is_empty }
    }

    /// A searched list if it has rows, otherwise a list that is still empty.
    #[cfg(test)]
    pub(crate) fn sample<K: FormResource>(hostile: &str, is_empty: bool) -> Self {
        let search = if is_empty { String::new() } else { hostile.to_owned() };
        Self { title: K::LIST, home: K::HOME, add: K::ADD, search, is_empty }
    }
}

/// The pages to create, edit and delete one.
pub(crate) fn routes<K: FormResource>() -> Router<Arc<Ui>> {
    let deletion = match K::DELETE_MEANS {
        Some(_) => get(show_delete::<K>).post(delete::<K>),
        None => post(delete::<K>),
    };
    Router::new()
        .route(&format!("{}/new", K::HOME), get(show_new::<K>).post(create::<K>))
        .route(&format!("{}/{{id}}/edit", K::HOME), get(show_edit::<K>).post(update::<K>))
        .route(&format!("{}/{{id}}/delete", K::HOME), deletion)
}

pub(crate) fn parse<K: FormResource>(id: &str) -> Result<i64, PageError> {
    id.parse().map_err(|_| AppError::NotFound(K::RESOURCE).into())
}

/// The parent page of a form: the page of the resource if it has one, otherwise the list.
fn above<K: FormResource>(person: &SignedIn, row: Option<&K::Row>) -> (String, String) {
    match row {
        Some(row) if K::HAS_PAGES => (K::address(K::id(row)), K::label(row).to_owned()),
        _ => (K::HOME.to_owned(), person.t().say(K::LIST)),
    }
}

async fn page<K: FormResource>(
    ui: &Ui,
    person: &SignedIn,
    row: Option<&K::Row>,
    values: &Values,
    errors: &Errors,
) -> Result<FormPage, PageError> {
    let mut page = K::form(ui, person, row, values, errors).await?;
    page.action = match row {
        Some(row) => format!("{}/{}/edit", K::HOME, K::id(row)),
        None => format!("{}/new", K::HOME),
    };
    page.up = Some(above::<K>(person, row));
    page.frame = person.frame(ui, K::SECTION).await?;
    Ok(page)
}

/// The response to a form with errors: the same form with the submitted values.
async fn again<K: FormResource>(
    ui: &Ui,
    person: &SignedIn,
    row: Option<&K::Row>,
    form: &Form,
    errors: &Errors,
) -> PageResult {
    let page = page::<K>(ui, person, row, &Values::of(form), errors).await?;
    Ok(page.show(StatusCode::UNPROCESSABLE_ENTITY))
}

async fn show_new<K: FormResource>(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    Ok(page::<K>(&ui, &person, None, &K::blank(), &Errors::default()).await?.show(StatusCode::OK))
}

async fn create<K: FormResource>(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    match K::create(&ui.app, &person.caller, &form).await {
        Ok(row) => Ok(done(&K::address(K::id(&row)), K::ADDED)),
        Err(AppError::Invalid(errors)) => again::<K>(&ui, &person, None, &form, &errors).await,
        Err(error) => Err(error.into()),
    }
}

async fn show_edit<K: FormResource>(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let row = K::find(&ui.app, &person.caller, parse::<K>(&id)?).await?;
    Ok(page::<K>(&ui, &person, Some(&row), &K::values(&row), &Errors::default()).await?.show(StatusCode::OK))
}

async fn update<K: FormResource>(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Form,
) -> PageResult {
    let id = parse::<K>(&id)?;
    let row = K::find(&ui.app, &person.caller, id).await?;
    match K::update(&ui.app, &person.caller, id, &form).await {
        Ok(after) => Ok(done(&K::address(id), K::changed(&row, &after, &form))),
        Err(AppError::Invalid(errors)) => again::<K>(&ui, &person, Some(&row), &form, &errors).await,
        Err(error) => Err(error.into()),
    }
}

async fn delete_page<K: FormResource>(
    ui: &Ui,
    person: &SignedIn,
    row: &K::Row,
    means: &str,
    errors: &Errors,
) -> Result<FormPage, PageError> {
    let frame = person.frame(ui, K::SECTION).await?;
    let address = format!("{}/{}", K::HOME, K::id(row));
    let mut page = super::delete_page(frame, K::label(row), &address, person.t().say(means), Vec::new(), errors);
    page.up = Some(above::<K>(person, Some(row)));
    Ok(page)
}

async fn show_delete<K: FormResource>(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
) -> PageResult {
    let row = K::find(&ui.app, &person.caller, parse::<K>(&id)?).await?;
    let means = K::DELETE_MEANS.unwrap_or_default();
    Ok(delete_page::<K>(&ui, &person, &row, means, &Errors::default()).await?.show(StatusCode::OK))
}

async fn delete<K: FormResource>(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Form,
) -> PageResult {
    let id = parse::<K>(&id)?;
    if let Some(means) = K::DELETE_MEANS {
        let row = K::find(&ui.app, &person.caller, id).await?;
        if let Some(errors) = super::wrong_name(&form, K::label(&row)) {
            let page = delete_page::<K>(&ui, &person, &row, means, &errors).await?;
            return Ok(page.show(StatusCode::UNPROCESSABLE_ENTITY));
        }
    }
    K::delete(&ui.app, &person.caller, id).await?;
    Ok(done(K::HOME, "deleted"))
}
