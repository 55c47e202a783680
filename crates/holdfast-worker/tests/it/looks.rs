use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use holdfast_app::probes::{self, Found};
use holdfast_app::{AppError, Caller, Origin, backups, overview, sessions};
use holdfast_core::ids::{BackupId, ServerId, TaskId};
use holdfast_core::input::{Field, Input};
use holdfast_core::probe::Answer;
use holdfast_core::task_health::TaskHealth;
use holdfast_engine::{DestinationPlan, Scope, StoredBackup};
use holdfast_store::tasks::TaskFilter;
use holdfast_testkit::{Engine, PASSWORD, Settings, TestApp, on_both_engines};
use holdfast_worker::Window;
use serde_json::json;

use crate::bench::Bench;

/// Ada as a caller of the use cases.
pub(crate) async fn caller(bench: &Bench) -> Caller {
    caller_of(bench, &bench.user.email).await
}

async fn caller_of(bench: &Bench, email: &str) -> Caller {
    let credentials = holdfast_app::accounts::Credentials {
        email: Field::Value(email.to_owned()),
        password: Field::Value(PASSWORD.to_owned()),
        otp: Field::Absent,
    };
    let app = &bench.app.app;
    let secret = holdfast_app::accounts::sign_in(app, &credentials, "test", &Origin::default()).await.unwrap();
    sessions::caller(app, secret.reveal(), Origin::default()).await.unwrap().0
}

pub(crate) async fn answer(bench: &Bench, caller: &Caller, run: holdfast_core::ids::RunId) -> Found {
    assert!(matches!(probes::look(&bench.app.app, caller, run).await.unwrap(), Found::NotYet));
    bench.app.run_until_idle().await;
    probes::wait(&bench.app.app, caller, run, Duration::ZERO).await.unwrap()
}

/// The pieces that a client receives.
async fn pieces(download: holdfast_app::Download) -> Vec<std::io::Result<bytes::Bytes>> {
    futures_util::StreamExt::collect(download.into_stream()).await
}

