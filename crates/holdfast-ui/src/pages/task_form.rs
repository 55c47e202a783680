//! The form of a task. It describes the schedule in words, previews the next runs, lets users browse the server, and
//! estimates how much there is to copy.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use holdfast_app::tasks::{self, Task};
use holdfast_app::{AppError, destinations, probes, servers, streams, tags};
use holdfast_core::database::DatabaseEngine;
use holdfast_core::ids::{DestinationId, ServerId, StreamId, TagId};
use holdfast_core::input::{Errors, Input, Value};
use holdfast_core::schedule::{self, Frequency, Schedule, Spread};
use holdfast_core::source::{self, SourceSpec, TaskKind};
use holdfast_core::storage::Format;
use holdfast_core::task;
use holdfast_core::{Timestamp, clock, limits, schedule_fields};
use holdfast_store::tasks::TaskRow;

use super::probe;
use super::schedule::schedule_words;
use super::task_words::{kind_words, parse};
use crate::fields::{Fields, Group, Preview, Values};
use crate::form::Form;
use crate::frame::Section;
use crate::human::{Markup, Reader, escaped};
use crate::page::done;
use crate::problem::{PageError, PageResult};
use crate::session::SignedIn;
use crate::state::Ui;
use crate::view::{FormPage, everything};

/// The number of upcoming runs that the form shows.
const NEXT_RUNS: usize = 5;

/// The schedule in words and its next runs, or its errors.
fn preview(reader: &Reader, form: &Form) -> Markup {
    let mut errors = Errors::default();
    let checked = Schedule::check(&mut errors, &input(form), None, reader.now);
    let Some(mut schedule) = checked.filter(|_| errors.is_empty()) else {
        let errors = without_repeats(&errors);
        let texts: Vec<String> = errors.iter().flat_map(|(_, rules)| rules).map(|rule| reader.t.rule(rule)).collect();
        let html = texts.iter().map(|text| format!("<p class=\"field-error\">{}</p>", escaped(text)));
        return Markup(html.collect());
    };
    let words = schedule_words(reader, &schedule);
    // Where in the range its runs are is chosen when it is saved.
    schedule.spread = None;
    let mut next = Vec::new();
    let mut after = reader.now;
    while let Some(slot) = schedule.next_after(after).filter(|_| next.len() < NEXT_RUNS) {
        next.push(format!("<li>{}</li>", reader.exactly(slot)));
        after = slot;
    }
    Markup(format!(
        "<p><strong>{}</strong></p><p>{}</p><ol>{}</ol>",
        escaped(&words),
        escaped(&reader.t.say("schedule-next")),
        next.concat()
    ))
}

pub(crate) async fn show_preview(person: SignedIn) -> Response {
    Html(preview(&person.reader, &person.query).0).into_response()
}

fn input(form: &Form) -> Input {
    let mut input = form.input(task::fields());
    if form.text("frequency") == Frequency::Custom.as_str() {
        // The cron expression overrides frequency and time, whose stored values are kept.
        input.remove("frequency");
        input.remove("time_to_run_at");
        // An empty expression must be reported as an error, not mean that there is none.
        if form.text("custom_cron").trim().is_empty() {
            input.set("custom_cron", "?");
        }
    } else {
        input.set("custom_cron", Value::Null);
    }
    // Of databases, only those that are files have a path.
    if form.text("type") == TaskKind::Database.as_str() && !source::is_file_database(|name| form.text(name)) {
        input.set("source_path", Value::Null);
    }
    input
}

/// An invalid cron expression also makes the frequency invalid; only the first error is shown.
fn without_repeats(errors: &Errors) -> Errors {
    let mut told = Errors::default();
    told.add_all(errors, |field| (field != "frequency" || !errors.has("custom_cron")).then_some(field));
    told
}

