use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_testkit::{Engine, Fingerprint, S3Server, SampleTree, SshServer, assert_same, free_port};
use serde_json::json;

use crate::process::{Installation, run};

/// The environment variables of compose.postgres.yaml. The test runs its commands and health checks without containers.
fn variables() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../compose.postgres.yaml")).unwrap();
    let anchor = text.split("environment: &environment\n").nth(1).unwrap();
    let lines = anchor.lines().take_while(|line| line.starts_with("    HOLDFAST_"));
    lines.map(|line| line.trim().split_once(": ").unwrap()).map(|(name, value)| (name.into(), value.into())).collect()
}

struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        // Errors are ignored: it may have exited already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_web_process_and_two_workers_share_a_database() {
    let installation = Installation::new(Engine::Postgres).await;
    let secrets = installation.folder.path().join("secrets");
    std::fs::create_dir(&secrets).unwrap();
    let put = |name: &str, text: &str| {
        std::fs::write(secrets.join(name), text).unwrap();
        secrets.join(name).to_str().unwrap().to_owned()
    };
    let key = run(Command::new("openssl").args(["rand", "-base64", "32"]), "");
    let url = put("database-url", installation.database_url.as_ref().unwrap());
    let key = put("master-key", &String::from_utf8(key.stdout).unwrap());
    let variables = variables();
    let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["HOLDFAST_DATABASE_URL_FILE", "HOLDFAST_MASTER_KEY_FILE", "HOLDFAST_BASE_URL", "HOLDFAST_METRICS_LISTEN"]
    );
    // Each container has its own folder and address.
    let container = |number: usize, arguments: &[&str], listen: u16, figures: u16| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(arguments).env_clear().env("HOLDFAST_LISTEN", format!("127.0.0.1:{listen}"));
        command.env("HOLDFAST_DATA_DIR", installation.folder.path().join(format!("container-{number}")));
        command.env("HOLDFAST_DATABASE_URL_FILE", &url).env("HOLDFAST_MASTER_KEY_FILE", &key);
        command.env("HOLDFAST_METRICS_LISTEN", format!("127.0.0.1:{figures}"));
        command
    };
    let (listen, ports) = (free_port(), [free_port(), free_port(), free_port()]);
    let mut serving = container(0, &["serve"], listen, ports[0]);
    let _serving = Worker(serving.env("HOLDFAST_WORKERS", "0").stdout(Stdio::null()).spawn().unwrap());
    let is_healthy = |number: usize| {
        let output = run(&mut container(number, &["health"], listen, ports[number]), "");
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let wait = async |number: usize, wanted: bool| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let (healthy, said) = is_healthy(number);
            if healthy == wanted {
                return said;
            }
            assert!(Instant::now() < deadline, "{number}: {said}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let said = wait(0, false).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_healthy(0).1.contains("no worker") {
        assert!(Instant::now() < deadline, "people are told that nobody works: {said}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let worker = |number: usize| {
        Worker(container(number, &["worker"], listen, ports[number]).stdout(Stdio::null()).spawn().unwrap())
    };
    let (first, second) = (worker(1), worker(2));
    for number in [0, 1, 2] {
        let said = wait(number, true).await;
        assert!(said.contains("\"workers\":\"ok\""), "{said}");
    }

    let manage = |arguments: &[&str], input: &str| {
        let output = run(&mut container(0, arguments, listen, ports[0]), input);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    manage(&["user", "create", "--email", "ada@example.org", "--name", "Ada", "--admin"], "correct horse battery\n");
    let token = manage(&["token", "create", "--user", "ada@example.org", "--name", "t", "--all-scopes"], "");
    let client = holdfast_testkit::Client::new(&format!("http://127.0.0.1:{listen}"), Some(&token));
    let (ssh, s3) = (SshServer::start(), S3Server::start(&["backups"]).await.unwrap());
    ssh.authorize(client.get("/api/ssh-key").await.data(200)["public_key"].as_str().unwrap());
    let files = tempfile::tempdir().unwrap();
    std::fs::create_dir(files.path().join("source")).unwrap();
    SampleTree::create(&files.path().join("source"));
    let server = json!({"label": "s", "ip_address": "127.0.0.1", "port": ssh.port(), "username": ssh.username()});
    let server = client.post("/api/remote-servers", server).await.id(201);
    let bucket = json!({"label": "b", "type": "custom_s3", "s3_access_key": S3Server::ACCESS_KEY,
        "s3_secret_key": S3Server::SECRET_KEY, "s3_bucket_name": "backups", "custom_s3_endpoint": s3.endpoint(),
        "path_style_endpoint": true});
    let bucket = client.post("/api/backup-destinations", bucket).await.id(201);
    let task = json!({"label": "t", "type": "files", "source_path": files.path().join("source"), "frequency": "daily",
        "time_to_run_at": "03:00", "remote_server_id": server, "backup_destination_id": bucket});
    let task = client.post("/api/backup-tasks", task).await.id(201);
    client.run_task(task).await;
    // One worker is gone; the other continues, and serves metrics.
    drop(first);
    client.run_task(task).await;
    let backups = client.get("/api/backups").await.data(200);
    let target = files.path().join("back");
    let body = json!({"remote_server_id": server, "path": target});
    let run = client.post(&format!("/api/backups/{}/restores", backups[0]["id"]), body).await.id(202);
    let run = client.wait_for(&format!("/api/runs/{run}"), |run| run["data"]["finished_at"].is_string()).await;
    assert_eq!(run["data"]["status"], "successful", "{run}");
    assert_same(&Fingerprint::of(&files.path().join("source")), &Fingerprint::of(&target));
    let figures = holdfast_testkit::Client::new(&format!("http://127.0.0.1:{}", ports[2]), None).get("/metrics").await;
    assert!(
        figures.text.contains("holdfast_runs_ended_total{kind=\"restore\",status=\"successful\"} 1"),
        "{}",
        figures.text
    );
    drop(second);
}
