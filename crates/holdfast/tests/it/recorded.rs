//! Compatibility with clients of the first release: its requests still get the same responses.
//!
//! `tests/recorded/requests.txt` has the requests, `tests/recorded/answers.txt` the responses of the first release
//! (56aeab8), value by value in the order of the body. `HOLDFAST_RECORD_WITH=<its binary> cargo test -p holdfast
//! recorded` records them again. Times, ports, sizes and texts of logs differ from run to run and are not compared.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_testkit::{Client, Engine, Reply, SshServer, free_port};
use reqwest::Method;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::process::{Installation, Service};

/// Fields that later versions add to responses, as the contract allows; each at any depth.
const ADDED: &[&str] = &[
    "one_file_system",
    "protection",
    "keeps_versions",
    "schedule.time_to_run_at",
    "schedule.timezone",
    "meta.next_cursor",
    "schedule.spread_minutes",
    "schedule.window_end",
    "schedule.window_start",
    "custom_s3_region",
    "has_pushover_token",
    "last_run",
    "restore",
    "retry_at",
    "retry_run_id",
    "waiting_for",
];

/// Headers that were added since.
const ADDED_HEADERS: &[(u16, &str)] = &[(202, "location"), (401, "www-authenticate")];

/// Fields that were added to runs, and that other resources have always had.
const ADDED_TO_RUNS: &[&str] =
    &["remote_server_id", "backup_destination_id", "notification_stream_id", "repository_id", "attempt"];

/// A field that was added to logs, and that runs of backups have always had.
const ADDED_TO_LOGS: &str = "backup_id";

