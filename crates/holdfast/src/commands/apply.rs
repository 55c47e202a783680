//! `holdfast apply`: shows how a service differs from a configuration file, and applies the changes.

use std::path::Path;

use holdfast_client::apply::{Action, Plan, PlanOptions, Wanted};

use super::{confirm, connection};
use crate::failure::Failure;
use crate::output::{self, Printer, say};
use crate::settings::ClientSettings;

/// The options of the command.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Only show the plan, and fail if anything differs.
    pub check: bool,
    /// Do not ask for confirmation.
    pub yes: bool,
    pub plan: PlanOptions,
}

pub async fn run(settings: &ClientSettings, file: &Path, options: Options, printer: Printer) -> Result<(), Failure> {
    if printer.is_json && !options.check && !options.yes {
        return Err(Failure::settings("with --json there is no question: use --yes, or --check"));
    }
    let wanted = Wanted::read(file)?;
    let client = connection::client(settings)?;
    let plan = Plan::make(&client, wanted, options.plan).await?;
    if !printer.is_json {
        output::print(format_args!("{plan}"));
    }
    if plan.is_empty() {
        printer.one(&plan.to_json(!options.check), |_| format!("Nothing to do: {} unchanged.", plan.unchanged));
        return Ok(());
    }
    let summary = summary(&plan);
    printer.remark(&format!("{summary}."));
    if options.check {
        if printer.is_json {
            say!("{:#}", plan.to_json(false));
        }
        return Err(Failure::differs(format!("the service differs from {}: {summary}", file.display())));
    }
    if !options.yes && !is_confirmed(&plan)? {
        say!("Nothing was changed.");
        return Ok(());
    }
    let shown = plan.to_json(true);
    plan.carry_out(&client, |done| printer.remark(done)).await?;
    printer.one(&shown, |_| "Done.".to_owned());
    Ok(())
}

fn summary(plan: &Plan) -> String {
    let (made, changed) = (plan.count(Action::Create), plan.count(Action::Update));
    let deleted = match plan.count(Action::Delete) {
        0 => String::new(),
        deleted => format!("{deleted} to delete, "),
    };
    format!("{made} to create, {changed} to change, {deleted}{} unchanged", plan.unchanged)
}

/// Deletions are confirmed by their number, which a habit does not type.
fn is_confirmed(plan: &Plan) -> Result<bool, Failure> {
    match plan.count(Action::Delete) {
        0 => {
            let answer = confirm::ask("Apply these changes? [y/N] ")?;
            Ok(["y", "yes"].contains(&answer.to_lowercase().as_str()))
        }
        deleted => confirm::is_typed(&deleted.to_string(), &format!("This deletes {deleted} for good.")),
    }
}
