//! The account page: the profile, notification settings, API tokens and the SSH key.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use holdfast_app::notices::{self, NotificationSettingsInput, QuietInput};
use holdfast_app::refusal::Missing;
use holdfast_app::tokens::{self, TokenRequest};
use holdfast_app::{AppError, accounts, ssh_key};
use holdfast_core::clock;
use holdfast_core::ids::TokenId;
use holdfast_core::input::{Errors, Field};
use holdfast_core::limits;
use holdfast_core::scope::{Scope, ScopeSet};
use holdfast_core::user::UserDraft;

use crate::cookies;
use crate::fields::{Control, Fields, Values};
use crate::form::Form;
use crate::frame::{Frame, Section};
use crate::human::Markup;
use crate::page::{done, render};
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;
use crate::translator::Translator;
use crate::view::FormPage;

/// The lifetimes offered for a new token; 30 days is preselected.
const EXPIRY_DAYS: [i64; 4] = [7, 30, 90, 365];

#[derive(Template)]
#[template(path = "account.html")]
struct AccountPage {
    frame: Frame,
    email: String,
    profile: Vec<Control>,
    notification_settings: Vec<Control>,
    new_token: Option<String>,
    tokens: Vec<TokenLine>,
    token_fields: Vec<Control>,
    install_command: String,
    fingerprint: String,
    has_two_factor: bool,
}

struct TokenLine {
    id: i64,
    name: String,
    scopes: String,
    last_used: Option<Markup>,
    expires: Option<Markup>,
}

/// The forms of the page that were just submitted. All others show the stored values.
#[derive(Default)]
struct Sent {
    profile: Option<(Values, Errors)>,
    notification_settings: Option<(Values, Errors)>,
    token: Option<(Values, Errors)>,
    new_token: Option<String>,
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    page(&ui, &person, StatusCode::OK, Sent::default()).await
}

async fn page(ui: &Ui, person: &SignedIn, status: StatusCode, sent: Sent) -> PageResult {
    let (t, user, reader) = (person.t(), &person.user, &person.reader);
    let (values, errors) = sent.profile.unwrap_or_else(|| {
        let values = Values::default()
            .set("name", &user.name)
            .set("email", &user.email)
            .set("timezone", &user.timezone)
            .set("language", t.code());
        (values, Errors::default())
    });
    let profile = profile_fields(&Fields { t, values: &values, errors: &errors });
    let (values, errors) = match sent.notification_settings {
        Some(sent) => sent,
        None => (hearing_values(ui, person).await?, Errors::default()),
    };
    let notification_settings = hearing_fields(&Fields { t, values: &values, errors: &errors });
    let (values, errors) =
        sent.token.unwrap_or_else(|| (Values::default().set("expires_in_days", "30"), Errors::default()));
    let token_fields = token_fields(&Fields { t, values: &values, errors: &errors });
    let rows = tokens::list(&ui.app, person.caller.user).await?;
    let line = |row: holdfast_store::tokens::TokenRow| TokenLine {
        id: row.id.0,
        scopes: describe_scopes(t, &row.scopes),
        last_used: row.last_used_at.map(|at| reader.when(at.0)),
        expires: row.expires_at.map(|at| reader.when(at.0)),
        name: row.name,
    };
    let key = ssh_key::show(&ui.app, &person.caller).await?;
    let page = AccountPage {
        frame: person.frame(ui, Section::Account).await?,
        email: user.email.clone(),
        profile,
        notification_settings,
        new_token: sent.new_token,
        tokens: rows.into_iter().map(line).collect(),
        token_fields,
        install_command: key.install_command,
        fingerprint: key.fingerprint,
        has_two_factor: user.totp_sealed.is_some(),
    };
    Ok(render(status, &page))
}

fn profile_fields(fields: &Fields<'_>) -> Vec<Control> {
    let t = fields.t;
    let languages = Translator::all().map(|(code, name)| (code.to_owned(), name.to_owned()));
    vec![
        fields.line("name", t.say("account-name")).required().limit(limits::TEXT_CHARS).autocomplete("name"),
        fields.of_type("email", "email", t.say("sign-in-email")).required().autocomplete("email"),
        fields
            .line("timezone", t.say("account-zone"))
            .hint(t.say("account-zone-hint"))
            .required()
            .suggest(clock::zone_names()),
        fields.select("language", t.say("account-language"), languages),
        fields
            .password("current_password", t.say("account-current-password"), "current-password")
            .hint(t.say("account-email-needs")),
    ]
}