fn values(task: &Task) -> Values {
    let row = &task.row;
    let schedule = &row.spec.schedule;
    let frequency = if schedule.cron.is_some() { Frequency::Custom } else { schedule.frequency };
    Values::of_input(&row.spec.write())
        .set("frequency", frequency.as_str())
        .set(task::SERVER.name, row.remote_server_id.to_string())
        .set(task::DESTINATION.name, row.backup_destination_id.to_string())
        .set("label", &row.label)
        .set("description", row.description.clone().unwrap_or_default())
        .set_all(task::STREAMS.name, task.stream_ids.iter().map(i64::to_string))
        .set_all(task::TAGS.name, task.tag_ids.iter().map(i64::to_string))
}

/// The initial values of a new task: the defaults of the API, and a schedule to begin with.
fn defaults(query: &Form, now: Timestamp) -> Values {
    let values = Values::defaults(task::fields())
        .set("day_of_week", schedule::weekday_number(now, None).to_string())
        .set("day_of_month", schedule::day_of_month(now, None).to_string())
        .set("type", TaskKind::Files.as_str())
        .set("frequency", Frequency::Daily.as_str())
        .set("time_to_run_at", "03:00");
    picked(query, values)
}

/// The values carried back from browsing, or those that a link presets.
fn picked(query: &Form, values: Values) -> Values {
    if query.is_on(probe::CARRIED) {
        return probe::unpack(Values::of(query));
    }
    let fields = query.fields().filter(|(name, _)| *name != "said");
    probe::unpack(fields.fold(values, |values, (name, value)| values.set(name, value)))
}

/// The purpose of the form.
enum For<'a> {
    New,
    Edit(&'a Task),
}

/// What a task can refer to: ids and labels.
struct Choices {
    servers: Vec<(String, String)>,
    destinations: Vec<(String, String)>,
    streams: Vec<(String, String)>,
    tags: Vec<(String, String)>,
}

impl Choices {
    async fn load(ui: &Ui, person: &SignedIn, values: &Values) -> Result<Self, PageError> {
        let all = everything(&person.caller);
        let servers = servers::list(&ui.app, &all).await?.items.into_iter().map(|row| (row.id.to_string(), row.label));
        let destinations =
            destinations::list(&ui.app, &all).await?.items.into_iter().map(|row| (row.id.to_string(), row.label));
        let streams = streams::list(&ui.app, &all).await?.items.into_iter().map(|row| (row.id.to_string(), row.label));
        let tags = tags::list(&ui.app, &all).await?.items.into_iter().map(|row| (row.id.to_string(), row.label));
        let (mut servers, mut destinations): (Vec<_>, Vec<_>) = (servers.collect(), destinations.collect());
        let (mut streams, mut tags): (Vec<_>, Vec<_>) = (streams.collect(), tags.collect());
        // The lists are limited, so add selected items that are not among them.
        let caller = &person.caller;
        for id in missing(values, "remote_server_id", &servers) {
            let row = unless_gone(servers::show(&ui.app, caller, ServerId(id)).await)?;
            servers.extend(row.map(|row| (row.id.to_string(), row.label)));
        }
        for id in missing(values, "backup_destination_id", &destinations) {
            let row = unless_gone(destinations::show(&ui.app, caller, DestinationId(id)).await)?;
            destinations.extend(row.map(|row| (row.id.to_string(), row.label)));
        }
        for id in missing(values, "notification_stream_ids", &streams) {
            let row = unless_gone(streams::show(&ui.app, caller, StreamId(id)).await)?;
            streams.extend(row.map(|row| (row.id.to_string(), row.label)));
        }
        for id in missing(values, "tag_ids", &tags) {
            let row = unless_gone(tags::show(&ui.app, caller, TagId(id)).await)?;
            tags.extend(row.map(|row| (row.id.to_string(), row.label)));
        }
        Ok(Self { servers, destinations, streams, tags })
    }
}

