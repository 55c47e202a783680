use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_core::Secret;
use holdfast_engine::sealed_document;
use holdfast_testkit::{
    Client, Engine, Fingerprint, PasswordMethod, PasswordServer, S3Server, SampleTree, SshServer, assert_same,
};
use serde_json::{Value, json};
use sqlx::{Connection as _, SqliteConnection};
use tempfile::TempDir;

use crate::process::{Installation, Service, run};

pub(crate) const EMAIL: &str = "ada@example.org";
pub(crate) const PASSWORD: &str = "correct horse battery";
const BUCKET: &str = "backups";

/// An installation with an account, a server to back up and tasks.
struct Home {
    installation: Installation,
    service: Service,
    client: Client,
    ssh: SshServer,
    files: TempDir,
    server: i64,
}

pub(crate) fn serve(installation: &Installation) -> Service {
    installation.serve(&[("ENABLE_DEVICE_AUTH_ENDPOINT", "true")])
}

/// Signs in with the password, as people do.
pub(crate) async fn sign_in(service: &Service) -> Client {
    sign_in_as(service, EMAIL).await
}

async fn sign_in_as(service: &Service, email: &str) -> Client {
    let body = json!({"email": email, "password": PASSWORD, "device_name": "test"});
    let token = service.client().post("/api/device-auth/token", body).await.expect(200);
    service.client().with_token(token["token"].as_str().unwrap())
}

impl Home {
    async fn new(engine: Engine) -> Self {
        let installation = Installation::new(engine).await;
        let create = ["user", "create", "--email", EMAIL, "--name", "Ada", "--admin"];
        installation.succeed(&create, &format!("{PASSWORD}\n"));
        let service = serve(&installation);
        let client = sign_in(&service).await;
        let ssh = SshServer::start();
        ssh.authorize(client.get("/api/ssh-key").await.data(200)["public_key"].as_str().unwrap());
        let files = tempfile::tempdir().unwrap();
        let source = files.path().join("source");
        std::fs::create_dir(&source).unwrap();
        SampleTree::create(&source);
        let body = json!({"label": "web-1", "ip_address": "127.0.0.1", "port": ssh.port(), "username": ssh.username(),
            "database_password": "of the database"});
        let server = client.post("/api/remote-servers", body).await.id(201);
        Self { installation, service, client, ssh, files, server }
    }

    fn source(&self) -> PathBuf {
        self.files.path().join("source")
    }

    /// Creates a task with a tag and a notification stream, and backs it up once.
    async fn back_up(&self, destination: i64) -> i64 {
        let tag = self.client.post("/api/tags", json!({"label": "important"})).await.id(201);
        let body = json!({"label": "me", "type": "email", "value": EMAIL, "notifications": {"on_failure": true}});
        let stream = self.client.post("/api/notification-streams", body).await.id(201);
        let body = json!({"remote_server_id": self.server, "backup_destination_id": destination, "label": "web files",
            "type": "files", "source_path": self.source(), "frequency": "weekly", "time_to_run_at": "03:00",
            "encryption_password": PASSWORD, "tag_ids": [tag], "notification_stream_ids": [stream]});
        let task = self.client.post("/api/backup-tasks", body).await.id(201);
        self.client.run_task(task).await;
        task
    }
}

fn bucket(s3: &S3Server) -> Value {
    json!({"label": "bucket", "type": "custom_s3", "s3_access_key": S3Server::ACCESS_KEY,
        "s3_secret_key": S3Server::SECRET_KEY, "s3_bucket_name": BUCKET, "custom_s3_endpoint": s3.endpoint(),
        "path_style_endpoint": true})
}

/// The catalogues below a folder.
fn catalogues(folder: &Path) -> Vec<PathBuf> {
    let Ok(owners) = std::fs::read_dir(folder.join("holdfast-catalogue")) else { return Vec::new() };
    let files = owners.flatten().filter_map(|owner| std::fs::read_dir(owner.path()).ok());
    let paths = files.flatten().flatten().map(|file| file.path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "sealed")).collect()
}

/// Waits until the catalogues at all destinations are up to date.
async fn wait_for_catalogues(service: &Service) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let figures = service.client().get("/metrics").await.text;
        if figures.lines().any(|line| line == "holdfast_catalogues_waiting 0") {
            return;
        }
        assert!(Instant::now() < deadline, "catalogues are not written: {}", service.log.lock().unwrap());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Restores the only backup to another place and compares it.
