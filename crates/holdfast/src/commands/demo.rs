//! `holdfast demo`: a complete cycle on one machine. It starts a temporary service and an SSH server on loopback,
//! creates a sample tree, and backs it up, verifies, restores and compares it through the public API.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_app::tokens::{self, TokenRequest};
use holdfast_app::{Origin, accounts};
use holdfast_core::ids::UserId;
use holdfast_core::scope::ScopeSet;
use holdfast_core::user::UserDraft;
use holdfast_core::{Secret, random};
use holdfast_engine::ssh::endpoint::Endpoint;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::output::{complain, say};
use crate::serve::{Opened, Service, stop_on_signal};
use crate::settings::Settings;

const EMAIL: &str = "demo@localhost";
const PASSWORD_OF_BACKUP: &str = "correct horse battery staple";
/// The sample tree: small files and a few large ones, half of the data compressible, about 130 MB in 2,000 files.
const FILES: usize = 2000;
const FILE_BYTES: usize = 16 * 1024;
const LARGE_FILES: usize = 6;
const LARGE_BYTES: usize = 16 * 1024 * 1024;

/// Runs the demo. With `stay`, the service then keeps running until it is stopped.
pub async fn demo(settings: Settings, stay: bool) -> Result<(), Failure> {
    let folder = Folder::create()?;
    let stop = stop_on_signal()?;
    let settings = throw_away(settings, &folder.0, stay);
    let service = Opened::open(&settings, &stop).await?.start(&settings, &stop).await?;
    say!("Holdfast demo: all data is in {} and is removed at the end.\n", folder.0.display());
    let (user, password, token) = account(&service).await?;
    let demo = Demo { url: service.base_url.clone(), token, folder: folder.0.clone(), stop: stop.clone() };
    let endpoint = demo.start_endpoint().await?;
    let shown = demo.show(&endpoint).await;
    if stay && shown.is_ok() && !stop.is_cancelled() {
        say!("\nThe demo keeps running for a look around:");
        say!("  {}  (sign in as {EMAIL} with {})", service.base_url, password.reveal());
        say!("  {}/docs/  (API token: {})", service.base_url, demo.token.reveal());
        say!("Press Ctrl-C to stop it and remove everything.");
        stop.cancelled().await;
    }
    drop(endpoint);
    tracing::debug!(user = user.0, "the demo is ending");
    service.end().await;
    shown
}

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn create() -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("holdfast-demo-{}", random::hex(&random::bytes::<6>())));
        std::fs::create_dir(&path)
            .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)))
            .map_err(|error| Failure::other(format!("cannot create {}: {error}", path.display())))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            complain!("holdfast: could not remove {}: {error}", self.0.display());
        }
    }
}

/// Settings for a separate service, so that a configured installation is not touched.
fn throw_away(mut settings: Settings, folder: &Path, stay: bool) -> Settings {
    settings.data_dir = folder.join("data");
    settings.database_url = Secret::new(format!("sqlite://{}", settings.data_dir.join("holdfast.db").display()));
    settings.master_key = holdfast_store::master_key::MasterKeySource::File(settings.data_dir.join("master.key"));
    settings.base_url = None;
    settings.admin = None;
    settings.workers = 1;
    if !stay {
        settings.listen.set_port(0);
    }
    settings
}

async fn account(service: &Service) -> Result<(UserId, Secret, Secret), Failure> {
    let app = &service.parts.app;
    let invalid = |_| Failure::other("the demo's account is not valid");
    let draft = UserDraft::check("Demo Person", EMAIL, "UTC", true).map_err(invalid)?;
    let password = Secret::new(random::hex(&random::bytes::<8>()));
    let user = accounts::create(app, &Origin::default(), &draft, &password).await?;
    let request = TokenRequest { name: "demo".to_owned(), scopes: ScopeSet::all(), expires_at: None };
    let token = tokens::create(app, user, &Origin::default(), &request).await?;
    Ok((user, password, token))
}

struct Demo {
    url: String,
    token: Secret,
    folder: PathBuf,
    stop: CancellationToken,
}