async fn hearing_values(ui: &Ui, person: &SignedIn) -> Result<Values, PageError> {
    let notification_settings = notices::show_notification_settings(&ui.app, &person.caller).await?;
    let quiet = notification_settings.quiet_hours;
    Ok(Values::default()
        .switch("weekly_summary", notification_settings.weekly_summary)
        .set("quiet_from", quiet.map(|quiet| quiet.from.to_string()).unwrap_or_default())
        .set("quiet_until", quiet.map(|quiet| quiet.until.to_string()).unwrap_or_default()))
}

fn hearing_fields(fields: &Fields<'_>) -> Vec<Control> {
    let t = fields.t;
    vec![
        fields.switch("weekly_summary", t.say("account-weekly")).hint(t.say("account-weekly-hint")),
        fields.of_type("time", "quiet_from", t.say("account-quiet-from")),
        fields.of_type("time", "quiet_until", t.say("account-quiet-until")).hint(t.say("account-quiet-hint")),
    ]
}

fn token_fields(fields: &Fields<'_>) -> Vec<Control> {
    let t = fields.t;
    let scope = |scope: &Scope| (scope.as_str().to_owned(), t.say(&format!("scope-{}", scope.as_str())));
    let scopes =
        std::iter::once(("everything".to_owned(), t.say("scope-everything"))).chain(Scope::ALL.iter().map(scope));
    let days = EXPIRY_DAYS.iter().map(|days| (days.to_string(), t.with("token-in-days", "n", *days)));
    let days = days.chain([(String::new(), t.say("token-never"))]);
    vec![
        fields
            .line("token_name", t.say("form-name"))
            .hint(t.say("token-name-hint"))
            .required()
            .limit(limits::TEXT_CHARS),
        fields.checks("scopes", t.say("token-scopes"), scopes),
        fields.select("expires_in_days", t.say("token-expires"), days),
    ]
}

