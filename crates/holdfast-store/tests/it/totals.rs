use holdfast_core::audit::AuditAction;
use holdfast_core::backup::Verification;
use holdfast_core::ids::UserId;
use holdfast_core::notice::NoticeStatus;
use holdfast_core::page::PageRequest;
use holdfast_core::run::{RunKind, RunStatus};
use holdfast_store::audit::Origin;
use holdfast_store::backups::BackupFilter;
use holdfast_store::notices::NoticeFilter;
use holdfast_store::runs::{LogFilter, RunFilter};
use holdfast_store::transfer::Contents;
use holdfast_store::{DbTime, Listing, audit, backups, notices, ownership, runs, totals, transfer};
use holdfast_testkit::{TestApp, on_both_engines};

use crate::raw::Raw;

/// For each subject, its rows counted anew.
const COUNTED: &[(&str, &str)] = &[
    ("run", "SELECT user_id, kind, status, COUNT(*), CAST(0 AS BIGINT) FROM runs GROUP BY user_id, kind, status"),
    (
        "backup",
        "SELECT user_id, s, verification, COUNT(*), CAST(0 AS BIGINT) FROM (SELECT user_id, verification,
             CASE WHEN deleted_at IS NULL THEN 'stored' ELSE 'deleted' END AS s FROM backups) b
         GROUP BY user_id, s, verification",
    ),
    (
        "copy",
        "SELECT user_id, s, p, COUNT(*), CAST(SUM(size_bytes) AS BIGINT) FROM (SELECT user_id, size_bytes,
             CASE WHEN remove_after IS NULL THEN 'stored' ELSE 'unwanted' END AS s,
             CASE WHEN position = 0 THEN 'first' ELSE 'further' END AS p FROM backup_copies) c
         GROUP BY user_id, s, p",
    ),
    (
        "notice",
        "SELECT user_id, s, status, COUNT(*), CAST(0 AS BIGINT) FROM (SELECT user_id, status,
             COALESCE(CAST(stream_id AS TEXT), '') AS s FROM notices) n
         GROUP BY user_id, s, status",
    ),
    (
        "event",
        "SELECT user_id, CAST('' AS TEXT), CAST('' AS TEXT), COUNT(*), CAST(0 AS BIGINT) FROM audit_events
         WHERE user_id IS NOT NULL GROUP BY user_id",
    ),
];

async fn assert_totals_are_true(raw: &mut Raw, when: &str) {
    for (subject, counted) in COUNTED {
        let kept = format!(
            "SELECT user_id, kind, status, CAST(SUM(amount) AS BIGINT), CAST(SUM(bytes) AS BIGINT) FROM totals
             WHERE subject = '{subject}' GROUP BY user_id, kind, status HAVING SUM(amount) <> 0 OR SUM(bytes) <> 0"
        );
        assert_eq!(raw.group(&kept).await, raw.group(counted).await, "{subject}, {when}");
    }
}

/// Pseudo-random numbers, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[usize::try_from(self.below(words.len() as u64)).unwrap()]
    }
}

const STATUSES: &[&str] = &["queued", "successful", "failed", "cancelled"];
const VERIFICATIONS: &[&str] = &["unverified", "verified", "corrupt", "missing"];
const NOTICES: &[&str] = &["pending", "delivered", "undelivered"];

/// Whose rows change, and where backups are.
struct World {
    users: Vec<i64>,
    /// One of each user, in the same order.
    streams: Vec<i64>,
    destination: i64,
    task: i64,
    serial: u64,
}