on_both_engines! {
    async fn a_server_can_be_browsed_before_there_is_a_task(app: TestApp) {
        let bench = Bench::new(app).await;
        let (caller, app, server) = (caller(&bench).await, bench.app.app.clone(), ServerId(bench.server));
        let source = bench.source();
        std::fs::create_dir_all(source.join("b folder/$(id)")).unwrap();
        std::fs::write(source.join("a 'file\""), "12345").unwrap();
        std::fs::write(source.join("b folder/x.log"), "noise").unwrap();
        std::os::unix::fs::symlink("b folder", source.join("link")).unwrap();
        let path = source.to_str().unwrap().to_owned();
        let run = probes::ask_folder(&app, &caller, server, &path).await.unwrap();
        let Found::Answer(Answer::Folder { items, is_cut: false }) = answer(&bench, &caller, run).await else { panic!("a folder") };
        let shown: Vec<(&str, bool, u64)> = items.iter().map(|item| (&*item.name, item.is_folder, item.size)).collect();
        assert_eq!(shown, [("b folder", true, 0), ("link", true, 0), ("a 'file\"", false, 5)]);

        let run = probes::ask_folder(&app, &caller, server, "/no/such/folder").await.unwrap();
        let Found::Refusal { code, .. } = answer(&bench, &caller, run).await else { panic!("nothing is there") };
        assert_eq!(code, Some(holdfast_core::failure::FailureCode::SourceMissing));

        // The estimate matches the backup.
        let input = Input::default()
            .with("remote_server_id", bench.server)
            .with("type", "files")
            .with("source_path", path)
            .with("excluded_paths", vec!["*.log"]);
        let run = probes::ask_size(&app, &caller, &input).await.unwrap();
        let Found::Answer(Answer::Size { entries, bytes }) = answer(&bench, &caller, run).await else { panic!("a size") };
        let backup = bench.back_up(bench.task(json!({"excluded_paths": ["*.log"]})).await).await;
        assert_eq!(json!(entries), backup["entries"]);
        assert!(bytes > 5, "{bytes}");

        let stranger = bench.app.user("eve").await;
        let eve = caller_of(&bench, &stranger.email).await;
        assert!(matches!(probes::ask_folder(&app, &eve, server, "/").await, Err(AppError::Forbidden(_))));
        assert!(matches!(probes::look(&app, &eve, run).await, Err(AppError::Forbidden(_))));
        assert!(matches!(probes::ask_size(&app, &caller, &Input::default()).await, Err(AppError::Invalid(_))));
    }

    async fn a_folder_in_a_backup_is_downloaded_and_found_by_name(app: TestApp) {
        let bench = Bench::new(app).await;
        let caller = caller(&bench).await;
        let source = bench.source();
        std::fs::create_dir_all(source.join("docs/deep")).unwrap();
        let large = holdfast_testkit::random(3, 3 * 1024 * 1024);
        std::fs::write(source.join("docs/large"), &large).unwrap();
        std::fs::write(source.join("docs/deep/Ünï.TXT"), "two").unwrap();
        std::fs::write(source.join("other"), "not this").unwrap();
        std::fs::hard_link(source.join("other"), source.join("docs/z-link")).unwrap();
        for password in [None, Some("correct horse battery")] {
            let backup = bench.back_up(bench.task(json!({"encryption_password": password})).await).await;
            let id = BackupId(backup["id"].as_i64().unwrap());
            let (found, is_cut) = backups::search(&bench.app.app, &caller, id, "ünï").await.unwrap();
            assert_eq!((found.len(), found[0].path.as_str(), is_cut), (1, "docs/deep/Ünï.TXT", false));
            let download = backups::download_folder(&bench.app.app, &caller, id, "docs").await.unwrap();
            assert_eq!(download.file_name, "docs.tar");
            let bytes: Vec<u8> = pieces(download).await.into_iter().flat_map(Result::unwrap).collect();
            let target = bench.folder.path().join(format!("taken-{id}"));
            std::fs::create_dir(&target).unwrap();
            let archive = bench.folder.path().join("taken.tar");
            std::fs::write(&archive, bytes).unwrap();
            let opened = std::process::Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&target).status();
            assert!(opened.unwrap().success());
            assert_eq!(std::fs::read(target.join("docs/large")).unwrap(), large);
            assert_eq!(std::fs::read_to_string(target.join("docs/deep/Ünï.TXT")).unwrap(), "two");
            assert_eq!(std::fs::read_to_string(target.join("docs/z-link")).unwrap(), "not this", "with what it is a name of");
            let missing = backups::download_folder(&bench.app.app, &caller, id, "nowhere").await;
            assert!(matches!(missing, Err(AppError::Missing(_))));
        }
    }

    async fn the_download_of_a_damaged_backup_fails(app: TestApp) {
        let bench = Bench::new(app).await;
        let caller = caller(&bench).await;
        std::fs::create_dir(bench.source().join("docs")).unwrap();
        std::fs::write(bench.source().join("docs/large"), holdfast_testkit::random(3, 3 * 1024 * 1024)).unwrap();
        let backup = bench.back_up(bench.task(json!({})).await).await;
        let file = bench.stored_file(&backup);
        let mut bytes = std::fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let id = BackupId(backup["id"].as_i64().unwrap());
        let download = backups::download_folder(&bench.app.app, &caller, id, "docs").await.unwrap();
        assert!(pieces(download).await.iter().any(Result::is_err));

        // A download that merely stops, as when its reader stalls, is not complete either.
        let (sender, received) = tokio::sync::mpsc::channel(1);
        sender.send(Ok("half".into())).await.unwrap();
        drop(sender);
        let stopped = holdfast_app::Download { file_name: "docs.tar".into(), size: None, pieces: received };
        assert!(pieces(stopped).await.last().unwrap().is_err());
    }

    async fn the_overview_counts_what_happened(app: TestApp) {
        let bench = Bench::new(app).await;
        let caller = caller(&bench).await;
        std::fs::write(bench.source().join("file"), "content").unwrap();
        let good = bench.task(json!({"label": "good"})).await;
        let bad = bench.task(json!({"label": "bad", "source_path": "/no/such/path"})).await;
        let paused = bench.task(json!({"label": "paused"})).await;
        bench.task(json!({"label": "new"})).await;
        bench.user.client.act(&format!("/api/backup-tasks/{paused}/pause")).await.expect(200);
        let backup = bench.back_up(good).await;
        bench.run(bad).await;
        bench.verify(&backup).await;
        let counts = |overview: &overview::Overview| -> BTreeMap<&'static str, i64> {
            overview.counts.iter().map(|count| (count.health.as_str(), count.tasks)).collect()
        };
        let shown = overview::show(&bench.app.app, &caller).await.unwrap();
        assert_eq!(counts(&shown), BTreeMap::from([("failed", 1), ("good", 1), ("new", 1), ("paused", 1)]));
        assert_eq!((shown.tasks, shown.proven_tasks), (4, 1));
        assert!(shown.proven_at.is_some());
        assert_eq!(json!(shown.stored_bytes), backup["size_bytes"]);
        let today = shown.days.last().unwrap();
        assert_eq!((today.figures.successful, today.figures.failed, today.stored_bytes), (1, 1, Some(shown.stored_bytes)));
        assert_eq!(shown.days.len(), overview::DAYS);
        assert_eq!(shown.cards[0].task.id, TaskId(bad), "what needs somebody comes first");
        assert_eq!(shown.cards[0].days.last(), Some(&overview::DayResult::Bad));

        // The filter of the database agrees with the domain.
        for health in TaskHealth::ALL {
            let filter = TaskFilter { health: Some(*health), ..TaskFilter::default() };
            let listing = holdfast_store::Listing::new(
                caller.user,
                holdfast_core::page::PageRequest { page: 1, per_page: 100 },
            );
            let found = holdfast_app::tasks::list(&bench.app.app, &listing, &filter).await.unwrap().items;
            let known = holdfast_app::tasks::list_health(&bench.app.app, &found).await.unwrap();
            assert!(known.iter().all(|row| row.health() == *health), "{health:?}");
            assert_eq!(found.len() as i64, counts(&shown).get(health.as_str()).copied().unwrap_or(0), "{health:?}");
        }

        // Tomorrow, the figures of today come from the daily statistics.
        bench.app.worker().update_daily_stats().await.unwrap();
        bench.app.clock.advance_secs(86_400);
        let later = overview::show(&bench.app.app, &caller).await.unwrap();
        let (yesterday, today) = (&later.days[overview::DAYS - 2], &later.days[overview::DAYS - 1]);
        assert_eq!((yesterday.figures.successful, yesterday.figures.failed), (1, 1));
        assert_eq!((today.figures.successful, today.figures.failed), (0, 0));
        assert_eq!(yesterday.stored_bytes, Some(shown.stored_bytes));

        // A task is overdue half a day after its slot, until the next success.
        bench.app.clock.advance_secs(6 * 3600);
        bench.app.worker().report_overdue().await.unwrap();
        let late = overview::show(&bench.app.app, &caller).await.unwrap();
        assert!(counts(&late).contains_key("overdue"), "{:?}", counts(&late));
        bench.back_up(good).await;
        let task = holdfast_app::tasks::show(&bench.app.app, &caller, TaskId(good)).await.unwrap();
        let stand = holdfast_app::tasks::list_health(&bench.app.app, &[task]).await.unwrap();
        assert_eq!(stand[0].health(), TaskHealth::Good);
    }
}

