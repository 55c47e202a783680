//! `cargo xtask torture`: the built service under faults, seed after seed, for as long as was asked for.
#![allow(clippy::print_stdout, reason = "it tells what it does")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use holdfast_testkit::Engine;
use holdfast_testkit::torture::{Plan, run};

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let binary = PathBuf::from(arguments.next().expect("the path of the built service"));
    let mut number = |what: &str| arguments.next().and_then(|text| text.parse::<u64>().ok()).expect(what);
    let (first, kills, minutes) = (number("a seed"), number("a number of kills"), number("minutes"));
    let begun = Instant::now();
    for seed in first.. {
        for (name, engine) in [("PostgreSQL", Engine::Postgres), ("SQLite", Engine::Sqlite)] {
            let kills = usize::try_from(kills).expect("a number of kills");
            let report = run(Plan { binary: binary.clone(), engine, seed, kills }).await;
            println!("seed {seed}, {name}: {report}");
        }
        if begun.elapsed() > Duration::from_secs(minutes * 60) {
            return;
        }
    }
}