async fn restore_and_compare(client: &Client, server: i64, source: &Path, target: &Path) {
    let backups = client.get("/api/backups").await.expect(200);
    assert_eq!(backups["data"].as_array().unwrap().len(), 1, "{backups}");
    let backup = &backups["data"][0]["id"];
    let body = json!({"remote_server_id": server, "path": target});
    let run = client.post(&format!("/api/backups/{backup}/restores"), body).await.id(202);
    let run = client.wait_for(&format!("/api/runs/{run}"), |run| run["data"]["finished_at"].is_string()).await;
    assert_eq!(run["data"]["status"], "successful", "{run}");
    assert_same(&Fingerprint::of(source), &Fingerprint::of(target));
}

/// The tasks as the API shows them, without times that change.
async fn tasks(client: &Client) -> Value {
    // The last run is a log, and logs stay where they are.
    const DIFFERS: [&str; 5] = ["status", "last_run_local_time", "last_run", "next_run_at", "updated_at"];
    let mut tasks = client.get("/api/backup-tasks").await.data(200);
    for task in tasks.as_array_mut().unwrap() {
        let task = task.as_object_mut().unwrap();
        task.retain(|name, _| !DIFFERS.contains(&name.as_str()));
    }
    tasks
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_and_the_master_key_bring_everything_back_on_sqlite() {
    come_back(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_and_the_master_key_bring_everything_back_on_postgres() {
    come_back(Engine::Postgres).await;
}

/// Everything is lost except a bucket and a copy of the master key.
async fn come_back(engine: Engine) {
    let s3 = S3Server::start(&[BUCKET]).await.unwrap();
    let home = Home::new(engine).await;
    let destination = home.client.post("/api/backup-destinations", bucket(&s3)).await.id(201);
    home.back_up(destination).await;
    wait_for_catalogues(&home.service).await;
    let old = catalogues(&s3.root().join(BUCKET));
    assert_eq!(old.len(), 1, "older ones are gone: {old:?}");
    let sealed = std::fs::read(&old[0]).unwrap();
    for secret in ["web-1", EMAIL, "of the database", "web files"] {
        let is_there = sealed.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!is_there, "{secret} stands open in the bucket");
    }
    let before = tasks(&home.client).await;
    let token = home.client.token().to_owned();
    let key = std::fs::read(home.installation.data_dir().join("master.key")).unwrap();
    let Home { installation, service, ssh, files, server, .. } = home;
    drop(service);
    drop(installation);

    let new = Installation::new(engine).await;
    let place = format!("s3://{BUCKET}");
    let endpoint = s3.endpoint();
    let arguments = ["bootstrap", &place, "--endpoint", &endpoint, "--path-style"];
    let bootstrap = |new: &Installation, with_keys: bool| {
        let mut command = new.command(&arguments);
        if with_keys {
            command.env("HOLDFAST_S3_ACCESS_KEY", S3Server::ACCESS_KEY);
            command.env("HOLDFAST_S3_SECRET_KEY", S3Server::SECRET_KEY);
        }
        let output = run(&mut command, "");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, said) = bootstrap(&new, true);
    assert!(code == Some(3) && said.contains("master key of the lost installation"), "{said}");
    std::fs::create_dir_all(new.data_dir()).unwrap();
    let other = format!("holdfast-master-key:{}=\n", "A".repeat(43));
    std::fs::write(new.data_dir().join("master.key"), other).unwrap();
    let (code, said) = bootstrap(&new, true);
    assert!(code == Some(3) && said.contains("another installation's"), "{said}");

    // A failed attempt with a wrong key does not prevent one with the right key.
    std::fs::write(new.data_dir().join("master.key"), key).unwrap();
    let (code, said) = bootstrap(&new, false);
    assert!(code == Some(2) && said.contains("HOLDFAST_S3_ACCESS_KEY"), "{said}");
    let (code, said) = bootstrap(&new, true);
    assert!(code == Some(0) && said.contains("1 of 1 backups on record are there"), "{said}");
    assert!(!said.contains("No administrator"), "{said}");
    let (code, said) = bootstrap(&new, true);
    assert!(code == Some(1) && said.contains("an account for ada@example.org here already"), "{said}");

    let service = serve(&new);
    let client = sign_in(&service).await;
    assert_eq!(tasks(&client).await, before);
    client.with_token(&token).get("/api/user").await.expect(200);
    restore_and_compare(&client, server, &files.path().join("source"), &files.path().join("back")).await;
    // The service continues: the next backup with the same key and password, and the next catalogue.
    let task = before[0]["id"].as_i64().unwrap();
    client.run_task(task).await;
    wait_for_catalogues(&service).await;
    assert_eq!(client.get("/api/backups").await.expect(200)["data"].as_array().unwrap().len(), 2);
    drop(ssh);
}

/// The disk with the backups survived, and is now mounted elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_and_the_master_key_bring_everything_back() {
    let home = Home::new(Engine::Sqlite).await;
    let body = json!({"label": "disk", "type": "local"});
    let destination = home.client.post("/api/backup-destinations", body).await.id(201);
    home.back_up(destination).await;
    // The administrator has kept nothing there.
    let data = home.installation.data_dir();
    let path = data.join("holdfast.db");
    let mut connection = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    sqlx::raw_sql("UPDATE users SET is_admin = FALSE").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    wait_for_catalogues(&home.service).await;
    let (folder, kept) = (data.join("destinations/1").join(destination.to_string()), tempfile::tempdir().unwrap());
    let kept = kept.path().join("rescued");
    let Home { installation, service, ssh, files, server, .. } = home;
    drop(service);
    std::fs::rename(folder, &kept).unwrap();
    let new = Installation::new(Engine::Sqlite).await;
    std::fs::create_dir_all(new.data_dir()).unwrap();
    std::fs::copy(data.join("master.key"), new.data_dir().join("master.key")).unwrap();
    drop(installation);
    let output = new.run(&["bootstrap", "/nowhere"], "");
    assert!(!output.status.success());
    let said = new.succeed(&["bootstrap", kept.to_str().unwrap(), "--paused"], "");
    assert!(said.contains("1 of 1 backups on record are there") && said.contains("paused"), "{said}");
    assert!(said.contains("No administrator can sign in") && said.contains("holdfast user make-admin"), "{said}");
    new.succeed(&["user", "make-admin", EMAIL], "");
    let service = serve(&new);
    let client = sign_in(&service).await;
    assert!(client.get("/api/backup-tasks").await.data(200)[0]["paused_at"].is_string());
    restore_and_compare(&client, server, &files.path().join("source"), &files.path().join("back")).await;
    drop(ssh);
}

/// Everything is lost except an SFTP server with a password, and the master key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_and_the_master_key_bring_everything_back() {
    let folder = tempfile::tempdir().unwrap();
    let storage = PasswordServer::start(PasswordMethod::Password, folder.path(), &[]).await;
    let home = Home::new(Engine::Sqlite).await;
    let body = json!({"label": "box", "type": "sftp", "sftp_host": "127.0.0.1", "sftp_port": storage.port(),
        "sftp_username": PasswordServer::USERNAME, "sftp_password": PasswordServer::PASSWORD, "sftp_path": "kept"});
    let destination = home.client.post("/api/backup-destinations", body).await.id(201);
    home.back_up(destination).await;
    wait_for_catalogues(&home.service).await;
    let new = Installation::new(Engine::Sqlite).await;
    std::fs::create_dir_all(new.data_dir()).unwrap();
    std::fs::copy(home.installation.data_dir().join("master.key"), new.data_dir().join("master.key")).unwrap();
    let Home { installation, service, ssh, files, server, .. } = home;
    drop(service);
    drop(installation);
    let place = format!("sftp://{}@127.0.0.1:{}/~/kept", PasswordServer::USERNAME, storage.port());
    let bootstrap = |more: &[&str], password: &str| {
        let mut command = new.command(&[&["bootstrap", place.as_str()], more].concat());
        let output = run(command.env("HOLDFAST_SFTP_PASSWORD", password), "");
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let tries = storage.tries();
    let (code, said) = bootstrap(&[], PasswordServer::PASSWORD);
    assert!(code == Some(1) && said.contains(storage.fingerprint()) && said.contains("--host-key"), "{said}");
    assert_eq!(storage.tries(), tries, "nobody whose key was not named gets the password");
    let (code, said) = bootstrap(&["--host-key", "ssh-ed25519"], PasswordServer::PASSWORD);
    assert!(code == Some(2) && said.contains("--host-key is a fingerprint"), "{said}");
    let key = ["--host-key", storage.fingerprint()];
    let (code, said) = bootstrap(&key, "wrong");
    assert!(code == Some(1) && said.contains("refused the user or the password"), "{said}");
    let (code, said) = bootstrap(&key, PasswordServer::PASSWORD);
    assert!(code == Some(0) && said.contains("1 of 1 backups on record are there"), "{said}");
    let service = serve(&new);
    let client = sign_in(&service).await;
    restore_and_compare(&client, server, &files.path().join("source"), &files.path().join("back")).await;
    drop(ssh);
}

/// From SQLite to PostgreSQL, and with invalid exports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_moves_an_installation_to_another_database() {
    let s3 = S3Server::start(&[BUCKET]).await.unwrap();
    let home = Home::new(Engine::Sqlite).await;
    let destination = home.client.post("/api/backup-destinations", bucket(&s3)).await.id(201);
    home.back_up(destination).await;
    let before = tasks(&home.client).await;
    let file = home.files.path().join("everything.age");
    let file = file.to_str().unwrap();
    let output = home.installation.run(&["export", "--output", file], "short\n");
    assert!(!output.status.success() && !Path::new(file).exists(), "a weak passphrase seals nothing");
    let said = home.installation.succeed(&["export", "--output", file], "a long passphrase\n");
    assert!(said.contains("1 tasks") && said.contains("1 backups"), "{said}");
    let again = home.installation.run(&["export", "--output", file], "a long passphrase\n");
    assert!(!again.status.success(), "nothing is overwritten");
    let token = home.client.token().to_owned();
    let log = home.installation.succeed(&["audit", "export"], "");
    assert!(log.lines().last().unwrap().contains("installation.exported"), "{log}");
    let Home { installation, service, ssh, files, server, .. } = home;
    drop(service);

    let new = Installation::new(Engine::Postgres).await;
    // It was started before, but nobody has signed in.
    drop(serve(&new));
    let wrong = new.run(&["import", file], "another passphrase\n");
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(!wrong.status.success() && said.contains("passphrase does not open"), "{said}");
    // A forged export: invalid values must be refused now, because they would cause errors later.
    let forged = files.path().join("forged.age");
    for (place, column, value) in [
        ("/users/0/created_at", "created_at", json!(i64::MAX)),
        ("/backup_tasks/0/spec/custom_cron", "spec", json!("* * * * * * *")),
        ("/backup_tasks/0/spec/frequency", "spec", json!("never")),
        ("/backup_tasks/0/spec/day_of_month", "spec", json!(-5)),
        ("/backup_tasks/0/spec/type", "spec", json!("tape")),
        ("/backup_tasks/0/spec", "spec", json!("{}")),
        ("/backups/0/content", "content", json!("unknown")),
        ("/backup_copies/0/locator", "locator", json!("../../secret")),
    ] {
        forge(Path::new(file), &forged, |contents| {
            let (parent, name) = place.rsplit_once('/').unwrap();
            contents.pointer_mut(parent).unwrap()[name] = value;
        });
        let refused = new.run(&["import", forged.to_str().unwrap()], "a long passphrase\n");
        let said = String::from_utf8(refused.stderr).unwrap();
        let expected = format!("has a {column} that makes no sense");
        assert!(!refused.status.success() && said.contains(&expected), "{said}");
    }
    // Nobody gets at another user's rows.
    for (table, expected) in [
        ("backup_destinations", "refers to a row of another user"),
        ("remote_servers", "refers to a row of another user"),
        ("backups", "refers to a row of another user"),
    ] {
        forge(Path::new(file), &forged, |contents| {
            let mut other = contents["users"][0].clone();
            (other["id"], other["email"]) = (json!(9999), json!("other@example.org"));
            contents["users"].as_array_mut().unwrap().push(other);
            contents[table][0]["user_id"] = json!(9999);
        });
        let refused = new.run(&["import", forged.to_str().unwrap()], "a long passphrase\n");
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains(expected), "{table}: {said}");
    }
    for (table, row) in [("tags", json!({"user_id": 1, "label": "loose"})), ("remote_servers", json!({"id": 9999}))] {
        forge(Path::new(file), &forged, |contents| {
            let rows = contents[table].as_array_mut().unwrap();
            let mut whole = rows.first().cloned().unwrap_or_else(|| json!({}));
            ["id", "user_id"].iter().for_each(|name| drop(whole.as_object_mut().unwrap().remove(*name)));
            row.as_object().unwrap().iter().for_each(|(name, value)| whole[name] = value.clone());
            rows.push(whole);
        });
        let refused = new.run(&["import", forged.to_str().unwrap()], "a long passphrase\n");
        let said = String::from_utf8(refused.stderr).unwrap();
        let expected = if table == "tags" { "has no id" } else { "belongs to nobody" };
        assert!(!refused.status.success() && said.contains(expected), "{table}: {said}");
    }
    forge(Path::new(file), &forged, |contents| {
        let rows = contents["remote_servers"].as_array_mut().unwrap();
        rows.push(rows[0].clone());
    });
    let refused = new.run(&["import", forged.to_str().unwrap()], "a long passphrase\n");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && said.contains("has the id of another row"), "{said}");
    let said = new.succeed(&["import", file], "a long passphrase\n");
    assert!(said.contains("Administrators according to the imported data: "), "{said}");
    let told = |log: &str| -> Vec<Value> {
        let event = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        log.lines().map(event).map(|event| json!([event["created_at"], event["user_id"], event["detail"]])).collect()
    };
    let imported = told(&new.succeed(&["audit", "export"], ""));
    // The export cannot contain that it was made.
    let exported = told(&log);
    assert!(exported[..exported.len() - 1].iter().all(|event| imported.contains(event)), "{imported:?} {exported:?}");
    let twice = new.run(&["import", file], "a long passphrase\n");
    assert!(!twice.status.success() && String::from_utf8(twice.stderr).unwrap().contains("here already"));
    let service = serve(&new);
    let client = sign_in(&service).await;
    assert_eq!(tasks(&client).await, before);
    client.with_token(&token).get("/api/user").await.expect(200);
    restore_and_compare(&client, server, &files.path().join("source"), &files.path().join("back")).await;
    // Ids continue after the imported ones.
    client.post("/api/tags", json!({"label": "another"})).await.expect(201);
    drop((ssh, installation));
}

