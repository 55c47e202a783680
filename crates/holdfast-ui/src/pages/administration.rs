//! Administration: accounts and invitations, registration, and the health of the installation.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use holdfast_app::AppError;
use holdfast_app::people::{self, Invitation};
use holdfast_core::input::Errors;
use holdfast_core::lease::is_silent;
use holdfast_core::limits;
use holdfast_core::user::UserDraft;

use super::person::parse_person;
use crate::fields::{Control, Fields, Values};
use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::human::Markup;
use crate::page::{done, render};
use crate::problem::PageResult;
use crate::session::SignedIn;
use crate::state::Ui;
use crate::view::{FormPage, run_kind, state};

#[derive(Template)]
#[template(path = "administration.html")]
struct AdministrationPage {
    frame: Frame,
    people: Vec<PersonLine>,
    invite: Vec<Control>,
    invitation: Option<(String, bool)>,
    is_registration_open: bool,
    health: Vec<(String, Markup)>,
    workers: Vec<WorkerLine>,
    leases: Vec<LeaseLine>,
}

struct PersonLine {
    id: i64,
    name: String,
    email: String,
    is_admin: bool,
    is_own: bool,
    has_come: bool,
    has_two_factor: bool,
    is_suspended: bool,
    backups: String,
    stored: Markup,
}

struct WorkerLine {
    name: String,
    version: String,
    state: Markup,
    since: Markup,
    seen: Markup,
}

struct LeaseLine {
    run: i64,
    kind: String,
    owner: String,
    worker: String,
    since: Option<Markup>,
    until: Option<Markup>,
}

async fn page(
    ui: &Ui,
    person: &SignedIn,
    status: StatusCode,
    sent: Option<(&Values, &Errors)>,
    invitation: Option<Invitation>,
) -> PageResult {
    let (t, reader) = (person.t(), &person.reader);
    let found = people::show(&ui.app, &person.caller).await?;
    let (values, errors) = (Values::default().set("timezone", "UTC"), Errors::default());
    let (values, errors) = sent.unwrap_or((&values, &errors));
    let fields = Fields { t, values, errors };
    let text = |text: String| Markup(crate::human::escaped(&text));
    let silent = |seen: holdfast_core::Timestamp| is_silent(seen, reader.now);
    let line = |known: people::Person| PersonLine {
        id: known.user.id.0,
        is_own: known.user.id == person.user.id,
        is_admin: known.user.is_admin,
        has_come: known.user.password_hash.is_some(),
        has_two_factor: known.user.totp_sealed.is_some(),
        is_suspended: known.user.suspended_at.is_some(),
        backups: reader.number(known.backups),
        stored: reader.bytes(known.bytes),
        name: known.user.name,
        email: known.user.email,
    };
    let stored: i64 = found.people.iter().map(|known| known.bytes).sum();
    let living = || found.workers.iter().filter(|worker| !silent(worker.seen_at.0));
    let starts_runs = living().any(|worker| !worker.is_draining);
    let living = living().count();
    let health = vec![
        (t.say("admin-version"), text(env!("CARGO_PKG_VERSION").to_owned())),
        (t.say("admin-database"), state("good", found.database)),
        (
            t.say("admin-workers"),
            if living == 0 {
                state("failed", &t.say("admin-no-workers"))
            } else if !starts_runs {
                state("failed", &t.say("admin-workers-drained"))
            } else {
                state("good", &t.with("admin-workers-there", "n", living))
            },
        ),
        (
            t.say("admin-queue"),
            match found.queued_since {
                Some(since) if found.queued > 0 => {
                    Markup(format!("{} · {}", reader.number(found.queued), reader.when(since.0)))
                }
                _ => text(t.say("admin-queue-empty")),
            },
        ),
        (
            t.say("admin-mail"),
            match found.can_mail {
                true => state("good", &t.say("admin-mail-set")),
                false => state("attention", &t.say("admin-mail-unset")),
            },
        ),
        (t.say("admin-stored"), reader.bytes(stored)),
    ];
    let page = AdministrationPage {
        frame: person.frame(ui, Section::Administration).await?,
        people: found.people.into_iter().map(line).collect(),
        invite: invite_fields(&fields),
        invitation: invitation.map(|made| (made.link.reveal().to_owned(), made.is_sent)),
        is_registration_open: found.is_registration_open,
        health,
        workers: found
            .workers
            .into_iter()
            .map(|worker| WorkerLine {
                state: if silent(worker.seen_at.0) {
                    state("failed", &t.say("admin-worker-silent"))
                } else if worker.is_draining {
                    state("attention", &t.say("admin-worker-draining"))
                } else {
                    state("good", &t.say("admin-worker-there"))
                },
                since: reader.when(worker.started_at.0),
                seen: reader.when(worker.seen_at.0),
                name: worker.name,
                version: worker.version,
            })
            .collect(),
        leases: found
            .leases
            .into_iter()
            .map(|lease| LeaseLine {
                run: lease.id,
                kind: run_kind(t, lease.kind),
                owner: lease.email,
                worker: lease.worker.unwrap_or_default(),
                since: lease.started_at.map(|at| reader.when(at.0)),
                until: lease.lease_expires_at.map(|at| reader.when(at.0)),
            })
            .collect(),
    };
    Ok(render(status, &page))
}

