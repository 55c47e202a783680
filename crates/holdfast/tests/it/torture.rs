use holdfast_testkit::Engine;
use holdfast_testkit::torture::{Plan, run};

/// Kills or suspends processes twenty times, with fixed seeds; `cargo xtask torture` runs longer.
async fn twenty_kills(engine: Engine, seed: u64) {
    let report = run(Plan { binary: env!("CARGO_BIN_EXE_holdfast").into(), engine, seed, kills: 20 }).await;
    assert!(report.kills + report.naps >= 20 && report.acknowledged > 50 && report.backups > 0, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_on_sqlite_keeps_its_promises_under_torture() {
    twenty_kills(Engine::Sqlite, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_processes_on_postgres_keep_their_promises_under_torture() {
    twenty_kills(Engine::Postgres, 2).await;
}
