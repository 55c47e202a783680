//! Signing in and out, set-up and invitation links, password reset by email, and registration if it is allowed.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Redirect, Response};
use holdfast_app::accounts::{self, Credentials};
use holdfast_app::identities::{self, Provider};
use holdfast_app::refusal::Missing;
use holdfast_app::{AppError, Context, Origin, sessions};
use holdfast_core::input::{Errors, Field};
use holdfast_core::user::{LinkPurpose, UserDraft, check_password};
use holdfast_core::{Secret, clock, limits};

use crate::cookies;
use crate::cookies::Theme;
use crate::fields::{Control, Fields, Values};
use crate::form::{Form, csrf_token};
use crate::frame::Frame;
use crate::human::Markup;
use crate::page::{self, done, render};
use crate::pages::security::keep;
use crate::problem::PageResult;
use crate::session::SignedIn;
use crate::state::Ui;
use crate::translator::Translator;

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    frame: Frame,
    fields: Vec<Control>,
    then: String,
    can_register: bool,
    providers: Vec<Provider>,
}

/// A page with one form for a visitor who is not signed in.
#[derive(Template)]
#[template(path = "visitor_form.html")]
struct VisitorPage {
    frame: Frame,
    title: String,
    intro: String,
    action: String,
    fields: Vec<Control>,
    submit: String,
    after: Markup,
}

/// A browser that is not signed in.
struct Visitor<'a> {
    ui: &'a Ui,
    headers: &'a HeaderMap,
    secret: String,
    t: Translator,
    said: Option<String>,
}

impl<'a> Visitor<'a> {
    fn new(ui: &'a Ui, headers: &'a HeaderMap, query: &Form) -> Self {
        let t = cookies::language(headers);
        let said = t.find(&format!("said-{}", query.text("said")));
        Self { ui, headers, secret: cookies::form_secret(headers), t, said }
    }

    fn frame(&self) -> Frame {
        let frame = Frame::visitor(self.t, Theme::of(self.headers), csrf_token(&self.secret));
        Frame { said: self.said.clone(), ..frame }
    }

    fn show(&self, status: StatusCode, page: &impl Template) -> Response {
        let mut response = render(status, page);
        cookies::remember_visitor(&mut response, self.headers, &self.secret, self.ui.secure_cookies);
        response
    }
}

async fn sign_in_page(
    visitor: &Visitor<'_>,
    status: StatusCode,
    values: &Values,
    errors: &Errors,
    then: &str,
) -> PageResult {
    let t = visitor.t;
    let fields = Fields { t, values, errors };
    let mut asked = vec![
        fields.of_type("email", "email", t.say("sign-in-email")).required().focus().autocomplete("username"),
        fields.password("password", t.say("sign-in-password"), "current-password").required(),
    ];
    if errors.has("otp") {
        asked.push(
            fields.line("otp", t.say("two-factor-code")).hint(t.say("sign-in-otp-hint")).autocomplete("one-time-code"),
        );
    }
    let page = SignInPage {
        frame: visitor.frame(),
        fields: asked,
        then: then.to_owned(),
        can_register: accounts::is_registration_open(&visitor.ui.app).await?,
        providers: identities::list_providers(&visitor.ui.app),
    };
    Ok(visitor.show(status, &page))
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, uri: Uri, headers: HeaderMap) -> PageResult {
    let query = Form::of_query(uri.query());
    let visitor = Visitor::new(&ui, &headers, &query);
    sign_in_page(&visitor, StatusCode::OK, &Values::default(), &Errors::default(), &query.text("then")).await
}

pub(crate) async fn submit(
    State(ui): State<Arc<Ui>>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
    form: Form,
) -> PageResult {
    let (otp, then) = (form.text("otp"), form.text("then"));
    let credentials = Credentials {
        email: Field::Value(form.text("email")),
        password: Field::Value(form.text("password")),
        otp: if otp.is_empty() { Field::Absent } else { Field::Value(otp) },
    };
    let device = cookies::device(&headers);
    match accounts::sign_in(&ui.app, &credentials, &device, &context.origin("session")).await {
        Ok(secret) => Ok(signed_in(&ui, &secret, page::own_address(&then)).await),
        Err(AppError::Invalid(errors)) => {
            let visitor = Visitor::new(&ui, &headers, &Form::of_query(None));
            sign_in_page(&visitor, StatusCode::UNPROCESSABLE_ENTITY, &Values::of(&form), &errors, &then).await
        }
        Err(error) => Err(error.into()),
    }
}

/// The fields to create an account: name, email, password and time zone.
fn person_fields(fields: &Fields<'_>, is_email_given: bool) -> Vec<Control> {
    let t = fields.t;
    let email = fields.of_type("email", "email", t.say("sign-in-email")).required().autocomplete("username");
    vec![
        fields.line("name", t.say("account-name")).required().focus().limit(limits::TEXT_CHARS).autocomplete("name"),
        if is_email_given { email.hint(t.say("sign-in-email-given")) } else { email },
        password_field(fields),
        fields
            .line("timezone", t.say("account-zone"))
            .hint(t.say("account-zone-hint"))
            .required()
            .suggest(clock::zone_names()),
    ]
}

