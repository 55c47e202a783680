//! `cargo xtask test`: everything that must hold before a change lands.

use crate::commands::{Result, cargo, output, root, step};
use crate::packages::{self, POSTGRESQL};

pub fn run() -> Result<()> {
    packages::install(&[POSTGRESQL])?;
    step("formatting", &mut cargo(&["fmt", "--all", "--check"]))?;
    let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"];
    step("clippy", &mut cargo(&clippy))?;
    step("tests", &mut cargo(&["test", "--workspace", "--locked"]))?;
    schemathesis()
}

/// Fuzzes the served API from its own document, on both databases.
pub fn schemathesis() -> Result<()> {
    packages::install(&[POSTGRESQL])?;
    let program = packages::schemathesis()?;
    let mut test = cargo(&["test", "--locked", "--package", "holdfast", "--test", "schemathesis"]);
    step("schemathesis", test.env("SCHEMATHESIS", program))
}

pub fn write_openapi() -> Result<()> {
    let document = output(&mut cargo(&["run", "--quiet", "--package", "holdfast", "--", "openapi"]))?;
    let path = root().join("docs/openapi.json");
    std::fs::write(&path, document).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("wrote {}", path.display());
    Ok(())
}
