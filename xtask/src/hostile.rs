//! `cargo xtask hostile`: runs the whole service against servers that send hostile streams.

use std::process::Command;

use crate::commands::{Result, cargo, root, step};

const USAGE: &str = "hostile takes --streams N, --seed N and --first N";

pub fn run(arguments: &[&str]) -> Result<()> {
    let (mut streams, mut seed, mut first) = (10_000, 1, 0);
    let number = |text: &str| text.parse::<u64>().map_err(|_| USAGE.to_owned());
    for pair in arguments.chunks(2) {
        match pair {
            ["--streams", text] => streams = number(text)?,
            ["--seed", text] => seed = number(text)?,
            ["--first", text] => first = number(text)?,
            _ => return Err(USAGE.to_owned()),
        }
    }
    let build = ["build", "--profile", "fuzzing", "--locked", "--package", "holdfast-testkit", "--example", "hostile"];
    step("build", &mut cargo(&build))?;
    // A run spends most of its time waiting for programs to start and for disks.
    let at_once = 4 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let mut hostile = Command::new(root().join("target/fuzzing/examples/hostile"));
    hostile.args([streams, seed, first, at_once].map(|number| number.to_string()));
    step("hostile", &mut hostile)
}
