//! Backup tasks: what is copied, from where to where, when, and how many backups are kept.

use jiff::Timestamp;

use crate::changes::Changes;
use crate::fields::{DefaultValue, FieldSpec};
use crate::ids::{DestinationId, ServerId};
use crate::input::{Errors, Field, Input};
use crate::refusal::Rule;
use crate::schedule::Schedule;
use crate::secret::SecretChange;
use crate::source::SourceSpec;
use crate::storage::Storage;
use crate::{limits, network, schedule_fields, source, storage};

pub const SERVER: FieldSpec = FieldSpec::id("remote_server_id").required().shown_at("/remote_server_id");
pub const DESTINATION: FieldSpec = FieldSpec::id("backup_destination_id").required().shown_at("/backup_destination_id");
const LABEL: FieldSpec = FieldSpec::line("label", limits::TEXT_CHARS).min_chars(1).required().shown_at("/label");
const DESCRIPTION: FieldSpec = FieldSpec::paragraph("description", limits::TEXT_CHARS).shown_at("/description");
pub const PASSWORD: FieldSpec = FieldSpec::secret("encryption_password", limits::SECRET_CHARS)
    .about("Never returned; null removes it.")
    .shown_at("/has_encryption_password");
pub const HEARTBEAT: FieldSpec = FieldSpec::secret("heartbeat_url", limits::SECRET_CHARS)
    .about(
        "Called when a run starts (with `/start` added to its path), succeeds or fails (with `/fail`). Never returned.",
    )
    .shown_at("/has_heartbeat_url");
pub const STREAMS: FieldSpec =
    FieldSpec::ids("notification_stream_ids", limits::ATTACHED).shown_at("/notification_stream_ids");
pub const TAGS: FieldSpec = FieldSpec::ids("tag_ids", limits::ATTACHED).shown_at("/tag_ids");

/// Not a setting of the task: forms do not have it, and pausing is an action of its own.
pub const PAUSED: FieldSpec = FieldSpec::switch("paused")
    .about("Whether the schedule is paused, as `paused_at` shows.")
    .default_to(DefaultValue::Switch(false));

/// Every field of a request of the API.
pub fn request_fields() -> impl Iterator<Item = &'static FieldSpec> {
    fields().chain([&PAUSED])
}

/// Every field of a task.
pub fn fields() -> impl Iterator<Item = &'static FieldSpec> {
    const FIRST: &[FieldSpec] = &[SERVER, DESTINATION, LABEL, DESCRIPTION];
    const LAST: &[FieldSpec] = &[PASSWORD, HEARTBEAT, STREAMS, TAGS];
    let specs = source::FIELDS.iter().copied().chain([schedule_fields::FIELDS, storage::FIELDS, LAST]);
    [FIRST].into_iter().chain(specs).flatten()
}

/// What a task does: its source, schedule and storage. It is stored as one value.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSpec {
    pub source: SourceSpec,
    pub schedule: Schedule,
    pub storage: Storage,
}

impl TaskSpec {
    /// Its fields, as they are stored and as forms show them.
    pub fn write(&self) -> Input {
        let mut values = Input::default();
        self.source.write(&mut values);
        self.schedule.write(&mut values);
        self.storage.write(&mut values);
        values
    }

    /// Reads what `write` wrote.
    pub fn read(stored: &Input) -> Option<Self> {
        Some(Self {
            source: SourceSpec::read(stored)?,
            schedule: Schedule::read(stored)?,
            storage: Storage::read(stored)?,
        })
    }
}

impl TaskSpec {
    /// Reads what `write` wrote, if it is valid; an import accepts nothing else.
    pub fn read_sound(stored: &Input) -> Option<Self> {
        let is_sound = SourceSpec::is_sound(stored) && Schedule::is_sound(stored) && Storage::is_sound(stored);
        Self::read(stored).filter(|spec| is_sound && spec.passes_checks())
    }

    /// Whether a request could have created it. Schedules are left out: some that older versions accepted would be
    /// refused by now. So would a task without a path, which fails when it runs.
    fn passes_checks(&self) -> bool {
        let mut source = self.source.clone();
        if let SourceSpec::Files(files) = &mut source
            && files.path.is_empty()
        {
            files.path = "/".to_owned();
        }
        let (mut errors, mut input) = (Errors::default(), self.write());
        source.write(&mut input);
        let checked = SourceSpec::check(&mut errors, &input, None);
        let storage = Storage::check(&mut errors, &input, None);
        errors.is_empty() && checked == Some(source) && storage == self.storage
    }
}

