//! The whole service in one process: real database, real sockets, and a clock that tests control.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_api::{Api, ContextSettings};
use holdfast_app::tokens::{self, TokenRequest};
use holdfast_app::{App, Limits, Origin, Ports, accounts};
use holdfast_core::Secret;
use holdfast_core::clock::SharedClock;
use holdfast_core::content::Content;
use holdfast_core::ids::{DestinationId, RunId, TaskId, UserId};
use holdfast_core::rate::Quota;
use holdfast_core::scope::{Scope, ScopeSet};
use holdfast_core::user::UserDraft;
use holdfast_store::backups::{self, NewBackup};
use holdfast_store::copies::NewCopy;
use holdfast_store::master_key::MasterKeySource;
use holdfast_store::{Migrations, Options, Store};
use holdfast_ui::Ui;
use holdfast_worker::{EngineReader, Parts, SenderMailer, Worker};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{Client, ManualClock, PostgresServer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
}

pub struct TestApp {
    pub app: Arc<App>,
    pub clock: Arc<ManualClock>,
    pub base_url: String,
    pub options: Options,
    /// Holds the database and the key; removed at the end of the test.
    pub folder: TempDir,
    parts: Parts,
    /// The same worker for the whole test, because it remembers the leases that it watches.
    worker: Worker,
    stop: CancellationToken,
}

/// Settings that a test may change.
pub struct Settings {
    pub limits: Limits,
    pub device_auth_enabled: bool,
    /// Short timeouts, so that tests of faults do not wait long.
    pub engine: holdfast_engine::Settings,
    pub reading: holdfast_worker::ReadingLimits,
    pub work: holdfast_worker::Settings,
    pub notify: holdfast_notify::Settings,
    pub identity: holdfast_identity::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        // High limits: only tests of the limits set lower ones.
        let limits = Limits {
            requests: Quota::per_second(1_000_000, 1_000_000),
            runs: Quota::per_minute(1_000_000),
            sign_ins: Quota::per_minute(1_000_000),
        };
        let mut engine = holdfast_engine::Settings::default();
        engine.destination.retry.first_wait = Duration::from_millis(10);
        engine.destination.retry.longest_wait = Duration::from_millis(100);
        engine.destination.retry.give_up_after = Duration::from_secs(5);
        // A retry would hide how the first attempt ended; tests of retries enable it.
        let work = holdfast_worker::Settings { retry_after: Duration::ZERO, ..Default::default() };
        let notify = holdfast_notify::Settings { limit: Duration::from_secs(2), ..Default::default() };
        let identity = holdfast_identity::Settings::default();
        let reading = holdfast_worker::ReadingLimits::default();
        Self { limits, device_auth_enabled: true, engine, reading, work, notify, identity }
    }
}

/// An account, and a client with a token for all scopes.
pub struct TestUser {
    pub id: UserId,
    pub email: String,
    pub client: Client,
}

pub const PASSWORD: &str = "correct horse battery";

impl TestApp {
    pub async fn start(engine: Engine) -> Self {
        Self::start_with(engine, Settings::default()).await
    }

    pub async fn start_with(engine: Engine, settings: Settings) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let url = match engine {
            Engine::Sqlite => format!("sqlite://{}", folder.path().join("holdfast.db").display()),
            Engine::Postgres => PostgresServer::shared().create_database().await,
        };
        let options = Options {
            url,
            max_connections: 8,
            acquire_timeout: Duration::from_secs(20),
            master_key: MasterKeySource::File(folder.path().join("master.key")),
            migrations: Migrations::Apply,
        };
        let clock = Arc::new(ManualClock::at("2025-03-03T10:00:00Z"));
        let shared: SharedClock = clock.clone();
        let store = Box::pin(Store::open(&options, &shared)).await.expect("a new database opens");
        let engine = holdfast_engine::Engine::new(settings.engine).expect("threads");
        let destinations = folder.path().join("destinations");
        let backup_reader =
            Arc::new(EngineReader::new(engine.clone(), store.clone(), destinations.clone(), settings.reading));
        let sender = holdfast_notify::Sender::new(settings.notify);
        let mailer = Arc::new(SenderMailer::new(sender.clone(), shared.clone()));
        let providers = Arc::new(holdfast_identity::Providers::new(settings.identity));
        let ports = Ports { backup_reader, mailer, providers };
        let app = Arc::new(App::new(store, shared, settings.limits, settings.device_auth_enabled, ports));
        let parts = Parts { app: app.clone(), engine, folder: destinations, settings: settings.work, sender };
        let stop = CancellationToken::new();
        let api = holdfast_api::router(Arc::new(Api::new(app.clone(), None)));
        let ui = holdfast_ui::router(Arc::new(Ui::new(app.clone(), false, stop.clone())));
        let router = holdfast_api::with_context(api.merge(ui), app.clone(), ContextSettings::default());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let base_url = format!("http://{}", listener.local_addr().expect("bound"));
        let stopped = stop.clone().cancelled_owned();
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        tokio::spawn(async move { axum::serve(listener, service).with_graceful_shutdown(stopped).await });
        let worker = Worker::new(parts.clone());
        Self { app, clock, base_url, options, folder, parts, worker, stop }
    }

    /// A client without a token.
    pub fn client(&self) -> Client {
        Client::new(&self.base_url, None)
    }

    /// Creates an account; the email address is derived from `name`.
    pub async fn user(&self, name: &str) -> TestUser {
        self.user_in(name, "UTC").await
    }

    pub async fn user_in(&self, name: &str, timezone: &str) -> TestUser {
        self.account(name, timezone, false).await
    }

    pub async fn admin(&self, name: &str) -> TestUser {
        self.account(name, "UTC", true).await
    }

    async fn account(&self, name: &str, timezone: &str, is_admin: bool) -> TestUser {
        let email = format!("{name}@example.org");
        let draft = UserDraft::check(name, &email, timezone, is_admin).expect("a valid account");
        let id = accounts::create(&self.app, &Origin::default(), &draft, &Secret::new(PASSWORD)).await;
        let id = id.unwrap_or_else(|error| panic!("{error:?}"));
        let client = self.token(id, ScopeSet::all()).await;
        TestUser { id, email, client }
    }

    pub async fn token(&self, user: UserId, scopes: ScopeSet) -> Client {
        let request = TokenRequest { name: "test".into(), scopes, expires_at: None };
        let token = tokens::create(&self.app, user, &Origin::default(), &request).await;
        self.client().with_token(token.unwrap_or_else(|error| panic!("{error:?}")).reveal())
    }

    /// A client with a token for a single scope.
    pub async fn scoped(&self, user: UserId, scope: Scope) -> Client {
        self.token(user, [scope].into_iter().collect()).await
    }

    /// Does all pending work now.
    pub async fn run_until_idle(&self) {
        let worked = self.worker.run_until_idle(&CancellationToken::new()).await;
        worked.unwrap_or_else(|error| panic!("{error:?}"));
    }

    /// Advances the clock second by second, and does the pending work after each.
    pub async fn pass_secs(&self, seconds: i64) {
        for _ in 0..seconds {
            self.clock.advance_secs(1);
            self.run_until_idle().await;
        }
    }

    /// Another worker.
    pub fn worker(&self) -> Worker {
        Worker::new(self.parts.clone())
    }

    /// The folder of the local destinations.
    pub fn destinations(&self) -> &std::path::Path {
        &self.parts.folder
    }
}