fn password_field(fields: &Fields<'_>) -> Control {
    let t = fields.t;
    fields
        .password("password", t.say("sign-in-password"), "new-password")
        .hint(t.say("sign-in-password-hint"))
        .required()
        .limit(limits::SECRET_CHARS)
}

fn link_page(visitor: &Visitor<'_>, link: &str, purpose: LinkPurpose, values: &Values, errors: &Errors) -> VisitorPage {
    let t = visitor.t;
    let fields = Fields { t, values, errors };
    let (title, intro, fields, submit) = match purpose {
        LinkPurpose::SetUp => {
            (t.say("set-up-title"), t.say("set-up-intro"), person_fields(&fields, false), t.say("set-up-do"))
        }
        LinkPurpose::Invitation => {
            (t.say("invited-title"), t.say("invited-intro"), person_fields(&fields, true), t.say("set-up-do"))
        }
        LinkPurpose::Reset => {
            let fields = vec![
                password_field(&fields).focus(),
                fields.switch("keep_tokens", t.say("security-keep-tokens")),
                fields.switch("keep_identities", t.say("security-keep-identities")),
            ];
            (t.say("reset-title"), t.say("reset-intro"), fields, t.say("reset-do"))
        }
    };
    let after = Markup::default();
    VisitorPage { frame: visitor.frame(), title, intro, action: format!("/set-up/{link}"), fields, submit, after }
}

fn used_up() -> AppError {
    AppError::Missing(Missing::Link)
}

pub(crate) async fn show_link(State(ui): State<Arc<Ui>>, Path(link): Path<String>, headers: HeaderMap) -> PageResult {
    let (user, purpose) = accounts::find_link(&ui.app, &link).await?.ok_or_else(used_up)?;
    let visitor = Visitor::new(&ui, &headers, &Form::of_query(None));
    let values = match purpose {
        LinkPurpose::SetUp => Values::default(),
        LinkPurpose::Invitation | LinkPurpose::Reset => {
            Values::default().set("name", &user.name).set("email", &user.email)
        }
    };
    let page = link_page(&visitor, &link, purpose, &values.set("timezone", &user.timezone), &Errors::default());
    Ok(visitor.show(StatusCode::OK, &page))
}

