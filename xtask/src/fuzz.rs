//! `cargo xtask fuzz`: fuzzes every parser of untrusted bytes with generated and mutated inputs.

use std::process::Command;

use crate::commands::{Result, cargo, root, step};

const USAGE: &str = "fuzz takes --minutes N, --seed N and --target NAME (repeatable)";

pub fn run(arguments: &[&str]) -> Result<()> {
    let (mut minutes, mut seed, mut names) = (5, 1, Vec::new());
    let number = |text: &str| text.parse::<u64>().map_err(|_| USAGE.to_owned());
    for pair in arguments.chunks(2) {
        match pair {
            ["--minutes", text] => minutes = number(text)?,
            ["--seed", text] => seed = number(text)?,
            ["--target", name] => names.push(*name),
            _ => return Err(USAGE.to_owned()),
        }
    }
    let build = ["build", "--profile", "fuzzing", "--locked", "--package", "holdfast-testkit", "--example", "fuzz"];
    step("build", &mut cargo(&build))?;
    let processes = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let mut fuzz = Command::new(root().join("target/fuzzing/examples/fuzz"));
    fuzz.args([minutes * 60, seed, processes].map(|number| number.to_string())).args(names);
    step("fuzz", &mut fuzz)
}