fn invite_fields(fields: &Fields<'_>) -> Vec<Control> {
    let t = fields.t;
    vec![
        fields.line("name", t.say("account-name")).required().limit(limits::TEXT_CHARS),
        fields.of_type("email", "email", t.say("sign-in-email")).required(),
        fields.switch("is_admin", t.say("admin-make-admin")),
    ]
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    page(&ui, &person, StatusCode::OK, None, None).await
}

pub(crate) async fn invite(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    let draft = UserDraft::check(&form.text("name"), &form.text("email"), "UTC", form.is_on("is_admin"));
    let invited = match draft {
        Ok(draft) => people::invite(&ui.app, &person.caller, &draft, &person.base_url).await,
        Err(errors) => Err(AppError::Invalid(errors)),
    };
    match invited {
        Ok(invitation) => page(&ui, &person, StatusCode::CREATED, None, Some(invitation)).await,
        Err(AppError::Invalid(errors)) => {
            let values = Values::of(&form);
            page(&ui, &person, StatusCode::UNPROCESSABLE_ENTITY, Some((&values, &errors)), None).await
        }
        Err(error) => Err(error.into()),
    }
}

/// Asks before anybody may create an account.
pub(crate) async fn ask_to_open_registration(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    people::show(&ui.app, &person.caller).await?;
    let t = person.t();
    let page = FormPage {
        title: t.say("registration-open-title"),
        intro: t.say("registration-open-means"),
        action: "/administration/registration".to_owned(),
        inside: Markup("<input type=\"hidden\" name=\"open\" value=\"true\">".to_owned()),
        submit: t.say("admin-registration-do"),
        up: Some(("/administration".to_owned(), t.say("nav-administration"))),
        is_dangerous: true,
        frame: person.frame(&ui, Section::Administration).await?,
        ..FormPage::default()
    };
    Ok(page.show(StatusCode::OK))
}

pub(crate) async fn set_registration(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    people::set_registration(&ui.app, &person.caller, form.text("open") == "true").await?;
    Ok(done("/administration", "saved"))
}

pub(crate) async fn renew_link(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    _: Form,
) -> PageResult {
    let invitation = people::renew_link(&ui.app, &person.caller, parse_person(&id)?, &person.base_url).await?;
    page(&ui, &person, StatusCode::CREATED, None, Some(invitation)).await
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let (values, errors) =
        (Values::default().set("name", hostile), Errors::one("email", holdfast_core::refusal::Rule::Required));
    let fields = Fields { t: frame.t, values: &values, errors: &errors };
    let time = || Markup("<time>now</time>".into());
    let someone = |has_come, is_admin, is_own| PersonLine {
        id: 1,
        name: hostile.into(),
        email: hostile.into(),
        is_admin,
        is_own,
        has_come,
        has_two_factor: has_come,
        is_suspended: !has_come,
        backups: "3".into(),
        stored: time(),
    };
    let page = |is_registration_open: bool, leases| AdministrationPage {
        frame: frame.clone(),
        people: vec![someone(true, true, true), someone(false, false, false)],
        invite: invite_fields(&fields),
        invitation: Some(("https://example.org/set-up/x".into(), !is_registration_open)),
        is_registration_open,
        health: vec![("Version".into(), Markup("1".into()))],
        workers: vec![WorkerLine {
            name: hostile.into(),
            version: "1".into(),
            state: state("good", "there"),
            since: time(),
            seen: time(),
        }],
        leases,
    };
    let lease = LeaseLine {
        run: 1,
        kind: "Backup".into(),
        owner: hostile.into(),
        worker: hostile.into(),
        since: Some(time()),
        until: None,
    };
    vec![page(true, vec![lease]).render().unwrap(), page(false, Vec::new()).render().unwrap()]
}
