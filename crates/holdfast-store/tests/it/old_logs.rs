use holdfast_core::Timestamp;
use holdfast_store::runs::{self, EndedPosition};
use holdfast_testkit::{TestApp, on_both_engines};

use crate::raw::Raw;

/// Ended backup runs of no task, at the times `from..=to`.
fn ended_runs(user: i64, from: i64, to: i64) -> String {
    let rows: Vec<String> = (from..=to)
        .map(|at| format!("({user}, 'backup', 'successful', 'manual', 1, 0, 0, 0, 0, 0, {at}, {at}, {at}, TRUE)"))
        .collect();
    format!(
        "INSERT INTO runs (user_id, kind, status, requested_by, attempt, lease_epoch, bytes_read, bytes_stored, files,
             warnings, created_at, started_at, finished_at, is_long)
         VALUES {}",
        rows.join(", ")
    )
}

on_both_engines! {
    async fn logs_are_passed_in_large_steps_and_deleted_in_small_ones(app: TestApp) {
        let user = app.user("ada").await.id.0;
        let mut raw = Raw::open(&app).await;
        raw.run(ended_runs(user, 1, 100)).await;
        // Those of the first thirty and of the last ten stay, because their backups do.
        raw.run(format!(
            "INSERT INTO backups (user_id, run_id, task_label, source, content, format, plain_bytes, plain_sha256, entries,
                 is_encrypted, verification, created_at, source_server)
             SELECT {user}, id, 'a', '/a', 'files', 'archive', 1, '', 1, FALSE, 'unverified', 1, ''
             FROM runs WHERE finished_at <= 30 OR finished_at > 90"
        ))
        .await;
        let before = Timestamp::from_microsecond(96).unwrap();
        let (mut position, mut deleted) = (Some(EndedPosition::default()), Vec::new());
        while let Some(from) = position {
            let mut tx = app.app.store.begin().await.unwrap();
            tx.plan_for_values().await.unwrap();
            let found = runs::delete_old_logs(&mut tx, before, from, 4).await.unwrap();
            tx.commit().await.unwrap();
            assert_ne!(found.next, position, "the search goes on");
            deleted.push(found.deleted);
            position = found.next;
        }
        // The first forty have ten of them, of which four are deleted; then as many at a time as there may be.
        assert_eq!(deleted[..3], [4, 4, 4], "{deleted:?}");
        assert_eq!(deleted.iter().sum::<u64>(), 60, "{deleted:?}");
        assert!(deleted.len() <= 18, "{deleted:?}");
        assert_eq!(raw.count("runs").await, 40);
        assert_eq!(raw.count("runs WHERE finished_at BETWEEN 31 AND 90").await, 0);
    }
}
