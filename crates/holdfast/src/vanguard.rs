//! `holdfast import vanguard`: imports what Holdfast supports from a dump of Vanguard's database.

mod dump;
mod secrets;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use holdfast_app::{App, AppError, Caller, destinations, people, servers, streams, tags, tasks};
use holdfast_core::characters::stored_line;
use holdfast_core::destination::DestinationKind;
use holdfast_core::fields::FieldKind;
use holdfast_core::ids::TaskId;
use holdfast_core::input::{Field, Input};
use holdfast_core::page::PageRequest;
use holdfast_core::stream::StreamKind;
use holdfast_core::task;
use holdfast_core::user::UserDraft;
use holdfast_store::tasks::TaskFilter;
use holdfast_store::users::UserRow;
use holdfast_store::{Listing, Migrations};

use self::dump::{Dump, Row};
use self::secrets::Keys;
use crate::commands::origin::origin;
use crate::failure::Failure;
use crate::output::say;
use crate::settings::Settings;
use crate::wiring::open_app;

/// The maximum number of existing items of one kind that are compared per user.
const MOST: i64 = 100_000;

/// The options of the command.
pub struct Options {
    /// Vanguard's `.env`, or a file that contains only its application key.
    pub key_file: Option<std::path::PathBuf>,
    /// The account that receives everything.
    pub user: Option<String>,
    /// Only show what would be imported.
    pub check: bool,
    pub is_paused: bool,
}

/// Maps ids in Vanguard to ids in Holdfast.
type Ids = BTreeMap<String, i64>;

/// Ids of existing items by signature. Each existing item matches at most one in the dump.
type Known = HashMap<String, VecDeque<i64>>;

fn known_by(rows: impl Iterator<Item = (i64, String)>) -> Known {
    let mut known = Known::new();
    for (id, signature) in rows {
        known.entry(signature).or_default().push_back(id);
    }
    known
}

/// The import of one user's data.
struct Import<'a> {
    app: &'a App,
    dump: &'a Dump,
    keys: &'a Keys,
    caller: Option<Caller>,
    options: &'a Options,
    /// The number of items that were created, were already present, and were skipped.
    made: usize,
    present: usize,
    left_out: usize,
}

pub async fn import(settings: &Settings, file: &Path, options: Options) -> Result<(), Failure> {
    let dump = read_dump(file)?;
    let keys = match &options.key_file {
        Some(path) => Keys::read(path)?,
        None => Keys::default(),
    };
    let app = open_app(settings, if options.check { Migrations::OnlyCreate } else { Migrations::Apply }).await?;
    let base_url = settings.base_url.clone().unwrap_or_else(|| format!("http://{}", settings.listen));
    for user in dump.rows("users") {
        let email = user.text("email");
        let owner = options.user.clone().unwrap_or_else(|| email.clone());
        say!("{}:", stored_line(&email));
        let account = find_account(&app, &owner, user, &options, &base_url).await?;
        let caller = account.map(|account| Caller::operator(&account, origin()));
        let mut import =
            Import { app: &app, dump: &dump, keys: &keys, caller, options: &options, made: 0, present: 0, left_out: 0 };
        import.run(&user.text("id")).await?;
        say!("  {} created, {} already present, {} skipped", import.made, import.present, import.left_out);
    }
    app.store.close().await;
    if options.check {
        say!("Nothing was changed.");
    } else {
        say!(
            "Vanguard's SSH key is not in its database: install each account's own key on its servers (account page)."
        );
    }
    Ok(())
}

fn read_dump(path: &Path) -> Result<Dump, Failure> {
    let file = File::open(path).map_err(|error| Failure::io(&error, path))?;
    let mut reader = BufReader::new(file);
    let start = reader.fill_buf().map_err(|error| Failure::io(&error, path))?;
    if start.starts_with(b"PGDMP") {
        return Err(Failure::settings(format!(
            "{0} is in pg_dump's own format; run `pg_restore --file=dump.sql {0}` first",
            path.display()
        )));
    }
    let dump = Dump::read(&mut reader).map_err(|error| Failure::io(&error, path))?;
    if dump.rows("users").next().is_none() {
        return Err(Failure::settings(format!(
            "{} is not a dump of Vanguard's database: it has no users",
            path.display()
        )));
    }
    Ok(dump)
}

