//! What administrators do to an account as a whole. Each act has a page that says what it means, and asks for the
//! address of the account if it cannot be undone.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use holdfast_app::AppError;
use holdfast_app::ownership::Preview;
use holdfast_app::people;
use holdfast_app::refusal::{Conflict, Missing};
use holdfast_app::supervision::{self, AccountSummary};
use holdfast_core::ids::UserId;
use holdfast_core::input::Errors;
use holdfast_core::refusal::Rule;
use holdfast_store::users::UserRow;

use super::person::{address, parse_person};
use crate::fields::{Fields, Group, Values};
use crate::form::Form;
use crate::frame::Section;
use crate::human::{Markup, escaped};
use crate::page::done;
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;
use crate::view::FormPage;

/// The most labels that are listed.
const SHOWN_LABELS: usize = 20;

/// An act on an account, as the last part of its address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Suspend,
    MakeAdministrator,
    MakeOrdinary,
    Transfer,
    Delete,
}

impl Act {
    fn parse(word: &str) -> Result<Self, PageError> {
        match word {
            "suspend" => Ok(Self::Suspend),
            "make-administrator" => Ok(Self::MakeAdministrator),
            "make-ordinary" => Ok(Self::MakeOrdinary),
            "transfer" => Ok(Self::Transfer),
            "delete" => Ok(Self::Delete),
            _ => Err(AppError::Missing(Missing::Page).into()),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Suspend => "suspend",
            Self::MakeAdministrator => "make-administrator",
            Self::MakeOrdinary => "make-ordinary",
            Self::Transfer => "transfer",
            Self::Delete => "delete",
        }
    }

    /// Whether nobody can undo it, so that the address of the account has to be typed.
    fn is_final(self) -> bool {
        match self {
            Self::Transfer | Self::Delete => true,
            Self::Suspend | Self::MakeAdministrator | Self::MakeOrdinary => false,
        }
    }
}

pub(crate) async fn ask(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path((id, act)): Path<(String, String)>,
) -> PageResult {
    let (id, act) = (parse_person(&id)?, Act::parse(&act)?);
    let asked =
        Asked { act, summary: supervision::summary(&ui.app, &person.caller, id).await?, to: person.query.text("to") };
    asked.page(&ui, &person, &Errors::default(), None, StatusCode::OK).await
}

pub(crate) async fn submit(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path((id, act)): Path<(String, String)>,
    form: Form,
) -> PageResult {
    let (id, act) = (parse_person(&id)?, Act::parse(&act)?);
    let asked = Asked { act, summary: supervision::summary(&ui.app, &person.caller, id).await?, to: form.text("to") };
    let email = &asked.summary.user.email;
    if act.is_final() && !form.text("name").trim().eq_ignore_ascii_case(email) {
        let errors = Errors::one("name", Rule::OtherAddress);
        return asked.page(&ui, &person, &errors, None, StatusCode::UNPROCESSABLE_ENTITY).await;
    }
    match carry_out(&ui, &person, id, act, &asked.to).await {
        Err(error @ AppError::Conflict(Conflict::AccountBusy)) => {
            let problem = Some(person.t().refused(&error));
            asked.page(&ui, &person, &Errors::default(), problem, StatusCode::CONFLICT).await
        }
        carried_out => Ok(carried_out?),
    }
}

async fn carry_out(ui: &Ui, person: &SignedIn, id: UserId, act: Act, to: &str) -> holdfast_app::Result<Response> {
    let (app, caller) = (&ui.app, &person.caller);
    Ok(match act {
        Act::Suspend => {
            people::suspend(app, caller, id).await?;
            done(&address(id), "account-suspended")
        }
        Act::MakeAdministrator => {
            people::set_admin(app, caller, id, true).await?;
            done(&address(id), "made-administrator")
        }
        Act::MakeOrdinary => {
            people::set_admin(app, caller, id, false).await?;
            // Whoever removes their own rights may not see that page any more.
            let next = if id == person.user.id { "/account".to_owned() } else { address(id) };
            done(&next, "made-ordinary")
        }
        Act::Transfer => {
            let to = people::transfer(app, caller, id, to).await?;
            done(&address(to), "account-transferred")
        }
        Act::Delete => {
            people::delete(app, caller, id).await?;
            done("/administration", "person-deleted")
        }
    })
}

/// What somebody is asked to confirm.
struct Asked {
    act: Act,
    summary: AccountSummary,
    to: String,
}