impl World {
    /// Some statement that changes what is counted: one row, several, or none.
    fn change(&mut self, dice: &mut Dice) -> String {
        self.serial += 1;
        let (serial, destination, task) = (self.serial, self.destination, self.task);
        let which = usize::try_from(dice.below(self.users.len() as u64)).unwrap();
        let user = self.users[which];
        let (modulus, rest) = (2 + dice.below(6), dice.below(2));
        let some = format!("id % {modulus} = {rest}");
        let stream = if dice.below(3) == 0 { "NULL".to_owned() } else { self.streams[which].to_string() };
        match dice.below(17) {
            0..=2 => format!(
                "INSERT INTO runs (user_id, kind, task_id, slot_at, status, requested_by, attempt, lease_epoch,
                     bytes_read, bytes_stored, files, warnings, created_at, is_long)
                 SELECT {user}, 'backup', {task}, {slot}, 'successful', 'schedule', 1, 0, 0, 0, 0, 0, {serial}, TRUE
                 WHERE TRUE ON CONFLICT DO NOTHING",
                slot = dice.below(20)
            ),
            3 => format!("UPDATE runs SET status = '{}' WHERE task_id IS NULL AND {some}", dice.of(STATUSES)),
            4 => format!("UPDATE runs SET bytes_read = bytes_read + 1 WHERE {some}"),
            5 => format!("DELETE FROM runs WHERE {some}"),
            6..=8 => format!(
                "INSERT INTO backups (user_id, task_label, source, content, format, plain_bytes, plain_sha256, entries,
                     is_encrypted, verification, created_at, source_server)
                 VALUES ({user}, 'a', '/a', 'files', 'archive', 1, '', 1, FALSE, '{}', {serial}, '');
                 INSERT INTO backup_copies (user_id, backup_id, destination_id, position, locator, size_bytes, sha256,
                     verification, created_at, remove_attempts)
                 SELECT user_id, id, {destination}, p.n, 'object-' || id || '-' || p.n, {serial}, '', 'unverified', 1, 0
                 FROM backups, (SELECT 0 AS n UNION ALL SELECT 1) p WHERE created_at = {serial};
                 INSERT INTO runs (user_id, kind, backup_id, status, requested_by, attempt, lease_epoch, bytes_read,
                     bytes_stored, files, warnings, created_at, is_long)
                 SELECT user_id, '{}', id, '{}', 'manual', 1, 0, 0, 0, 0, 0, {serial}, TRUE
                 FROM backups WHERE created_at = {serial}",
                dice.of(VERIFICATIONS),
                dice.of(&["verify", "restore"]),
                dice.of(STATUSES)
            ),
            9 => format!("UPDATE backups SET verification = '{}' WHERE {some}", dice.of(VERIFICATIONS)),
            10 => format!(
                "UPDATE backups SET deleted_at = {serial}, deleted_reason = 'retention' WHERE {some};
                 UPDATE backup_copies SET remove_after = {serial}, size_bytes = size_bytes + 1 WHERE backup_{some}"
            ),
            11 => format!("DELETE FROM backups WHERE {some}"),
            12..=13 => format!(
                "INSERT INTO notices (user_id, stream_id, recipient, kind, event, title, content, status, tries,
                     is_held, claim, created_at)
                 VALUES ({user}, {stream}, 'user {user}', 'weekly_summary', 'e', 't', '{{}}', '{}', 0, FALSE, 0,
                     {serial})",
                dice.of(NOTICES)
            ),
            14 => format!("UPDATE notices SET status = '{}' WHERE {some}", dice.of(NOTICES)),
            15 => format!("UPDATE notices SET stream_id = {stream} WHERE user_id = {user} AND {some}"),
            _ => format!("DELETE FROM notices WHERE {some}; DELETE FROM audit_events WHERE {some}"),
        }
    }
}

async fn world(app: &TestApp, names: &[&str]) -> World {
    let mut users = Vec::new();
    for name in names {
        users.push(app.user(name).await);
    }
    let task = users[0].task().await;
    let destination = users[0].destination().await;
    let mut streams = Vec::new();
    for user in &users {
        streams.push(user.stream().await);
    }
    World { users: users.iter().map(|user| user.id.0).collect(), streams, destination, task, serial: 1 }
}

