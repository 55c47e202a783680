//! Pieces of the parser, and how their values are read.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches};

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

pub fn wait() -> Arg {
    flag("wait", "Wait for it to finish; exit non-zero if it failed")
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
