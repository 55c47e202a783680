//! Exports the events of the audit log as they happen, in order and at least once: an event counts as exported when it is
//! safe at its destination, and after a crash in between it is written again.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_app::audit_log::{self as use_cases, Waiting};
use holdfast_app::{App, Result};
use holdfast_core::characters::escaped;
use holdfast_core::random;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::audit_line::audit_line;
use crate::audit_log::{AuditLog, Output};

/// How often new events are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The pause after an error, so that a destination that is away is not tried all the time.
const AFTER_ERROR: Duration = Duration::from_secs(5);
/// A destination that does not take lines for this long has a problem. It is not given up: it may have written them.
const WRITE_WAIT: Duration = Duration::from_secs(10);
/// Events written at a time.
const AT_ONCE: i64 = 200;

/// Exports until `stop`, and what has happened until then.
pub async fn run(app: Arc<App>, log: AuditLog, stop: CancellationToken) {
    app.begin_audit_export();
    let mut exporter = Exporter {
        app,
        name: random::hex(&random::bytes::<8>()),
        output: Some(log.open()),
        under_way: None,
        problem: None,
        log,
    };
    loop {
        let is_last = stop.is_cancelled();
        let wait = if exporter.export().await { LOOK_EVERY } else { AFTER_ERROR };
        if is_last {
            break;
        }
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
    if let Err(error) = use_cases::release(&exporter.app, &exporter.name).await {
        tracing::debug!(?error, "another process exports the audit log a little later");
    }
}

type Written = (Output, io::Result<()>);

struct Exporter {
    app: Arc<App>,
    log: AuditLog,
    /// Identifies this process among those that export.
    name: String,
    /// `None` while lines are being written.
    output: Option<Output>,
    /// Lines that were given to the destination, which has not answered.
    under_way: Option<(Waiting, JoinHandle<Written>)>,
    /// What was reported last.
    problem: Option<String>,
}

impl Exporter {
    /// Exports what waits, and reports if that fails. Returns whether it succeeded.
    async fn export(&mut self) -> bool {
        loop {
            match self.step().await {
                Ok(Step::Wrote) => self.solved(),
                Ok(Step::NothingToDo) => return true,
                Ok(Step::Failed(problem)) => {
                    self.report(problem).await;
                    return false;
                }
                Err(error) => {
                    // The problem of the database is reported elsewhere.
                    tracing::debug!(?error, "the audit log is exported when the database answers");
                    return false;
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Step> {
        if self.under_way.is_none() {
            // Most looks find nothing, and need not write to the database.
            if !use_cases::is_waiting(&self.app).await? {
                return Ok(Step::NothingToDo);
            }
            let found = use_cases::find_waiting(&self.app, &self.name, AT_ONCE).await?;
            let Some(waiting) = found.filter(|waiting| !waiting.events.is_empty()) else {
                return Ok(Step::NothingToDo);
            };
            let Some(mut output) = self.output.take() else { return Ok(Step::NothingToDo) };
            let lines: Vec<String> =
                waiting.events.iter().map(|event| escaped(&audit_line(event).to_string()).into_owned()).collect();
            let writing = tokio::task::spawn_blocking(move || {
                let written = output.write(&lines);
                (output, written)
            });
            self.under_way = Some((waiting, writing));
        }
        let Some((waiting, mut writing)) = self.under_way.take() else { return Ok(Step::NothingToDo) };
        let Ok(ended) = tokio::time::timeout(WRITE_WAIT, &mut writing).await else {
            self.under_way = Some((waiting, writing));
            return Ok(Step::Failed(format!("it has not taken a line for {} s", WRITE_WAIT.as_secs())));
        };
        let Ok((output, written)) = ended else {
            self.output = Some(self.log.open());
            return Ok(Step::Failed("writing ended unexpectedly".to_owned()));
        };
        self.output = Some(output);
        if let Err(error) = written {
            return Ok(Step::Failed(error.to_string()));
        }
        if !use_cases::note_written(&self.app, &waiting).await? {
            tracing::warn!("another process has exported the same events of the audit log");
        }
        Ok(Step::Wrote)
    }

    fn solved(&mut self) {
        if self.problem.take().is_some() {
            tracing::info!(log = %self.log, "the audit log is exported again");
        }
    }

    async fn report(&mut self, problem: String) {
        if self.problem.as_ref() == Some(&problem) {
            return;
        }
        let text = format!("{} cannot be written: {problem}", self.log);
        tracing::error!(problem = text, "events of the audit log wait; writing them is tried again");
        match use_cases::note_problem(&self.app, &text).await {
            Ok(()) => self.problem = Some(problem),
            Err(error) => tracing::debug!(?error, "the problem of the audit log is recorded later"),
        }
    }
}

enum Step {
    Wrote,
    NothingToDo,
    Failed(String),
}
