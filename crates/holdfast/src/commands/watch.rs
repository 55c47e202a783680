//! Following a run: shows a progress bar on a terminal or plain lines otherwise, and fails if the run failed.

use std::io::IsTerminal as _;
use std::time::Duration;

use holdfast_client::{Client, ClientError, Events};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use super::table::text;
use crate::failure::Failure;
use crate::output::{complain, say};

/// Polling interval: short enough to feel live, long enough not to burden the service.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often progress is shown while events tell when the run begins and ends.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// Without a terminal, a line is printed at this interval.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How long the service may be unreachable, for example during a restart.
const AWAY: Duration = Duration::from_secs(5 * 60);
/// Polls until giving up. A requested run appears in the queue immediately, however long the queue is.
const MOST_LOOKS: usize = 240;

/// Polls until there is a result.
pub async fn until_some<T>(mut look: impl AsyncFnMut() -> Result<Option<T>, Failure>) -> Result<T, Failure> {
    for _ in 0..MOST_LOOKS {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Err(Failure::other("nothing happened for two minutes; is a worker running?"))
}

/// Progress output, on standard error so that standard output contains only the result.
pub struct Bar {
    bar: Option<ProgressBar>,
    last_line: std::cell::Cell<Option<tokio::time::Instant>>,
    what: String,
    /// With `--json`, standard error is for errors.
    is_silent: bool,
}

impl Bar {
    pub fn new(what: &str, is_silent: bool) -> Self {
        let bar = (!is_silent && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(0);
            let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(what.to_owned());
            bar
        });
        Self { bar, last_line: std::cell::Cell::new(None), what: what.to_owned(), is_silent }
    }

    pub fn show(&self, done: u64, total: Option<u64>) {
        if let Some(bar) = &self.bar {
            bar.set_length(total.unwrap_or(done).max(done));
            bar.set_position(done);
            return;
        }
        if self.is_time() {
            match total {
                Some(total) => complain!("{}: {done} of about {total} bytes", self.what),
                None => complain!("{}: {done} bytes", self.what),
            }
        }
    }

    /// Reports that the run has not started yet.
    pub fn wait(&self) {
        if self.bar.is_none() && self.is_time() {
            complain!("{}: waiting for a worker", self.what);
        }
    }

    /// Whether the next line is due.
    fn is_time(&self) -> bool {
        let now = tokio::time::Instant::now();
        let is_time = !self.is_silent && self.last_line.get().is_none_or(|last| now - last >= LINE_EVERY);
        if is_time {
            self.last_line.set(Some(now));
        }
        is_time
    }

    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The pause between two looks at a run: until something happens to it, or until it is time to show its progress.
struct Pause {
    client: Client,
    events: Option<Events>,
    /// The service has no events, or too many open streams: it is asked every now and then.
    is_refused: bool,
}

impl Pause {
    fn new(client: Client) -> Self {
        Self { client, events: None, is_refused: false }
    }

    async fn pass(&mut self) {
        if self.events.is_none() && !self.is_refused {
            match self.client.events().await {
                Ok(events) => self.events = Some(events),
                // It restarts; the next look says more.
                Err(ClientError::Unreachable { .. }) => {}
                Err(_) => self.is_refused = true,
            }
        }
        let Some(events) = &mut self.events else { return tokio::time::sleep(LOOK_EVERY).await };
        match tokio::time::timeout(PROGRESS_EVERY, events.wait()).await {
            Ok(true) | Err(_) => {}
            Ok(false) => {
                self.events = None;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }
}

/// Waits for the run to finish, and fails if the run failed.
pub async fn run(client: &Client, id: i64, is_json: bool) -> Result<(), Failure> {
    let bar = Bar::new(&format!("Run {id}"), is_json);
    let mut pause = Pause::new(client.clone());
    let mut away_since = None;
    let ended = loop {
        let run = match client.get(&format!("/api/runs/{id}")).await {
            Ok(run) => run,
            // The run continues without us, and a service that restarts is back soon.
            Err(error @ (ClientError::Unreachable { .. } | ClientError::Broken { .. })) => {
                let since = *away_since.get_or_insert_with(tokio::time::Instant::now);
                if since.elapsed() > AWAY {
                    return Err(error.into());
                }
                pause.pass().await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        away_since = None;
        if !run["finished_at"].is_null() {
            break run;
        }
        if run["started_at"].is_null() {
            bar.wait();
        }
        let progress = &run["progress"];
        if let Some(done) = progress["bytes"].as_u64() {
            bar.show(done, progress["bytes_total"].as_u64());
        }
        pause.pass().await;
    };
    bar.end();
    tell(id, &ended, is_json)
}

fn tell(id: i64, ended: &Value, is_json: bool) -> Result<(), Failure> {
    let status = text(&ended["status"]);
    if is_json {
        say!("{ended:#}");
    } else {
        say!("{}", text(&ended["output"]).trim_end());
    }
    match status.as_str() {
        "successful" => Ok(()),
        _ => {
            let code = ended["error_code"].as_str().map(|code| format!(" ({code})")).unwrap_or_default();
            Err(Failure::run_failed(format!("run {id} is {status}{code}")))
        }
    }
}
