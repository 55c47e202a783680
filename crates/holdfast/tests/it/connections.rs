use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_testkit::{Engine, free_port};
use serde_json::json;

use crate::process::{Installation, Service};

const HALF_A_REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: ";

fn connect(service: &Service) -> TcpStream {
    TcpStream::connect(service.base_url.trim_start_matches("http://")).unwrap()
}

/// The response to an ordinary request of a new client.
fn ask(service: &Service) -> String {
    let mut stream = connect(service);
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

async fn counted(service: &Service, series: &str) -> f64 {
    let metrics = service.client().get("/metrics").await.text;
    let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in {metrics}")).parse().unwrap()
}

async fn closed(service: &Service, reason: &str) -> f64 {
    counted(service, &format!("holdfast_connections_closed_total{{reason=\"{reason}\"}}")).await
}

#[tokio::test]
async fn slow_clients_block_nobody_and_are_counted() {
    let installation = Installation::new(Engine::Sqlite).await;
    let service = installation.serve(&[("HOLDFAST_CONNECTIONS", "64"), ("HOLDFAST_HEADER_SECS", "3")]);
    for reason in ["header_timeout", "idle_timeout", "slow_request", "slow_answer", "made_room", "client_limit"] {
        assert_eq!(closed(&service, reason).await, 0.0, "{reason} is there before anything happened");
    }
    let mut slow = Vec::new();
    for number in 0..400 {
        let mut stream = connect(&service);
        // The service may already have closed it to make room.
        drop(stream.write_all(if number % 2 == 0 { HALF_A_REQUEST } else { b"" }));
        slow.push(stream);
        if number % 20 == 0 {
            assert!(ask(&service).starts_with("HTTP/1.1 200"), "after {number} slow clients");
        }
    }
    assert!(closed(&service, "made_room").await > 300.0);
    assert!(counted(&service, "holdfast_connections_open").await <= 64.0);
    // The remaining ones time out.
    let deadline = Instant::now() + Duration::from_secs(20);
    while closed(&service, "header_timeout").await < 10.0 {
        assert!(Instant::now() < deadline, "nobody is closed");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let log = service.log.lock().unwrap().clone();
    let told: Vec<&str> = log.lines().filter(|line| line.contains("connections were closed or refused")).collect();
    assert_eq!(told.len(), 1, "one line for all of them: {told:?}");
    assert!(told[0].contains("made_room"), "{told:?}");
}

#[tokio::test]
async fn a_low_limit_on_open_files_leaves_room_for_the_database() {
    let installation = Installation::new(Engine::Sqlite).await;
    let mut command = Command::new("sh");
    let binary = env!("CARGO_BIN_EXE_holdfast");
    command.args(["-c", "ulimit -n 96 && exec \"$0\" serve", binary]).env_clear();
    command.env("PATH", "/usr/bin:/bin").env("HOLDFAST_DATA_DIR", installation.data_dir());
    let service = Service::launch(&mut command, free_port());
    let slow: Vec<TcpStream> = (0..300).map(|_| connect(&service)).collect();
    for _ in 0..20 {
        let ready = service.client().get("/readyz").await;
        assert_eq!(ready.status, 200, "{}", ready.text);
    }
    drop(slow);
    let log = service.log.lock().unwrap().clone();
    assert!(log.contains("the limit on open files allows fewer connections"), "{log}");
    assert!(!log.contains("ERROR"), "{log}");
}

#[tokio::test]
async fn the_first_request_is_answered_after_the_administrator_was_created() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let installation = Installation::new(engine).await;
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = installation.command(&["serve"]);
        command.env("HOLDFAST_LISTEN", &address).env("ENABLE_DEVICE_AUTH_ENDPOINT", "true");
        command.env("HOLDFAST_ADMIN_EMAIL", "root@example.org").env("HOLDFAST_ADMIN_PASSWORD", "correct horse");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let body = json!({"email": "root@example.org", "password": "correct horse", "device_name": "test"}).to_string();
        let deadline = Instant::now() + Duration::from_secs(30);
        let request = format!(
            "POST /api/device-auth/token HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        // Until then the service says that it is starting.
        let answer = loop {
            assert!(Instant::now() < deadline, "nobody answers");
            let Ok(mut stream) = TcpStream::connect(&address) else { continue };
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            if !answer.ends_with(r#"{"message":"starting"}"#) {
                break answer;
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
