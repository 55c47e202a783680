//! The built service with one account that is signed in, for measurements over HTTP.
#![allow(dead_code, reason = "not every benchmark needs all of it")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_testkit::free_port;
use reqwest::header;

pub const EMAIL: &str = "ada@example.org";
const PASSWORD: &str = "correct horse battery";
const REQUESTS: usize = 300;

/// The service with a data folder and a database.
pub fn command(binary: &Path, folder: &Path, url: &str) -> Command {
    let mut command = Command::new(binary);
    command.env("HOLDFAST_DATA_DIR", folder).env("HOLDFAST_DATABASE_URL", url).env("HOLDFAST_LOG", "error");
    command
}

pub fn make_account(binary: &Path, folder: &Path, url: &str) {
    use std::io::Write as _;
    let mut create = command(binary, folder, url);
    create.args(["user", "create", "--email", EMAIL, "--name", "Ada"]).stdin(Stdio::piped());
    let mut child = create.spawn().expect("the service is built");
    child.stdin.take().expect("piped").write_all(PASSWORD.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success());
}

#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub p50: f64,
    pub p95: f64,
    pub max: f64,
}

pub struct Service {
    child: Child,
    pub base_url: String,
    http: reqwest::Client,
    cookie: String,
}

impl Service {
    /// Starts it, with these settings in addition, and signs in.
    pub async fn start(binary: &Path, folder: &Path, url: &str, settings: &[(&str, &str)]) -> Self {
        let address = format!("127.0.0.1:{}", free_port());
        let mut serve = command(binary, folder, url);
        let child = serve
            .arg("serve")
            .envs(settings.iter().copied())
            .env("HOLDFAST_LISTEN", &address)
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build().expect("a client");
        let base_url = format!("http://{address}");
        // It answers before it is ready.
        while !http.get(format!("{base_url}/readyz")).send().await.is_ok_and(|answer| answer.status().is_success()) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut service = Self { child, base_url, http, cookie: String::new() };
        service.sign_in().await;
        service
    }

    async fn sign_in(&mut self) {
        let page = self.http.get(format!("{}/sign-in", self.base_url)).send().await.expect("an answer");
        let visitor = cookie_of(&page);
        let text = page.text().await.expect("a page");
        let csrf = text.split("name=\"csrf\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a form");
        let body = format!("csrf={csrf}&email={EMAIL}&password={}", PASSWORD.replace(' ', "+"));
        let sent = self
            .http
            .post(format!("{}/sign-in", self.base_url))
            .header(header::COOKIE, visitor)
            .body(body)
            .send()
            .await;
        self.cookie = cookie_of(&sent.expect("an answer"));
        assert!(self.cookie.contains("session"), "signed in");
    }

    /// A request with the session.
    pub fn get(&self, path: &str) -> reqwest::RequestBuilder {
        let request = self.http.get(format!("{}{path}", self.base_url));
        request.header(header::COOKIE, &self.cookie).header(header::ACCEPT_ENCODING, "gzip")
    }

    pub async fn text(&self, path: &str) -> String {
        let request = self.http.get(format!("{}{path}", self.base_url)).header(header::COOKIE, &self.cookie);
        request.send().await.expect("an answer").text().await.expect("a page")
    }

    /// The answer of the API to the holder of a token.
    pub async fn api(&self, path: &str, token: &str) -> String {
        let request = self.http.get(format!("{}{path}", self.base_url)).bearer_auth(token);
        request.send().await.expect("an answer").text().await.expect("a body")
    }

    /// Requests a path many times, one after the other.
    pub async fn time(&self, path: &str) -> Times {
        self.time_as(path, None, REQUESTS).await
    }

    /// With an API token instead of the session.
    pub async fn time_as(&self, path: &str, token: Option<&str>, requests: usize) -> Times {
        let mut times = Vec::with_capacity(requests);
        for _ in 0..requests {
            let request = match token {
                Some(token) => self.http.get(format!("{}{path}", self.base_url)).bearer_auth(token),
                None => self.get(path),
            };
            let started = Instant::now();
            let answer = request.send().await.expect("an answer");
            assert!(answer.status().is_success(), "{path}: {}", answer.status());
            answer.bytes().await.expect("a whole answer");
            times.push(started.elapsed().as_secs_f64() * 1000.0);
        }
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        Times { p50: at(0.5), p95: at(0.95), max: at(1.0) }
    }
}

fn cookie_of(answer: &reqwest::Response) -> String {
    let set = answer.headers().get_all(header::SET_COOKIE).iter().filter_map(|value| value.to_str().ok());
    set.filter_map(|cookie| cookie.split(';').next()).collect::<Vec<_>>().join("; ")
}

impl Drop for Service {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