impl Demo {
    /// Starts an SSH server on loopback that accepts only the demo user's key.
    async fn start_endpoint(&self) -> Result<Endpoint, Failure> {
        let key = self.get("/api/ssh-key").await?;
        let line = key["data"]["public_key"].as_str().unwrap_or_default();
        let public = holdfast_engine::ssh::endpoint::public_key(line)
            .ok_or_else(|| Failure::other("the SSH key of the demo's account cannot be read"))?;
        let started = Endpoint::start(random::bytes(), public, "demo", &self.folder).await;
        started.map_err(|error| Failure::other(format!("cannot start an SSH endpoint: {error}")))
    }

    async fn show(&self, endpoint: &Endpoint) -> Result<(), Failure> {
        let (source, target) = (self.folder.join("sample"), self.folder.join("restored"));
        step("Sample tree", || make_sample(&source))?;
        let before = step("Fingerprint", || fingerprint(&source))?;
        let address = endpoint.address();
        let server = self
            .post(
                "/api/remote-servers",
                json!({"label": "this machine", "ip_address": address.ip().to_string(),
            "port": address.port(), "username": "demo"}),
            )
            .await?;
        let destination = self.post("/api/backup-destinations", json!({"label": "a folder", "type": "local"})).await?;
        let task = self
            .post(
                "/api/backup-tasks",
                json!({"label": "Sample tree", "type": "files",
            "remote_server_id": server["data"]["id"], "backup_destination_id": destination["data"]["id"],
            "source_path": source, "frequency": "daily", "time_to_run_at": "03:00",
            "encryption_password": PASSWORD_OF_BACKUP}),
            )
            .await?;
        let task = &task["data"]["id"];

        self.post(&format!("/api/backup-tasks/{task}/run"), json!({})).await?;
        let run = self.wait(&format!("/api/backup-tasks/{task}/latest-log")).await?;
        let backup = self.get(&format!("/api/backups?backup_task_id={task}")).await?["data"][0].clone();
        tell("Back up", &run, &format!("{} stored, encrypted", megabytes(&backup["size_bytes"])));

        let path = format!("/api/backups/{}", backup["id"]);
        let run = self.post(&format!("{path}/verify"), json!({})).await?;
        let run = self.wait(&format!("/api/runs/{}", run["data"]["id"])).await?;
        tell("Verify", &run, "read back, decrypted, hashes compared");

        let body = json!({"remote_server_id": server["data"]["id"], "path": target});
        let run = self.post(&format!("{path}/restores"), body).await?;
        let run = self.wait(&format!("/api/runs/{}", run["data"]["id"])).await?;
        tell("Restore", &run, "over SSH, into another folder");

        let after = step("Compare", || fingerprint(&target))?;
        if before != after {
            let differing = before.iter().filter(|(path, facts)| after.get(*path) != Some(facts)).count();
            return Err(Failure::other(format!("the restored tree differs in {differing} places")));
        }
        say!("\n{} files, folders and links came back identical: content, modes, owners, times.", before.len());
        say!("Stored as {}", backup["key"].as_str().unwrap_or_default());
        say!("  open it with `age -d | zstd -d | tar -x`; its password is \"{PASSWORD_OF_BACKUP}\"");
        Ok(())
    }

