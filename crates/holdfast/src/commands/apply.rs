//! `holdfast apply`: shows how a service differs from a configuration file, and applies the changes.

use std::io::IsTerminal as _;
use std::path::Path;

use holdfast_client::apply::{Plan, Wanted};

use super::remote;
use crate::failure::Failure;
use crate::output::{self, say};
use crate::settings::ClientSettings;

/// The options of the command.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Only show the plan, and fail if anything differs.
    pub check: bool,
    /// Do not ask for confirmation.
    pub yes: bool,
    /// Also send secrets that the service already has.
    pub secrets: bool,
}

pub async fn run(settings: &ClientSettings, file: &Path, options: Options) -> Result<(), Failure> {
    let wanted = Wanted::read(file)?;
    let client = remote::client(settings)?;
    let plan = Plan::make(&client, wanted, options.secrets).await?;
    output::print(format_args!("{plan}"));
    if plan.is_empty() {
        say!("Nothing to do: {} unchanged.", plan.unchanged);
        return Ok(());
    }
    let (made, changed) = plan.counts();
    let summary = format!("{made} to create, {changed} to change, {} unchanged", plan.unchanged);
    say!("{summary}.");
    if options.check {
        return Err(Failure::differs(format!("the service differs from {}: {summary}", file.display())));
    }
    if !options.yes && !is_confirmed()? {
        say!("Nothing was changed.");
        return Ok(());
    }
    plan.carry_out(&client, |done| say!("{done}")).await?;
    say!("Done.");
    Ok(())
}

fn is_confirmed() -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::settings("cannot ask for confirmation without a terminal; use --yes, or --check"));
    }
    output::print(format_args!("Apply these changes? [y/N] "));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|error| Failure::other(format!("cannot read the input: {error}")))?;
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}
