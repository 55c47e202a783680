//! `holdfast export`, `import` and `bootstrap`: moving an installation, and rebuilding one from a destination.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_app::transfer::{self, Destination, Document, FOLDER, ImportOptions};
use holdfast_app::{AppError, accounts, audit_log, people};
use holdfast_core::characters::stored_line;
use holdfast_core::destination::sftp::is_fingerprint;
use holdfast_core::destination::{DestinationSpec, S3Settings, SftpDestination};
use holdfast_core::failure::FailureCode;
use holdfast_engine::sealed_document::{self, Packer};
use holdfast_engine::{DestinationPlan, Engine, EngineError};
use holdfast_store::Migrations;
use holdfast_store::transfer::Taken;
use serde_json::json;

use super::ask;
use super::origin::origin;
use crate::failure::Failure;
use crate::output::{Printer, complain, say};
use crate::settings::Settings;
use crate::wiring::{self, open_app};

/// The shortest passphrase of an export. It protects every password and key at once.
const PASSPHRASE_CHARS: usize = 12;
/// The maximum number of objects at a destination that are searched for catalogues.
const KEYS: usize = 10_000_000;
/// The largest catalogue that is read.
const CATALOGUE_BYTES: u64 = 1 << 30;

#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
fn explain(error: EngineError) -> Failure {
    Failure::other(format!("{} {}", error.message, error.code.advice()))
}

pub async fn export(
    settings: &Settings,
    output: &Path,
    passphrase: Option<&Path>,
    printer: Printer,
) -> Result<(), Failure> {
    if output.exists() {
        return Err(Failure::settings(format!("{} already exists; choose another file", output.display())));
    }
    let app = open_app(settings, Migrations::Never).await?;
    let passphrase = ask::new_secret("New passphrase for the export", passphrase)?;
    if passphrase.reveal().chars().count() < PASSPHRASE_CHARS {
        return Err(Failure::settings(format!(
            "the passphrase protects every password and key: use at least {PASSPHRASE_CHARS} characters"
        )));
    }
    let mut packer = Packer::new().map_err(explain)?;
    let counts = transfer::export(&app, None, &mut packer).await?;
    let sealed = sealed_document::seal(&packer.finish().map_err(explain)?, &passphrase).map_err(explain)?;
    let accounts = counts.get("users").copied().unwrap_or_default();
    // Before the file is there: nobody exports unseen. A database that cannot be written must be rescued all the same.
    if let Err(error) = audit_log::note_export(&app, &origin(), accounts).await {
        complain!("This export is not in the audit log: {}", error.reason());
    }
    write_whole(output, &sealed)?;
    app.store.close().await;
    let file = output.display().to_string();
    printer.one(&json!({"file": file, "bytes": sealed.len(), "rows": counts}), |_| {
        format!("Exported {} to {file} ({} bytes).", summary(&counts), sealed.len())
    });
    printer.remark("Only the passphrase opens it, with `holdfast import` or with `age -d | zstd -d`.");
    Ok(())
}

fn summary(counts: &BTreeMap<&str, usize>) -> String {
    let count = |table: &str| counts.get(table).copied().unwrap_or_default();
    format!(
        "{} accounts, {} servers, {} destinations, {} streams, {} tags, {} tasks and the list of {} backups",
        count("users"),
        count("remote_servers"),
        count("backup_destinations"),
        count("notification_streams"),
        count("tags"),
        count("backup_tasks"),
        count("backups"),
    )
}

/// Lists the imported administrators, because the author of the document decided who is one.
fn tell_administrators(document: &Document) {
    let administrators = document.administrators();
    if !administrators.is_empty() {
        let shown: Vec<String> = administrators.iter().map(|email| stored_line(email)).collect();
        say!("Administrators according to the imported data: {}.", shown.join(", "));
    }
}

/// A catalogue has a single account, and the administrator may have kept nothing at this destination.
fn tell_of_no_administrator(has_administrator: bool) {
    if !has_administrator {
        say!(
            "No administrator can sign in to this installation: make an account one with `holdfast user make-admin \
             EMAIL`, or open the link that `holdfast serve` prints, which sets up another account."
        );
    }
}

/// Writes a file that only its owner can read. It gets its final name only when it is complete.
fn write_whole(output: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut name = output.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let written =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&part, output)
        });
    written.map_err(|error| {
        // If it cannot be removed either, the message contains its path.
        let _left = std::fs::remove_file(&part);
        Failure::io(&error, &part)
    })
}

