//! `cargo xtask hostile`: servers that lie, through the whole service, with what must hold checked after each stream.
//!
//! Arguments: the number of streams, a seed, the number of the first one, and how many servers at once.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it does")]

use std::process::ExitCode;

use holdfast_testkit::hostile::{Plan, run};

#[tokio::main]
async fn main() -> ExitCode {
    let numbers: Result<Vec<u64>, _> = std::env::args().skip(1).map(|text| text.parse()).collect();
    let Ok([streams, seed, first, at_once]) = numbers.as_deref() else {
        eprintln!("a number of streams, a seed, the first number and how many at once are needed");
        return ExitCode::FAILURE;
    };
    let at_once = usize::try_from(*at_once).unwrap_or(1).max(1);
    let plan = Plan { seed: *seed, first: *first, streams: *streams, at_once, loaded: (streams / 40).max(10) };
    let report = run(&plan, |line| println!("{line}")).await;
    println!("{report}");
    if report.failures.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("rules were broken; `cargo xtask hostile --seed {seed} --first NUMBER --streams 1` repeats one stream");
    ExitCode::FAILURE
}
