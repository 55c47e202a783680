//! All automation of Holdfast: `cargo xtask test | dist | docs | openapi | screenshots | bench … | torture | fuzz |
//! hostile`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "automation speaks on the terminal")]

mod bench;
#[cfg(test)]
mod circles;
mod commands;
#[cfg(test)]
mod deny;
mod dist;
mod fuzz;
mod hostile;
mod packages;
mod slow_clients;
mod test;
#[cfg(test)]
mod tidy;

use std::process::ExitCode;

const HELP: &str = "cargo xtask COMMAND

  test            install what tests need, then formatting, clippy and all tests on both databases
  schemathesis    only the API fuzzing of `test`
  generated-client only the part of `test` that generates a client from docs/openapi.json and tries it
  openapi         write docs/openapi.json anew
  torture         the built service under kills and faults, then its books checked; --seed N [1], --minutes N [10],
                  --kills N a seed and database [60]
  fuzz            parsers of foreign bytes under made-up and damaged inputs; --minutes N [5], --seed N [1],
                  --target NAME (all); failing inputs are kept in crates/holdfast-testkit/fuzz/cases
  hostile         servers that send hostile archives and dumps through the whole service, and what must hold after each;
                  --streams N [10000], --seed N [1], --first N [0]
  bench archive   backups against `ssh tar | zstd -3 > file`; --repeats N [3]; draws docs/archive.svg
  bench scheduler 10,000 slots at one moment, idle cost of 100,000 tasks, on both databases
  bench pages     the overview with 10,000 tasks and 1,000,000 runs, and what a first visit loads
  docs            write what is made from the code, and build the manual in target/book
  dist            what people install, in target/dist: archive, Debian package, list of libraries, checksums
  bench footprint memory, size and start of the idle service, beside what peers publish
  screenshots     the pictures of the README, in docs/screenshots
  bench slow-clients  ordinary requests beside clients that send and read slowly; --clients N [1000], --seconds N
                  [20], --profile NAME [release]
  bench api       requests per second and latencies on both databases; --seconds N per figure [10]
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["test"] => test::run(),
        ["schemathesis"] => test::schemathesis(),
        ["generated-client"] => test::generated_client(),
        ["openapi"] => test::write_openapi(),
        ["bench", "api", rest @ ..] => bench::api(rest),
        ["bench", "archive", rest @ ..] => bench::archive(rest),
        ["bench", "scheduler"] => bench::scheduler(),
        ["bench", "pages"] => bench::pages(),
        ["bench", "slow-clients", rest @ ..] => slow_clients::run(rest),
        ["bench", "footprint"] => bench::footprint(),
        ["docs"] => test::docs(),
        ["dist"] => dist::run(),
        ["screenshots"] => test::screenshots(),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["hostile", rest @ ..] => hostile::run(rest),
        ["torture", rest @ ..] => bench::torture(rest),
        ["help" | "--help" | "-h"] => {
            println!("{HELP}");
            Ok(())
        }
        _ => Err(format!("unknown command\n\n{HELP}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