impl Drop for TestApp {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Factories for what most tests need. Each returns the new id.
impl TestUser {
    pub async fn server(&self) -> i64 {
        // Nothing listens on port 1, so runs fail at once, with the same error everywhere.
        let body = json!({"label": "web-1", "ip_address": "127.0.0.1", "port": 1, "username": "backup"});
        self.client.post("/api/remote-servers", body).await.id(201)
    }

    pub async fn destination(&self) -> i64 {
        self.client.post("/api/backup-destinations", json!({"label": "disk", "type": "local"})).await.id(201)
    }

    pub async fn stream(&self) -> i64 {
        let body = json!({"label": "mail", "type": "email", "value": "ops@example.org"});
        self.client.post("/api/notification-streams", body).await.id(201)
    }

    pub async fn tag(&self) -> i64 {
        self.client.post("/api/tags", json!({"label": "production"})).await.id(201)
    }

    /// Records a backup without storing any data.
    pub async fn backup(&self, app: &TestApp, task: i64, run: i64) -> i64 {
        self.backup_of(app, task, run, 1).await
    }

    async fn backup_of(&self, app: &TestApp, task: i64, run: i64, size_bytes: i64) -> i64 {
        let settings = self.client.get(&format!("/api/backup-tasks/{task}")).await.data(200);
        let new = NewBackup {
            task: TaskId(task),
            run: RunId(run),
            task_label: "web files".into(),
            source: "/var/www".into(),
            source_server: "root@web.example.org:22".into(),
            signs: Vec::new(),
            content: Content::Files,
            format: holdfast_core::storage::Format::Archive,
            copies: vec![NewCopy {
                repository: None,
                destination: DestinationId(settings["backup_destination_id"].as_i64().expect("a destination")),
                locator: format!("task-{task}-{run}.tar.zst"),
                size_bytes,
                sha256: String::new(),
            }],
            plain_bytes: 1,
            plain_sha256: String::new(),
            entries: 1,
            databases: Vec::new(),
            password: None,
        };
        let mut tx = app.app.store.begin().await.expect("the store");
        let id = backups::insert(&mut tx, self.id, &new, app.app.now()).await.expect("a backup");
        tx.commit().await.expect("the store");
        id.0
    }

    /// Records a backup that cannot be downloaded to its end: its object has a terabyte of zeros. The path of the download
    /// below that of the API or the pages.
    pub async fn endless_backup(&self, app: &TestApp) -> String {
        let task = self.task().await;
        let run = self.client.act(&format!("/api/backup-tasks/{task}/run")).await.id(202);
        app.run_until_idle().await;
        let id = self.backup_of(app, task, run, 1 << 40).await;
        let backup = self.client.get(&format!("/api/backups/{id}")).await.data(200);
        let folder = app.destinations().join(self.id.to_string()).join(backup["backup_destination_id"].to_string());
        std::fs::create_dir_all(&folder).expect("a folder");
        let object = std::fs::File::create(folder.join(backup["key"].as_str().expect("a key"))).expect("a file");
        object.set_len(1 << 40).expect("a sparse file");
        format!("backups/{id}/download")
    }

    /// The request body of a daily task with a new server and a new destination.
    pub async fn task_body(&self) -> Value {
        json!({
            "remote_server_id": self.server().await,
            "backup_destination_id": self.destination().await,
            "label": "web files",
            "type": "files",
            "source_path": "/var/www",
            "frequency": "daily",
            "time_to_run_at": "03:00",
        })
    }

    pub async fn task(&self) -> i64 {
        let body = self.task_body().await;
        self.client.post("/api/backup-tasks", body).await.id(201)
    }
}
