//! Backup tasks: what is copied, from where to where, when, and how much of it is kept.

use jiff::Timestamp;

use crate::ids::{DestinationId, ServerId};
use crate::input::{Errors, Field};
use crate::refusal::Rule;
use crate::schedule::{self, Cron, CronError, Frequency, Schedule, TimeOfDay};
use crate::secret::SecretChange;
use crate::{limits, network, rules};

string_enum! {
    TaskKind { Files = "files", Database = "database" }
}

impl TaskKind {
    pub fn human(self) -> &'static str {
        match self {
            Self::Files => "Files",
            Self::Database => "Database",
        }
    }
}

string_enum! {
    DatabaseEngine { Mysql = "mysql", Postgresql = "postgresql" }
}

/// How a backup is stored. `repository` is understood but not built yet, so it cannot be chosen.
pub const FORMAT_ARCHIVE: &str = "archive";
const FORMAT_REPOSITORY: &str = "repository";

#[derive(Debug, Default)]
pub struct TaskInput {
    pub remote_server_id: Field<i64>,
    pub backup_destination_id: Field<i64>,
    pub label: Field<String>,
    pub description: Field<String>,
    pub source_path: Field<String>,
    pub kind: Field<String>,
    pub database_name: Field<String>,
    pub database_engine: Field<String>,
    pub excluded_tables: Field<String>,
    pub excluded_paths: Field<Vec<String>>,
    pub one_file_system: Field<bool>,
    pub frequency: Field<String>,
    pub time_to_run_at: Field<String>,
    pub day_of_week: Field<i64>,
    pub day_of_month: Field<i64>,
    pub custom_cron: Field<String>,
    pub maximum_backups_to_keep: Field<i64>,
    pub store_path: Field<String>,
    pub appended_filename: Field<String>,
    pub encryption_password: Field<String>,
    pub heartbeat_url: Field<String>,
    pub format: Field<String>,
    pub notification_stream_ids: Field<Vec<i64>>,
    pub tag_ids: Field<Vec<i64>>,
}

/// What a task copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    pub kind: TaskKind,
    pub path: Option<String>,
    pub database_name: Option<String>,
    pub database_engine: Option<DatabaseEngine>,
    pub excluded_tables: Option<String>,
    pub excluded_paths: Vec<String>,
    /// Leave out what is mounted below the path.
    pub one_file_system: bool,
}

/// How a task's backups are stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    pub max_backups: i64,
    pub appended_filename: Option<String>,
    pub path: String,
}

/// A task's settings, whole. An update starts from these and so does a run.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSettings {
    pub server: ServerId,
    pub destination: DestinationId,
    pub label: String,
    pub description: Option<String>,
    pub source: Source,
    pub schedule: Schedule,
    pub storage: Storage,
}

/// A checked task: settings that are sound in themselves. Whether the ids are the user's own is for the store to
/// say.
#[derive(Debug, Clone)]
pub struct TaskDraft {
    pub settings: TaskSettings,
    pub encryption_password: SecretChange,
    /// Where the world outside hears that the task is alive.
    pub heartbeat_url: SecretChange,
    /// `None` leaves what is attached as it is.
    pub stream_ids: Option<Vec<i64>>,
    pub tag_ids: Option<Vec<i64>>,
}

impl TaskDraft {
    /// Checks everything that can be checked without looking anything up, and notes every error.
    pub fn check(
        errors: &mut Errors,
        input: &TaskInput,
        current: Option<&TaskSettings>,
        now: Timestamp,
    ) -> Option<TaskDraft> {
        let e = errors;
        let server = required_id(e, "remote_server_id", &input.remote_server_id, current.map(|c| c.server.0));
        let destination =
            required_id(e, "backup_destination_id", &input.backup_destination_id, current.map(|c| c.destination.0));
        let label = rules::required_line(e, "label", &input.label, limits::TEXT_CHARS, current.map(|c| &*c.label));
        let was = current.and_then(|c| c.description.clone());
        let description = rules::optional_text(e, "description", &input.description, was, |e, text| {
            rules::paragraph(e, "description", text, limits::TEXT_CHARS)
        });
        let source = check_source(e, input, current.map(|c| &c.source));
        let schedule = check_schedule(e, input, current.map(|c| &c.schedule), now);
        let storage = check_storage(e, input, current.map(|c| &c.storage));
        check_format(e, &input.format);
        let encryption_password = rules::secret_change(e, "encryption_password", &input.encryption_password);
        let heartbeat_url = rules::secret_change(e, "heartbeat_url", &input.heartbeat_url);
        if heartbeat_url.set().is_some_and(|url| !network::is_web_url(url.reveal())) {
            e.add("heartbeat_url", Rule::Url);
        }
        let stream_ids = rules::id_list(e, "notification_stream_ids", &input.notification_stream_ids);
        let tag_ids = rules::id_list(e, "tag_ids", &input.tag_ids);
        let settings = TaskSettings {
            server: ServerId(server?),
            destination: DestinationId(destination?),
            label: label?,
            description,
            source: source?,
            schedule: schedule?,
            storage,
        };
        e.is_empty().then_some(TaskDraft { settings, encryption_password, heartbeat_url, stream_ids, tag_ids })
    }
}