/// How an export is imported.
pub struct ImportArguments {
    pub passphrase_file: Option<PathBuf>,
    pub is_paused: bool,
}

pub async fn import(settings: &Settings, file: &Path, how: &ImportArguments, printer: Printer) -> Result<(), Failure> {
    let ImportArguments { passphrase_file, is_paused } = how;
    let sealed = std::fs::read(file).map_err(|error| Failure::io(&error, file))?;
    let passphrase = ask::secret("Passphrase of the export", passphrase_file.as_deref())?;
    let plain = sealed_document::open(&sealed, &passphrase).map_err(|error| match error.code {
        FailureCode::WrongPassword => Failure::other("the passphrase does not open this export"),
        _ => Failure::other(format!(
            "{} is not an export of Holdfast, or it is damaged: {}",
            file.display(),
            error.message
        )),
    })?;
    let document = Document::of(&plain)?;
    let app = open_app(settings, Migrations::Apply).await?;
    let manner = ImportOptions { keep_ids: transfer::is_empty(&app).await?, is_paused: *is_paused };
    let taken = transfer::import(&app, &origin(), &document, manner).await?;
    let has_administrator = people::has_administrator(&app).await?;
    let is_registration_open = accounts::is_registration_open(&app).await?;
    app.store.close().await;
    if printer.is_json {
        let (rows, administrators) = (document.counts(), document.administrators());
        let told = json!({"rows": rows, "administrators": administrators, "kept_ids": manner.keep_ids,
            "is_registration_open": is_registration_open});
        say!("{told:#}");
        return Ok(());
    }
    say!("Imported {}.", summary(&document.counts()));
    tell_administrators(&document);
    tell_of_no_administrator(has_administrator);
    if is_registration_open {
        say!(
            "Registration is open: anybody who reaches this service can make an account. Administration changes that."
        );
    }
    if !manner.keep_ids {
        say!(
            "This installation was already in use, so tasks and other items have new ids: check scripts and \
             trigger URLs."
        );
    }
    tell_of_folders(settings, &document, &taken.destinations);
    tell_of_tasks(*is_paused);
    Ok(())
}

fn tell_of_tasks(is_paused: bool) {
    if is_paused {
        say!(
            "All tasks are paused. When the other installation has stopped, resume those that were not paused there with \
             `holdfast task resume --user EMAIL --all`."
        );
    } else {
        say!("Tasks run as before. If the other installation is still running, stop it now.");
    }
}

/// Local backups are files on the old machine and not part of the document, so they have to be copied.
fn tell_of_folders(settings: &Settings, document: &Document, moved: &[Moved]) {
    for destination in
        document.destinations().iter().filter(|destination| matches!(destination.spec, DestinationSpec::Local(_)))
    {
        let Some(((old_user, old), (user, new))) = moved.iter().find(|((_, old), _)| *old == destination.id) else {
            continue;
        };
        if !document.stored_at(*old).is_empty() {
            let folder = settings.data_dir.join("destinations").join(user.to_string()).join(new.to_string());
            say!(
                "Copy destinations/{old_user}/{old} from the old data folder to {}: it contains backups.",
                folder.display()
            );
        }
    }
}

/// The ids of a user and a destination, before and after the import.
type Moved = ((i64, i64), (i64, i64));

/// Where to search for catalogues.
pub struct BootstrapSource {
    /// A folder, `s3://bucket`, or `sftp://user@host/folder`.
    pub place: String,
    pub region: String,
    pub endpoint: Option<String>,
    pub path_style: bool,
    /// The expected host key of an SFTP server.
    pub host_key: Option<String>,
    /// Only these accounts; all if empty.
    pub only: Vec<String>,
}

impl BootstrapSource {
    /// The plan to access the destination, including the marker found there.
    async fn plan(&self, settings: &Settings) -> Result<DestinationPlan, Failure> {
        let plan = if let Some(bucket) = self.place.strip_prefix("s3://") {
            self.bucket(settings, bucket)?
        } else if self.place.starts_with("sftp://") {
            self.sftp(settings)?
        } else {
            let folder =
                std::fs::canonicalize(&self.place).map_err(|error| Failure::io(&error, Path::new(&self.place)))?;
            DestinationPlan::local(folder, None)
        };
        let marker = settings.engine.destination.find_marker(&plan).await.map_err(|error| match error.code {
            FailureCode::DestinationKeyChanged => Failure::other(format!(
                "{} If this is the server's key, pass it with --host-key; no password was sent yet.",
                error.message
            )),
            _ => explain(error),
        })?;
        Ok(DestinationPlan { marker, ..plan })
    }

