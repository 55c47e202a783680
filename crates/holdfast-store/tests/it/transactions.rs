use std::collections::BTreeSet;

use holdfast_core::ids::TaskId;
use holdfast_core::queue::{ConcurrencyLimits, LongRunCapacity};
use holdfast_core::run::{RunStatus, RunSubject, Trigger};
use holdfast_core::tag::TagDraft;
use holdfast_store::queue::{self, Capacity};
use holdfast_store::runs::{self, NewRun};
use holdfast_store::{StoreError, tags, users};
use holdfast_testkit::{TestApp, on_both_engines};

const ONE_PLACE: LongRunCapacity = LongRunCapacity { free: 1, reserved: 0 };

fn tag(label: &str) -> TagDraft {
    TagDraft { label: label.into(), description: None, colour: None }
}

on_both_engines! {
    async fn a_dropped_transaction_changes_nothing(app: TestApp) {
        let user = app.user("ada").await;
        let store = &app.app.store;
        let mut abandoned = store.begin().await.unwrap();
        let id = tags::insert(&mut abandoned, user.id, &tag("gone"), app.app.now()).await.unwrap();
        drop(abandoned);
        let mut kept = store.begin().await.unwrap();
        assert!(tags::find(&mut kept, id).await.unwrap().is_none());
        let id = tags::insert(&mut kept, user.id, &tag("kept"), app.app.now()).await.unwrap();
        kept.commit().await.unwrap();
        assert!(tags::find(&mut store.read().await.unwrap(), id).await.unwrap().is_some());
    }

    async fn concurrent_writers_succeed_despite_abandoned_transactions(app: TestApp) {
        let user = app.user("ada").await;
        let writers = (0..200).map(|number| {
            let (app, user) = (app.app.clone(), user.id);
            tokio::spawn(async move {
                let mut tx = app.store.begin().await.unwrap();
                let id = tags::insert(&mut tx, user, &tag(&format!("tag {number}")), app.now()).await.unwrap();
                if number % 5 == 0 {
                    return None;
                }
                tx.commit().await.unwrap();
                Some(id)
            })
        });
        let mut kept = BTreeSet::new();
        for writer in writers.collect::<Vec<_>>() {
            kept.extend(writer.await.unwrap());
        }
        assert_eq!(kept.len(), 160);
        let mut tx = app.app.store.read().await.unwrap();
        for id in kept {
            assert!(tags::find(&mut tx, id).await.unwrap().is_some(), "{id} was acknowledged");
        }
        assert_eq!(users::statistics(&mut tx, user.id, app.app.now()).await.unwrap().tags, 160);
    }

    async fn a_failed_statement_cannot_be_committed(app: TestApp) {
        let user = app.user("ada").await;
        let mut tx = app.app.store.begin().await.unwrap();
        tags::insert(&mut tx, user.id, &tag("with a failure"), app.app.now()).await.unwrap();
        let draft = holdfast_core::user::UserDraft::check("Ada", &user.email, "UTC", false).unwrap();
        let taken = users::insert(&mut tx, &draft, None, app.app.now()).await;
        assert!(matches!(taken, Err(StoreError::Conflict)), "{taken:?}");
        assert!(tx.commit().await.is_err());
        let mut tx = app.app.store.read().await.unwrap();
        assert_eq!(users::statistics(&mut tx, user.id, app.app.now()).await.unwrap().tags, 0);
    }

    async fn a_task_has_one_live_run_and_a_slot_has_one_run(app: TestApp) {
        let user = app.user("ada").await;
        let task = TaskId(user.task().await);
        let insert = async |slot: Option<&str>| {
            let mut tx = app.app.store.begin().await.unwrap();
            let slot = slot.map(|text| text.parse().unwrap());
            let new = NewRun { slot, ..NewRun::new(user.id, RunSubject::Backup(task), Trigger::Schedule) };
            let run = runs::insert(&mut tx, &new, app.app.now()).await;
            tx.commit().await.unwrap();
            run.unwrap()
        };
        let slot = Some("2025-03-04T03:00:00Z");
        assert!(insert(slot).await.is_some());
        assert!(insert(None).await.is_none(), "one live run");
        app.run_until_idle().await;
        assert!(insert(slot).await.is_none(), "one run per slot, also after its end");
        assert!(insert(Some("2025-03-05T03:00:00Z")).await.is_some());
    }

    async fn workers_that_race_claim_distinct_runs(app: TestApp) {
        let user = app.user("ada").await;
        let server = user.server().await;
        let mut tx = app.app.store.begin().await.unwrap();
        for _ in 0..100 {
            let subject = RunSubject::CheckServer(holdfast_core::ids::ServerId(server));
            let new = NewRun::new(user.id, subject, Trigger::Manual);
            runs::insert(&mut tx, &new, app.app.now()).await.unwrap();
        }
        tx.commit().await.unwrap();
        let workers = (0..8).map(|number| {
            let app = app.app.clone();
            tokio::spawn(async move {
                let mut mine = Vec::new();
                loop {
                    let mut tx = app.store.begin().await.unwrap();
                    let now = app.now();
                    let until = now + std::time::Duration::from_secs(60);
                    let (name, limits) = (format!("worker {number}"), ConcurrencyLimits { per_server: 2, per_destination: 100, per_user: 4, checks_per_user: 100 });
                    let claimed = queue::claim(&mut tx, &name, Capacity { long: ONE_PLACE, short: 1 + number % 3 }, limits, until, now).await.unwrap();
                    let waiting = queue::find_waiting(&mut tx, now).await.unwrap().has_queued_run;
                    tx.commit().await.unwrap();
                    mine.extend(claimed.iter().map(|run| run.id));
                    if claimed.is_empty() && !waiting {
                        return mine;
                    }
                }
            })
        });
        let mut claimed = Vec::new();
        for worker in workers.collect::<Vec<_>>() {
            claimed.extend(worker.await.unwrap());
        }
        assert_eq!(claimed.len(), 100);
        assert_eq!(claimed.iter().collect::<BTreeSet<_>>().len(), 100);
    }

    async fn a_worker_that_lost_its_lease_cannot_end_the_run(app: TestApp) {
        let user = app.user("ada").await;
        let task = user.task().await;
        user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        let mut tx = app.app.store.begin().await.unwrap();
        let now = app.app.now();
        let limits = ConcurrencyLimits { per_server: 1, per_destination: 100, per_user: 1, checks_per_user: 100 };
        let run = queue::claim(&mut tx, "lost", Capacity { long: ONE_PLACE, short: 0 }, limits, now, now).await.unwrap().remove(0);
        tx.commit().await.unwrap();
        app.pass_secs(62).await;
        let log = user.client.get(&format!("/api/backup-tasks/{task}/latest-log")).await.data(200);
        assert_eq!((&log["status"], &log["error_code"]), (&"failed".into(), &"worker_lost".into()));
        assert!(log["output"].as_str().unwrap().contains("stopped responding"));
        let mut tx = app.app.store.begin().await.unwrap();
        let now = app.app.now();
        let id = run.id;
        assert!(!runs::finish(&mut tx, id, run.lease_epoch, RunStatus::Successful, None, now).await.unwrap());
        assert!(!runs::append_line(&mut tx, id, run.lease_epoch, "late", now).await.unwrap());
    }
}

/// A second process on the same file must not wait for a transaction that the first one abandoned.
#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_transaction_does_not_lock_out_other_processes() {
    let app = TestApp::start(holdfast_testkit::Engine::Sqlite).await;
    let user = app.user("ada").await;
    let clock: holdfast_core::clock::SharedClock = std::sync::Arc::new(holdfast_core::clock::SystemClock);
    let other = holdfast_store::Store::open(&app.options, &clock).await.unwrap();
    for number in 0..20 {
        let mut abandoned = app.app.store.begin().await.unwrap();
        tags::insert(&mut abandoned, user.id, &tag("gone"), app.app.now()).await.unwrap();
        drop(abandoned);
        let mut tx = other.begin().await.unwrap();
        tags::insert(&mut tx, user.id, &tag(&format!("kept {number}")), app.app.now()).await.unwrap();
        tx.commit().await.unwrap();
    }
    let mut tx = app.app.store.read().await.unwrap();
    assert_eq!(users::statistics(&mut tx, user.id, app.app.now()).await.unwrap().tags, 20);
}
