//! Running other programs.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

pub type Result<T> = std::result::Result<T, String>;

/// The build profile of the release artefacts, which is also the one that benchmarks measure.
pub const PACKAGED: &str = "packaged";

/// The root of the workspace.
pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a member of the workspace").to_owned()
}

pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    command.args(arguments).current_dir(root());
    command
}

/// Runs a step to completion with its output shown, and prints how long it took.
pub fn step(name: &str, command: &mut Command) -> Result<()> {
    println!("── {name}");
    let started = Instant::now();
    let status = command.status().map_err(|error| format!("{name}: cannot run {command:?}: {error}"))?;
    if !status.success() {
        return Err(format!("{name} failed ({status})"));
    }
    println!("── {name}: {:.0} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// The standard output of a program.
pub fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot run {command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?} failed ({})", output.status));
    }
    String::from_utf8(output.stdout).map_err(|error| error.to_string())
}
