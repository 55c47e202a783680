//! The long-running roles: `serve` answers requests and runs workers, `worker` only runs a worker. Both shut down
//! gracefully.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use holdfast_api::{Api, ContextSettings, MetricsRenderer};
use holdfast_app::accounts::{self, FirstStart};
use holdfast_app::{App, health};
use holdfast_core::run::{RunKind, RunStatus};
use holdfast_ui::Ui;
use holdfast_worker::Parts;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit_export;
use crate::failure::Failure;
use crate::listen::{self, Limits};
use crate::output::{complain, say};
use crate::process_figures::ProcessFigures;
use crate::settings::Settings;
use crate::wiring::{open_service, warn_of_open_folder};

/// Additional time for workers to stop runs that did not end within the shutdown time, and to record that.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// Metrics are collected by only a few clients.
const OPERATIONS_CONNECTIONS: usize = 64;

pub async fn serve(settings: Settings) -> Result<(), Failure> {
    let stop = stop_on_signal()?;
    let opened = Opened::open(&settings, &stop).await?;
    let given = settings.admin.as_ref().map(|(email, password)| (email.as_str(), password));
    let first = opened.while_starting(accounts::ensure_admin(&opened.parts.app, given)).await?;
    let service = opened.start(&settings, &stop).await?;
    greet(&first, &settings, &service.base_url);
    service.run().await
}

/// A service that has bound its address and opened its database, but is not complete yet.
pub struct Opened {
    pub parts: Parts,
    pub base_url: String,
    listener: TcpListener,
    address: SocketAddr,
    metrics: PrometheusHandle,
}

async fn while_starting<T>(listener: &TcpListener, work: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        done = work => done,
        never = listen::answer_starting(listener) => match never {},
    }
}

/// The running service.
pub struct Service {
    pub parts: Parts,
    pub base_url: String,
    server: JoinHandle<()>,
    work: TaskTracker,
    /// Ends the workers.
    stop: CancellationToken,
    /// Ends the server, which answers until the workers have ended.
    close: CancellationToken,
    patience: Duration,
}

impl Opened {
    /// Binds the address first, which fails if another service is running, and then opens the database.
    pub async fn open(settings: &Settings, stop: &CancellationToken) -> Result<Self, Failure> {
        let listener = bind(settings.listen)?;
        let address = listener.local_addr().map_err(|error| Failure::listen(error.to_string()))?;
        let metrics = install_metrics(stop)?;
        let parts = while_starting(&listener, Box::pin(open_service(settings))).await?;
        warn_of_open_folder(settings);
        if !settings.service_links.is_empty() {
            let names = settings.service_links.join(", ");
            tracing::info!(names, "ignored variables that Kubernetes sets for services");
        }
        let base_url = settings.base_url.clone().unwrap_or_else(|| format!("http://{address}"));
        Ok(Self { parts, base_url, listener, address, metrics })
    }

    /// Does a part of the start. Requests get the answer that the service is starting.
    pub async fn while_starting<T>(&self, work: impl Future<Output = T>) -> T {
        while_starting(&self.listener, work).await
    }

    /// Starts the server and the workers.
    pub async fn start(self, settings: &Settings, stop: &CancellationToken) -> Result<Service, Failure> {
        let Self { parts, base_url, listener, address, metrics } = self;
        let close = CancellationToken::new();
        serve_operations(settings, &parts.app, &metrics, &close).await?;
        let work = TaskTracker::new();
        for _ in 0..settings.workers {
            work.spawn(holdfast_worker::supervise(parts.clone(), stop.clone()));
        }
        if settings.workers == 0 {
            work.spawn(flush_token_use(parts.app.clone(), stop.clone()));
        }
        work.spawn(health::watch_database(parts.app.clone(), stop.clone()));
        if let Some(log) = settings.audit_log.clone() {
            work.spawn(audit_export::run(parts.app.clone(), log, stop.clone()));
        }
        work.close();
        let router = router(&parts.app, settings, &metrics, &close);
        let total = listen::connections_within_files(settings.connections.total);
        let limits = Limits { total, ..settings.connections.clone() };
        let server = tokio::spawn(listen::serve(listener, router, limits, close.clone()));
        tracing::info!(%address, "serving");
        let patience = settings.work.shutdown + AFTERWARDS;
        Ok(Service { parts, base_url, server, work, stop: stop.clone(), close, patience })
    }
}

impl Service {
    /// Runs until it is stopped.
    pub async fn run(mut self) -> Result<(), Failure> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            ended = &mut self.server => return ended_early(ended),
        }
        self.end().await;
        Ok(())
    }

    /// Lets runs in progress finish, up to a time limit, while requests are still answered, and then the last requests.
    pub async fn end(self) {
        self.parts.app.begin_stopping();
        self.stop.cancel();
        if tokio::time::timeout(self.patience, self.work.wait()).await.is_err() {
            tracing::warn!("work did not finish in time; it will be recovered at the next start");
        }
        self.close.cancel();
        if tokio::time::timeout(AFTERWARDS, self.server).await.is_err() {
            tracing::warn!("some requests were not answered in time");
        }
        close(&self.parts.app).await;
    }
}

