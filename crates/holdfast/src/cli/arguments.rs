//! Pieces of the parser, and how their values are read.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches};

use crate::commands::duration;
use crate::commands::watch::Wait;
use crate::failure::Failure;

pub fn path(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("PATH").value_parser(clap::value_parser!(PathBuf)).help(help)
}

pub fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

pub fn required(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).required(true).help(help)
}

pub fn option(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).help(help)
}

/// Waiting for what a command starts.
pub fn waiting() -> [Arg; 2] {
    let wait = flag("wait", "Wait for it to finish, also for a second attempt; exit non-zero if it failed");
    [wait, timeout().requires("wait")]
}

pub fn timeout() -> Arg {
    option("timeout", "Wait for at most this long, such as 90s, 30m or 2h; then exit with 19").value_name("DURATION")
}

/// How to wait; `None` if the command does not wait.
pub fn wait(matches: &ArgMatches) -> Result<Option<Wait>, Failure> {
    Ok(if matches.get_flag("wait") { Some(wait_at_most(matches)?) } else { None })
}

pub fn wait_at_most(matches: &ArgMatches) -> Result<Wait, Failure> {
    let timeout = optional(matches, "timeout").map(|text| duration::parse("--timeout", &text)).transpose()?;
    Ok(Wait { timeout: timeout.map(|micros| Duration::from_micros(micros.unsigned_abs())) })
}

pub fn number(help: &'static str) -> Arg {
    Arg::new("id").required(true).value_name("ID").value_parser(clap::value_parser!(i64)).help(help)
}

pub fn unknown(name: &str) -> Failure {
    Failure::settings(format!("unknown command {name}; see `holdfast --help`"))
}

pub fn text(matches: &ArgMatches, name: &str) -> String {
    matches.get_one::<String>(name).cloned().unwrap_or_default()
}

pub fn optional(matches: &ArgMatches, name: &str) -> Option<String> {
    matches.get_one::<String>(name).cloned()
}

pub fn many(matches: &ArgMatches, name: &str) -> Vec<String> {
    matches.get_many::<String>(name).into_iter().flatten().cloned().collect()
}

pub fn id(matches: &ArgMatches) -> i64 {
    matches.get_one("id").copied().expect("the parser asks for it")
}

pub fn file(matches: &ArgMatches, name: &str) -> Option<PathBuf> {
    matches.get_one::<PathBuf>(name).cloned()
}

/// Confirms a deletion in advance.
pub fn yes() -> Arg {
    flag("yes", "Do not ask for confirmation").short('y')
}
