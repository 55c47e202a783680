//! Account security: the password, two-factor sign-in with recovery codes, active sessions and linked accounts.

use std::fmt::Write as _;
use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use holdfast_app::refusal::Missing;
use holdfast_app::two_factor::{self, Proposal};
use holdfast_app::{AppError, accounts, identities, sessions};
use holdfast_core::Secret;
use holdfast_core::input::Errors;
use holdfast_core::limits;
use qrcode::{EcLevel, QrCode};

use crate::fields::{Control, Fields, Values};
use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::human::Markup;
use crate::page::{done, render};
use crate::problem::PageResult;
use crate::session::SignedIn;
use crate::state::Ui;

#[derive(Template)]
#[template(path = "security.html")]
struct SecurityPage {
    frame: Frame,
    password: Vec<Control>,
    has_two_factor: bool,
    codes_left: i64,
    /// The password, to confirm changes that weaken the account.
    confirm: Control,
    sessions: Vec<SessionLine>,
    identities: Vec<IdentityLine>,
}

struct IdentityLine {
    provider: String,
    name: String,
    /// The name of the linked account; `None` if none is linked.
    account: Option<String>,
}

struct SessionLine {
    id: i64,
    device: String,
    address: String,
    seen: Markup,
    is_own: bool,
}

#[derive(Template)]
#[template(path = "two_factor.html")]
struct TwoFactorPage {
    frame: Frame,
    qr: Markup,
    secret: String,
    code: Control,
}

#[derive(Template)]
#[template(path = "recovery_codes.html")]
struct CodesPage {
    frame: Frame,
    codes: Vec<String>,
}