impl TaskDraft {
    /// What a task would copy, looked at by itself.
    pub fn check_source(e: &mut Errors, input: &TaskInput) -> Option<Source> {
        check_source(e, input, None)
    }

    /// When a task would run, looked at by itself.
    pub fn check_schedule(e: &mut Errors, input: &TaskInput, now: Timestamp) -> Option<Schedule> {
        check_schedule(e, input, None, now)
    }
}

fn required_id(e: &mut Errors, field: &str, input: &Field<i64>, current: Option<i64>) -> Option<i64> {
    match input {
        Field::Value(id) => return Some(*id),
        Field::Absent if current.is_some() => return current,
        Field::Absent | Field::Null => rules::required(e, field),
        Field::WrongType => e.add(field, Rule::Integer),
    }
    None
}

fn check_source(e: &mut Errors, input: &TaskInput, current: Option<&Source>) -> Option<Source> {
    let kind = rules::choice(e, "type", &input.kind, current.map(|c| c.kind), TaskKind::parse);
    let was = current.and_then(|c| c.path.clone());
    let path = rules::optional_text(e, "source_path", &input.source_path, was, |e, text| {
        rules::line(e, "source_path", text, limits::PATH_CHARS)
    });
    if kind == Some(TaskKind::Files) && path.is_none() && !e.has("source_path") {
        rules::required(e, "source_path");
    }
    let was = current.and_then(|c| c.database_name.clone());
    let database_name = rules::optional_text(e, "database_name", &input.database_name, was, |e, text| {
        let name = rules::line(e, "database_name", text, limits::TEXT_CHARS)?;
        if name.starts_with('-') {
            e.add("database_name", Rule::Format);
        }
        Some(name)
    });
    let database_engine = match &input.database_engine {
        Field::Null => None,
        Field::Absent => current.and_then(|c| c.database_engine),
        given => rules::choice(e, "database_engine", given, None, DatabaseEngine::parse),
    };
    let was = current.and_then(|c| c.excluded_tables.clone());
    let excluded_tables = rules::optional_text(e, "excluded_tables", &input.excluded_tables, was, check_tables);
    let excluded_paths = check_excluded_paths(e, &input.excluded_paths, current.map(|c| &*c.excluded_paths));
    let was = current.is_some_and(|c| c.one_file_system);
    let one_file_system = rules::boolean(e, "one_file_system", &input.one_file_system, was);
    Some(match kind? {
        TaskKind::Files => Source {
            kind: TaskKind::Files,
            path,
            database_name: None,
            database_engine: None,
            excluded_tables: None,
            excluded_paths,
            one_file_system,
        },
        TaskKind::Database => Source {
            kind: TaskKind::Database,
            path,
            database_name,
            database_engine,
            excluded_tables,
            excluded_paths: Vec::new(),
            one_file_system: false,
        },
    })
}

/// Table names between commas; blanks around them do not count.
fn check_tables(e: &mut Errors, text: &str) -> Option<String> {
    let text = rules::line(e, "excluded_tables", text, limits::EXCLUDED_TABLES_CHARS)?;
    let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.iter().any(|name| name.starts_with('-') || name.chars().count() > limits::TEXT_CHARS) {
        e.add("excluded_tables", Rule::Format);
        return None;
    }
    (!names.is_empty()).then(|| names.join(","))
}

fn check_excluded_paths(e: &mut Errors, input: &Field<Vec<String>>, current: Option<&[String]>) -> Vec<String> {
    const NAME: &str = "excluded_paths";
    match input {
        Field::Absent => current.unwrap_or_default().to_vec(),
        Field::Null => Vec::new(),
        Field::WrongType => {
            e.add(NAME, Rule::Texts);
            Vec::new()
        }
        Field::Value(patterns) if patterns.len() > limits::EXCLUDED_PATHS => {
            e.add(NAME, Rule::MaxItems { max: limits::EXCLUDED_PATHS });
            Vec::new()
        }
        Field::Value(patterns) => {
            patterns.iter().filter_map(|text| rules::line(e, NAME, text, limits::EXCLUDED_PATH_CHARS)).collect()
        }
    }
}