/// What was transferred keeps its folder and the key of its former owner, also in another installation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_keeps_usable_what_was_transferred() {
    const HEIR: &str = "eve@example.org";
    let home = Home::new(Engine::Sqlite).await;
    let body = json!({"label": "disk", "type": "local"});
    let destination = home.client.post("/api/backup-destinations", body).await.id(201);
    home.back_up(destination).await;
    let create = ["user", "create", "--email", HEIR, "--name", "Eve", "--admin"];
    home.installation.succeed(&create, &format!("{PASSWORD}\n"));
    // Whoever has a key of their own does not get the other one.
    sign_in_as(&home.service, HEIR).await.get("/api/ssh-key").await.expect(200);
    home.installation.succeed(&["user", "transfer", EMAIL, "--to", HEIR, "--yes"], "");
    let file = home.files.path().join("everything.age");
    let file = file.to_str().unwrap();
    home.installation.succeed(&["export", "--output", file], "a long passphrase\n");
    let Home { installation, service, ssh, files, server, .. } = home;
    drop(service);

    let new = Installation::new(Engine::Postgres).await;
    let said = new.succeed(&["import", file], "a long passphrase\n");
    let place = |installation: &Installation| {
        installation.data_dir().join("destinations").join("1").join(destination.to_string())
    };
    assert!(said.contains(place(&new).to_str().unwrap()), "{said}");
    std::fs::create_dir_all(place(&new).parent().unwrap()).unwrap();
    std::fs::rename(place(&installation), place(&new)).unwrap();
    let service = serve(&new);
    let client = sign_in_as(&service, HEIR).await;
    restore_and_compare(&client, server, &files.path().join("source"), &files.path().join("back")).await;
    drop((ssh, installation));
}