/// Fields that differ from run to run: only whether they have a value is compared.
const DIFFERS: &[&str] = &[
    "output",
    "public_key",
    "fingerprint",
    "secret",
    "sha256",
    "size_bytes",
    "plain_bytes",
    "bytes_read",
    "bytes_stored",
    "duration_ms",
    "key",
    "url",
    "next_run_human",
    "port",
    "username",
    // The first release counted the entries it received, not those it wrote.
    "files",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

/// The values of a JSON document in their original order, each with its path.
#[derive(Default)]
struct Values(Vec<(String, String)>);

struct Place<'a> {
    path: &'a str,
    values: &'a mut Values,
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Place<'_> {
    fn leaf(self, value: impl Into<Value>) {
        self.values.0.push((self.path.to_owned(), value.into().to_string()));
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.leaf(value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.leaf(value);
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.leaf(value);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        self.leaf(value);
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.leaf(value);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.leaf(Value::Null);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let mut count = 0;
        loop {
            let path = format!("{}[{count}]", self.path);
            if items.next_element_seed(Place { path: &path, values: &mut *self.values })?.is_none() {
                break;
            }
            count += 1;
        }
        self.values.0.push((self.path.to_owned(), format!("{count} items")));
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while let Some(name) = fields.next_key::<String>()? {
            let path = format!("{}.{name}", self.path);
            fields.next_value_seed(Place { path: &path, values: &mut *self.values })?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut values = Values::default();
        Place { path: "", values: &mut values }.deserialize(deserializer)?;
        Ok(values)
    }
}

/// Whether this is a time: `2025-01-31T03:00:00Z`, with or without fractions, or with a space and no zone.
fn is_time(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape.starts_with("\"0000-00-00T00:00:00") || shape == "\"0000-00-00 00:00:00\""
}

fn describe(request: &str, reply: &Reply) -> String {
    let mut text = format!("< {}\n", reply.status);
    for name in ["content-type", "allow", "location", "www-authenticate"] {
        if let Some(value) = reply.headers.get(name).filter(|_| !ADDED_HEADERS.contains(&(reply.status, name))) {
            writeln!(text, "{name}: {}", value.to_str().unwrap()).unwrap();
        }
    }
    let Ok(Values(values)) = serde_json::from_str::<Values>(&reply.text) else {
        return text + &reply.text + "\n";
    };
    // The time of a cron expression is that of its next slot, which depends on the time of day.
    let of_cron = |(path, value): &(String, String)| {
        path.strip_suffix(".frequency").filter(|_| value == "\"custom\"").map(|place| format!("{place}.scheduled_"))
    };
    let of_cron: Vec<String> = values.iter().filter_map(of_cron).collect();
    for (path, value) in values {
        let names: Vec<&str> = path.split(['.', '[']).collect();
        let is_of_run = ["/api/runs", "/verify", "/restores"].iter().any(|part| request.contains(part));
        let is_of_log = ["-logs", "/logs", "/latest-log"].iter().any(|part| request.contains(part));
        let is_added = ADDED.iter().any(|added| format!("{path}.").contains(&format!(".{added}.")))
            || reply.status == 202 && reply.body["message"].is_string() && path == ".data.id"
            || is_of_run && path.starts_with(".data") && names.last().is_some_and(|name| ADDED_TO_RUNS.contains(name))
            || is_of_log && names.last() == Some(&ADDED_TO_LOGS);
        if is_added {
            continue;
        }
        // Which task comes first depends on the time of day.
        let is_upcoming = request.contains("/upcoming") && path.starts_with(".data[");
        let is_of_cron = of_cron.iter().any(|place| path.starts_with(place.as_str()));
        let differs = is_upcoming || is_of_cron || names.last().is_some_and(|name| DIFFERS.contains(name));
        let value = if is_time(&value) || (differs && value != "null") { "…" } else { &value };
        writeln!(text, "{path} = {value}").unwrap();
    }
    text
}

struct Scene {
    installation: Installation,
    binary: PathBuf,
    service: Service,
    tokens: Vec<(&'static str, String)>,
    ssh: SshServer,
    work: tempfile::TempDir,
}

impl Scene {
    async fn new(engine: Engine, binary: PathBuf) -> Self {
        let installation = Installation::new(engine).await;
        let service = serve(&installation, &binary, "0");
        let scene = Self {
            installation,
            binary,
            service,
            tokens: Vec::new(),
            ssh: SshServer::start(),
            work: tempfile::tempdir().unwrap(),
        };
        scene.furnished().await
    }

    /// Creates two users with tokens, a folder to back up, and a server that accepts its owner's key.
    async fn furnished(mut self) -> Self {
        for (email, name) in [("ada@example.org", "Ada King"), ("bob@example.org", "Bob")] {
            let create = ["user", "create", "--email", email, "--name", name, "--timezone", "Europe/Berlin"];
            self.run(&create, "correct horse\n");
        }
        let all: &[&str] = &["--all-scopes"];
        let view: &[&str] = &["--scope", "view-backup-tasks"];
        let token = |who: &str, email: &str, scopes: &[&str]| {
            let token = ["token", "create", "--user", email, "--name", who];
            self.run(&[&token[..], scopes].concat(), "")
        };
        let tokens = vec![
            ("owner", token("owner", "ada@example.org", all)),
            ("viewer", token("viewer", "ada@example.org", view)),
            ("other", token("other", "bob@example.org", all)),
            ("stranger", "hf_unknown".to_owned()),
        ];
        self.tokens = tokens;
        let key = self.client("owner").get("/api/ssh-key").await.data(200);
        self.ssh.authorize(key["public_key"].as_str().unwrap());
        let docs = self.work.path().join("tree/docs");
        std::fs::create_dir_all(&docs).unwrap();
        std::fs::write(docs.join("one"), "one\n").unwrap();
        std::fs::write(self.work.path().join("tree/zeros"), vec![b'0'; 100_000]).unwrap();
        self
    }

    fn run(&self, arguments: &[&str], input: &str) -> String {
        let mut command = command(&self.installation, &self.binary);
        let output = crate::process::run(command.args(arguments), input);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn client(&self, who: &str) -> Client {
        match self.tokens.iter().find(|(name, _)| *name == who) {
            Some((_, token)) => self.service.client().with_token(token),
            None => self.service.client(),
        }
    }

    fn filled_in(&self, text: &str) -> String {
        let path = |name: &str| self.work.path().join(name).display().to_string();
        text.replace("$SSH_PORT", &self.ssh.port().to_string())
            .replace("$SSH_USER", self.ssh.username())
            .replace("$TREE", &path("tree"))
            .replace("$TARGET", &path("target"))
    }

    /// Executes one line; returns the response if it is to be compared.
    async fn play(&mut self, line: &str) -> Option<String> {
        let mut parts = line.splitn(4, ' ');
        let mut next = || parts.next().unwrap_or_default();
        let (who, method, path, body) = (next(), next(), next(), next());
        match who {
            "work" => {
                // Replaces the process without workers by one with a worker.
                self.service = serve(&self.installation, &self.binary, "1");
                None
            }
            "wait" => {
                let (address, place, wanted) = (method, path, serde_json::from_str::<Value>(body).unwrap());
                let client = self.client("owner");
                client.wait_for(address, |answer| answer.pointer(place) == Some(&wanted)).await;
                None
            }
            _ => {
                let body = Some(self.filled_in(body)).filter(|body| !body.is_empty());
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                let reply = self.client(who).send(method, path, body).await;
                let answer = describe(path, &reply).replace(self.service.base_url.as_str(), "$BASE");
                Some(answer.replace(&self.work.path().display().to_string(), "$WORK"))
            }
        }
    }
}

fn command(installation: &Installation, binary: &Path) -> Command {
    let mut command = Command::new(binary);
    command.env_clear().env("HOLDFAST_DATA_DIR", installation.data_dir());
    if let Some(url) = &installation.database_url {
        command.env("HOLDFAST_DATABASE_URL", url);
    }
    command
}

fn serve(installation: &Installation, binary: &Path, workers: &str) -> Service {
    let mut command = command(installation, binary);
    let settings = [
        ("HOLDFAST_WORKERS", workers),
        ("ENABLE_DEVICE_AUTH_ENDPOINT", "true"),
        ("HOLDFAST_EGRESS_ALLOW", "127.0.0.0/8"),
        ("HOLDFAST_RUNS_PER_MINUTE", "1000"),
    ];
    Service::launch(command.arg("serve").envs(settings), free_port())
}

async fn play_all(engine: Engine, binary: PathBuf) -> String {
    let requests = std::fs::read_to_string(folder().join("requests.txt")).unwrap();
    let mut scene = Scene::new(engine, binary).await;
    let mut all = String::new();
    for line in requests.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(answer) = scene.play(line).await {
            writeln!(all, "> {line}\n{answer}").unwrap();
        }
    }
    all
}

#[tokio::test]
async fn clients_of_the_first_release_get_the_same_answers() {
    let file = folder().join("answers.txt");
    if let Some(binary) = std::env::var_os("HOLDFAST_RECORD_WITH") {
        std::fs::write(&file, play_all(Engine::Sqlite, binary.into()).await).unwrap();
        return;
    }
    let recorded = std::fs::read_to_string(&file).unwrap();
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let answers = play_all(engine, env!("CARGO_BIN_EXE_holdfast").into()).await;
        let mut before = recorded.split("\n\n");
        for answer in answers.split("\n\n") {
            assert_eq!(Some(answer), before.next(), "{engine:?}");
        }
        assert_eq!(before.next(), None);
    }
}
