use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_testkit::{Engine, FaultProxy};
use serde_json::{Value, json};

use crate::elsewhere::Elsewhere;
use crate::process::run;

/// A proxy in front of a service that loses the responses to the next requests of a method that change something.
struct Lossy {
    url: String,
    left: Arc<AtomicUsize>,
}

impl Lossy {
    fn start(service: &str, method: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let left = Arc::new(AtomicUsize::new(0));
        let (to, lost) = (service.trim_start_matches("http://").to_owned(), left.clone());
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let (to, lost) = (to.clone(), lost.clone());
                std::thread::spawn(move || pass(connection.unwrap(), &to, method, &lost));
            }
        });
        Self { url, left }
    }

    fn lose(&self, count: usize) {
        self.left.store(count, Ordering::SeqCst);
    }
}

/// Passes on one request, whose connection ends with its response.
fn pass(mut client: TcpStream, to: &str, method: &str, lost: &AtomicUsize) {
    let Some((head, body)) = read_request(&mut client) else { return };
    let mut service = TcpStream::connect(to).unwrap();
    service.write_all(head.replacen("\r\n", "\r\nconnection: close\r\n", 1).as_bytes()).unwrap();
    service.write_all(&body).unwrap();
    let mut response = Vec::new();
    service.read_to_end(&mut response).unwrap();
    let take = |left: usize| left.checked_sub(1);
    let is_change = head.starts_with(method) && !head.contains("holdfast-dry-run");
    if is_change && lost.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
        return;
    }
    client.write_all(&response).unwrap();
}

/// The head and the body; `None` if the client has nothing to ask.
fn read_request(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if client.read(&mut byte).unwrap() == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    client.read_exact(&mut body).unwrap();
    Some((head, body))
}

/// The exit code, the document and the error of a command that talks to the service through the proxy.
fn through(at: &Elsewhere, proxy: &Lossy, arguments: &[&str]) -> (i32, Value, Value) {
    let arguments = [arguments, &["--json"]].concat();
    let output = run(at.command(&arguments).env("HOLDFAST_URL", &proxy.url), "");
    let read = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or(Value::Null);
    (output.status.code().unwrap(), read(&output.stdout), read(&output.stderr))
}

fn write(at: &Elsewhere, text: &str) -> String {
    std::fs::write(at.path("holdfast.yaml"), text).unwrap();
    at.text("holdfast.yaml")
}

fn outcome(plan: &Value) -> Vec<(&str, &str)> {
    let steps = plan["steps"].as_array().unwrap().iter();
    steps.map(|step| (step["label"].as_str().unwrap(), step["result"].as_str().unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_whose_response_was_lost_is_known_to_be_done() {
    let at = Elsewhere::on(Engine::Sqlite).await;
    at.succeed(&["tag", "create", "--label", "a", "--colour", "#111111"]);
    let proxy = Lossy::start(&at.service.base_url, "PUT");
    proxy.lose(1);
    let (code, tag, error) = through(&at, &proxy, &["tag", "update", "a", "--colour", "#222222"]);
    assert_eq!((code, &tag["colour"]), (0, &json!("#222222")), "{error}");
    let file = write(&at, "tags: [{label: a, colour: '#333333'}, {label: b, colour: '#333333'}]\n");
    // The repetition, which is refused because of the new version, is lost as well.
    proxy.lose(2);
    let (code, plan, error) = through(&at, &proxy, &["apply", "-f", &file, "--yes"]);
    assert_eq!((code, outcome(&plan)), (0, vec![("a", "done"), ("b", "done")]), "{error}");
    assert_eq!(at.apply(&["--check"]).0, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_whose_response_was_lost_is_known_to_be_done() {
    let at = Elsewhere::on(Engine::Sqlite).await;
    for label in ["a", "b"] {
        at.succeed(&["tag", "create", "--label", label]);
    }
    let proxy = Lossy::start(&at.service.base_url, "DELETE");
    proxy.lose(1);
    let (code, _, error) = through(&at, &proxy, &["tag", "delete", "a", "--yes"]);
    assert_eq!(code, 0, "{error}");
    let file = write(&at, "tags: []\n");
    proxy.lose(2);
    let (code, plan, error) = through(&at, &proxy, &["apply", "-f", &file, "--prune", "--yes"]);
    assert_eq!((code, outcome(&plan)), (0, vec![("b", "done")]), "{error}");
    assert_eq!(at.json(&["tag", "list"]), json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_done_is_not_called_unchanged() {
    let at = Elsewhere::on(Engine::Sqlite).await;
    let proxy = Lossy::start(&at.service.base_url, "POST");
    proxy.lose(100);
    let file = write(&at, "tags: [{label: a}, {label: b}]\n");
    let output = run(at.command(&["apply", "-f", &file, "--yes"]).env("HOLDFAST_URL", &proxy.url), "");
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert_eq!(output.status.code(), Some(10), "{said}");
    assert!(said.contains("tag \"a\": it is unknown whether this took effect: "), "{said}");
    assert!(said.contains("0 done, 1 unknown, 1 not attempted.") && !said.contains("Nothing was changed"), "{said}");
    // It was done, so only the other one is left.
    proxy.lose(0);
    let (code, plan, error) = through(&at, &proxy, &["apply", "-f", &file, "--yes"]);
    assert_eq!((code, outcome(&plan)), (0, vec![("b", "done")]), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_whose_connection_is_lost_is_continued() {
    let at = Elsewhere::on(Engine::Sqlite).await;
    std::fs::write(at.path("source/large"), holdfast_testkit::random(7, 6 * 1024 * 1024)).unwrap();
    at.describe(1, "");
    assert_eq!(at.apply(&["--yes"]).0, 0);
    at.succeed(&["task", "run", "web files", "--wait"]);
    let backup = at.json(&["backup", "list"])[0].clone();
    let port = at.service.base_url.rsplit_once(':').unwrap().1.parse().unwrap();
    let proxy = FaultProxy::start(port);
    proxy.cut_after(2 * 1024 * 1024);
    let (file, id) = (at.text("downloaded"), backup["id"].to_string());
    let mut download = at.command(&["backup", "download", &id, "--output", &file]);
    let output = run(download.env("HOLDFAST_URL", format!("http://127.0.0.1:{}", proxy.port())), "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(proxy.connections() > 1, "it was cut off once");
    let sum = std::process::Command::new("sha256sum").arg(&file).output().unwrap();
    let sum = String::from_utf8(sum.stdout).unwrap();
    assert_eq!(sum.split_once(' ').unwrap().0, backup["sha256"].as_str().unwrap());
}