/// A backup with this many files in the folder "many", and the path of its listing.
async fn many_files(bench: &Bench, count: usize) -> (serde_json::Value, String) {
    std::fs::create_dir(bench.source().join("many")).unwrap();
    for number in 0..count {
        std::fs::write(bench.source().join(format!("many/{number:04}")), "x").unwrap();
    }
    let backup = bench.back_up(bench.task(json!({})).await).await;
    let path = format!("/api/backups/{}/entries?path=many&per_page=10", backup["id"]);
    (backup, path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_needs_too_many_reads_is_refused_with_advice() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let mut settings = Settings::default();
        settings.reading.window = Window { entries: 10, bytes: 1024 * 1024 };
        settings.reading.readings = 3;
        let bench = Bench::new(TestApp::start_with(engine, settings).await).await;
        let (_, path) = many_files(&bench, 100).await;
        for (page, first) in [(1, "0000"), (2, "0010"), (3, "0020")] {
            let shown = bench.user.client.get(&format!("{path}&page={page}")).await.expect(200);
            assert_eq!((&shown["data"][0]["name"], &shown["meta"]["total"]), (&json!(first), &json!(100)));
        }
        for page in [4, 10] {
            let refused = bench.user.client.get(&format!("{path}&page={page}")).await.expect(409);
            assert!(refused["message"].as_str().unwrap().contains("search for a name"), "{refused}");
        }
        let beyond = bench.user.client.get(&format!("{path}&page=11")).await.expect(200);
        assert_eq!(beyond["data"], json!([]));
    }
}

