//! Servers: the list, the page of one server with the result of its last check, and the form.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect};
use holdfast_app::{App, Caller, Resource, overview, servers, ssh_key};
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::ServerId;
use holdfast_core::input::{Errors, Input, Value};
use holdfast_core::limits;
use holdfast_core::run::RunSubject;
use holdfast_core::server::{self, Connectivity, DEFAULT_PORT};
use holdfast_store::servers::ServerRow;

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
use crate::view::{FormPage, Pager, advice, everything, listing, state};

#[derive(Template)]
#[template(path = "servers.html")]
struct ServersPage {
    frame: Frame,
    list: List,
    servers: Vec<Line>,
    pager: Pager,
    install_command: String,
}

struct Line {
    id: i64,
    label: String,
    address: String,
    state: Markup,
    seen: Option<Markup>,
}

#[derive(Template)]
#[template(path = "server.html")]
struct ServerPage {
    frame: Frame,
    id: i64,
    label: String,
    address: String,
    state: Markup,
    is_checking: bool,
    error: Option<(String, String)>,
    needs_key: bool,
    install_command: String,
    host_key: Option<String>,
    offered_key: Option<String>,
    seen: Option<Markup>,
    latency: Option<String>,
    jump: Option<(ServerId, String)>,
    tools: Vec<(String, String)>,
}

pub(crate) fn address(row: &ServerRow) -> String {
    let port = if row.port == DEFAULT_PORT { String::new() } else { format!(":{}", row.port) };
    format!("{}@{}{port}", row.username, row.host)
}

pub(crate) fn connectivity(t: Translator, row: &ServerRow) -> Markup {
    let class = match row.connectivity {
        Connectivity::Online => "good",
        Connectivity::Offline => "failed",
        Connectivity::Unknown => "",
    };
    state(class, &t.say(&format!("connectivity-{}", row.connectivity.as_str())))
}

pub(crate) async fn list(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let page = servers::list(&ui.app, &listing(&person.caller, &person.query, false)).await?;
    let line = |row: ServerRow| Line {
        id: row.id.0,
        address: address(&row),
        state: connectivity(person.t(), &row),
        seen: row.last_connected_at.map(|at| person.reader.when(at.0)),
        label: row.label,
    };
    let page = ServersPage {
        frame: person.frame(&ui, Section::Servers).await?,
        list: List::of::<Server>(&person, page.items.is_empty()),
        pager: Pager::of(&person.reader, &page, Server::HOME, &person.query),
        servers: page.items.into_iter().map(line).collect(),
        install_command: ssh_key::show(&ui.app, &person.caller).await?.install_command,
    };
    Ok(render(StatusCode::OK, &page))
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let row = servers::show(&ui.app, &person.caller, form_resource::parse::<Server>(&id).map(ServerId)?).await?;
    let (t, reader) = (person.t(), &person.reader);
    let live = overview::live_runs(&ui.app, &person.caller).await?;
    let is_checking = live.iter().any(|run| run.subject == RunSubject::CheckServer(row.id));
    let jump = match row.jump_server_id {
        Some(jump) => Some((jump, servers::show(&ui.app, &person.caller, jump).await?.label)),
        None => None,
    };
    let code = row.last_error_code;
    let page = ServerPage {
        frame: person.frame(&ui, Section::Servers).await?,
        id: row.id.0,
        address: address(&row),
        state: if is_checking { state("running", &t.say("server-checking")) } else { connectivity(t, &row) },
        is_checking,
        error: row.last_error.clone().map(|text| (text, advice(t, code))),
        needs_key: code == Some(FailureCode::Auth) || row.last_connected_at.is_none(),
        install_command: ssh_key::show(&ui.app, &person.caller).await?.install_command,
        host_key: row.host_key.clone(),
        offered_key: row.offered_host_key.clone(),
        seen: row.last_connected_at.map(|at| reader.when(at.0)),
        latency: row.latency_micros.map(|micros| reader.duration(micros.max(1000))),
        jump,
        tools: row.tools.lines().filter_map(|line| line.split_once(' ')).map(|(a, b)| (a.into(), b.into())).collect(),
        label: row.label,
    };
    Ok(render(StatusCode::OK, &page))
}

fn input(form: &Form) -> Input {
    let mut input = form.input(server::fields());
    // An empty port means the default.
    if input.get(server::PORT.name) == Some(&Value::Null) {
        input.set(server::PORT.name, DEFAULT_PORT);
    }
    input
}

/// Servers as a [`FormResource`].
pub(crate) struct Server;

impl FormResource for Server {
    type Row = ServerRow;
    const HOME: &'static str = "/servers";
    const LIST: &'static str = "nav-servers";
    const SECTION: Section = Section::Servers;
    const RESOURCE: Resource = Resource::RemoteServer;
    const ADD: &'static str = "server-add";
    const ADDED: &'static str = "server-added";
    const DELETE_MEANS: Option<&'static str> = Some("server-delete-means");

    fn blank() -> Values {
        Values::default().set("port", DEFAULT_PORT.to_string())
    }

    fn values(row: &ServerRow) -> Values {
        Values::default()
            .set("label", &row.label)
            .set("ip_address", &row.host)
            .set("username", &row.username)
            .set("port", row.port.to_string())
            .set("database_username", row.database_username.clone().unwrap_or_default())
            .set("jump_server_id", row.jump_server_id.map(|id| id.to_string()).unwrap_or_default())
    }

