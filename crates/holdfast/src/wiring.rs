//! Builds the parts of the service from the settings.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use holdfast_app::{App, Ports};
use holdfast_core::clock::{SharedClock, SystemClock};
use holdfast_engine::Engine;
use holdfast_identity::Providers;
use holdfast_notify::Sender;
use holdfast_store::master_key::MasterKeySource;
use holdfast_store::{Migrations, Options, Store};
use holdfast_worker::{EngineReader, Parts, ReadingLimits, SenderMailer};

use crate::failure::Failure;
use crate::settings::Settings;

/// How long a request waits for a database connection before it is answered with 503.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens the database and creates the use cases.
pub async fn open_app(settings: &Settings, migrations: Migrations) -> Result<Arc<App>, Failure> {
    open_parts(settings, migrations).await.map(|parts| parts.app)
}

/// Opens the database and creates the use cases, the engine and everything else that workers need.
pub async fn open_parts(settings: &Settings, migrations: Migrations) -> Result<Parts, Failure> {
    match migrations {
        Migrations::Never => must_exist(settings)?,
        Migrations::Apply | Migrations::OnlyCreate => create_data_dir(settings)?,
    }
    let clock: SharedClock = Arc::new(SystemClock);
    let store = Store::open(&store_options(settings, migrations), &clock).await?;
    let mut engine = settings.engine.clone();
    // Not the system's temporary folder, which is often in memory.
    engine.destination.spool_folder.clone_from(&settings.data_dir);
    engine.cache.folder = settings.data_dir.join("cache");
    let engine = Engine::new(engine)
        .map_err(|error| Failure::other(format!("cannot start the compression threads: {error}")))?;
    let folder = settings.data_dir.join("destinations");
    let backup_reader =
        Arc::new(EngineReader::new(engine.clone(), store.clone(), folder.clone(), ReadingLimits::default()));
    let base_url = settings.base_url.clone().unwrap_or_else(|| format!("http://{}", settings.listen));
    let sender = Sender::new(holdfast_notify::Settings { base_url, ..settings.notify.clone() });
    let mailer = Arc::new(SenderMailer::new(sender.clone(), clock.clone()));
    let providers = Arc::new(Providers::new(settings.identity.clone()));
    let ports = Ports { backup_reader, mailer, providers };
    let app = App::new(store, clock, settings.limits.clone(), settings.device_auth_enabled, ports);
    Ok(Parts { app: Arc::new(app), engine, folder, settings: settings.work, sender })
}

pub fn store_options(settings: &Settings, migrations: Migrations) -> Options {
    Options {
        url: settings.database_url.reveal().to_owned(),
        max_connections: settings.database_connections,
        acquire_timeout: ACQUIRE_TIMEOUT,
        master_key: settings.master_key.clone(),
        migrations,
    }
}

/// The file in the data folder that names the installation whose folder it is.
const INSTALLATION: &str = "installation";

/// Opens the parts of a service.
pub async fn open_service(settings: &Settings) -> Result<Parts, Failure> {
    refuse_lost_database(settings).await?;
    let mut parts = open_parts(settings, Migrations::Apply).await?;
    let id = holdfast_app::health::installation_id(&parts.app).await?;
    parts.engine = parts.engine.of_installation(&id);
    if let Err(error) = note_installation(settings, &id) {
        tracing::warn!(%error, "could not note in the data folder which installation it belongs to");
    }
    Ok(parts)
}

/// A database that is empty, although the data folder is that of an installation, was lost, and is not silently replaced
/// by a new one.
pub async fn refuse_lost_database(settings: &Settings) -> Result<(), Failure> {
    let folder = &settings.data_dir;
    let destinations = folder.join("destinations");
    let has_backups = std::fs::read_dir(&destinations).is_ok_and(|mut entries| entries.next().is_some());
    let left = [(has_backups, destinations), (folder.join(INSTALLATION).exists(), folder.join(INSTALLATION))];
    let Some((_, left)) = left.into_iter().find(|(is_there, _)| *is_there) else { return Ok(()) };
    if settings.is_new_installation || !holdfast_store::is_new(&store_options(settings, Migrations::Apply)).await? {
        return Ok(());
    }
    Err(Failure::lost_database(format!(
        "the database is empty, but {} is there from an installation: if its database was lost, put back a copy, or \
         recover it with `holdfast bootstrap`; to start with an empty one, set HOLDFAST_NEW_INSTALLATION=true",
        left.display()
    )))
}

fn note_installation(settings: &Settings, id: &str) -> std::io::Result<()> {
    let path = settings.data_dir.join(INSTALLATION);
    let text = format!("{id}\n");
    if std::fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    let part = path.with_extension("part");
    let mut file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(part, path)
}

/// Whether a master key exists.
pub fn has_master_key(settings: &Settings) -> bool {
    match &settings.master_key {
        MasterKeySource::File(path) => path.exists(),
        MasterKeySource::Given(_) => true,
    }
}

/// Commands that only read must not create a database: an empty installation would look like a healthy one.
fn must_exist(settings: &Settings) -> Result<(), Failure> {
    let path = settings.database_url.reveal().strip_prefix("sqlite://").map(Path::new);
    match path.filter(|path| !path.exists()) {
        Some(path) => Err(Failure::settings(format!(
            "there is no installation: {} does not exist; set its data folder with --data-dir or HOLDFAST_DATA_DIR",
            path.display()
        ))),
        None => Ok(()),
    }
}

/// Creates the data folder, readable only by its owner, because it contains keys and backups.
fn create_data_dir(settings: &Settings) -> Result<(), Failure> {
    let path = &settings.data_dir;
    let created = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(|error| Failure::io(&error, path).or_else("choose another data folder with --data-dir"))
}

/// Whether anybody except the owner has access.
pub fn is_open_to_others(meta: &std::fs::Metadata) -> bool {
    meta.permissions().mode() & 0o077 != 0
}

/// Warns about a data folder that others can access. Its mode is not changed, because it may be intended.
pub fn warn_of_open_folder(settings: &Settings) {
    let path = &settings.data_dir;
    if std::fs::metadata(path).is_ok_and(|meta| is_open_to_others(&meta)) {
        tracing::warn!(path = %path.display(), "others can read the data folder; run chmod 700 on it");
    }
}