async fn form_page(
    ui: &Ui,
    person: &SignedIn,
    purpose: For<'_>,
    values: &Values,
    shown: Markup,
    errors: &Errors,
) -> Result<FormPage, PageError> {
    let t = person.t();
    let fields = Fields { t, values, errors };
    let Choices { servers, destinations, streams, tags } = Choices::load(ui, person, values).await?;
    let mut problems = Vec::new();
    if servers.is_empty() {
        problems.push(t.say("task-needs-server"));
    }
    if destinations.is_empty() {
        problems.push(t.say("task-needs-destination"));
    }
    let existing = if let For::Edit(task) = purpose { Some(&task.row) } else { None };
    let groups = vec![
        Group::new(
            t.say("task-what"),
            vec![
                fields.line("label", t.say("form-name")).required().limit(limits::TEXT_CHARS).focus(),
                fields.select("remote_server_id", t.say("task-server"), servers).required(),
                fields.select(
                    "type",
                    t.say("task-kind"),
                    TaskKind::ALL.iter().map(|kind| (kind.as_str().to_owned(), kind_words(t, *kind))),
                ),
            ],
        ),
        database_group(&fields),
        path_group(&fields),
        files_group(&fields),
        schedule_group(&fields, shown),
        Group::new(
            t.say("task-where"),
            vec![
                fields.select("backup_destination_id", t.say("task-destination"), destinations).required(),
                fields
                    .of_type("number", "maximum_backups_to_keep", t.say("task-keep"))
                    .hint(t.say("task-keep-hint"))
                    .range(0, limits::MAX_BACKUPS),
                format(&fields),
                encryption(&fields, existing),
            ],
        ),
        more_group(&fields, existing, streams, tags),
    ];
    let (title, action, up, submit) = match purpose {
        For::New => {
            let up = ("/tasks".to_owned(), t.say("nav-tasks"));
            (t.say("task-add"), "/tasks/new".to_owned(), up, t.say("task-create"))
        }
        For::Edit(task) => {
            let address = format!("/tasks/{}", task.row.id);
            let up = (address.clone(), task.row.label.clone());
            (t.say("task-edit"), format!("{address}/edit"), up, t.say("form-save"))
        }
    };
    Ok(FormPage {
        frame: person.frame(ui, Section::Tasks).await?,
        title,
        problems,
        action,
        groups,
        submit,
        also: vec![("size", t.say("task-dry-run"))],
        up: Some(up),
        ..FormPage::default()
    })
}