pub(crate) async fn submit_link(
    State(ui): State<Arc<Ui>>,
    Extension(context): Extension<Context>,
    Path(link): Path<String>,
    headers: HeaderMap,
    form: Form,
) -> PageResult {
    let (_, purpose) = accounts::find_link(&ui.app, &link).await?.ok_or_else(used_up)?;
    let (password, origin) = (Secret::new(form.text("password")), context.origin("session"));
    let taken = if purpose == LinkPurpose::Reset {
        accounts::reset_by_link(&ui.app, &link, &password, keep(&form), &origin).await.map(|()| None)
    } else {
        match drafted(&form, &password) {
            Ok(draft) => {
                let device = cookies::device(&headers);
                accounts::claim(&ui.app, &link, &draft, &password, &device, &origin).await.map(Some)
            }
            Err(errors) => Err(AppError::Invalid(errors)),
        }
    };
    match taken {
        Ok(Some(secret)) => Ok(signed_in(&ui, &secret, None).await),
        Ok(None) => Ok(done("/sign-in", "password-changed")),
        Err(AppError::Invalid(errors)) => {
            let visitor = Visitor::new(&ui, &headers, &Form::of_query(None));
            let page = link_page(&visitor, &link, purpose, &Values::of(&form), &errors);
            Ok(visitor.show(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
        Err(error) => Err(error.into()),
    }
}

/// Checks the form, and reports the errors of all fields together.
fn drafted(form: &Form, password: &Secret) -> Result<UserDraft, Errors> {
    let draft = UserDraft::check(&form.text("name"), &form.text("email"), &form.text("timezone"), false);
    match (draft, check_password(password)) {
        (Ok(draft), Ok(())) => Ok(draft),
        (draft, password) => Err(join(draft.err(), password.err())),
    }
}

fn register_page(visitor: &Visitor<'_>, values: &Values, errors: &Errors) -> VisitorPage {
    let t = visitor.t;
    let fields = Fields { t, values, errors };
    VisitorPage {
        frame: visitor.frame(),
        title: t.say("register-title"),
        intro: t.say("register-intro"),
        action: "/register".to_owned(),
        fields: person_fields(&fields, false),
        submit: t.say("set-up-do"),
        after: Markup::default(),
    }
}

pub(crate) async fn show_register(State(ui): State<Arc<Ui>>, headers: HeaderMap) -> PageResult {
    if !accounts::is_registration_open(&ui.app).await? {
        return Err(AppError::Missing(Missing::Page).into());
    }
    let visitor = Visitor::new(&ui, &headers, &Form::of_query(None));
    let values = Values::default().set("timezone", "UTC");
    Ok(visitor.show(StatusCode::OK, &register_page(&visitor, &values, &Errors::default())))
}

pub(crate) async fn register(
    State(ui): State<Arc<Ui>>,
    Extension(context): Extension<Context>,
    headers: HeaderMap,
    form: Form,
) -> PageResult {
    let password = Secret::new(form.text("password"));
    let registered = match drafted(&form, &password) {
        Ok(draft) => {
            let device = cookies::device(&headers);
            accounts::register(&ui.app, &draft, &password, &device, &context.origin("session")).await
        }
        Err(errors) => Err(AppError::Invalid(errors)),
    };
    match registered {
        Ok(secret) => Ok(signed_in(&ui, &secret, None).await),
        Err(AppError::Invalid(errors)) => {
            let visitor = Visitor::new(&ui, &headers, &Form::of_query(None));
            let page = register_page(&visitor, &Values::of(&form), &errors);
            Ok(visitor.show(StatusCode::UNPROCESSABLE_ENTITY, &page))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn show_forgotten(State(ui): State<Arc<Ui>>, headers: HeaderMap) -> PageResult {
    let visitor = Visitor::new(&ui, &headers, &Form::of_query(None));
    let (t, values, errors) = (visitor.t, Values::default(), Errors::default());
    let fields = Fields { t, values: &values, errors: &errors };
    let can_mail = ui.app.can_mail();
    let page = VisitorPage {
        frame: visitor.frame(),
        title: t.say("forgotten-title"),
        intro: if can_mail { t.say("forgotten-intro") } else { t.say("forgotten-no-mail") },
        action: "/forgotten".to_owned(),
        fields: if can_mail {
            vec![fields.of_type("email", "email", t.say("sign-in-email")).required().focus().autocomplete("username")]
        } else {
            Vec::new()
        },
        submit: t.say("forgotten-do"),
        after: Markup::default(),
    };
    Ok(visitor.show(StatusCode::OK, &page))
}

pub(crate) async fn forgotten(
    State(ui): State<Arc<Ui>>,
    Extension(context): Extension<Context>,
    form: Form,
) -> PageResult {
    accounts::request_reset(&ui.app, &form.text("email"), &context.origin("session")).await?;
    Ok(done("/sign-in", "reset-sent"))
}

pub(crate) async fn sign_out(State(ui): State<Arc<Ui>>, person: SignedIn, _: Form) -> PageResult {
    sessions::sign_out(&ui.app, &person.caller, &person.secret).await?;
    let mut response = Redirect::to("/sign-in").into_response();
    cookies::end(&mut response, ui.secure_cookies);
    Ok(response)
}

/// Sets the theme: light, dark, or that of the system.
pub(crate) async fn set_theme(State(ui): State<Arc<Ui>>, form: Form) -> Response {
    let wanted = form.text("theme");
    let theme = Theme::ALL.into_iter().find(|theme| theme.as_str() == wanted).unwrap_or_default();
    let back = form.text("back");
    let mut response = Redirect::to(page::own_address(&back).unwrap_or("/")).into_response();
    cookies::remember_theme(&mut response, theme, ui.secure_cookies);
    response
}

/// Error pages do not know the user, so they use the language of the last sign-in in this browser.
async fn remember_language(ui: &Ui, response: &mut Response, secret: &Secret) {
    if let Ok((_, user)) = sessions::caller(&ui.app, secret.reveal(), Origin::default()).await {
        cookies::remember_language(response, Translator::of(&user.language), ui.secure_cookies);
    }
}

async fn signed_in(ui: &Ui, secret: &Secret, then: Option<&str>) -> Response {
    let mut response = Redirect::to(then.unwrap_or("/")).into_response();
    cookies::start(&mut response, secret, ui.secure_cookies);
    remember_language(ui, &mut response, secret).await;
    response
}

fn join(first: Option<Errors>, second: Option<Errors>) -> Errors {
    let mut all = first.unwrap_or_default();
    all.add_all(&second.unwrap_or_default(), |field| Some(field));
    all
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let values = Values::default().set("email", hostile).set("name", hostile);
    let errors = Errors::one("email", holdfast_core::refusal::Rule::Required);
    let fields = Fields { t: frame.t, values: &values, errors: &errors };
    let sign_in = SignInPage {
        frame: frame.clone(),
        fields: person_fields(&fields, true),
        then: hostile.into(),
        can_register: true,
        providers: vec![Provider { id: "oidc".into(), name: hostile.into(), key: "oidc x".into() }],
    };
    let visitor = |fields| VisitorPage {
        frame: frame.clone(),
        title: hostile.into(),
        intro: hostile.into(),
        action: "/register".into(),
        fields,
        submit: "Go".into(),
        after: Markup::default(),
    };
    vec![
        sign_in.render().unwrap(),
        visitor(person_fields(&fields, false)).render().unwrap(),
        visitor(Vec::new()).render().unwrap(),
    ]
}