/// A backup as it was recorded.
fn stored(bench: &Bench, backup: &serde_json::Value) -> StoredBackup {
    let text = |key: &str| backup[key].as_str().unwrap().to_owned();
    StoredBackup {
        destination: DestinationPlan::local(bench.stored_folder(), None),
        locator: text("key"),
        format: holdfast_core::storage::Format::Archive,
        content: holdfast_core::content::Content::Files,
        size_bytes: backup["size_bytes"].as_u64().unwrap(),
        sha256: text("sha256"),
        plain_bytes: u64::MAX,
        plain_sha256: String::new(),
        entries: backup["entries"].as_u64().unwrap(),
        is_encrypted: false,
        password: None,
        other_passwords: Vec::new(),
        opened_at: None,
        proven: None,
        scope: Scope::default(),
        hold: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_with_a_wrong_number_of_entries_counts_as_damaged() {
    let bench = Bench::new(TestApp::start(Engine::Sqlite).await).await;
    let (backup, _) = many_files(&bench, 3).await;
    let stored = stored(&bench, &backup);
    let engine = holdfast_engine::Engine::new(holdfast_engine::Settings::default()).unwrap();
    for (entries, is_good) in [(stored.entries, true), (stored.entries + 1, false), (stored.entries - 1, false)] {
        let stored = StoredBackup { entries, ..stored.clone() };
        let visited = engine.visit(&stored, (), |(), _| ControlFlow::Continue(())).await;
        let code = visited.err().map(|error| error.code.as_str());
        assert_eq!(code, (!is_good).then_some("corrupt"), "{entries}");
    }
}

/// The visitor blocks at the first entry until the caller is gone; it must not see a second one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_an_index_stops_when_the_caller_is_gone() {
    let bench = Bench::new(TestApp::start(Engine::Sqlite).await).await;
    let (backup, _) = many_files(&bench, 100).await;
    let hold: Arc<dyn std::any::Any + Send + Sync> = Arc::new(());
    let held = Arc::downgrade(&hold);
    let stored = StoredBackup { hold: Some(hold), ..stored(&bench, &backup) };
    let engine = holdfast_engine::Engine::new(holdfast_engine::Settings::default()).unwrap();
    let (seen, go_on) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(2)));
    let (begun, mut beginning) = tokio::sync::mpsc::unbounded_channel();
    let (counter, barrier) = (seen.clone(), go_on.clone());
    let visiting = tokio::spawn(async move {
        let visited = engine.visit(&stored, (), move |(), _| {
            if counter.fetch_add(1, Ordering::SeqCst) == 0 {
                begun.send(()).unwrap();
                barrier.wait();
            }
            ControlFlow::Continue(())
        });
        visited.await.map_err(|error| error.message)
    });
    beginning.recv().await.unwrap();
    visiting.abort();
    assert!(visiting.await.unwrap_err().is_cancelled());
    assert!(held.upgrade().is_some(), "a thread that still reads keeps its place");
    tokio::task::spawn_blocking(move || go_on.wait()).await.unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while held.upgrade().is_some() {
        assert!(Instant::now() < deadline, "it is still being read");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(seen.load(Ordering::SeqCst), 1);
}