/// All settings of a task. Updates and runs start from these.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSettings {
    pub server: ServerId,
    pub destination: DestinationId,
    pub label: String,
    pub description: Option<String>,
    pub spec: TaskSpec,
}

impl TaskSettings {
    /// Its fields, with what is attached to it, as the audit log compares them.
    fn write(&self, streams: &[i64], tags: &[i64]) -> Input {
        let mut values = Input::default()
            .with(SERVER.name, self.server.0)
            .with(DESTINATION.name, self.destination.0)
            .with(LABEL.name, self.label.as_str())
            .with(DESCRIPTION.name, self.description.clone());
        self.spec.write().iter().for_each(|(name, value)| values.set(name, value.clone()));
        values.with(STREAMS.name, streams.to_vec()).with(TAGS.name, tags.to_vec())
    }
}

/// A task before an edit.
#[derive(Debug, Clone, Copy)]
pub struct CurrentTask<'a> {
    pub settings: &'a TaskSettings,
    /// Both in ascending order.
    pub stream_ids: &'a [i64],
    pub tag_ids: &'a [i64],
    pub has_encryption_password: bool,
    pub has_heartbeat: bool,
}

/// A checked task, valid in itself. Whether the ids belong to the user is checked against the store.
#[derive(Debug, Clone)]
pub struct TaskDraft {
    pub settings: TaskSettings,
    pub encryption_password: SecretChange,
    /// The URL by which an external service monitors the task.
    pub heartbeat_url: SecretChange,
    /// `None` keeps what is attached.
    pub stream_ids: Option<Vec<i64>>,
    pub tag_ids: Option<Vec<i64>>,
    /// `None` leaves it as it is.
    pub is_paused: Option<bool>,
}

impl TaskDraft {
    /// What it changes, for the audit log.
    pub fn changes(&self, current: &CurrentTask<'_>) -> Changes {
        let before = current.settings.write(current.stream_ids, current.tag_ids);
        let attached = |new: &Option<Vec<i64>>, old: &[i64]| {
            let mut ids = new.clone().unwrap_or_else(|| old.to_vec());
            ids.sort_unstable();
            ids
        };
        let streams = attached(&self.stream_ids, current.stream_ids);
        let tags = attached(&self.tag_ids, current.tag_ids);
        Changes::between(&before, &self.settings.write(&streams, &tags))
            .with_secret(PASSWORD.name, &self.encryption_password, current.has_encryption_password)
            .with_secret(HEARTBEAT.name, &self.heartbeat_url, current.has_heartbeat)
    }