/// The account that receives the data, created if it does not exist. Vanguard's passwords cannot be read, so a new user
/// gets a link to set one.
async fn find_account(
    app: &App,
    email: &str,
    user: &Row,
    options: &Options,
    base_url: &str,
) -> Result<Option<UserRow>, Failure> {
    let find = async || -> Result<Option<UserRow>, Failure> {
        match holdfast_app::tokens::user_by_email(app, email).await {
            Ok(known) => Ok(Some(known)),
            Err(AppError::Missing(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    };
    if let Some(known) = find().await? {
        return Ok(Some(known));
    }
    if options.user.is_some() {
        return Err(Failure::settings(format!(
            "there is no account for {email} here; create it with `holdfast user create`"
        )));
    }
    if options.check {
        say!("  + account {}", stored_line(email));
        return Ok(None);
    }
    let draft = UserDraft::check(&user.text("name"), email, &user.text("timezone"), false)
        .or_else(|_| UserDraft::check(email, email, "UTC", false))
        .map_err(|errors| Failure::from(AppError::Invalid(errors)))?;
    let link = people::invite_as(app, &origin(), &draft).await?;
    let shown = stored_line(email);
    say!("  + account {shown}; link to set a password, works once: {base_url}/set-up/{}", link.reveal());
    find().await
}

fn value(text: String) -> Field<String> {
    if text.is_empty() { Field::Null } else { Field::Value(text) }
}

fn text(field: &Field<String>) -> Option<&str> {
    field.value().map(String::as_str)
}

impl Import<'_> {
    async fn run(&mut self, user: &str) -> Result<(), Failure> {
        let tags = self.tags(user).await?;
        let streams = self.streams(user).await?;
        let servers = self.servers(user).await?;
        let destinations = self.destinations(user).await?;
        self.tasks(user, &tags, &streams, &servers, &destinations).await
    }

    fn of(&self, table: &str, user: &str) -> Vec<Row> {
        self.dump.rows_with(table, "user_id", user).cloned().collect()
    }

    fn listing(&self) -> Option<Listing> {
        let owner = self.caller.as_ref()?.user;
        let page = PageRequest { page: 1, per_page: MOST };
        Some(Listing::new(owner, page))
    }

    /// Counts and prints an item that is or would be created.
    fn would_make(&mut self, what: &str, label: &str) {
        self.made += 1;
        say!("  + {what} {label:?}");
    }

    fn leave_out(&mut self, what: &str, label: &str, why: &str) {
        self.left_out += 1;
        say!("  - {what} {label:?}: {}", stored_line(why));
    }

    /// Matches an item with an existing one, or else creates it. An invalid item is skipped.
    async fn keep(
        &mut self,
        ids: &mut Ids,
        what: &str,
        row: &Row,
        (signature, known): (String, &mut Known),
        make: impl AsyncFnOnce(&App, &Caller) -> Result<i64, AppError>,
    ) -> Result<Option<i64>, Failure> {
        let label = row.text("label");
        // An item with the same signature already exists.
        if let Some(id) = known.get_mut(&signature).and_then(VecDeque::pop_front) {
            self.present += 1;
            ids.insert(row.text("id"), id);
            return Ok(None);
        }
        let caller = self.caller.clone().filter(|_| !self.options.check);
        let Some(caller) = caller else {
            self.would_make(what, &label);
            ids.insert(row.text("id"), 0);
            return Ok(None);
        };
        match make(self.app, &caller).await {
            Ok(id) => {
                self.would_make(what, &label);
                ids.insert(row.text("id"), id);
                Ok(Some(id))
            }
            Err(AppError::Invalid(errors)) => {
                self.leave_out(what, &label, &errors.english_line());
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn tags(&mut self, user: &str) -> Result<Ids, Failure> {
        let known = match self.listing() {
            Some(listing) => tags::list(self.app, &listing).await?.items,
            None => Vec::new(),
        };
        let mut known = known_by(known.into_iter().map(|row| (row.id.0, row.label)));
        let mut ids = Ids::new();
        for row in self.of("tags", user) {
            let mut input = Input::default().with("label", row.text("label"));
            for name in ["description", "colour"] {
                set(&mut input, name, row.text(name));
            }
            let make = async |app: &App, caller: &Caller| tags::create(app, caller, &input).await.map(|row| row.id.0);
            self.keep(&mut ids, "tag", &row, (row.text("label").trim().to_owned(), &mut known), make).await?;
        }
        Ok(ids)
    }

    async fn streams(&mut self, user: &str) -> Result<Ids, Failure> {
        let known = match self.listing() {
            Some(listing) => streams::list(self.app, &listing).await?.items,
            None => Vec::new(),
        };
        let mut known = known_by(known.into_iter().map(|row| (row.id.0, row.label)));
        let mut ids = Ids::new();
        for row in self.of("notification_streams", user) {
            let kind = row.text("type");
            if StreamKind::parse_input(&kind).is_none() {
                self.leave_out("stream", &row.text("label"), &format!("{kind} is not supported by Holdfast"));
                continue;
            }
            let flags = Input::default()
                .with("on_success", row.has("receive_successful_backup_notifications"))
                .with("on_failure", row.has("receive_failed_backup_notifications"));
            let input = Input::default()
                .with("label", row.text("label"))
                .with("type", kind.as_str())
                .with("notifications", flags);
            // In Vanguard, the value is the application token, and the user key is in an additional field.
            let input = match kind.as_str() {
                "pushover" => {
                    input.with("value", row.text("additional_field_one")).with("pushover_token", row.text("value"))
                }
                _ => input.with("value", row.text("value")),
            };
            let make =
                async |app: &App, caller: &Caller| streams::create(app, caller, &input).await.map(|row| row.id.0);
            self.keep(&mut ids, "stream", &row, (row.text("label").trim().to_owned(), &mut known), make).await?;
        }
        Ok(ids)
    }

    async fn servers(&mut self, user: &str) -> Result<Ids, Failure> {
        let known = match self.listing() {
            Some(listing) => servers::list(self.app, &listing).await?.items,
            None => Vec::new(),
        };
        let sign = |label: &str, user: &str, host: &str, port: &str| {
            format!("{}\n{}\n{host}\n{port}", label.trim(), user.trim())
        };
        let known =
            known.into_iter().map(|row| (row.id.0, sign(&row.label, &row.username, &row.host, &row.port.to_string())));
        let mut known = known_by(known);
        let mut ids = Ids::new();
        for row in self.of("remote_servers", user) {
            if row.has("marked_for_deletion_at") {
                continue;
            }
            let label = row.text("label");
            let password = match self.keys.open(&row.text("database_password")) {
                Ok(password) => password,
                Err(why) => {
                    say!("  ! server {label:?}: imported without its database password: {}", stored_line(&why));
                    String::new()
                }
            };
            let own = sign(&label, &row.text("username"), &row.text("ip_address"), &row.text("port"));
            let mut input = Input::default()
                .with("label", label)
                .with("ip_address", row.text("ip_address"))
                .with("username", row.text("username"));
            if let Ok(port) = row.text("port").parse::<i64>() {
                input.set("port", port);
            }
            set(&mut input, "database_password", password);
            let make =
                async |app: &App, caller: &Caller| servers::create(app, caller, &input).await.map(|row| row.id.0);
            self.keep(&mut ids, "server", &row, (own, &mut known), make).await?;
        }
        Ok(ids)
    }

    async fn destinations(&mut self, user: &str) -> Result<Ids, Failure> {
        let known = match self.listing() {
            Some(listing) => destinations::list(self.app, &listing).await?.items,
            None => Vec::new(),
        };
        let sign = |label: &str, bucket: Option<&str>, endpoint: Option<&str>| {
            format!("{}\n{}\n{}", label.trim(), bucket.unwrap_or_default().trim(), endpoint.unwrap_or_default().trim())
        };
        let known = known.into_iter().map(|row| {
            let s3 = row.spec.s3();
            let (bucket, endpoint) = (s3.map(|s3| s3.bucket.as_str()), s3.and_then(|s3| s3.endpoint.as_deref()));
            (row.id.0, sign(&row.label, bucket, endpoint))
        });
        let mut known = known_by(known);
        let mut ids = Ids::new();
        for row in self.of("backup_destinations", user) {
            let label = row.text("label");
            let input = match self.destination(&row) {
                Ok(input) => input,
                Err(why) => {
                    self.leave_out("destination", &label, &why);
                    continue;
                }
            };
            let (bucket, endpoint) = (input.text("s3_bucket_name"), input.text("custom_s3_endpoint"));
            let own = sign(&label, text(&bucket), text(&endpoint));
            if row.text("type") == "local" {
                say!("  ! destination {label:?}: a folder on the server in Vanguard, but on this machine in Holdfast");
            }
            let make =
                async |app: &App, caller: &Caller| destinations::create(app, caller, &input).await.map(|row| row.id.0);
            self.keep(&mut ids, "destination", &row, (own, &mut known), make).await?;
        }
        Ok(ids)
    }

    fn destination(&self, row: &Row) -> Result<Input, String> {
        let kind = match row.text("type").as_str() {
            "local" => DestinationKind::Local,
            "s3" => DestinationKind::S3,
            "custom_s3" | "digitalocean_spaces" => DestinationKind::CustomS3,
            other => return Err(format!("{other} is not supported by Holdfast")),
        };
        let mut input = Input::default().with("label", row.text("label")).with("type", kind.as_str());
        if kind == DestinationKind::Local {
            return Ok(input);
        }
        for name in ["s3_access_key", "s3_secret_key", "s3_bucket_name", "custom_s3_endpoint"] {
            if name != "custom_s3_endpoint" || kind == DestinationKind::CustomS3 {
                set(&mut input, name, self.keys.open(&row.text(name))?);
            }
        }
        set(&mut input, "s3_region", row.text("custom_s3_region"));
        if kind == DestinationKind::CustomS3 {
            input.set("path_style_endpoint", row.is_true("path_style_endpoint"));
        }
        Ok(input)
    }

    async fn tasks(
        &mut self,
        user: &str,
        tags: &Ids,
        streams: &Ids,
        servers: &Ids,
        destinations: &Ids,
    ) -> Result<(), Failure> {
        let known = match self.listing() {
            Some(listing) => tasks::list(self.app, &listing, &TaskFilter::default()).await?.items,
            None => Vec::new(),
        };
        let sign = |label: &str, server: i64, destination: i64| format!("{}\n{server}\n{destination}", label.trim());
        let known = known.into_iter().map(|task| {
            let row = task.row;
            (row.id.0, sign(&row.label, row.remote_server_id.0, row.backup_destination_id.0))
        });
        let mut known = known_by(known);
        let mut ids = Ids::new();
        for row in self.of("backup_tasks", user) {
            let (id, label) = (row.text("id"), row.text("label"));
            let (server, destination) =
                (servers.get(&row.text("remote_server_id")), destinations.get(&row.text("backup_destination_id")));
            let (Some(server), Some(destination)) = (server, destination) else {
                self.leave_out("task", &label, "its server or destination was skipped");
                continue;
            };
            let password = match self.keys.open(&row.text("encryption_password")) {
                Ok(password) => value(password),
                Err(why) => {
                    self.leave_out("task", &label, &format!("its encryption password: {why}"));
                    continue;
                }
            };
            let attached = |table: &str, of: &'static str, other: &str, ids: &Ids| -> Vec<i64> {
                let rows = self.dump.rows_with(table, of, &id);
                let mut found: Vec<i64> = rows.filter_map(|link| ids.get(&link.text(other)).copied()).collect();
                found.sort_unstable();
                found.dedup();
                found
            };
            let stream_ids =
                attached("backup_task_notification_streams", "backup_task_id", "notification_stream_id", streams);
            let tag_ids = attached("taggables", "taggable_id", "tag_id", tags);
            let own = sign(&label, *server, *destination);
            let input = task_input(&row, (*server, *destination), stream_ids, tag_ids, password);
            let make =
                async |app: &App, caller: &Caller| tasks::create(app, caller, &input).await.map(|task| task.row.id.0);
            let made = self.keep(&mut ids, "task", &row, (own, &mut known), make).await?;
            if let (Some(made), Some(caller)) = (made, &self.caller)
                && (row.has("paused_at") || self.options.is_paused)
            {
                tasks::pause(self.app, caller, TaskId(made)).await?;
            }
        }
        Ok(())
    }
}

/// Sets a field unless its value is empty.
fn set(input: &mut Input, name: &str, text: String) {
    if !text.is_empty() {
        input.set(name, text);
    }
}

fn task_input(
    row: &Row,
    places: (i64, i64),
    stream_ids: Vec<i64>,
    tag_ids: Vec<i64>,
    encryption_password: Field<String>,
) -> Input {
    let mut input = Input::default()
        .with(task::SERVER.name, places.0)
        .with(task::DESTINATION.name, places.1)
        .with(task::STREAMS.name, stream_ids)
        .with(task::TAGS.name, tag_ids);
    // Vanguard's columns are named like our fields or their aliases.
    for field in task::fields().filter(|field| !field.is_secret()) {
        for name in [field.name].into_iter().chain(field.aliases.iter().copied()) {
            let text = row.text(name);
            match field.kind {
                _ if text.is_empty() || input.get(field.name).is_some() => {}
                FieldKind::Line { .. } | FieldKind::Paragraph { .. } | FieldKind::Choice(_) => {
                    input.set(field.name, text);
                }
                FieldKind::Integer { .. } => {
                    if let Ok(number) = text.parse::<i64>() {
                        input.set(field.name, number);
                    }
                }
                FieldKind::Lines { .. }
                | FieldKind::Switch
                | FieldKind::Id
                | FieldKind::Ids { .. }
                | FieldKind::Secret { .. } => {}
            }
        }
    }
    // A cron expression takes precedence in Vanguard, too.
    if !row.text("custom_cron_expression").is_empty() {
        input.set("frequency", "custom");
        input.remove("time_to_run_at");
    }
    match encryption_password {
        Field::Value(password) => input.set("encryption_password", password),
        Field::Absent | Field::Null | Field::WrongType => {}
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_are_recognized() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, expected) in [("PGDMP\u{1}", "pg_restore"), ("hello", "not a dump of Vanguard's")] {
            std::fs::write(file.path(), text).unwrap();
            let Err(failure) = read_dump(file.path()) else { panic!("{text} was taken for a dump") };
            assert!(failure.message.contains(expected), "{}", failure.message);
        }
    }
}