/// Nothing if it does not exist any more, or was never the caller's. Any other error is one: a form without what is
/// selected would change the selection.
fn unless_gone<T>(found: holdfast_app::Result<T>) -> Result<Option<T>, AppError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(AppError::NotFound(_) | AppError::Forbidden(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The selected ids that are not among the choices.
fn missing(values: &Values, name: &str, choices: &[(String, String)]) -> Vec<i64> {
    let is_missing = |value: &&str| !choices.iter().any(|(known, _)| known == value);
    values.texts(name).filter(is_missing).filter_map(|value| value.parse().ok()).collect()
}

fn engine_words(applies: fn(DatabaseEngine) -> bool) -> Vec<&'static str> {
    DatabaseEngine::ALL.iter().filter(|engine| applies(**engine)).map(|engine| engine.as_str()).collect()
}

/// The path of files, or of a database that is a file.
fn path_group(fields: &Fields<'_>) -> Group {
    let t = fields.t;
    let path = fields
        .line("source_path", t.say("task-path"))
        .hint(t.say("task-path-hint"))
        .placeholder("/var/www")
        .limit(limits::PATH_CHARS)
        .aside(t.say("task-browse"), "browse");
    let files = engine_words(DatabaseEngine::is_file).join(",");
    Group::new(String::new(), vec![path]).when(format!("type=files;database_engine={files}"))
}

fn files_group(fields: &Fields<'_>) -> Group {
    let t = fields.t;
    Group::new(
        String::new(),
        vec![
            fields.area("excluded_paths", t.say("task-excluded")).hint(t.say("task-excluded-hint")),
            fields.switch("one_file_system", t.say("task-one-file-system")).hint(t.say("task-one-file-system-hint")),
        ],
    )
    .when("type=files")
}

fn database_group(fields: &Fields<'_>) -> Group {
    let t = fields.t;
    let engines = DatabaseEngine::ALL.iter().map(|engine| (engine.as_str().to_owned(), engine.human().to_owned()));
    let engines = [(String::new(), t.say("task-engine-any"))].into_iter().chain(engines);
    // If no engine is given, it is looked for among those with a server.
    let when = |applies| format!("database_engine=,{}", engine_words(applies).join(","));
    Group::new(
        String::new(),
        vec![
            fields.select("database_engine", t.say("task-engine"), engines),
            fields
                .line("database_name", t.say("task-database-name"))
                .hint(t.say("task-database-hint"))
                .limit(limits::TEXT_CHARS)
                .aside(t.say("task-browse"), "databases")
                .when(when(DatabaseEngine::has_names)),
            fields
                .line("excluded_tables", t.say("task-excluded-tables"))
                .hint(t.say("task-excluded-tables-hint"))
                .limit(limits::EXCLUDED_TABLES_CHARS)
                .when(when(DatabaseEngine::has_tables)),
        ],
    )
    .when("type=database")
}

fn schedule_group(fields: &Fields<'_>, shown: Markup) -> Group {
    let t = fields.t;
    let frequencies = Frequency::ALL.iter().map(|frequency| {
        let label = match frequency {
            Frequency::Hourly => t.say("frequency-hourly"),
            Frequency::Daily => t.say("frequency-daily"),
            Frequency::Weekly => t.say("frequency-weekly"),
            Frequency::Monthly => t.say("frequency-monthly"),
            Frequency::Custom => t.say("frequency-custom"),
        };
        (frequency.as_str().to_owned(), label)
    });
    let weekdays = (0..7).map(|day| (day.to_string(), t.say(&format!("weekday-{day}"))));
    let preview = Preview {
        id: "schedule",
        address: "/tasks/preview",
        fields: schedule_fields::FIELDS.iter().map(|field| field.name).collect::<Vec<_>>().join(" "),
        content: shown,
        button: t.say("schedule-preview"),
    };
    Group::new(
        t.say("task-when"),
        vec![
            fields.select("frequency", t.say("task-frequency"), frequencies),
            fields
                .of_type("time", "time_to_run_at", t.say("task-time"))
                .hint(t.say("task-time-hint"))
                .when("frequency=hourly,daily,weekly,monthly"),
            fields
                .select("day_of_week", t.say("task-weekday"), weekdays)
                .hint(t.say("task-weekday-hint"))
                .when("frequency=weekly"),
            fields
                .of_type("number", "day_of_month", t.say("task-day"))
                .hint(t.say("task-day-hint"))
                .range(1, 28)
                .when("frequency=monthly"),
            fields
                .line("custom_cron", t.say("task-cron"))
                .hint(t.say("task-cron-hint"))
                .placeholder("*/30 8-18 * * MON-FRI")
                .limit(limits::TEXT_CHARS)
                .when("frequency=custom"),
            fields
                .line("timezone", t.say("task-zone"))
                .hint(t.say("task-zone-hint"))
                .limit(limits::TEXT_CHARS)
                .suggest(clock::zone_names()),
            fields
                .of_type("number", "spread_minutes", t.say("task-spread"))
                .hint(t.say("task-spread-hint"))
                .range(0, Spread::MOST_MINUTES),
            fields.of_type("time", "window_start", t.say("task-window-start")).hint(t.say("task-window-hint")),
            fields.of_type("time", "window_end", t.say("task-window-end")),
        ],
    )
    .preview(preview)
}

fn format(fields: &Fields<'_>) -> crate::fields::Control {
    let t = fields.t;
    let formats = Format::ALL.iter().map(|format| {
        let label = match format {
            Format::Archive => t.say("task-format-archive"),
            Format::Repository => t.say("task-format-repository"),
        };
        (format.as_str().to_owned(), label)
    });
    fields.select("format", t.say("task-format"), formats).hint(t.say("task-format-hint"))
}

fn encryption(fields: &Fields<'_>, existing: Option<&TaskRow>) -> crate::fields::Control {
    let t = fields.t;
    let is_set = existing.is_some_and(|row| row.has_encryption_password);
    let hint = if is_set { t.say("form-secret-stays") } else { t.say("task-password-hint") };
    fields
        .password("encryption_password", t.say("task-password"), "new-password")
        .hint(hint)
        .limit(limits::SECRET_CHARS)
}

fn more_group(
    fields: &Fields<'_>,
    existing: Option<&TaskRow>,
    streams: Vec<(String, String)>,
    tags: Vec<(String, String)>,
) -> Group {
    let t = fields.t;
    let mut more = vec![fields.area("description", t.say("form-description"))];
    if !streams.is_empty() {
        more.push(fields.checks("notification_stream_ids", t.say("task-streams"), streams));
    }
    if !tags.is_empty() {
        more.push(fields.checks("tag_ids", t.say("nav-tags"), tags));
    }
    more.push(
        fields.line("store_path", t.say("task-store-path")).hint(t.say("task-store-hint")).limit(limits::TEXT_CHARS),
    );
    more.push(
        fields
            .line("appended_filename", t.say("task-appended"))
            .hint(t.say("task-appended-hint"))
            .limit(limits::APPENDED_FILENAME_CHARS),
    );
    more.push(fields.password("heartbeat_url", t.say("task-heartbeat"), "off").hint(t.say("task-heartbeat-hint")));
    if existing.is_some_and(|row| row.has_heartbeat) {
        more.push(fields.switch("remove_heartbeat_url", t.say("task-heartbeat-remove")));
    }
    if existing.is_some_and(|row| row.has_encryption_password) {
        more.push(fields.switch("remove_encryption_password", t.say("task-password-remove")));
    }
    Group::new(t.say("form-more"), more).folded()
}

pub(crate) async fn show_new(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let values = defaults(&person.query, person.reader.now);
    let shown = preview(&person.reader, &of_values(&values));
    Ok(form_page(&ui, &person, For::New, &values, shown, &Errors::default()).await?.show(StatusCode::OK))
}

/// The schedule fields of the initial values, as a form for the preview.
fn of_values(values: &Values) -> Form {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for field in schedule_fields::FIELDS {
        query.append_pair(field.name, values.text(field.name));
    }
    Form::of_query(Some(&query.finish()))
}

/// Handles the buttons other than "save": browse folders, list databases, estimate the size.
async fn side_step(ui: &Ui, person: &SignedIn, form: &Form, back: &str) -> Result<Option<Response>, PageError> {
    let server = form.text("remote_server_id").parse().map(ServerId);
    let asked = match (form.text("do").as_str(), server) {
        ("browse", Ok(server)) => {
            let path =
                Some(form.text("source_path")).filter(|path| path.starts_with('/')).unwrap_or_else(|| "/".into());
            return Ok(Some(probe::browse(ui, person, server, &path, probe::carried(form, back)).await?));
        }
        ("databases", Ok(server)) => {
            return Ok(Some(probe::databases(ui, person, server, probe::carried(form, back)).await?));
        }
        ("size", _) => probes::ask_size(&ui.app, &person.caller, &input(form)).await,
        _ => return Ok(None),
    };
    match asked {
        Ok(run) => Ok(Some(probe::size(ui, person, run, probe::carried(form, back)).await?)),
        // The form is shown again with its errors.
        Err(AppError::Invalid(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn create(State(ui): State<Arc<Ui>>, person: SignedIn, form: Form) -> PageResult {
    if let Some(answer) = side_step(&ui, &person, &form, "/tasks/new").await? {
        return Ok(answer);
    }
    let shown = preview(&person.reader, &form);
    let errors = match form.text("do").as_str() {
        "" => match tasks::create(&ui.app, &person.caller, &input(&form)).await {
            Ok(task) => return Ok(done(&format!("/tasks/{}", task.row.id), "task-created")),
            Err(AppError::Invalid(errors)) => without_repeats(&errors),
            Err(error) => return Err(error.into()),
        },
        _ => check(&form, &person),
    };
    let page = form_page(&ui, &person, For::New, &Values::of(&form), shown, &errors).await?;
    Ok(page.show(if errors.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY }))
}

/// The errors of the fields that a preview or a size estimate needs.
fn check(form: &Form, person: &SignedIn) -> Errors {
    let mut errors = Errors::default();
    if form.text("do") == "size" {
        SourceSpec::check(&mut errors, &input(form), None);
    } else {
        Schedule::check(&mut errors, &input(form), None, person.reader.now);
    }
    without_repeats(&errors)
}

pub(crate) async fn show_edit(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let task = tasks::show(&ui.app, &person.caller, parse(&id)?).await?;
    let values = picked(&person.query, values(&task));
    let shown = preview(&person.reader, &of_values(&values));
    Ok(form_page(&ui, &person, For::Edit(&task), &values, shown, &Errors::default()).await?.show(StatusCode::OK))
}

pub(crate) async fn update(
    State(ui): State<Arc<Ui>>,
    person: SignedIn,
    Path(id): Path<String>,
    form: Form,
) -> PageResult {
    let id = parse(&id)?;
    let task = tasks::show(&ui.app, &person.caller, id).await?;
    if let Some(answer) = side_step(&ui, &person, &form, &format!("/tasks/{id}/edit")).await? {
        return Ok(answer);
    }
    let shown = preview(&person.reader, &form);
    let errors = match form.text("do").as_str() {
        "" => match tasks::update(&ui.app, &person.caller, id, &input(&form)).await {
            Ok(_) => return Ok(done(&format!("/tasks/{id}"), "saved")),
            Err(AppError::Invalid(errors)) => without_repeats(&errors),
            Err(error) => return Err(error.into()),
        },
        _ => check(&form, &person),
    };
    let page = form_page(&ui, &person, For::Edit(&task), &Values::of(&form), shown, &errors).await?;
    Ok(page.show(if errors.is_empty() { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY }))
}

/// The form for a new task with the settings of another, except its secrets.
pub(crate) async fn show_copy(State(ui): State<Arc<Ui>>, person: SignedIn, Path(id): Path<String>) -> PageResult {
    let task = tasks::show(&ui.app, &person.caller, parse(&id)?).await?;
    let label = person.t().with("task-copy-of", "name", &task.row.label);
    let label: String = label.chars().take(limits::TEXT_CHARS).collect();
    let values = values(&task).set("label", label);
    let shown = preview(&person.reader, &of_values(&values));
    let mut page = form_page(&ui, &person, For::New, &values, shown, &Errors::default()).await?;
    if task.row.has_encryption_password || task.row.has_heartbeat {
        page.problems.push(person.t().say("task-copy-secrets"));
    }
    Ok(page.show(StatusCode::OK))
}

#[cfg(test)]
mod tests {
    use holdfast_core::clock;

    use super::*;
    use crate::translator::Translator;

    fn reader(code: &str) -> Reader {
        let zone = clock::zone("Europe/Berlin").unwrap();
        Reader { t: Translator::of(code), zone, now: "2025-03-03T10:00:00Z".parse().unwrap() }
    }

    #[test]
    fn the_preview_shows_the_schedule_and_its_next_runs() {
        let shown = |query: &str| preview(&reader("en"), &Form::of_query(Some(query))).0;
        let daily = shown("frequency=daily&time_to_run_at=03:00");
        assert!(daily.contains("Every day at 03:00 UTC (04:00 your time)"), "{daily}");
        assert_eq!(daily.matches("<li>").count(), NEXT_RUNS);
        let weekly = shown("frequency=weekly&time_to_run_at=23:30&day_of_week=0");
        assert!(weekly.contains("Every Sunday at 23:30 UTC (Monday 00:30 your time)"), "{weekly}");
        let cron = shown("frequency=custom&custom_cron=*/30+8-18+*+*+MON-FRI");
        assert!(cron.contains("*/30 8-18 * * MON-FRI") && cron.contains("<li>"), "{cron}");
        let wrong = shown("frequency=custom&custom_cron=<script>");
        assert!(wrong.contains("field-error") && !wrong.contains("<script"), "{wrong}");
        assert!(shown("frequency=custom&custom_cron=").contains("field-error"));
    }

    #[test]
    fn an_invalid_cron_expression_is_reported_once() {
        let form = Form::of_query(Some("frequency=custom&custom_cron=x"));
        let mut errors = Errors::default();
        Schedule::check(&mut errors, &input(&form), None, reader("en").now);
        let told = without_repeats(&errors);
        assert!(told.has("custom_cron") && !told.has("frequency"));
    }
}