pub async fn work(settings: Settings) -> Result<(), Failure> {
    let stop = stop_on_signal()?;
    let metrics = install_metrics(&stop)?;
    let parts = open_service(&settings).await?;
    warn_of_open_folder(&settings);
    let app = parts.app.clone();
    // Health checks and metrics are answered until the last run has ended.
    let close_listener = CancellationToken::new();
    serve_operations(&settings, &app, &metrics, &close_listener).await?;
    say!("The Holdfast worker is running. Stop with Ctrl-C.");
    tokio::spawn(health::watch_database(app.clone(), stop.clone()));
    let exporting =
        settings.audit_log.clone().map(|log| tokio::spawn(audit_export::run(app.clone(), log, stop.clone())));
    let running = holdfast_worker::supervise(parts, stop.clone());
    tokio::pin!(running);
    tokio::select! {
        () = &mut running => {}
        () = stop.cancelled() => {
            app.begin_stopping();
            if tokio::time::timeout(settings.work.shutdown + AFTERWARDS, &mut running).await.is_err() {
                tracing::warn!("work did not finish in time; it will be recovered at the next start");
            }
        }
    }
    if let Some(exporting) = exporting
        && tokio::time::timeout(AFTERWARDS, exporting).await.is_err()
    {
        tracing::warn!("the audit log is exported after the next start");
    }
    close_listener.cancel();
    close(&app).await;
    Ok(())
}

fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    listen::bind(address).map_err(|error| {
        Failure::listen(format!("cannot listen on {address}: {error}; choose another address with --listen"))
    })
}

/// Serves health checks and metrics on a separate address, if one is configured.
async fn serve_operations(
    settings: &Settings,
    app: &Arc<App>,
    metrics: &PrometheusHandle,
    stop: &CancellationToken,
) -> Result<(), Failure> {
    let Some(address) = settings.metrics_listen else { return Ok(()) };
    let listener = bind(address)?;
    let api = Api::new(app.clone(), Some(renderer(metrics, settings)));
    let router = holdfast_api::operations_router(Arc::new(api));
    let total = settings.connections.total.min(OPERATIONS_CONNECTIONS);
    let limits = Limits { total, ..settings.connections.clone() };
    tokio::spawn(listen::serve(listener, router, limits, stop.clone()));
    tracing::info!(%address, "serving metrics");
    Ok(())
}

fn renderer(metrics: &PrometheusHandle, settings: &Settings) -> MetricsRenderer {
    let (metrics, process) = (metrics.clone(), ProcessFigures::new(settings));
    Arc::new(move || metrics.render() + &process.render())
}

fn router(app: &Arc<App>, settings: &Settings, metrics: &PrometheusHandle, stop: &CancellationToken) -> Router {
    // Behind a proxy that does not forward the client's address, every client would look local.
    let is_behind_proxy = !settings.trusted_proxies.is_empty() || settings.base_url.is_some();
    let figures = (!is_behind_proxy).then(|| renderer(metrics, settings));
    let api = holdfast_api::router(Arc::new(Api::new(app.clone(), figures)));
    let secure_cookies = settings.base_url.as_deref().is_some_and(|url| url.starts_with("https:"));
    let ui = holdfast_ui::router(Arc::new(Ui::new(app.clone(), secure_cookies, stop.clone())));
    let context =
        ContextSettings { base_url: settings.base_url.clone(), trusted_proxies: settings.trusted_proxies.clone() };
    holdfast_api::with_context(api.merge(ui), app.clone(), context)
}

/// Prints the URL to open. Without a configured administrator, the first start prints a link to set a password.
fn greet(first: &FirstStart, settings: &Settings, base_url: &str) {
    match first {
        FirstStart::Ready => say!("Holdfast is ready: open {base_url}"),
        FirstStart::AdminCreated => say!("Holdfast is ready: open {base_url} and sign in as the administrator"),
        FirstStart::Link(secret) => {
            say!("Holdfast is ready. Nobody has signed in yet: open this link, once, within a day:");
            say!("  {base_url}/set-up/{}", secret.reveal());
        }
    }
    say!("Data is kept in {}. Stop with Ctrl-C.", settings.data_dir.display());
}

async fn flush_token_use(app: Arc<App>, stop: CancellationToken) {
    const EVERY: Duration = Duration::from_secs(5);
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => {}
            () = tokio::time::sleep(EVERY) => {}
        }
        if let Err(error) = app.flush_token_use().await {
            tracing::warn!(%error, "could not store when tokens were last used");
        }
    }
}

fn ended_early(ended: Result<(), tokio::task::JoinError>) -> Result<(), Failure> {
    match ended {
        Ok(()) => Err(Failure::other("the server stopped unexpectedly")),
        Err(error) => Err(Failure::other(error.to_string())),
    }
}

