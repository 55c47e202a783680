//! One module for each part of the web interface.

pub(crate) mod account;
pub(crate) mod administration;
pub(crate) mod audit;
pub(crate) mod backups;
pub(crate) mod destinations;
pub(crate) mod form_resource;
pub(crate) mod identity;
pub(crate) mod notices;
pub(crate) mod overview;
pub(crate) mod person;
pub(crate) mod person_acts;
pub(crate) mod probe;
pub(crate) mod restore;
pub(crate) mod runs;
pub(crate) mod schedule;
pub(crate) mod search;
pub(crate) mod security;
pub(crate) mod servers;
pub(crate) mod sign_in;
pub(crate) mod squares;
pub(crate) mod streams;
pub(crate) mod tags;
pub(crate) mod task_form;
pub(crate) mod task_repository;
pub(crate) mod task_words;
pub(crate) mod tasks;

use holdfast_core::input::Errors;
use holdfast_core::refusal::Rule;

use crate::fields::{Control, Fields, Group, Values};
use crate::form::Form;
use crate::frame::Frame;
use crate::view::FormPage;

/// Asks for the name of the item to delete, and explains what is deleted with it.
pub(crate) fn delete_page(
    frame: Frame,
    label: &str,
    address: &str,
    means: String,
    more: Vec<Control>,
    errors: &Errors,
) -> FormPage {
    let t = frame.t;
    let values = Values::default();
    let fields = Fields { t, values: &values, errors };
    let mut asked = more;
    asked.push(fields.line("name", t.with("form-type-name", "name", label)).required());
    FormPage {
        title: t.with("form-delete-title", "name", label),
        intro: means,
        action: format!("{address}/delete"),
        groups: vec![Group::new(String::new(), asked)],
        submit: t.say("form-delete"),
        up: Some((address.to_owned(), label.to_owned())),
        is_dangerous: true,
        frame,
        ..FormPage::default()
    }
}

/// The item was saved, so a rate limit on its check is not an error.
pub(crate) fn unless_busy<T>(asked: holdfast_app::Result<T>) -> holdfast_app::Result<()> {
    match asked {
        Err(holdfast_app::AppError::TooManyRequests { .. }) => Ok(()),
        asked => asked.map(drop),
    }
}

/// The error to show if the typed name does not match.
pub(crate) fn wrong_name(form: &Form, label: &str) -> Option<Errors> {
    (form.text("name").trim() != label.trim()).then(|| Errors::one("name", Rule::OtherName))
}