/// Writes the same export with a change.
fn forge(file: &Path, forged: &Path, change: impl FnOnce(&mut Value)) {
    let mut document = read_export(file);
    change(&mut document["contents"]);
    write_export(forged, &document);
}

pub(crate) fn read_export(file: &Path) -> Value {
    let sealed = std::fs::read(file).unwrap();
    serde_json::from_slice(&sealed_document::open(&sealed, &Secret::new("a long passphrase")).unwrap()).unwrap()
}

pub(crate) fn write_export(file: &Path, document: &Value) {
    let mut packer = sealed_document::Packer::new().unwrap();
    packer.write_all(&serde_json::to_vec(document).unwrap()).unwrap();
    let packed = packer.finish().unwrap();
    std::fs::write(file, sealed_document::seal(&packed, &Secret::new("a long passphrase")).unwrap()).unwrap();
}

/// Commands that need an installation do not create one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_refuse_a_missing_installation() {
    let installation = Installation::new(Engine::Sqlite).await;
    let file = installation.folder.path().join("export.age");
    for arguments in [
        vec!["export", "--output", file.to_str().unwrap()],
        vec!["key", "rotate"],
        vec!["user", "list"],
        vec!["user", "reset-password", "--email", "ada@example.org"],
        vec!["token", "list", "--user", "ada@example.org"],
        vec!["token", "create", "--user", "ada@example.org", "--name", "x", "--all-scopes"],
    ] {
        let output = installation.run(&arguments, "a long passphrase\n");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && said.contains("there is no installation"), "{said}");
    }
    let output = installation.run(&["doctor"], "");
    assert!(!output.status.success());
    assert!(!file.exists() && !installation.data_dir().exists());
}
