//! Following a run: shows a progress bar on a terminal or plain lines otherwise, and fails if the run failed.

use std::io::IsTerminal as _;
use std::time::Duration;

use holdfast_client::{Client, ClientError, Events};
use holdfast_core::characters::escaped;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::time::Instant;

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
/// How long a check may take.
const LONGEST_CHECK: Duration = Duration::from_secs(120);

/// How long a run may wait for a worker before that is said.
const PATIENCE: Duration = Duration::from_secs(3);
/// How often it is repeated.
const SAY_AGAIN: Duration = Duration::from_secs(60);

/// How a command waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wait {
    /// For how long at most.
    pub timeout: Option<Duration>,
}

/// The end of a wait.
struct Deadline(Option<(Instant, Duration)>);

impl Deadline {
    fn of(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| Some((Instant::now().checked_add(timeout)?, timeout))))
    }

    fn check(&self, what: &str) -> Result<(), Failure> {
        match self.0 {
            Some((at, timeout)) if Instant::now() >= at => {
                Err(Failure::timed_out(format!("{what} has not ended within {} s; it goes on", timeout.as_secs())))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// The pause, or what is left if that is less.
    fn shorten(&self, pause: Duration) -> Duration {
        self.0.map_or(pause, |(at, _)| pause.min(at.saturating_duration_since(Instant::now())))
    }
}

/// Polls until there is a result.
pub async fn until_some<T>(
    wait: Wait,
    mut look: impl AsyncFnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let deadline = Deadline::of(Some(wait.timeout.unwrap_or(LONGEST_CHECK)));
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if deadline.check("").is_err() {
            return Err(Failure::timed_out("there was no result in time; is a worker running, and no maintenance on?"));
        }
        tokio::time::sleep(deadline.shorten(LOOK_EVERY)).await;
    }
}

/// Progress output, on standard error so that standard output contains only the result.
pub struct Bar {
    bar: Option<ProgressBar>,
    last_line: std::cell::Cell<Option<Instant>>,
    what: String,
    /// With `--json`, standard error is for errors.
    is_silent: bool,
}

impl Bar {
    pub fn new(what: &str, is_silent: bool) -> Self {
        let what = escaped(what).into_owned();
        let bar = (!is_silent && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new(0);
            let template = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(what.clone());
            bar
        });
        Self { bar, last_line: std::cell::Cell::new(None), what, is_silent }
    }

    pub fn show(&self, done: u64, total: Option<u64>) {
        if let Some(bar) = &self.bar {
            bar.set_message(self.what.clone());
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
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{}: waiting for a worker", self.what));
        } else if self.is_time() {
            complain!("{}: waiting for a worker", self.what);
        }
    }

    /// Says something that whoever waits should know, also with `--json`.
    pub fn warn(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| complain!("{text}")),
            None if self.is_silent => complain!("{}", json!({"warning": text})),
            None => complain!("{text}"),
        }
    }

    /// Whether the next line is due.
    fn is_time(&self) -> bool {
        let now = Instant::now();
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

    async fn pass(&mut self, deadline: &Deadline) {
        if self.events.is_none() && !self.is_refused {
            match self.client.events().await {
                Ok(events) => self.events = Some(events),
                // It restarts; the next look says more.
                Err(ClientError::Unreachable { .. }) => {}
                Err(_) => self.is_refused = true,
            }
        }
        let Some(events) = &mut self.events else { return tokio::time::sleep(deadline.shorten(LOOK_EVERY)).await };
        match tokio::time::timeout(deadline.shorten(PROGRESS_EVERY), events.wait()).await {
            Ok(true) | Err(_) => {}
            Ok(false) => {
                self.events = None;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }
}

/// Says why a run does not start. Nobody should wait for ever without knowing why.
struct Obstacle {
    since: Option<Instant>,
    said_at: Option<Instant>,
}

impl Obstacle {
    fn look(&mut self, id: i64, waiting_for: &Value, bar: &Bar) {
        let why = match waiting_for.as_str() {
            Some("worker") => "no worker is running, so nothing starts; start `holdfast serve` or `holdfast worker`",
            Some("drain") => {
                "all workers were told to start no runs; `holdfast drain show` lists them, `holdfast drain off NAME` ends it"
            }
            Some("maintenance") => "nothing starts during maintenance; `holdfast maintenance show` tells until when",
            Some(_) | None => {
                self.since = None;
                return;
            }
        };
        let (now, since) = (Instant::now(), *self.since.get_or_insert_with(Instant::now));
        if now - since >= PATIENCE && self.said_at.is_none_or(|said| now - said >= SAY_AGAIN) {
            self.said_at = Some(now);
            bar.warn(&format!("run {id} is waiting: {why}"));
        }
    }
}

/// Waits for the run to finish, and fails if the run failed. A failed backup that is tried once more has not finished.
pub async fn run(client: &Client, id: i64, wait: Wait, is_json: bool) -> Result<(), Failure> {
    let bar = Bar::new(&format!("Run {id}"), is_json);
    let (deadline, mut pause) = (Deadline::of(wait.timeout), Pause::new(client.clone()));
    let mut ended = until_ended(client, id, (&deadline, &mut pause), &bar).await?;
    if let Some(at) = ended["retry_at"].as_str() {
        let code = code(&ended);
        bar.warn(&format!("run {id} is {}{code}; it will be tried once more at {at}", text(&ended["status"])));
    }
    while ended["retry_run_id"].is_null() && !ended["retry_at"].is_null() {
        deadline.check(&format!("run {id}, which will be tried once more,"))?;
        pause.pass(&deadline).await;
        ended = until_ended(client, id, (&deadline, &mut pause), &bar).await?;
    }
    if let Some(retry) = ended["retry_run_id"].as_i64() {
        bar.warn(&format!("run {retry} is the second attempt"));
        ended = until_ended(client, retry, (&deadline, &mut pause), &bar).await?;
    }
    bar.end();
    tell(&ended, is_json)
}

/// Waits until a run has ended.
async fn until_ended(
    client: &Client,
    id: i64,
    (deadline, pause): (&Deadline, &mut Pause),
    bar: &Bar,
) -> Result<Value, Failure> {
    let (mut away_since, mut obstacle) = (None, Obstacle { since: None, said_at: None });
    loop {
        let run = match client.get(&format!("/api/runs/{id}")).await {
            Ok(run) => run,
            // The run continues without us, and a service that restarts is back soon.
            Err(error @ (ClientError::Unreachable { .. } | ClientError::Broken { .. })) => {
                let since = *away_since.get_or_insert_with(Instant::now);
                if since.elapsed() > AWAY {
                    return Err(error.into());
                }
                deadline.check(&format!("run {id}"))?;
                pause.pass(deadline).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        away_since = None;
        if !run["finished_at"].is_null() {
            return Ok(run);
        }
        if run["started_at"].is_null() {
            bar.wait();
            obstacle.look(id, &run["waiting_for"], bar);
        }
        let progress = &run["progress"];
        if let Some(done) = progress["bytes"].as_u64() {
            bar.show(done, progress["bytes_total"].as_u64());
        }
        deadline.check(&format!("run {id}"))?;
        pause.pass(deadline).await;
    }
}

/// The class of a run's failure.
fn code(run: &Value) -> String {
    run["error_code"].as_str().map(|code| format!(" ({code})")).unwrap_or_default()
}

fn tell(ended: &Value, is_json: bool) -> Result<(), Failure> {
    let (id, status) = (text(&ended["id"]), text(&ended["status"]));
    if is_json {
        say!("{ended:#}");
    } else {
        say!("{}", text(&ended["output"]).trim_end());
    }
    match status.as_str() {
        "successful" => Ok(()),
        _ => Err(Failure::run_failed(format!("run {id} is {status}{}", code(ended)))),
    }
}
