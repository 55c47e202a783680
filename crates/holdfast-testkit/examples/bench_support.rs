//! What `cargo xtask bench` needs beside the service: a private PostgreSQL, a seeded database, an empty handler.
#![allow(clippy::print_stdout, reason = "tells the benchmark where things are")]

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use holdfast_core::clock::{Clock as _, SharedClock, SystemClock, from_micros};
use holdfast_core::destination::{DestinationDraft, DestinationSpec, Keys, LocalDestination};
use holdfast_core::ids::{DestinationId, ServerId, UserId};
use holdfast_core::input::{Errors, Input};
use holdfast_core::random;
use holdfast_core::scope::ScopeSet;
use holdfast_core::secret::SecretChange;
use holdfast_core::server::ServerDraft;
use holdfast_core::task::TaskDraft;
use holdfast_core::user::UserDraft;
use holdfast_store::master_key::MasterKeySource;
use holdfast_store::tokens::NewToken;
use holdfast_store::{Migrations, Options, Store, Tx, destinations, servers, tasks, tokens, users};
use holdfast_testkit::PostgresServer;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["postgres"] => postgres().await,
        ["empty"] => empty().await,
        ["seed", url, key, users, tasks_each] => {
            seed(url, key, users.parse().expect("a number"), tasks_each.parse().expect("a number")).await;
        }
        _ => panic!("postgres | empty | seed URL KEYFILE USERS TASKS_EACH"),
    }
}

/// Starts a durable PostgreSQL, prints the URL of an empty database, and ends it with standard input.
async fn postgres() {
    let server = PostgresServer::start(true);
    println!("{}", server.create_database().await);
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await.expect("a thread").ok();
}

/// The yardstick: the same server library with nothing behind it.
async fn empty() {
    let router = axum::Router::new().route("/", axum::routing::get(|| async { "" }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    println!("{}", listener.local_addr().expect("bound"));
    axum::serve(listener, router).await.expect("serving");
}

/// Fills a database, and prints a line for each user: token, first and last task, server, destination.
async fn seed(url: &str, key: &str, user_count: i64, tasks_each: i64) {
    let clock: SharedClock = Arc::new(SystemClock);
    let options = Options {
        url: url.to_owned(),
        max_connections: 4,
        acquire_timeout: Duration::from_secs(10),
        master_key: MasterKeySource::File(PathBuf::from(key)),
        migrations: Migrations::Apply,
    };
    let store = Store::open(&options, &clock).await.expect("the database opens");
    let mut lines = String::new();
    for number in 0..user_count {
        let mut tx = store.begin().await.expect("a transaction");
        let line = seed_user(&mut tx, number, tasks_each).await.expect("rows");
        tx.commit().await.expect("a commit");
        writeln!(lines, "{line}").expect("a string");
    }
    store.close().await;
    print!("{lines}");
}

async fn seed_user(tx: &mut Tx, number: i64, tasks_each: i64) -> holdfast_store::Result<String> {
    let now = SystemClock.now();
    let draft = UserDraft::check("Some Body", &format!("user{number}@example.org"), "Europe/Berlin", false);
    let user = users::insert(tx, &draft.expect("valid"), None, now).await?;
    let token = random::token("hf_");
    let digest = random::digest(token.reveal());
    let new = NewToken { user, name: "bench", digest, scopes: ScopeSet::all(), expires_at: None };
    tokens::insert(tx, &new, now).await?;
    let server = ServerDraft {
        label: "web".into(),
        host: "127.0.0.1".into(),
        username: "backup".into(),
        // Nothing listens there: a run ends as soon as it has begun.
        port: 1,
        database_username: None,
        database_password: SecretChange::Keep,
        jump_server: None,
    };
    let server = servers::insert(tx, user, &server, now).await?;
    let destination =
        DestinationDraft { label: "disk".into(), spec: DestinationSpec::Local(LocalDestination), keys: Keys::NONE };
    let destination = destinations::insert(tx, user, &destination, now).await?;
    let (mut first, mut last) = (None, 0);
    for task in 0..tasks_each {
        last = seed_task(tx, user, server, destination, task).await?;
        first.get_or_insert(last);
    }
    Ok(format!("{} {} {last} {server} {destination}", token.reveal(), first.unwrap_or(0)))
}

async fn seed_task(
    tx: &mut Tx,
    user: UserId,
    server: ServerId,
    destination: DestinationId,
    number: i64,
) -> holdfast_store::Result<i64> {
    let now = SystemClock.now();
    let hours_later = |hours: i64| from_micros(now.as_microsecond() + hours * 3_600_000_000);
    let input = Input::default()
        .with("remote_server_id", server.0)
        .with("backup_destination_id", destination.0)
        .with("label", format!("Files of web server {number}"))
        .with("description", "Everything below the document root, every night")
        .with("type", "files")
        .with("source_path", "/var/www/html")
        .with("frequency", "daily")
        .with("time_to_run_at", hours_later(22).strftime("%H:%M").to_string())
        .with("maximum_backups_to_keep", 7)
        .with("store_path", "/sites");
    let draft = TaskDraft::check(&mut Errors::default(), &input, None, false, now).expect("a sound task");
    // Not due while the benchmark runs, and not later than the schedule says, which would be corrected.
    let next = from_micros(hours_later(12).as_microsecond() + number * 1_000_000);
    Ok(tasks::insert(tx, user, &draft, Some(next), now).await?.0)
}