pub(crate) async fn update_profile(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    let (language, password) = (Translator::of(&form.text("language")), form.text("current_password"));
    let draft = UserDraft::check(&form.text("name"), &form.text("email"), &form.text("timezone"), person.user.is_admin);
    let updated = match draft {
        Ok(draft) => accounts::update_profile(&ui.app, &person.caller, &draft, language.code(), &password).await,
        Err(errors) => Err(AppError::Invalid(errors)),
    };
    match updated {
        Ok(()) => {
            let mut response = done("/account", "saved").into_response();
            cookies::remember_language(&mut response, language, ui.secure_cookies);
            Ok(response)
        }
        Err(AppError::Invalid(errors)) => {
            let sent = Sent { profile: Some((Values::of(&form), errors)), ..Sent::default() };
            page(&ui, &person, StatusCode::UNPROCESSABLE_ENTITY, sent).await
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn update_notification_settings(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    form: Form,
) -> PageResult {
    let (from, until) = (form.text("quiet_from"), form.text("quiet_until"));
    let quiet_hours = if from.is_empty() && until.is_empty() {
        Field::Null
    } else {
        Field::Value(QuietInput { from: Field::Value(from), until: Field::Value(until) })
    };
    let input = NotificationSettingsInput { weekly_summary: Field::Value(form.is_on("weekly_summary")), quiet_hours };
    match notices::update_notification_settings(&ui.app, &person.caller, &input).await {
        Ok(_) => Ok(done("/account#messages", "saved")),
        Err(AppError::Invalid(errors)) => {
            // The use case reports them as fields of one object, as in the API.
            let mut own = Errors::default();
            own.add_all(&errors, |field| Some(if field.ends_with("from") { "quiet_from" } else { "quiet_until" }));
            let sent = Sent { notification_settings: Some((Values::of(&form), own)), ..Sent::default() };
            page(&ui, &person, StatusCode::UNPROCESSABLE_ENTITY, sent).await
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn create_token(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    let days: Option<i64> = form.text("expires_in_days").parse().ok().filter(|days| (1..=3650).contains(days));
    let request = TokenRequest {
        name: form.text("token_name"),
        scopes: chosen_scopes(&form),
        expires_at: days.map(|days| clock::from_micros(ui.app.now().as_microsecond() + days * 86_400_000_000)),
    };
    match tokens::create(&ui.app, person.caller.user, &person.caller.origin, &request).await {
        Ok(secret) => {
            let sent = Sent { new_token: Some(secret.reveal().to_owned()), ..Sent::default() };
            page(&ui, &person, StatusCode::CREATED, sent).await
        }
        Err(AppError::Invalid(errors)) => {
            let mut own = Errors::default();
            own.add_all(&errors, |field| Some(if field == "name" { "token_name" } else { field }));
            let sent = Sent { token: Some((Values::of(&form), own)), ..Sent::default() };
            page(&ui, &person, StatusCode::UNPROCESSABLE_ENTITY, sent).await
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn revoke_token(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    _: Form,
) -> PageResult {
    let id = id.parse().map_err(|_| AppError::Missing(Missing::Token))?;
    tokens::revoke(&ui.app, person.caller.user, &person.caller.origin, TokenId(id)).await?;
    Ok(done("/account#tokens", "revoked"))
}

fn chosen_scopes(form: &Form) -> ScopeSet {
    if form.texts("scopes").any(|scope| scope == "everything") {
        return ScopeSet::all();
    }
    form.texts("scopes").filter_map(Scope::parse).collect()
}

fn describe_scopes(t: Translator, text: &str) -> String {
    let scopes = ScopeSet::from_text(text);
    if scopes == ScopeSet::all() {
        return t.say("scope-everything");
    }
    let words = Scope::ALL.iter().filter(|scope| scopes.contains(**scope));
    words.map(|scope| t.say(&format!("scope-{}", scope.as_str()))).collect::<Vec<_>>().join(", ")
}

async fn delete_page(ui: &Ui, person: &SignedIn, form: &Values, errors: &Errors) -> Result<FormPage, PageError> {
    let t = person.t();
    let fields = Fields { t, values: form, errors };
    let asked = vec![
        fields.of_type("email", "email", t.with("account-delete-type", "email", &person.user.email)).required(),
        fields.password("password", t.say("account-current-password"), "current-password").required(),
    ];
    Ok(FormPage {
        frame: person.frame(ui, Section::Account).await?,
        title: t.say("account-delete"),
        intro: t.say("account-delete-means"),
        action: "/account/delete".to_owned(),
        groups: vec![crate::fields::Group::new(String::new(), asked)],
        submit: t.say("account-delete"),
        up: Some(("/account".to_owned(), t.say("nav-account"))),
        is_dangerous: true,
        ..FormPage::default()
    })
}

pub(crate) async fn show_delete(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    Ok(delete_page(&ui, &person, &Values::default(), &Errors::default()).await?.show(StatusCode::OK))
}

pub(crate) async fn delete(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    match accounts::delete_own(&ui.app, &person.caller, &form.text("email"), &form.text("password")).await {
        Ok(()) => {
            let mut response = done("/sign-in", "account-deleted");
            cookies::end(&mut response, ui.secure_cookies);
            Ok(response)
        }
        Err(AppError::Invalid(errors)) => {
            let page = delete_page(&ui, &person, &Values::of(&form), &errors).await?;
            Ok(page.show(StatusCode::UNPROCESSABLE_ENTITY))
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let values = Values::default().set("name", hostile).set("token_name", hostile);
    let errors = Errors::one("token_name", holdfast_core::refusal::Rule::Required);
    let fields = Fields { t: frame.t, values: &values, errors: &errors };
    let line = || TokenLine {
        id: 1,
        name: hostile.into(),
        scopes: "manage-tags".into(),
        last_used: None,
        expires: Some(Markup("<time>now</time>".into())),
    };
    let page = |tokens| AccountPage {
        frame: frame.clone(),
        email: hostile.into(),
        profile: profile_fields(&fields),
        notification_settings: hearing_fields(&fields),
        new_token: Some("hf_x".into()),
        tokens,
        token_fields: token_fields(&fields),
        install_command: "echo".into(),
        fingerprint: "SHA256:a".into(),
        has_two_factor: true,
    };
    vec![page(vec![line()]).render().unwrap(), page(Vec::new()).render().unwrap()]
}
