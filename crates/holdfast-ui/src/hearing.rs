//! The part of the account page about messages: quiet hours, the weekly summary, and what could not be delivered.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect};
use holdfast_app::AppError;
use holdfast_app::notices::{self, Hearing, HearingInput, QuietInput};
use holdfast_core::clock;
use holdfast_core::ids::NoticeId;
use holdfast_core::input::Field;
use holdfast_core::notice::NoticeStatus;
use holdfast_core::page::PageRequest;
use holdfast_store::Listing;
use holdfast_store::notices::NoticeFilter;

use crate::Ui;
use crate::account::{self, TokenForm};
use crate::form::Form;
use crate::page::{FormErrors, PageResult};
use crate::session::SignedIn;

/// Undelivered notices that the page shows; the API has all of them.
const SHOWN: i64 = 20;

/// What this part of the page shows.
#[derive(Default)]
pub(crate) struct HearingPart {
    pub weekly_summary: bool,
    pub from: String,
    pub until: String,
    pub errors: FormErrors,
    pub undelivered: Vec<NoticeLine>,
    pub undelivered_count: i64,
}

pub(crate) struct NoticeLine {
    pub id: i64,
    pub at: String,
    pub title: String,
    pub answer: String,
}

impl HearingPart {
    pub(crate) async fn load(ui: &Ui, person: &SignedIn) -> Result<Self, AppError> {
        let Hearing { weekly_summary, quiet_hours } = notices::show_hearing(&ui.app, &person.caller).await?;
        let listing =
            Listing { owner: person.caller.user, page: PageRequest { page: 1, per_page: SHOWN }, search: None };
        let filter = NoticeFilter { status: Some(NoticeStatus::Undelivered), stream: None };
        let page = notices::list(&ui.app, &listing, &filter).await?;
        let line = |row: holdfast_store::notices::NoticeRow| NoticeLine {
            id: row.id,
            at: clock::local_date_time(row.created_at.0, &person.caller.zone),
            title: row.title,
            answer: row.answer.unwrap_or_default(),
        };
        Ok(Self {
            weekly_summary,
            from: quiet_hours.map(|quiet| quiet.from.to_string()).unwrap_or_default(),
            until: quiet_hours.map(|quiet| quiet.until.to_string()).unwrap_or_default(),
            errors: FormErrors::default(),
            undelivered_count: page.total,
            undelivered: page.items.into_iter().map(line).collect(),
        })
    }
}

pub(crate) async fn update(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    let (from, until) = (form.text("quiet_from"), form.text("quiet_until"));
    let quiet_hours = if from.is_empty() && until.is_empty() {
        Field::Null
    } else {
        Field::Value(QuietInput { from: Field::Value(from), until: Field::Value(until) })
    };
    let input = HearingInput { weekly_summary: Field::Value(form.text("weekly_summary") == "on"), quiet_hours };
    match notices::update_hearing(&ui.app, &person.caller, &input).await {
        Ok(_) => Ok(Redirect::to("/account#messages").into_response()),
        Err(AppError::Invalid(errors)) => {
            let part = HearingPart {
                weekly_summary: form.text("weekly_summary") == "on",
                from: form.text("quiet_from"),
                until: form.text("quiet_until"),
                errors: FormErrors(errors),
                ..HearingPart::load(&ui, &person).await?
            };
            account::page(&ui, &person, StatusCode::UNPROCESSABLE_ENTITY, None, TokenForm::default(), part).await
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn retry(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let id: i64 = id.parse().map_err(|_| AppError::Missing("Notice not found"))?;
    match notices::retry(&ui.app, &person.caller, NoticeId(id)).await {
        // Somebody else was faster; it is what was wanted.
        Ok(()) | Err(AppError::Conflict(_)) => Ok(Redirect::to("/account#messages").into_response()),
        Err(error) => Err(error.into()),
    }
}
