//! A real Chromium, driven through its own driver over the WebDriver protocol.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::service::{MARK, StopSignal};
use crate::{Service, free_port};

/// How long to wait for a page to change.
const PATIENCE: Duration = Duration::from_secs(30);
/// The key of an element id in the protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser window. When dropped, the driver and the browser are stopped; they are found by their mark.
pub struct Chromium {
    http: reqwest::Client,
    session: String,
    _driver: Service,
}

impl Chromium {
    pub async fn start() -> Self {
        let (driver, folder, port) = Self::start_driver();
        let http = reqwest::Client::new();
        let profile = format!("--user-data-dir={}", folder.join("profile").display());
        // There is no sandbox for root and little shared memory on small machines. Only loopback may be contacted.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
            "--lang=en",
            "--window-size=1280,900",
            &profile,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"args": arguments},
        }}});
        let url = format!("http://127.0.0.1:{port}/session");
        let answer: Value =
            http.post(&url).json(&wanted).send().await.expect("the driver answers").json().await.expect("JSON");
        let id = answer["value"]["sessionId"].as_str().unwrap_or_else(|| panic!("no browser: {answer}"));
        Self { http, session: format!("{url}/{id}"), _driver: driver }
    }

    /// The driver also binds its port on IPv6, where it may be in use, and cannot choose one itself; so this retries.
    fn start_driver() -> (Service, PathBuf, u16) {
        const TRIES: usize = 5;
        for is_last in (0..TRIES).map(|number| number + 1 == TRIES) {
            let folder = tempfile::tempdir().expect("a temporary folder").keep();
            let port = free_port();
            let argument = format!("--port={port}");
            // The browser's processes inherit the mark, so that those that outlive the driver are found.
            let mark = format!("{MARK}={}", folder.display());
            let command = ["env", &mark, "chromedriver", &argument, "--allowed-ips=127.0.0.1"];
            let mut driver = Service::start_ended_by(StopSignal::Terminate, &folder, None, &command);
            if is_last {
                driver.wait_for_port(port, &folder.join("log"));
            }
            if driver.listens(port) {
                return (driver, folder, port);
            }
        }
        unreachable!("the last try fails or returns")
    }

    async fn post(&self, path: &str, body: Value) -> Result<Value, Value> {
        let sent = self.http.post(format!("{}{path}", self.session)).json(&body).send().await;
        let answer = sent.expect("the driver answers");
        let is_good = answer.status().is_success();
        let mut body: Value = answer.json().await.expect("JSON");
        if is_good { Ok(body["value"].take()) } else { Err(body["value"].take()) }
    }

    pub async fn open(&self, url: &str) {
        self.post("/url", json!({"url": url})).await.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    /// The value of a JavaScript expression.
    pub async fn evaluate(&self, expression: &str) -> Value {
        let script = json!({"script": format!("return ({expression})"), "args": []});
        self.post("/execute/sync", script).await.unwrap_or_else(|error| panic!("{expression}: {error}"))
    }

    /// The visible text of the page.
    pub async fn text(&self) -> String {
        self.evaluate("document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    pub async fn address(&self) -> String {
        self.evaluate("location.pathname + location.search").await.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the expression is true.
    pub async fn wait_for(&self, expression: &str) {
        let deadline = Instant::now() + PATIENCE;
        // Fails while the browser is navigating.
        let script = || json!({"script": format!("return Boolean({expression})"), "args": []});
        while self.post("/execute/sync", script()).await != Ok(Value::Bool(true)) {
            assert!(
                Instant::now() < deadline,
                "{expression} did not become true on {}:\n{}",
                self.address().await,
                self.text().await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn wait_for_text(&self, text: &str) {
        self.wait_for(&format!("document.body.innerText.includes({})", json!(text))).await;
    }

    async fn find(&self, css: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.post("/element", json!({"using": "css selector", "value": css})).await {
                Ok(found) => return found[ELEMENT].as_str().unwrap_or_default().to_owned(),
                Err(error) => assert!(Instant::now() < deadline, "{css}: {error}\n{}", self.text().await),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Clicks as a person does: covered or hidden elements cannot be clicked.
    pub async fn click(&self, css: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let element = self.find(css).await;
            // A live part of the page may be replaced between finding and clicking.
            match self.post(&format!("/element/{element}/click"), json!({})).await {
                Ok(_) => return,
                Err(error) => assert!(Instant::now() < deadline, "{css}: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Clicks the button or link with this text.
    pub async fn press(&self, text: &str) {
        let mark = format!(
            "(() => {{ const all = [...document.querySelectorAll('dialog[open] button, dialog[open] a, main button, main a, header a, header button')].filter((element) => !element.matches('[aria-hidden=true]')); \
             const found = all.find((element) => element.innerText.trim() === {0}) ?? all.find((element) => element.innerText.includes({0})); \
             document.querySelectorAll('[data-test]').forEach((element) => element.removeAttribute('data-test')); \
             found?.setAttribute('data-test', ''); return found !== undefined; }})()",
            json!(text)
        );
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.evaluate(&mark).await == Value::Bool(true) {
                let element = self.find("[data-test]").await;
                if self.post(&format!("/element/{element}/click"), json!({})).await.is_ok() {
                    return;
                }
            }
            assert!(Instant::now() < deadline, "no button or link is called {text}:\n{}", self.text().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Replaces the content of the field with this name by typing. Retries while the page is being replaced.
    pub async fn fill(&self, name: &str, value: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let element = self.find(&format!("[name=\"{name}\"]:not([type=hidden])")).await;
            let filled = match self.post(&format!("/element/{element}/clear"), json!({})).await {
                Ok(_) => self.post(&format!("/element/{element}/value"), json!({"text": value})).await,
                failed => failed,
            };
            match filled {
                Ok(_) => return,
                Err(error) if error.to_string().contains("stale element") && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }

    /// Chooses from a list by the text of an option.
    pub async fn choose(&self, name: &str, label: &str) {
        let script = format!(
            "(() => {{ const list = document.querySelector('select[name={name}]'); \
             const option = [...list.options].find((option) => option.text === {}); list.value = option.value; \
             list.dispatchEvent(new Event('input', {{bubbles: true}})); return list.value; }})()",
            json!(label)
        );
        self.evaluate(&script).await;
    }

    /// Presses keys, such as `\u{e004}` for Tab.
    pub async fn keys(&self, keys: &str) {
        let one = |key: char| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})];
        let actions: Vec<Value> = keys.chars().flat_map(one).collect();
        let sequence = json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]});
        self.post("/actions", sequence).await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Presses a key while another, such as `\u{e009}` for Control, is held.
    pub async fn chord(&self, held: char, key: char) {
        let step = |kind: &str, key: char| json!({"type": kind, "value": key});
        let actions = [step("keyDown", held), step("keyDown", key), step("keyUp", key), step("keyUp", held)];
        let sequence = json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]});
        self.post("/actions", sequence).await.unwrap_or_else(|error| panic!("{error}"));
    }

    /// The errors and warnings in the console since the last call.
    pub async fn problems(&self) -> Vec<String> {
        let log = self.post("/se/log", json!({"type": "browser"})).await.unwrap_or_else(|error| panic!("{error}"));
        let lines = log.as_array().cloned().unwrap_or_default();
        let is_problem = |line: &&Value| line["level"] == "SEVERE" || line["level"] == "WARNING";
        lines.iter().filter(is_problem).map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    async fn cdp(&self, command: &str, parameters: Value) {
        let sent = self.post("/goog/cdp/execute", json!({"cmd": command, "params": parameters})).await;
        sent.unwrap_or_else(|error| panic!("{command}: {error}"));
    }

    pub async fn set_width(&self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.cdp("Emulation.setDeviceMetricsOverride", size).await;
    }

    pub async fn set_dark(&self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.cdp("Emulation.setEmulatedMedia", features).await;
    }

    pub async fn set_offline(&self, is_offline: bool) {
        let conditions = json!({"offline": is_offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1});
        self.cdp("Network.enable", json!({})).await;
        self.cdp("Network.emulateNetworkConditions", conditions).await;
    }

    pub async fn set_script(&self, is_on: bool) {
        self.cdp("Emulation.setScriptExecutionDisabled", json!({"value": !is_on})).await;
    }

    /// Saves a screenshot of the window as PNG.
    pub async fn screenshot(&self, path: &Path) {
        let url = format!("{}/screenshot", self.session);
        let answer: Value = self.http.get(url).send().await.expect("the driver answers").json().await.expect("JSON");
        let png = BASE64_STANDARD.decode(answer["value"].as_str().unwrap_or_default()).expect("a picture");
        std::fs::write(path, png).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// The problems that axe finds on the page: the rule, and the elements.
    pub async fn accessibility_problems(&self, axe: &str) -> Vec<String> {
        self.post("/execute/sync", json!({"script": axe, "args": []})).await.unwrap_or_else(|error| panic!("{error}"));
        let script = "const done = arguments[arguments.length - 1]; axe.run(document).then((found) => done(found.violations.map(\
             (rule) => rule.id + ': ' + rule.nodes.map((node) => node.html).slice(0, 3).join(' | '))));";
        let found = self.post("/execute/async", json!({"script": script, "args": []})).await;
        let found = found.unwrap_or_else(|error| panic!("{error}"));
        found
            .as_array()
            .cloned()
            .unwrap_or_default()
            .iter()
            .map(|line| line.as_str().unwrap_or_default().to_owned())
            .collect()
    }
}