    /// Waits for a run to finish, and fails if the run failed.
    async fn wait(&self, path: &str) -> Result<Value, Failure> {
        loop {
            let run = self.get(path).await?["data"].clone();
            match run["status"].as_str() {
                Some("successful") => return Ok(run),
                Some("queued" | "running") => {}
                _ => {
                    return Err(Failure::other(format!(
                        "a run of the demo failed:\n{}",
                        run["output"].as_str().unwrap_or_default()
                    )));
                }
            }
            tokio::select! {
                () = self.stop.cancelled() => return Err(Failure::other("stopped")),
                () = tokio::time::sleep(Duration::from_millis(50)) => {}
            }
        }
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.call(reqwest::Method::GET, path, None).await
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value, Failure> {
        self.call(reqwest::Method::POST, path, Some(body)).await
    }

    async fn call(&self, method: reqwest::Method, path: &str, body: Option<Value>) -> Result<Value, Failure> {
        let failed = |error: reqwest::Error| Failure::other(format!("the demo's own service: {error}"));
        // Loopback does not use TLS, so no certificates are loaded.
        let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().map_err(failed)?;
        let mut request = client.request(method, format!("{}{path}", self.url)).bearer_auth(self.token.reveal());
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.map_err(failed)?;
        let (status, body) = (response.status(), response.json::<Value>().await.map_err(failed)?);
        if status.is_success() {
            return Ok(body);
        }
        Err(Failure::other(format!("{path} answered {status}: {body}")))
    }
}

fn megabytes(bytes: &Value) -> String {
    format!("{:.1} MB", bytes.as_f64().unwrap_or_default() / 1e6)
}

fn tell(what: &str, run: &Value, note: &str) {
    let (bytes, millis) =
        (run["bytes_read"].as_f64().unwrap_or_default(), run["duration_ms"].as_f64().unwrap_or_default());
    let rate = bytes / 1e6 / (millis / 1e3).max(0.001);
    say!("{what:<12} {:>7.2} s  {:>9}  {rate:>7.0} MB/s  {note}", millis / 1e3, megabytes(&run["bytes_read"]));
}

fn step<T>(what: &str, work: impl FnOnce() -> std::io::Result<T>) -> Result<T, Failure> {
    let started = Instant::now();
    let done = work().map_err(|error| Failure::other(format!("{what}: {error}")))?;
    say!("{what:<12} {:>7.2} s", started.elapsed().as_secs_f64());
    Ok(done)
}

fn make_sample(folder: &Path) -> std::io::Result<()> {
    let mut noise = Noise(0x9E37_79B9_7F4A_7C15);
    for number in 0..FILES {
        let folder = folder.join(format!("folder {}", number % 40));
        std::fs::create_dir_all(&folder)?;
        let text = format!("line {number} of a file that could be a log or a page of text\n").repeat(FILE_BYTES / 120);
        let mut content = text.into_bytes();
        content.extend(noise.bytes(FILE_BYTES / 2));
        std::fs::write(folder.join(format!("file {number}.txt")), content)?;
    }
    for number in 0..LARGE_FILES {
        let mut content = noise.bytes(LARGE_BYTES / 2);
        content.resize(LARGE_BYTES, b'.');
        std::fs::write(folder.join(format!("large-{number}.bin")), content)?;
    }
    std::fs::write(folder.join("$(id) ' \" -rf ünï"), "a name that looks like shell code")?;
    std::fs::write(folder.join("secret"), "for its owner alone")?;
    std::fs::set_permissions(folder.join("secret"), std::fs::Permissions::from_mode(0o600))?;
    std::os::unix::fs::symlink("secret", folder.join("link"))?;
    std::fs::hard_link(folder.join("secret"), folder.join("another name"))
}

/// A deterministic generator of incompressible bytes (xorshift).
struct Noise(u64);

impl Noise {
    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            bytes.extend(self.0.to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }
}

type Facts = (u32, u32, u32, i64, i64, Vec<u8>);

/// Mode, owner, modification time and content of everything in a folder, by path.
fn fingerprint(folder: &Path) -> std::io::Result<BTreeMap<PathBuf, Facts>> {
    let mut facts = BTreeMap::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(path) = waiting.pop() {
        let meta = std::fs::symlink_metadata(&path)?;
        let content = if meta.is_symlink() {
            std::fs::read_link(&path)?.into_os_string().into_encoded_bytes()
        } else if meta.is_dir() {
            for entry in std::fs::read_dir(&path)? {
                waiting.push(entry?.path());
            }
            Vec::new()
        } else {
            Sha256::digest(std::fs::read(&path)?).to_vec()
        };
        let below = path.strip_prefix(folder).unwrap_or(&path).to_owned();
        facts.insert(below, (meta.mode(), meta.uid(), meta.gid(), meta.mtime(), meta.mtime_nsec(), content));
    }
    Ok(facts)
}