    fn changed(before: &ServerRow, after: &ServerRow, form: &Form) -> &'static str {
        let was_removed = before.has_database_password && !after.has_database_password;
        let was_asked_for = form.is_on("remove_database_password");
        match (was_removed && !was_asked_for, before.host_key.is_some() && after.host_key.is_none()) {
            (true, true) => "server-moved",
            (true, false) => "server-password-removed",
            (false, true) => "server-key-forgotten",
            (false, false) => "saved",
        }
    }

    fn id(row: &ServerRow) -> i64 {
        row.id.0
    }

    fn label(row: &ServerRow) -> &str {
        &row.label
    }

    async fn form(
        ui: &Ui,
        person: &SignedIn,
        row: Option<&ServerRow>,
        values: &Values,
        errors: &Errors,
    ) -> Result<FormPage, PageError> {
        let t = person.t();
        let fields = Fields { t, values, errors };
        let others = servers::list(&ui.app, &everything(&person.caller)).await?;
        let jumps = others
            .items
            .into_iter()
            .filter(|other| other.jump_server_id.is_none() && row.is_none_or(|row| row.id != other.id));
        let jumps = std::iter::once((String::new(), t.say("server-no-jump")))
            .chain(jumps.map(|other| (other.id.to_string(), other.label)));
        let mut database = vec![
            fields.line("database_username", t.say("server-database-user")).limit(limits::TEXT_CHARS),
            fields
                .password("database_password", t.say("server-database-password"), "new-password")
                .hint(t.say("server-database-hint")),
        ];
        if row.is_some_and(|row| row.has_database_password) {
            database.push(fields.switch("remove_database_password", t.say("server-database-remove")));
        }
        let groups = vec![
            Group::new(
                String::new(),
                vec![
                    fields.line("label", t.say("form-name")).required().limit(limits::TEXT_CHARS).focus(),
                    fields
                        .line("ip_address", t.say("server-host"))
                        .hint(t.say("server-host-hint"))
                        .required()
                        .limit(limits::TEXT_CHARS),
                    fields.of_type("number", "port", t.say("server-port")).range(1, 65535),
                    fields
                        .line("username", t.say("server-user"))
                        .hint(t.say("server-user-hint"))
                        .required()
                        .limit(limits::TEXT_CHARS),
                ],
            ),
            Group::new(t.say("server-database"), database).folded(),
            Group::new(t.say("server-way"), vec![fields.select("jump_server_id", t.say("server-jump"), jumps)])
                .folded(),
        ];
        Ok(FormPage {
            title: if row.is_some() { t.say("server-edit") } else { t.say("server-add") },
            groups,
            submit: if row.is_some() { t.say("form-save") } else { t.say("server-add-and-check") },
            ..FormPage::default()
        })
    }

    async fn find(app: &App, caller: &Caller, id: i64) -> Outcome<ServerRow> {
        servers::show(app, caller, ServerId(id)).await
    }

    async fn create(app: &App, caller: &Caller, form: &Form) -> Outcome<ServerRow> {
        let row = servers::create(app, caller, &input(form)).await?;
        super::unless_busy(servers::request_check(app, caller, row.id).await)?;
        Ok(row)
    }

    async fn update(app: &App, caller: &Caller, id: i64, form: &Form) -> Outcome<ServerRow> {
        servers::update(app, caller, ServerId(id), &input(form)).await
    }

    async fn delete(app: &App, caller: &Caller, id: i64) -> Outcome<()> {
        servers::delete(app, caller, ServerId(id)).await
    }
}

pub(crate) async fn check(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>, _: Form) -> PageResult {
    let id = form_resource::parse::<Server>(&id).map(ServerId)?;
    servers::request_check(&ui.app, &person.caller, id).await?;
    Ok(Redirect::to(&format!("/servers/{id}")).into_response())
}

pub(crate) async fn accept_key(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Form,
) -> PageResult {
    let id = form_resource::parse::<Server>(&id).map(ServerId)?;
    servers::accept_host_key(&ui.app, &person.caller, id, Some(&form.text("key"))).await?;
    servers::request_check(&ui.app, &person.caller, id).await?;
    Ok(done(&format!("/servers/{id}"), "key-accepted"))
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let command = "echo 'ssh-ed25519 AAAA holdfast' >> ~/.ssh/authorized_keys".to_owned();
    let line = Line {
        id: 1,
        label: hostile.into(),
        address: hostile.into(),
        state: state("failed", "offline"),
        seen: Some(Markup("<time>now</time>".into())),
    };
    let list = |servers: Vec<Line>| ServersPage {
        frame: frame.clone(),
        list: List::sample::<Server>(hostile, servers.is_empty()),
        servers,
        pager: Pager::default(),
        install_command: command.clone(),
    };
    let server = ServerPage {
        frame: frame.clone(),
        id: 1,
        label: hostile.into(),
        address: hostile.into(),
        state: state("failed", "offline"),
        is_checking: false,
        error: Some((hostile.into(), "Do this.".into())),
        needs_key: true,
        install_command: command.clone(),
        host_key: Some("SHA256:a".into()),
        offered_key: Some(hostile.into()),
        seen: None,
        latency: Some("1 ms".into()),
        jump: Some((ServerId(2), hostile.into())),
        tools: vec![("tar".into(), hostile.into())],
    };
    vec![list(vec![line]).render().unwrap(), list(Vec::new()).render().unwrap(), server.render().unwrap()]
}
