use holdfast_core::ids::{DestinationId, RunId, UserId};
use holdfast_core::queue::{self as order, ConcurrencyLimits, LongRunCapacity};
use holdfast_core::run::{RunSubject, Trigger};
use holdfast_store::queue::{self, Capacity};
use holdfast_store::runs::{self, NewRun};
use holdfast_testkit::{TestApp, on_both_engines};
use sqlx::{Connection as _, PgConnection, SqliteConnection};

const LIMITS: ConcurrencyLimits =
    ConcurrencyLimits { per_server: 9, per_destination: 9, per_user: 9, checks_per_user: 9 };

/// Every run: its id, its owner, its turn, and whether it was started.
async fn stored(app: &TestApp) -> Vec<(i64, i64, i64, bool)> {
    const SELECT: &str = "SELECT id, user_id, turn, started_at IS NOT NULL FROM runs";
    if app.app.store.is_sqlite() {
        let mut connection = SqliteConnection::connect(&app.options.url).await.unwrap();
        sqlx::query_as(SELECT).fetch_all(&mut connection).await.unwrap()
    } else {
        let mut connection = PgConnection::connect(&app.options.url).await.unwrap();
        sqlx::query_as(SELECT).fetch_all(&mut connection).await.unwrap()
    }
}

async fn insert(app: &TestApp, owner: UserId, subject: RunSubject) -> RunId {
    let mut tx = app.app.store.begin().await.unwrap();
    let new = NewRun::new(owner, subject, Trigger::Manual);
    let id = runs::insert(&mut tx, &new, app.app.now()).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    id
}

async fn claim(app: &TestApp, long: usize, short: usize) -> usize {
    let mut tx = app.app.store.begin().await.unwrap();
    let (now, room) = (app.app.now(), Capacity { long: LongRunCapacity { free: long, reserved: 0 }, short });
    let until = now + std::time::Duration::from_secs(60);
    let claimed = queue::claim(&mut tx, "worker", room, LIMITS, until, now).await.unwrap();
    tx.commit().await.unwrap();
    claimed.len()
}

on_both_engines! {
    async fn inserted_runs_get_the_turns_that_the_core_decides(app: TestApp) {
        let (ada, eve) = (app.user("ada").await, app.user("eve").await);
        let places = [(ada.id, ada.destination().await), (eve.id, eve.destination().await)];
        let mut turns = Vec::new();
        for step in 0..24_usize {
            // Ada queues three runs for each of Eve's, and every third run is short.
            let (owner, destination) = places[usize::from(step % 4 == 3)];
            let destination = DestinationId(destination);
            let subject = match step % 3 {
                2 => RunSubject::CheckDestination(destination),
                _ => RunSubject::Inventory(destination),
            };
            let before = stored(&app).await;
            let served = before.iter().filter(|(.., is_started)| *is_started).map(|(_, _, turn, _)| *turn).max();
            let own = before.iter().filter(|(_, user, ..)| *user == owner.0).map(|(_, _, turn, _)| *turn).max();
            let id = insert(&app, owner, subject).await;
            let (_, _, turn, _) = *stored(&app).await.iter().find(|(stored, ..)| *stored == id.0).unwrap();
            assert_eq!(turn, order::turn(subject.kind().is_long(), served, own), "{subject:?} {served:?} {own:?}");
            turns.push(turn);
            if step % 5 == 4 {
                assert!(claim(&app, 1, 1).await > 0);
            }
        }
        assert!(turns.iter().max() > turns.first(), "{turns:?}");
    }
}