async fn close(app: &App) {
    if let Err(error) = app.flush_token_use().await {
        tracing::warn!(%error, "could not store when tokens were last used");
    }
    app.store.close().await;
    tracing::info!("stopped");
}

/// The first SIGTERM or Ctrl-C starts a graceful shutdown, the second exits immediately.
pub fn stop_on_signal() -> Result<CancellationToken, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::other(format!("cannot listen for signals: {error}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    let mut hang_up = listen(SignalKind::hangup())?;
    tokio::spawn(async move {
        while hang_up.recv().await.is_some() {
            tracing::info!("ignored SIGHUP: settings are read at the start; restart to change them");
        }
    });
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        for already_stopping in [false, true] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            if already_stopping {
                complain!("holdfast: stopped immediately");
                std::process::exit(130);
            }
            tracing::info!("stopping; a second signal stops immediately");
            token.cancel();
        }
    });
    Ok(stop)
}

fn install_metrics(stop: &CancellationToken) -> Result<PrometheusHandle, Failure> {
    const SECONDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];
    const WAITS: &[f64] = &[0.1, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0];
    const RUNS: &[f64] = &[1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 4.0 * 3600.0, 12.0 * 3600.0];
    let explain = |error: metrics_exporter_prometheus::BuildError| Failure::other(format!("metrics: {error}"));
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full("holdfast_http_request_seconds".to_owned()), SECONDS)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_late_seconds".to_owned()), WAITS))
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_wait_seconds".to_owned()), WAITS))
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_duration_seconds".to_owned()), RUNS))
        .map_err(explain)?
        .install_recorder()
        .map_err(explain)?;
    describe_metrics();
    let (upkeep, stop) = (handle.clone(), stop.clone());
    tokio::spawn(async move {
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(Duration::from_secs(10)) => upkeep.run_upkeep(),
            }
        }
    });
    Ok(handle)
}

/// Describes the metrics that this process counts. Those read from the database are described where they are rendered.
fn describe_metrics() {
    use metrics::{describe_counter, describe_histogram};
    listen::describe_metrics();
    describe_counter!("holdfast_http_requests_total", "HTTP requests answered.");
    describe_histogram!("holdfast_http_request_seconds", "Duration of HTTP requests.");
    describe_counter!("holdfast_runs_queued_total", "Runs queued by the schedule.");
    describe_histogram!("holdfast_slot_late_seconds", "Delay from a scheduled time until its run was queued.");
    describe_histogram!("holdfast_run_wait_seconds", "Time that runs waited in the queue for a worker.");
    describe_counter!("holdfast_runs_ended_total", "Runs that ended, by kind and status.");
    describe_histogram!("holdfast_run_duration_seconds", "Duration of runs.");
    describe_counter!("holdfast_run_bytes_read_total", "Bytes that runs read.");
    describe_counter!("holdfast_run_bytes_stored_total", "Bytes that runs stored.");
    describe_counter!(
        "holdfast_leases_lost_total",
        "Runs whose worker stopped responding without having been told to stop."
    );
    describe_counter!("holdfast_tasks_paused_after_losses_total", "Tasks paused because their workers were lost.");
    describe_counter!("holdfast_backups_damaged_total", "Backups found damaged or missing.");
    describe_counter!("holdfast_notices_total", "Messages sent, by result.");
    describe_counter!("holdfast_log_lines_dropped_total", "Log lines that could not be written.");
    describe_counter!("holdfast_tasks_pulled_back_total", "Next runs corrected after a clock that was ahead.");
    describe_counter!("holdfast_slots_missed_total", "Scheduled times that passed while no worker was running.");
    begin_counters();
}

/// Counters exist before their first event: monitoring sees an increase only from a value that it has seen.
fn begin_counters() {
    use metrics::counter;
    let plain = [
        "holdfast_runs_queued_total",
        "holdfast_leases_lost_total",
        "holdfast_tasks_paused_after_losses_total",
        "holdfast_backups_damaged_total",
        "holdfast_log_lines_dropped_total",
        "holdfast_slots_missed_total",
        "holdfast_tasks_pulled_back_total",
    ];
    plain.into_iter().for_each(|name| counter!(name).increment(0));
    for kind in RunKind::ALL {
        counter!("holdfast_run_bytes_read_total", "kind" => kind.as_str()).increment(0);
        counter!("holdfast_run_bytes_stored_total", "kind" => kind.as_str()).increment(0);
        for status in RunStatus::ALL.iter().filter(|status| !status.is_live()) {
            let labels = [("kind", kind.as_str()), ("status", status.as_str())];
            counter!("holdfast_runs_ended_total", &labels).increment(0);
        }
    }
    for result in ["delivered", "postponed", "undelivered"] {
        counter!("holdfast_notices_total", "result" => result).increment(0);
    }
}
