//! `holdfast apply`: settings from a file, with a plan first.

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;

use holdfast_client::apply::{Plan, Wanted};

use super::remote;
use crate::failure::Failure;
use crate::settings::Settings;

/// What was asked for besides the file.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Only tell; what differs is a failure.
    pub check: bool,
    /// Do not ask.
    pub yes: bool,
    /// Send secrets that the service has, too.
    pub secrets: bool,
}

pub async fn run(settings: &Settings, file: &Path, options: Options) -> Result<(), Failure> {
    let wanted = Wanted::read(file)?;
    let client = remote::client(settings)?;
    let plan = Plan::make(&client, wanted, options.secrets).await?;
    print!("{plan}");
    if plan.is_empty() {
        println!("Nothing to do: {} as in the file.", plan.unchanged);
        return Ok(());
    }
    let (made, changed) = plan.counts();
    let summary = format!("{made} to make, {changed} to change, {} as in the file", plan.unchanged);
    println!("{summary}.");
    if options.check {
        return Err(Failure::differs(format!("the service differs from {}: {summary}", file.display())));
    }
    if !options.yes && !is_confirmed()? {
        println!("Nothing was done.");
        return Ok(());
    }
    plan.carry_out(&client, |done| println!("{done}")).await?;
    println!("Done.");
    Ok(())
}

fn is_confirmed() -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::settings("nobody is here to confirm this; say --yes, or --check to only look"));
    }
    print!("Do this? [y/N] ");
    let asked = std::io::stdout().flush().and_then(|()| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    });
    let line = asked.map_err(|error| Failure::other(format!("cannot read what was typed: {error}")))?;
    Ok(["y", "yes"].contains(&line.trim().to_lowercase().as_str()))
}