/// A short description of a `User-Agent`.
fn device_words(agent: &str) -> String {
    let browsers =
        [("Edg/", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("Chrome/", "Chrome"), ("Safari/", "Safari")];
    let systems = [
        ("iPhone", "iPhone"),
        ("iPad", "iPad"),
        ("Android", "Android"),
        ("Windows", "Windows"),
        ("Mac OS X", "macOS"),
        ("Linux", "Linux"),
    ];
    let find =
        |known: &[(&str, &'static str)]| known.iter().find(|(sign, _)| agent.contains(sign)).map(|(_, name)| *name);
    match (find(&browsers), find(&systems)) {
        (Some(browser), Some(system)) => format!("{browser}, {system}"),
        (Some(one), None) | (None, Some(one)) => one.to_owned(),
        (None, None) => agent.chars().take(60).collect(),
    }
}

async fn page(ui: &Ui, person: &SignedIn, values: &Values, errors: &Errors, status: StatusCode) -> PageResult {
    let t = person.t();
    let fields = Fields { t, values, errors };
    let line = |session: sessions::Session| SessionLine {
        id: session.row.id,
        device: device_words(&session.row.device),
        address: session.row.address.unwrap_or_default(),
        seen: person.reader.when(session.row.seen_at.0),
        is_own: session.is_own,
    };
    let page = SecurityPage {
        frame: person.frame(ui, Section::Account).await?,
        password: vec![
            fields.password("current_password", t.say("account-current-password"), "current-password").required(),
            fields
                .password("password", t.say("security-new-password"), "new-password")
                .hint(t.say("sign-in-password-hint"))
                .required()
                .limit(limits::SECRET_CHARS),
            fields.switch("keep_tokens", t.say("security-keep-tokens")),
            fields.switch("keep_identities", t.say("security-keep-identities")),
        ],
        has_two_factor: person.user.totp_sealed.is_some(),
        codes_left: two_factor::count_codes(&ui.app, &person.caller).await?,
        confirm: fields.password("confirm_password", t.say("account-current-password"), "current-password").required(),
        sessions: sessions::list(&ui.app, &person.caller, &person.secret).await?.into_iter().map(line).collect(),
        identities: list_identities(ui, person).await?,
    };
    Ok(render(status, &page))
}

async fn list_identities(ui: &Ui, person: &SignedIn) -> Result<Vec<IdentityLine>, AppError> {
    let linked = identities::list(&ui.app, &person.caller).await?;
    let line = |provider: identities::Provider| IdentityLine {
        account: linked.iter().find(|row| row.provider == provider.key).map(|row| row.name.clone()),
        provider: provider.id,
        name: provider.name,
    };
    Ok(identities::list_providers(&ui.app).into_iter().map(line).collect())
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    page(&ui, &person, &Values::default(), &Errors::default(), StatusCode::OK).await
}

pub(crate) async fn change_password(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    let (current, password) = (form.text("current_password"), Secret::new(form.text("password")));
    let keep = keep(&form);
    match accounts::change_password(&ui.app, &person.caller, &person.secret, &current, &password, keep).await {
        Ok(()) => Ok(done("/account/security", "password-changed")),
        Err(AppError::Invalid(errors)) => {
            page(&ui, &person, &Values::of(&form), &errors, StatusCode::UNPROCESSABLE_ENTITY).await
        }
        Err(error) => Err(error.into()),
    }
}

/// What stays valid when the password changes.
pub(crate) fn keep(form: &Form) -> accounts::Keep {
    accounts::Keep { tokens: form.is_on("keep_tokens"), identities: form.is_on("keep_identities") }
}

pub(crate) async fn revoke_session(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    _: Form,
) -> PageResult {
    let id = id.parse().map_err(|_| AppError::Missing(Missing::Session))?;
    sessions::revoke(&ui.app, &person.caller, id).await?;
    Ok(done("/account/security#sessions", "revoked"))
}

async fn proposal_page(
    ui: &Ui,
    person: &SignedIn,
    proposal: &Proposal,
    errors: &Errors,
    status: StatusCode,
) -> PageResult {
    let t = person.t();
    let values = Values::default();
    let fields = Fields { t, values: &values, errors };
    let code = fields.line("code", t.say("two-factor-code")).required().focus().autocomplete("one-time-code").limit(16);
    let page = TwoFactorPage {
        frame: person.frame(ui, Section::Account).await?,
        qr: draw(proposal.url.reveal())?,
        secret: proposal.secret.reveal().to_owned(),
        code,
    };
    Ok(render(status, &page))
}

pub(crate) async fn show_two_factor(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    if person.user.totp_sealed.is_some() {
        return Ok(done("/account/security", "two-factor-on"));
    }
    let proposal = two_factor::propose(&person.user.email)?;
    proposal_page(&ui, &person, &proposal, &Errors::default(), StatusCode::OK).await
}

/// The secret comes back with the form. Only its owner has seen it, and it takes effect once it is confirmed.
pub(crate) async fn confirm_two_factor(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    let secret = Secret::new(form.text("secret"));
    match two_factor::confirm(&ui.app, &person.caller, &secret, &form.text("code")).await {
        Ok(codes) => show_codes(&ui, &person, &codes).await,
        Err(AppError::Invalid(errors)) => {
            let proposal = two_factor::address(&person.user.email, secret)?;
            proposal_page(&ui, &person, &proposal, &errors, StatusCode::UNPROCESSABLE_ENTITY).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn show_codes(ui: &Ui, person: &SignedIn, codes: &[Secret]) -> PageResult {
    let codes = codes.iter().map(|code| code.reveal().to_owned()).collect();
    Ok(render(StatusCode::CREATED, &CodesPage { frame: person.frame(ui, Section::Account).await?, codes }))
}

/// Asks for the password again before a change that weakens the account. The inner `Err` is the page with the error.
pub(crate) async fn confirmed(
    ui: &Ui,
    person: &SignedIn,
    form: &Form,
) -> Result<Result<(), Response>, crate::problem::PageError> {
    let password = form.text("confirm_password");
    match accounts::confirm_password(&ui.app, &person.caller, &password, "confirm_password").await {
        Ok(_) => Ok(Ok(())),
        Err(AppError::Invalid(errors)) => {
            Ok(Err(page(ui, person, &Values::default(), &errors, StatusCode::UNPROCESSABLE_ENTITY).await?))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn change_two_factor(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    if let Err(answer) = confirmed(&ui, &person, &form).await? {
        return Ok(answer);
    }
    if form.text("do") == "renew" {
        let codes = two_factor::renew_codes(&ui.app, &person.caller).await?;
        return show_codes(&ui, &person, &codes).await;
    }
    two_factor::disable(&ui.app, &person.caller.origin, &person.user).await?;
    Ok(done("/account/security", "two-factor-off"))
}

/// Draws the authenticator URL as a QR code.
fn draw(text: &str) -> Result<Markup, AppError> {
    let code =
        QrCode::with_error_correction_level(text, EcLevel::M).map_err(|error| AppError::Internal(error.to_string()))?;
    let width = code.width();
    let mut path = String::new();
    for (place, colour) in code.to_colors().into_iter().enumerate() {
        if colour == qrcode::Color::Dark {
            let _ = write!(path, "M{} {}h1v1h-1z", place % width, place / width);
        }
    }
    Ok(Markup(format!(
        "<svg class=\"qr\" viewBox=\"0 0 {width} {width}\" aria-hidden=\"true\" shape-rendering=\"crispEdges\"><path \
         d=\"{path}\" fill=\"#000\"/></svg>"
    )))
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let (values, errors) = (Values::default(), Errors::one("code", holdfast_core::refusal::Rule::Required));
    let fields = Fields { t: frame.t, values: &values, errors: &errors };
    let session = |is_own| SessionLine {
        id: 1,
        device: hostile.into(),
        address: hostile.into(),
        seen: Markup("<time>now</time>".into()),
        is_own,
    };
    let page = |has_two_factor| SecurityPage {
        frame: frame.clone(),
        password: vec![fields.password("password", "Password".into(), "new-password")],
        has_two_factor,
        codes_left: 3,
        confirm: fields.password("confirm_password", "Password".into(), "current-password"),
        sessions: vec![session(true), session(false)],
        identities: vec![
            IdentityLine { provider: "github".into(), name: "GitHub".into(), account: None },
            IdentityLine { provider: "oidc".into(), name: hostile.into(), account: Some(hostile.into()) },
        ],
    };
    let two_factor = TwoFactorPage {
        frame: frame.clone(),
        qr: draw("otpauth://totp/x").unwrap(),
        secret: hostile.into(),
        code: fields.line("code", "Code".into()),
    };
    let codes = CodesPage { frame: frame.clone(), codes: vec!["abcde-fghij".into()] };
    vec![
        page(true).render().unwrap(),
        page(false).render().unwrap(),
        two_factor.render().unwrap(),
        codes.render().unwrap(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_agents_are_described_briefly() {
        let firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
        let safari = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_0 like Mac OS X) AppleWebKit/605 Version/17.0 Safari/604.1";
        assert_eq!(device_words(firefox), "Firefox, Linux");
        assert_eq!(device_words(safari), "Safari, iPhone");
        assert_eq!(device_words("curl/8.0"), "curl/8.0");
    }
}