fn check_schedule(e: &mut Errors, input: &TaskInput, current: Option<&Schedule>, now: Timestamp) -> Option<Schedule> {
    let cron = check_cron(e, &input.custom_cron, current.and_then(|c| c.cron.as_ref()), now);
    let frequency = check_frequency(e, &input.frequency, current.map(|c| c.frequency), cron.is_some());
    let time = match &input.time_to_run_at {
        Field::Absent => current.and_then(|c| c.time),
        Field::Null => None,
        Field::WrongType => {
            e.add("time_to_run_at", Rule::Text);
            None
        }
        Field::Value(text) => {
            let time = TimeOfDay::parse(text);
            if time.is_none() {
                e.add("time_to_run_at", Rule::TimeOfDay);
            }
            time
        }
    };
    let needs_time = cron.is_none() && !matches!(frequency, None | Some(Frequency::Hourly | Frequency::Custom));
    if needs_time && time.is_none() && !e.has("time_to_run_at") {
        rules::required(e, "time_to_run_at");
    }
    let weekday = current.map_or_else(|| schedule::weekday_number(now), |c| c.day_of_week);
    let day_of_week = rules::integer(e, "day_of_week", &input.day_of_week, 0..=6, weekday);
    let month_day = current.map_or_else(|| schedule::day_of_month(now), |c| c.day_of_month);
    let day_of_month = rules::integer(e, "day_of_month", &input.day_of_month, 1..=28, month_day);
    Some(Schedule { frequency: frequency?, time, day_of_week, day_of_month, cron })
}

fn check_cron(e: &mut Errors, input: &Field<String>, current: Option<&Cron>, now: Timestamp) -> Option<Cron> {
    const NAME: &str = "custom_cron";
    match input {
        Field::Absent => current.cloned(),
        Field::Null => None,
        Field::WrongType => {
            e.add(NAME, Rule::Text);
            None
        }
        Field::Value(text) if text.trim().is_empty() => None,
        Field::Value(text) => match Cron::parse(text, now) {
            Ok(cron) => Some(cron),
            Err(CronError::Malformed) => {
                e.add(NAME, Rule::Cron);
                None
            }
            Err(CronError::NeverDue) => {
                e.add(NAME, Rule::CronNeverDue);
                None
            }
        },
    }
}

/// A cron expression stands for a schedule on its own; without one, a named frequency is needed.
fn check_frequency(
    e: &mut Errors,
    input: &Field<String>,
    current: Option<Frequency>,
    has_cron: bool,
) -> Option<Frequency> {
    const NAME: &str = "frequency";
    if has_cron && matches!(input, Field::Absent | Field::Null) {
        return Some(current.filter(|_| input.is_absent()).unwrap_or(Frequency::Custom));
    }
    if e.has("custom_cron") && input.is_absent() {
        return None;
    }
    let named = current.filter(|frequency| *frequency != Frequency::Custom);
    rules::choice(e, NAME, input, named, |text| {
        Frequency::parse(text).filter(|frequency| has_cron || *frequency != Frequency::Custom)
    })
}

fn check_storage(e: &mut Errors, input: &TaskInput, current: Option<&Storage>) -> Storage {
    let max_backups = rules::integer(
        e,
        "maximum_backups_to_keep",
        &input.maximum_backups_to_keep,
        0..=limits::MAX_BACKUPS,
        current.map_or(limits::DEFAULT_MAX_BACKUPS, |c| c.max_backups),
    );
    let was = current.and_then(|c| c.appended_filename.clone());
    let appended_filename = rules::optional_text(e, "appended_filename", &input.appended_filename, was, |e, text| {
        let name = rules::line(e, "appended_filename", text, limits::APPENDED_FILENAME_CHARS)?;
        if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte)) {
            e.add("appended_filename", Rule::Format);
        }
        Some(name)
    });
    let was = current.map(|c| c.path.clone());
    let path = rules::optional_text(e, "store_path", &input.store_path, was, |e, text| {
        let path = rules::line(e, "store_path", text, limits::TEXT_CHARS)?;
        if !is_store_path(&path) {
            e.add("store_path", Rule::Format);
        }
        Some(path)
    });
    Storage { max_backups, appended_filename, path: path.unwrap_or_else(|| "/".to_owned()) }
}

/// A folder below the destination's root: whatever it is joined to, it stays below it.
fn is_store_path(path: &str) -> bool {
    !path.contains('\\') && path.split('/').all(|part| part != ".." && part != ".")
}