    /// Checks everything that needs no lookup, and records every error. `has_password` says whether the task had an
    /// encryption password before.
    pub fn check(
        errors: &mut Errors,
        input: &Input,
        current: Option<&TaskSettings>,
        has_password: bool,
        now: Timestamp,
    ) -> Option<TaskDraft> {
        let spec = current.map(|was| &was.spec);
        let server = SERVER.required_id(errors, input, current.map(|was| was.server.0));
        let destination = DESTINATION.required_id(errors, input, current.map(|was| was.destination.0));
        let label = LABEL.required_label(errors, input, current.map(|was| &*was.label));
        let was = current.and_then(|was| was.description.clone());
        let description = DESCRIPTION.optional_paragraph(errors, input, was);
        let source = SourceSpec::check(errors, input, spec.map(|was| &was.source));
        let schedule = Schedule::check(errors, input, spec.map(|was| &was.schedule), now);
        let storage = Storage::check(errors, input, spec.map(|was| &was.storage));
        let encryption_password = PASSWORD.secret_change(errors, input);
        if storage.format.is_shared() && !encryption_password.leaves_one(has_password) {
            errors.add(PASSWORD.name, Rule::RepositoryPassword);
        }
        let heartbeat_url = HEARTBEAT.secret_change(errors, input);
        if heartbeat_url.set().is_some_and(|url| !network::is_web_url(url.reveal())) {
            errors.add(HEARTBEAT.name, Rule::Url);
        }
        let stream_ids = STREAMS.id_list(errors, input);
        let tag_ids = TAGS.id_list(errors, input);
        let is_paused = match input.boolean(PAUSED.name) {
            Field::Absent => None,
            Field::Null | Field::WrongType | Field::Value(_) => Some(PAUSED.checked_switch(errors, input, false)),
        };
        let settings = TaskSettings {
            server: ServerId(server?),
            destination: DestinationId(destination?),
            label: label?,
            description,
            spec: TaskSpec { source: source?, schedule: schedule?, storage },
        };
        errors.is_empty().then_some(TaskDraft {
            settings,
            encryption_password,
            heartbeat_url,
            stream_ids,
            tag_ids,
            is_paused,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::input::Value;
    use crate::retention::RetentionPolicy;
    use crate::schedule::Frequency;

    use super::*;

    #[test]
    fn every_field_applies_to_some_task() {
        assert_eq!(crate::fields::never_applying(fields()), Vec::<&str>::new());
    }

    fn files() -> Input {
        Input::default()
            .with("remote_server_id", 1)
            .with("backup_destination_id", 2)
            .with("label", "web")
            .with("source_path", "/var/www")
            .with("type", "files")
            .with("frequency", "daily")
            .with("time_to_run_at", "03:00")
    }

    fn without(name: &str) -> Input {
        let mut input = files();
        input.remove(name);
        input
    }

    fn now() -> Timestamp {
        "2025-03-31T12:00:00Z".parse().unwrap()
    }

    fn check(input: &Input, current: Option<&TaskSettings>) -> Result<TaskDraft, Errors> {
        let mut errors = Errors::default();
        TaskDraft::check(&mut errors, input, current, false, now()).ok_or(errors)
    }

    #[test]
    fn defaults_are_filled_in() {
        let settings = check(&files(), None).unwrap().settings;
        let TaskSpec { storage, schedule, .. } = settings.spec;
        assert_eq!((storage.retention, storage.path.as_str()), (RetentionPolicy::Newest(5), "/"));
        assert_eq!(schedule.day_of_week, 1, "a Monday");
        assert_eq!(schedule.day_of_month, 28, "no later than every month has");
    }

    #[test]
    fn an_empty_body_reports_every_required_field() {
        let errors = check(&Input::default(), None).unwrap_err();
        for field in ["remote_server_id", "backup_destination_id", "label", "type", "frequency"] {
            assert!(errors.has(field), "{field}");
        }
        assert!(check(&without("source_path"), None).unwrap_err().has("source_path"));
        assert!(check(&without("time_to_run_at"), None).unwrap_err().has("time_to_run_at"));
    }

    #[test]
    fn a_cron_expression_replaces_a_frequency() {
        let mut input = without("frequency").with("custom_cron_expression", "0 3 * * *");
        input.remove("time_to_run_at");
        let settings = check(&input, None).unwrap().settings;
        assert_eq!(settings.spec.schedule.frequency, Frequency::Custom);
        let drop_cron = Input::default().with("custom_cron", Value::Null);
        assert!(check(&drop_cron, Some(&settings)).unwrap_err().has("frequency"));
        let both = files().with("custom_cron", "0 3 * * *");
        assert_eq!(check(&both, None).unwrap().settings.spec.schedule.frequency, Frequency::Daily);
        assert!(check(&files().with("frequency", "custom"), None).unwrap_err().has("frequency"));
    }

    #[test]
    fn a_spread_keeps_its_shift_and_must_fit_the_schedule() {
        let spread = check(&files().with("spread_minutes", 60), None).unwrap().settings;
        let stored = spread.spec.schedule.spread.unwrap();
        assert_eq!(stored.minutes(), 60);
        assert_eq!(TaskSpec::read(&spread.spec.write()), Some(spread.spec.clone()));
        let renamed = check(&Input::default().with("label", "x"), Some(&spread)).unwrap().settings;
        assert_eq!(renamed.spec.schedule.spread, Some(stored), "other changes do not move it");
        let hourly = Input::default().with("frequency", "hourly");
        assert!(check(&hourly, Some(&spread)).unwrap_err().has("spread_minutes"));
        let hourly = hourly.with("spread_minutes", 29);
        assert_eq!(check(&hourly, Some(&spread)).unwrap().settings.spec.schedule.spread.unwrap().minutes(), 29);
        let none = check(&Input::default().with("spread_minutes", 0), Some(&spread)).unwrap().settings;
        assert_eq!(none.spec.schedule.spread, None);
        for bad in [-1, 720, 721] {
            assert!(check(&files().with("spread_minutes", bad), None).unwrap_err().has("spread_minutes"), "{bad}");
        }
    }

    #[test]
    fn file_tasks_have_no_database_fields_and_a_change_of_type_needs_a_path() {
        let input = files().with("database_name", "shop").with("excluded_tables", "a, b");
        let source = check(&input, None).unwrap().settings.spec.source;
        assert_eq!((source.database(), source.files().unwrap().path.as_str()), (None, "/var/www"));
        let database = without("source_path").with("type", "database").with("excluded_tables", " a , b,");
        let settings = check(&database, None).unwrap().settings;
        assert_eq!(settings.spec.source.database().unwrap().excluded_tables, ["a", "b"]);
        let to_files = Input::default().with("type", "files");
        assert!(check(&to_files, Some(&settings)).unwrap_err().has("source_path"));
    }

    #[test]
    fn hostile_values_are_refused() {
        let cases = [
            ("store_path", "a/../../etc"),
            ("store_path", "..\\x"),
            ("source_path", "/a\nb"),
            ("appended_filename", "../x"),
            ("database_name", "--all"),
            ("excluded_tables", "-T"),
            ("format", "zip"),
        ];
        for (field, value) in cases {
            assert!(check(&files().with(field, value), None).unwrap_err().has(field), "{field}");
        }
        assert!(check(&files().with("source_path", "/srv/$(id) ' \""), None).is_ok(), "odd names are names");
    }

    #[test]
    fn zero_keeps_all_and_bounds_hold() {
        let keep = |number: i64| files().with("maximum_backups_to_keep", number);
        assert_eq!(check(&keep(0), None).unwrap().settings.spec.storage.retention, RetentionPolicy::All);
        assert!(check(&keep(-1), None).unwrap_err().has("maximum_backups_to_keep"));
        assert!(check(&keep(1001), None).unwrap_err().has("maximum_backups_to_keep"));
    }

    #[test]
    fn a_repository_needs_a_password() {
        let repository = files().with("format", "repository");
        assert!(check(&repository, None).unwrap_err().has("encryption_password"));
        assert!(check(&repository.clone().with("encryption_password", "correct horse"), None).is_ok());
        let settings = check(&repository.with("encryption_password", "correct horse"), None).unwrap().settings;
        let edit = |input: &Input, has_password: bool| {
            let mut errors = Errors::default();
            TaskDraft::check(&mut errors, input, Some(&settings), has_password, now()).ok_or(errors)
        };
        let rename = Input::default().with("label", "x");
        assert!(edit(&rename, true).is_ok());
        assert!(edit(&rename, false).unwrap_err().has("encryption_password"));
        let remove = Input::default().with("encryption_password", Value::Null);
        assert!(edit(&remove, true).unwrap_err().has("encryption_password"));
        assert!(edit(&remove.with("format", "archive"), true).is_ok());
    }

    #[test]
    fn an_edit_is_described_field_by_field() {
        let settings = check(&files(), None).unwrap().settings;
        let current = CurrentTask {
            settings: &settings,
            stream_ids: &[1, 3],
            tag_ids: &[],
            has_encryption_password: true,
            has_heartbeat: false,
        };
        let told = |input: &Input| check(input, Some(&settings)).unwrap().changes(&current).describe("5");
        assert_eq!(told(&Input::default()), None);
        assert_eq!(told(&files().with("notification_stream_ids", vec![3, 1])), None);
        let edit = Input::default()
            .with("maximum_backups_to_keep", 2)
            .with("source_path", "/srv")
            .with("notification_stream_ids", Value::Null)
            .with("heartbeat_url", "https://planted.example.org/x")
            .with("encryption_password", Value::Null);
        let expected = "5: source_path \"/var/www\" → \"/srv\", maximum_backups_to_keep 5 → 2, \
             notification_stream_ids [1, 3] → [], encryption_password removed, heartbeat_url changed";
        assert_eq!(told(&edit).unwrap(), expected);
    }

    #[test]
    fn what_is_stored_comes_back_and_every_field_of_it_is_listed() {
        let database = files().with("type", "database").with("database_engine", "mysql").with("database_name", "a");
        let inputs = [
            files().with("excluded_paths", vec!["*.log", "a b"]).with("one_file_system", true),
            files().with("custom_cron", "0 3 * * *").with("appended_filename", "x").with("maximum_backups_to_keep", 0),
            database.clone().with("excluded_tables", "a,b"),
            database.with("database_engine", Value::Null).with("source_path", Value::Null),
        ];
        for input in inputs {
            let spec = check(&input, None).unwrap().settings.spec;
            assert_eq!(TaskSpec::read(&spec.write()), Some(spec.clone()));
            for (name, _) in spec.write().iter() {
                assert!(fields().any(|field| field.name == name), "{name}");
            }
        }
        assert_eq!(TaskSpec::read(&Input::default()), None);
    }
}