    /// Without an expected host key, the connection is refused before signing in, because an unknown server would
    /// receive the password.
    fn sftp(&self, settings: &Settings) -> Result<DestinationPlan, Failure> {
        const UNKNOWN: &str = "not known";
        let named = SftpDestination::of_url(&self.place);
        let sftp = named.ok_or_else(|| Failure::settings("specify an SFTP server as sftp://user@host:port/folder"))?;
        let password = settings.sftp_password.clone();
        let password = password.ok_or_else(|| {
            Failure::settings("set HOLDFAST_SFTP_PASSWORD (or …_FILE), or mount the folder and pass its path")
        })?;
        if self.host_key.as_deref().is_some_and(|key| !is_fingerprint(key)) {
            return Err(Failure::settings("--host-key is a fingerprint such as SHA256:…, as ssh-keygen -l prints it"));
        }
        let host_key = Some(self.host_key.clone().unwrap_or_else(|| UNKNOWN.to_owned()));
        let spec = DestinationSpec::Sftp(SftpDestination { has_password: true, host_key, ..sftp });
        let local = DestinationPlan::local(PathBuf::new(), None);
        Ok(DestinationPlan { spec, secret_key: Some(password), allow_private: true, ..local })
    }

    fn bucket(&self, settings: &Settings, bucket: &str) -> Result<DestinationPlan, Failure> {
        let keys = settings.s3_keys.clone();
        let (access_key, secret_key) = keys.ok_or_else(|| {
            Failure::settings("set HOLDFAST_S3_ACCESS_KEY and HOLDFAST_S3_SECRET_KEY (or …_FILE) to the bucket's keys")
        })?;
        let s3 = S3Settings {
            bucket: bucket.trim_end_matches('/').to_owned(),
            region: self.region.clone(),
            endpoint: self.endpoint.clone(),
            path_style: self.path_style,
        };
        let spec = if s3.endpoint.is_some() { DestinationSpec::CustomS3(s3) } else { DestinationSpec::S3(s3) };
        let (access_key, secret_key) = (Some(access_key), Some(secret_key));
        let local = DestinationPlan::local(PathBuf::new(), None);
        Ok(DestinationPlan { spec, access_key, secret_key, allow_private: true, ..local })
    }
}

/// Rebuilds accounts, settings and the list of backups from a destination and the master key.
pub async fn bootstrap(settings: &Settings, place: &BootstrapSource, is_paused: bool) -> Result<(), Failure> {
    if !wiring::has_master_key(settings) {
        return Err(Failure::master_key(format!(
            "copy the master key of the lost installation to {} first (or set HOLDFAST_MASTER_KEY_FILE): without it, \
             nothing can be decrypted",
            settings.data_dir.join("master.key").display()
        )));
    }
    let plan = place.plan(settings).await?;
    let engine = Engine::new(settings.engine.clone())
        .map_err(|error| Failure::other(format!("cannot start the compression threads: {error}")))?;
    let keys = engine.list_objects(&plan, "", KEYS).await.map_err(explain)?;
    if keys.len() >= KEYS {
        return Err(Failure::other(format!("{} has too many objects to search", place.place)));
    }
    // Decrypt everything before creating anything, so that a wrong key leaves nothing behind.
    let found = open_newest(settings, &engine, &plan, &keys, &place.place).await?;
    let app = open_app(settings, Migrations::Apply).await?;
    let manner = ImportOptions { keep_ids: transfer::is_empty(&app).await?, is_paused };
    let mut taken_in = 0;
    for document in &found {
        let emails = document.emails();
        if !place.only.is_empty() && !emails.iter().any(|email| place.only.contains(email)) {
            say!("Skipped, as of {}: {}.", document.made_at, emails.join(", "));
            continue;
        }
        let taken = match transfer::import(&app, &origin(), document, manner).await {
            Err(AppError::Conflict(reason)) => {
                say!("Skipped: {reason}");
                continue;
            }
            taken => taken?,
        };
        taken_in += 1;
        tell_administrators(document);
        say!("Imported, as of {}, for {}: {}.", document.made_at, emails.join(", "), summary(&document.counts()));
        adopt(settings, &plan, document, &taken)?;
        compare(&plan, document, place, &keys);
    }
    let has_administrator = people::has_administrator(&app).await?;
    app.store.close().await;
    if taken_in == 0 {
        return Err(Failure::other("nothing was imported"));
    }
    tell_of_no_administrator(has_administrator);
    say!("Users sign in with their previous passwords. Start `holdfast serve`.");
    tell_of_tasks(is_paused);
    Ok(())
}