fn check_format(e: &mut Errors, input: &Field<String>) {
    match input {
        Field::Absent | Field::Null => {}
        Field::Value(text) if text == FORMAT_ARCHIVE => {}
        Field::Value(text) if text == FORMAT_REPOSITORY => {
            e.add("format", Rule::NoRepository);
        }
        Field::Value(_) | Field::WrongType => e.add("format", Rule::Choice),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Field<String> {
        Field::Value(value.to_owned())
    }

    fn files() -> TaskInput {
        TaskInput {
            remote_server_id: Field::Value(1),
            backup_destination_id: Field::Value(2),
            label: text("web"),
            source_path: text("/var/www"),
            kind: text("files"),
            frequency: text("daily"),
            time_to_run_at: text("03:00"),
            ..TaskInput::default()
        }
    }

    fn now() -> Timestamp {
        "2025-03-31T12:00:00Z".parse().unwrap()
    }

    fn check(input: &TaskInput, current: Option<&TaskSettings>) -> Result<TaskDraft, Errors> {
        let mut errors = Errors::default();
        TaskDraft::check(&mut errors, input, current, now()).ok_or(errors)
    }

    #[test]
    fn defaults_are_filled_in() {
        let settings = check(&files(), None).unwrap().settings;
        assert_eq!((settings.storage.max_backups, settings.storage.path.as_str()), (5, "/"));
        assert_eq!(settings.schedule.day_of_week, 1, "a Monday");
        assert_eq!(settings.schedule.day_of_month, 28, "no later than every month has");
    }

    #[test]
    fn an_empty_body_names_every_required_field() {
        let errors = check(&TaskInput::default(), None).unwrap_err();
        for field in ["remote_server_id", "backup_destination_id", "label", "type", "frequency"] {
            assert!(errors.has(field), "{field}");
        }
        let no_path = TaskInput { source_path: Field::Absent, ..files() };
        assert!(check(&no_path, None).unwrap_err().has("source_path"));
        let no_time = TaskInput { time_to_run_at: Field::Absent, ..files() };
        assert!(check(&no_time, None).unwrap_err().has("time_to_run_at"));
    }

    #[test]
    fn a_cron_stands_in_for_a_frequency() {
        let input = TaskInput {
            frequency: Field::Absent,
            time_to_run_at: Field::Absent,
            custom_cron: text("0 3 * * *"),
            ..files()
        };
        let settings = check(&input, None).unwrap().settings;
        assert_eq!(settings.schedule.frequency, Frequency::Custom);
        let drop_cron = TaskInput { custom_cron: Field::Null, ..TaskInput::default() };
        assert!(check(&drop_cron, Some(&settings)).unwrap_err().has("frequency"));
        let both = TaskInput { custom_cron: text("0 3 * * *"), ..files() };
        assert_eq!(check(&both, None).unwrap().settings.schedule.frequency, Frequency::Daily);
        let bare_custom = TaskInput { frequency: text("custom"), ..files() };
        assert!(check(&bare_custom, None).unwrap_err().has("frequency"));
    }

    #[test]
    fn file_tasks_have_no_database_fields_and_a_change_of_type_needs_a_path() {
        let input = TaskInput { database_name: text("shop"), excluded_tables: text("a, b"), ..files() };
        let source = check(&input, None).unwrap().settings.source;
        assert_eq!((source.database_name, source.excluded_tables), (None, None));
        let database = TaskInput {
            kind: text("database"),
            source_path: Field::Absent,
            excluded_tables: text(" a , b,"),
            ..files()
        };
        let settings = check(&database, None).unwrap().settings;
        assert_eq!(settings.source.excluded_tables.as_deref(), Some("a,b"));
        let to_files = TaskInput { kind: text("files"), ..TaskInput::default() };
        assert!(check(&to_files, Some(&settings)).unwrap_err().has("source_path"));
    }

    #[test]
    fn hostile_values_are_refused() {
        let cases: [(&str, TaskInput); 7] = [
            ("store_path", TaskInput { store_path: text("a/../../etc"), ..files() }),
            ("store_path", TaskInput { store_path: text("..\\x"), ..files() }),
            ("source_path", TaskInput { source_path: text("/a\nb"), ..files() }),
            ("appended_filename", TaskInput { appended_filename: text("../x"), ..files() }),
            ("database_name", TaskInput { database_name: text("--all"), ..files() }),
            ("excluded_tables", TaskInput { excluded_tables: text("-T"), ..files() }),
            ("format", TaskInput { format: text("repository"), ..files() }),
        ];
        for (field, input) in cases {
            assert!(check(&input, None).unwrap_err().has(field), "{field}");
        }
        let shell = TaskInput { source_path: text("/srv/$(id) ' \""), ..files() };
        assert!(check(&shell, None).is_ok(), "odd names are names");
    }

    #[test]
    fn zero_keeps_all_and_bounds_hold() {
        let keep = |n| TaskInput { maximum_backups_to_keep: Field::Value(n), ..files() };
        assert_eq!(check(&keep(0), None).unwrap().settings.storage.max_backups, 0);
        assert!(check(&keep(-1), None).unwrap_err().has("maximum_backups_to_keep"));
        assert!(check(&keep(1001), None).unwrap_err().has("maximum_backups_to_keep"));
    }
}
