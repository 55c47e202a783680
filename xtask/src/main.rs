//! All automation of Holdfast: `cargo xtask test | dist | docs | openapi | screenshots | bench … | torture | fuzz |
//! hostile`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "automation prints to the terminal")]

mod bench;
mod commands;
#[cfg(test)]
mod cycles;
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

  test            install the tools that the tests need, then check formatting and clippy and run all tests on both
                  databases
  schemathesis    run only the API fuzzing of `test`
  generated-client  run only the part of `test` that generates a client from docs/openapi.json and exercises it
  lint-document   run only the part of `test` that lints docs/openapi.json and turns it into TypeScript
  openapi         regenerate docs/openapi.json
  torture         kill and disturb the built service, then check that it lost nothing; --seed N [1], --minutes N [10],
                  --kills N per seed and database [60]
  torture-repository  kill backups, prunes and checks of a repository, and have restic check what is left;
                  --kills N [500], --seed N [1]
  fuzz            fuzz all parsers of untrusted input; --minutes N [5], --seed N [1], --target NAME [all]; failing
                  inputs are saved in crates/holdfast-testkit/fuzz/cases
  hostile         back up from servers that send hostile archives and dumps, and check the service after each of them;
                  --streams N [10000], --seed N [1], --first N [0]
  bench archive   compare backups with `ssh tar | zstd -3 > file`; --repeats N [3]; draws docs/archive.svg
  bench repository  compare repositories with restic, borg and rsync; --repeats N [3], --latency, --s3, --million,
                  --small, --logs, --only NAME, --binary PATH; draws docs/repository.svg
  bench blobs     backups, prunes and checks of a repository with 10,000,000 blobs, and those of restic; --count N
  bench scheduler 10,000 runs due at the same moment, and the idle cost of 100,000 tasks, on both databases
  bench pages     the overview with 10,000 tasks and 1,000,000 runs, and the size of a first visit
  docs            write the generated documentation and build the manual in target/book
  dist            build the release artefacts in target/dist: archive, Debian package, SBOM, checksums
  bench growth    every list and upkeep with 5,000,000 runs and 2,000,000 backups; --runs N, --backups N,
                  --only sqlite or postgres
  bench incident  the messages when 500 servers go away and come back; --servers N
  bench footprint memory, size and start-up time of the idle service, next to the published figures of its peers
  screenshots     take the screenshots of the README, in docs/screenshots
  bench slow-clients  ordinary requests next to clients that send and read slowly; --clients N [1000], --seconds N
                  [20], --profile NAME [release]
  bench api       requests per second and latencies on both databases; --seconds N per measurement [10]
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments.as_slice() {
        ["test"] => test::run(),
        ["schemathesis"] => test::schemathesis(),
        ["generated-client"] => test::generated_client(),
        ["lint-document"] => test::lint_document(),
        ["openapi"] => test::write_openapi(),
        ["bench", "api", rest @ ..] => bench::api(rest),
        ["bench", "archive", rest @ ..] => bench::archive(rest),
        ["bench", "repository", rest @ ..] => bench::repository(rest),
        ["bench", "scheduler"] => bench::scheduler(),
        ["bench", "pages"] => bench::pages(),
        ["bench", "growth", rest @ ..] => bench::growth(rest),
        ["bench", "blobs", rest @ ..] => bench::blobs(rest),
        ["bench", "incident", rest @ ..] => bench::incident(rest),
        ["bench", "slow-clients", rest @ ..] => slow_clients::run(rest),
        ["bench", "footprint"] => bench::footprint(),
        ["docs"] => test::docs(),
        ["dist"] => dist::run(),
        ["screenshots"] => test::screenshots(),
        ["fuzz", rest @ ..] => fuzz::run(rest),
        ["hostile", rest @ ..] => hostile::run(rest),
        ["torture", rest @ ..] => bench::torture(rest),
        ["torture-repository", rest @ ..] => bench::torture_repository(rest),
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