async fn fold(app: &TestApp) {
    let mut tx = app.app.store.begin().await.unwrap();
    totals::fold(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
}

/// Every combination of filters, and the same rows in SQL.
async fn assert_lists_have_true_totals(app: &TestApp, raw: &mut Raw, world: &World, user: i64) {
    let listing = Listing::new(UserId(user), PageRequest { page: 1, per_page: 1 });
    let mut tx = app.app.store.read().await.unwrap();
    for status in [None].into_iter().chain([RunStatus::Successful, RunStatus::Failed].map(Some)) {
        let and = status.map(|status| format!(" AND status = '{}'", status.as_str())).unwrap_or_default();
        let found = runs::list_logs(&mut tx, &listing, &LogFilter { task: None, status }).await.unwrap().total;
        assert_eq!(found, raw.count(&format!("runs WHERE user_id = {user} AND kind = 'backup'{and}")).await);
        for kind in [None, Some(RunKind::Verify), Some(RunKind::Restore)] {
            let and_kind = kind.map(|kind| format!(" AND kind = '{}'", kind.as_str())).unwrap_or_default();
            let filter = RunFilter { backup: None, kind, status };
            let found = runs::list_runs_of_stored_backups(&mut tx, &listing, &filter).await.unwrap().total;
            let rows = format!("runs WHERE user_id = {user} AND backup_id IS NOT NULL{and}{and_kind}");
            assert_eq!(found, raw.count(&rows).await, "{filter:?}");
        }
    }
    let found = runs::list_long(&mut tx, &listing).await.unwrap().total;
    assert_eq!(found, raw.count(&format!("runs WHERE user_id = {user} AND is_long")).await);
    for status in [None, Some(Verification::Verified), Some(Verification::Missing)] {
        for (is_damaged, with_deleted) in [(false, false), (false, true), (true, false), (true, true)] {
            let and = status.map(|status| format!(" AND verification = '{}'", status.as_str())).unwrap_or_default();
            let damaged = if is_damaged { " AND verification IN ('corrupt', 'missing')" } else { "" };
            let stored = if with_deleted { "" } else { " AND deleted_at IS NULL" };
            let filter = BackupFilter { task: None, status, is_damaged, with_deleted };
            let found = backups::list(&mut tx, &listing, &filter).await.unwrap().total;
            let rows = format!("backups WHERE user_id = {user}{and}{damaged}{stored}");
            assert_eq!(found, raw.count(&rows).await, "{filter:?}");
        }
    }
    for status in [None, Some(NoticeStatus::Undelivered)] {
        let and = status.map(|status| format!(" AND status = '{}'", status.as_str())).unwrap_or_default();
        let found = notices::list(&mut tx, &listing, &NoticeFilter { status, stream: None }).await.unwrap().total;
        assert_eq!(found, raw.count(&format!("notices WHERE user_id = {user}{and}")).await);
    }
    for stream in &world.streams {
        for status in [None, Some(NoticeStatus::Undelivered)] {
            let and = status.map(|status| format!(" AND status = '{}'", status.as_str())).unwrap_or_default();
            let filter = NoticeFilter { status, stream: Some(*stream) };
            let found = notices::list(&mut tx, &listing, &filter).await.unwrap().total;
            let rows = format!("notices WHERE user_id = {user} AND stream_id = {stream}{and}");
            assert_eq!(found, raw.count(&rows).await, "{filter:?}");
        }
    }
    let found = audit::list_page(&mut tx, &listing).await.unwrap().total;
    assert_eq!(found, raw.count(&format!("audit_events WHERE user_id = {user}")).await);
}

on_both_engines! {
    async fn kept_totals_are_those_of_the_rows_after_any_changes(app: TestApp) {
        let mut world = world(&app, &["ada", "eve"]).await;
        let (mut raw, mut dice) = (Raw::open(&app).await, Dice(7));
        for step in 0..400 {
            let sql = world.change(&mut dice);
            raw.run(sql.clone()).await;
            if step % 40 == 0 {
                fold(&app).await;
            }
            if step % 10 == 0 {
                assert_totals_are_true(&mut raw, &sql).await;
            }
        }
        assert!(raw.count("runs").await > 5 && raw.count("backups").await > 5 && raw.count("notices").await > 5);
        for user in &world.users {
            assert_lists_have_true_totals(&app, &mut raw, &world, *user).await;
        }
        let mut tx = app.app.store.read().await.unwrap();
        let stored = totals::sum_stored(&mut tx, UserId(world.users[0])).await.unwrap();
        let counted = raw.group(COUNTED[2].1).await;
        let of_user = counted.iter().filter(|((user, kind, _), _)| *user == world.users[0] && kind == "stored");
        assert_eq!(stored, of_user.map(|(_, (_, bytes))| bytes).sum::<i64>());
    }

    async fn totals_follow_what_is_transferred_imported_and_deleted(app: TestApp) {
        let mut world = world(&app, &["ada", "eve"]).await;
        let (mut raw, mut dice) = (Raw::open(&app).await, Dice(11));
        for _ in 0..150 {
            let sql = world.change(&mut dice);
            raw.run(sql).await;
        }
        let (ada, eve) = (UserId(world.users[0]), UserId(world.users[1]));
        let mut contents = Contents::new();
        let mut tx = app.app.store.read_snapshot().await.unwrap();
        transfer::read(&mut tx, Some(ada), |table, rows| {
            contents.entry(table.to_owned()).or_default().extend(rows);
            Ok(())
        })
        .await
        .unwrap();
        drop(tx);

        let mut tx = app.app.store.begin().await.unwrap();
        ownership::transfer(&mut tx, ada, eve, app.app.now()).await.unwrap();
        tx.commit().await.unwrap();
        assert_totals_are_true(&mut raw, "after a transfer").await;
        assert_eq!(raw.count(&format!("backups WHERE user_id = {ada}")).await, 0);
        assert_lists_have_true_totals(&app, &mut raw, &world, eve.0).await;

        raw.run(format!("DELETE FROM users WHERE id = {ada}")).await;
        assert_totals_are_true(&mut raw, "after one account was deleted").await;
        let mut tx = app.app.store.begin().await.unwrap();
        transfer::write(&mut tx, &contents, false, None, app.app.now()).await.unwrap();
        tx.commit().await.unwrap();
        assert_totals_are_true(&mut raw, "after an import").await;
        assert!(raw.count(&format!("backups WHERE user_id > {eve}")).await > 0);

        raw.run("DELETE FROM backup_tasks; DELETE FROM backups; DELETE FROM users".to_owned()).await;
        assert_totals_are_true(&mut raw, "after all accounts were deleted").await;
        fold(&app).await;
        assert_eq!(raw.count("totals WHERE subject <> 'event'").await, 0, "nothing is left of deleted accounts");
    }

    async fn every_reader_sees_totals_and_rows_of_the_same_moment(app: TestApp) {
        let user = app.user("ada").await.id;
        let writers = (0..8).map(|writer| {
            let app = app.app.clone();
            tokio::spawn(async move {
                for number in 0..25 {
                    let mut tx = app.store.begin().await.unwrap();
                    let origin = Origin { actor: format!("writer {writer}, {number}"), ..Origin::default() };
                    let (at, action) = (DbTime(app.now()), AuditAction::UserSignedIn);
                    audit::insert(&mut tx, at, Some(user), &origin, action, "").await.unwrap();
                    if number % 8 == 0 {
                        totals::fold(&mut tx).await.unwrap();
                    }
                    // Every fifth is undone.
                    if number % 5 != 0 {
                        tx.commit().await.unwrap();
                    }
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        let mut raw = Raw::open(&app).await;
        let different = format!(
            "(SELECT 1 WHERE (SELECT COUNT(*) FROM audit_events WHERE user_id = {user})
                 <> (SELECT COALESCE(SUM(amount), 0) FROM totals WHERE subject = 'event' AND user_id = {user})) d"
        );
        while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
            assert_eq!(raw.count(&different).await, 0);
        }
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(raw.count(&format!("audit_events WHERE user_id = {user} AND actor LIKE 'writer%'")).await, 8 * 20);
        assert_totals_are_true(&mut raw, "at the end").await;
    }
}
