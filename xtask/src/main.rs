//! All automation of Holdfast: `cargo xtask test | dist | docs | openapi | screenshots | bench … | torture`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "automation speaks on the terminal")]

mod bench;
mod commands;
mod dist;
mod packages;
mod test;
#[cfg(test)]
mod tidy;

use std::process::ExitCode;

const HELP: &str = "cargo xtask COMMAND

  test            install what tests need, then formatting, clippy and all tests on both databases
  schemathesis    only the API fuzzing of `test`
  openapi         write docs/openapi.json anew
  torture         the built service under kills and faults, then its books checked; --seed N [1], --minutes N [10],
                  --kills N a seed and database [60]
  bench archive   backups against `ssh tar | zstd -3 > file`; --repeats N [3]; draws docs/archive.svg
  bench scheduler 10,000 slots at one moment, idle cost of 100,000 tasks, on both databases
  bench pages     the overview with 10,000 tasks and 1,000,000 runs, and what a first visit loads
  docs            write what is made from the code, and build the manual in target/book
  dist            what people install, in target/dist: archive, Debian package, list of libraries, checksums
  bench footprint memory, size and start of the idle service, beside what peers publish
  screenshots     the pictures of the README, in docs/screenshots
  bench api       requests per second and latencies on both databases; --seconds N per figure [10]
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["test"] => test::run(),
        ["schemathesis"] => test::schemathesis(),
        ["openapi"] => test::write_openapi(),
        ["bench", "api", rest @ ..] => bench::api(rest),
        ["bench", "archive", rest @ ..] => bench::archive(rest),
        ["bench", "scheduler"] => bench::scheduler(),
        ["bench", "pages"] => bench::pages(),
        ["bench", "footprint"] => bench::footprint(),
        ["docs"] => test::docs(),
        ["dist"] => dist::run(),
        ["screenshots"] => test::screenshots(),
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