/// The owner of the catalogue with this key; `None` for any other object.
fn owner(key: &str) -> Option<&str> {
    let (owner, name) = key.strip_prefix(FOLDER)?.strip_prefix('/')?.split_once('/')?;
    let id = name.strip_suffix(".sealed")?;
    let is_ours = owner.len() == 16 && id.len() == 26 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_ours.then_some(owner)
}

/// For each owner, the newest catalogue that can be read and decrypted with the master key.
async fn open_newest(
    settings: &Settings,
    engine: &Engine,
    plan: &DestinationPlan,
    keys: &[String],
    place: &str,
) -> Result<Vec<Document>, Failure> {
    let mut by_owner: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for key in keys {
        if let Some(owner) = owner(key) {
            by_owner.entry(owner).or_default().push(key);
        }
    }
    if by_owner.is_empty() {
        return Err(Failure::other(format!("{place} has no catalogue: Holdfast has not stored anything there")));
    }
    let (mut found, mut is_foreign) = (Vec::new(), false);
    for own in by_owner.into_values() {
        // Compare the dates inside the documents: anyone with access to the destination can rename an old catalogue.
        let mut newest: Option<Document> = None;
        for key in own {
            match open(settings, engine, plan, key).await {
                Ok(Some(document)) => {
                    newest = Some(document)
                        .filter(|document| newest.as_ref().is_none_or(|newest| document.made_at > newest.made_at))
                        .or(newest);
                }
                Ok(None) => is_foreign = true,
                Err(failure) => say!("Skipped {key}: {}", failure.message),
            }
        }
        found.extend(newest);
    }
    if found.is_empty() && is_foreign {
        return Err(Failure::master_key(
            "the master key does not open the catalogues: it is another installation's, or it is damaged",
        ));
    }
    found.sort_unstable_by(|a, b| b.made_at.cmp(&a.made_at));
    Ok(found)
}

/// Decrypts a catalogue; `None` if it belongs to another installation.
async fn open(
    settings: &Settings,
    engine: &Engine,
    plan: &DestinationPlan,
    key: &str,
) -> Result<Option<Document>, Failure> {
    let sealed = engine.read_object(plan, key, CATALOGUE_BYTES).await.map_err(explain)?;
    let opened = holdfast_store::open_file(&settings.master_key, &sealed).map_err(AppError::from)?;
    let Some(packed) = opened else { return Ok(None) };
    Ok(Some(Document::of(&sealed_document::expand(&packed).map_err(explain)?)?))
}

/// Whether a recorded destination is the one being bootstrapped from.
fn is_at(plan: &DestinationPlan, known: &Destination) -> bool {
    known.spec.may_hold_same_objects(&plan.spec) && known.marker == plan.marker
}

/// Prints how many of the recorded backups exist.
fn compare(plan: &DestinationPlan, document: &Document, place: &BootstrapSource, keys: &[String]) {
    let stored: std::collections::HashSet<&str> = keys.iter().map(String::as_str).collect();
    for known in document.destinations().iter().filter(|known| is_at(plan, known)) {
        let wanted = document.stored_at(known.id);
        let there = wanted.iter().filter(|key| stored.contains(*key)).count();
        say!("{}: {there} of {} backups on record are there.", place.place, wanted.len());
    }
}

/// A local destination stays where it is; the data folder gets a symbolic link to it.
fn adopt(settings: &Settings, plan: &DestinationPlan, document: &Document, taken: &Taken) -> Result<(), Failure> {
    let (DestinationSpec::Local(_), folder) = (&plan.spec, &plan.folder) else { return Ok(()) };
    let known = document.destinations().into_iter().find(|known| is_at(plan, known));
    let new = known.and_then(|known| taken.destinations.iter().find(|((_, was), _)| *was == known.id));
    let Some((_, (user, new))) = new else { return Ok(()) };
    let link = settings.data_dir.join("destinations").join(user.to_string()).join(new.to_string());
    if std::fs::canonicalize(&link).is_ok_and(|there| there == *folder) {
        return Ok(());
    }
    let parent = link.parent().unwrap_or(&settings.data_dir);
    let linked = std::fs::create_dir_all(parent).and_then(|()| std::os::unix::fs::symlink(folder, &link));
    linked.map_err(|error| Failure::io(&error, &link))?;
    say!("{} points to {}, which stays where it is.", link.display(), folder.display());
    say!(
        "A service started by systemd needs permission to write there: ReadWritePaths={} in its unit.",
        folder.display()
    );
    Ok(())
}