impl Asked {
    async fn page(
        &self,
        ui: &Ui,
        person: &SignedIn,
        errors: &Errors,
        problem: Option<String>,
        status: StatusCode,
    ) -> PageResult {
        let preview = match self.act {
            Act::Transfer => {
                Some(people::preview_transfer(&ui.app, &person.caller, self.summary.user.id, &self.to).await?)
            }
            Act::Suspend | Act::MakeAdministrator | Act::MakeOrdinary | Act::Delete => None,
        };
        let frame = person.frame(ui, Section::Administration).await?;
        let (t, email) = (person.t(), self.summary.user.email.clone());
        let word = self.act.word();
        let is_own = self.summary.user.id == person.user.id;
        let own = if is_own { t.find(&format!("act-{word}-own")) } else { None };
        let values = Values::default();
        let fields = Fields { t, values: &values, errors };
        let typed = fields.line("name", t.with("form-type-address", "email", &email)).required();
        let asked = if self.act.is_final() { vec![typed] } else { Vec::new() };
        let page = FormPage {
            title: match &preview {
                Some((to, _)) => t.with2("act-transfer-title", "name", &email, "to", &to.email),
                None => t.with(&format!("act-{word}-title"), "name", &email),
            },
            intro: own.unwrap_or_else(|| t.say(&format!("act-{word}-means"))),
            problems: problem.into_iter().collect(),
            before: self.facts(person, preview.as_ref()),
            action: format!("{}/{word}", address(self.summary.user.id)),
            groups: if asked.is_empty() { Vec::new() } else { vec![Group::new(String::new(), asked)] },
            inside: Markup(format!("<input type=\"hidden\" name=\"to\" value=\"{}\">", escaped(&self.to))),
            submit: t.say(&format!("act-{word}-do")),
            up: Some((address(self.summary.user.id), email)),
            is_dangerous: self.act != Act::MakeAdministrator,
            frame,
            ..FormPage::default()
        };
        Ok(page.show(status))
    }

    /// What the act concerns, in figures, and what has to be known about it.
    fn facts(&self, person: &SignedIn, preview: Option<&(UserRow, Preview)>) -> Markup {
        let (t, reader) = (person.t(), &person.reader);
        let AccountSummary { figures, live_runs, stored, .. } = &self.summary;
        let mut facts = Vec::new();
        if self.act.is_final() {
            facts.extend([
                (t.say("nav-tasks"), reader.number(figures.tasks)),
                (t.say("nav-servers"), reader.number(figures.servers)),
                (t.say("nav-destinations"), reader.number(figures.destinations)),
                (t.say("act-logs"), reader.number(figures.logs)),
            ]);
        }
        if matches!(self.act, Act::Suspend | Act::Transfer | Act::Delete) {
            facts.push((t.say("admin-leases"), reader.number(*live_runs)));
        }
        let fact = |(name, value): &(String, String)| format!("<div><dt>{}</dt><dd>{value}</dd></div>", escaped(name));
        let facts: String = facts.iter().map(fact).collect();
        let mut html = if facts.is_empty() { facts } else { format!("<dl class=\"facts card\">{facts}</dl>") };
        let mut notes = Vec::new();
        if let Some((to, preview)) = preview {
            if preview.triggers > 0 {
                notes.push(t.with("act-transfer-triggers", "n", preview.triggers));
            }
            if preview.loses_private_networks {
                notes.push(t.with("act-transfer-networks", "name", &to.email));
            }
            if !preview.shared_labels.is_empty() {
                let labels = preview.shared_labels.iter().take(SHOWN_LABELS);
                let mut labels: Vec<String> = labels.map(|shared| shared.label.clone()).collect();
                if preview.shared_labels.len() > SHOWN_LABELS {
                    labels.push("…".to_owned());
                }
                notes.push(t.with("act-transfer-labels", "labels", labels.join(", ")));
            }
        }
        if self.act == Act::Delete {
            for row in stored {
                let size = reader.bytes(row.bytes).to_string();
                let text = t.with2("act-delete-stays", "label", &row.label, "n", row.backups);
                html.push_str(&format!("<p>{} · {size}</p>", escaped(&text)));
            }
        }
        html.extend(notes.iter().map(|text| format!("<p class=\"notice attention\">{}</p>", escaped(text))));
        Markup(html)
    }
}
