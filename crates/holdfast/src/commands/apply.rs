//! `holdfast apply`: shows how a service differs from a configuration file, and applies the changes.

use std::path::Path;

use holdfast_client::Client;
use holdfast_client::apply::{Action, Plan, PlanOptions, Progress, Step, Wanted};
use serde_json::{Value, json};

use super::{confirm, connection};
use crate::failure::Failure;
use crate::output::{self, Printer, complain, say};
use crate::settings::ClientSettings;

/// How often a plan is made again because somebody else was faster. Each time something has happened, so others that
/// apply the same file are done long before that.
const MOST_PLANS: usize = 20;

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
        return Err(Failure::settings(
            "apply does not ask for confirmation with --json; add --yes to apply the plan, or --check to only show it",
        ));
    }
    let wanted = Wanted::read(file)?;
    let client = connection::client(settings)?;
    if options.check {
        let plan = plan(&client, &wanted, options.plan).await?;
        return check(&plan, file, printer);
    }
    apply(&client, &wanted, options, printer).await
}

/// A plan. What it compares may change while it is made; then it is made again.
async fn plan(client: &Client, wanted: &Wanted, options: PlanOptions) -> Result<Plan, Failure> {
    let mut left = MOST_PLANS;
    loop {
        left -= 1;
        match Plan::make(client, wanted.clone(), options).await {
            Err(error) if error.is_about_state() && left > 0 => {}
            made => return Ok(made?),
        }
    }
}

/// Shows the plan; fails if anything differs.
fn check(plan: &Plan, file: &Path, printer: Printer) -> Result<(), Failure> {
    show(plan, printer);
    if plan.is_empty() {
        printer.one(&plan.to_json(false), |_| format!("Nothing to do: {} unchanged.", plan.unchanged));
        return Ok(());
    }
    let summary = summary(plan);
    printer.remark(&format!("{summary}."));
    if printer.is_json {
        say!("{:#}", plan.to_json(false));
    }
    match refusal(plan) {
        Some(refusal) => Err(refusal),
        None => Err(Failure::differs(format!("the service differs from {}: {summary}", file.display()))),
    }
}

/// Carries out a plan. If something has changed meanwhile, it plans what is left again.
async fn apply(client: &Client, wanted: &Wanted, options: Options, printer: Printer) -> Result<(), Failure> {
    let mut done: Vec<Step> = Vec::new();
    for number in 1.. {
        // What was sent again need not be sent once more.
        let resend_secrets = options.plan.resend_secrets && number == 1;
        let mut plan = plan(client, wanted, PlanOptions { resend_secrets, ..options.plan }).await?;
        show(&plan, printer);
        if plan.is_empty() {
            let nothing = format!("Nothing to do: {} unchanged.", plan.unchanged);
            let words = if done.is_empty() { nothing } else { "Done.".to_owned() };
            printer.one(&with_steps(&plan, &done, true), |_| words);
            return Ok(());
        }
        printer.remark(&format!("{}.", summary(&plan)));
        if let Some(refusal) = refusal(&plan) {
            return Err(stopped(&plan, &done, refusal, printer));
        }
        if !options.yes && !is_confirmed(&plan)? {
            say!("{}", if done.is_empty() { "Nothing was changed." } else { "Nothing else was changed." });
            return Ok(());
        }
        let carried_out = plan.carry_out(client, |done| printer.remark(done)).await;
        match carried_out {
            Ok(()) => {
                printer.one(&with_steps(&plan, &done, true), |_| "Done.".to_owned());
                return Ok(());
            }
            Err(error) if error.is_about_state() && number < MOST_PLANS => {
                if !printer.is_json {
                    complain!("The service has changed since the plan was made ({error}); planning again.");
                }
                done.extend(plan.steps.into_iter().filter(|step| step.progress == Progress::Done));
            }
            Err(error) => return Err(stopped(&plan, &done, error.into(), printer)),
        }
    }
    Ok(())
}

fn show(plan: &Plan, printer: Printer) {
    if !printer.is_json {
        output::print(format_args!("{plan}"));
    }
}

/// Why the plan cannot be carried out, if the service has said so.
fn refusal(plan: &Plan) -> Option<Failure> {
    let others = match plan.refused().saturating_sub(1) {
        0 => String::new(),
        others => format!(" (and {others} more)"),
    };
    let refusal = Failure::from(plan.refusal()?);
    Some(Failure { message: format!("the service would refuse {}{others}", refusal.message), ..refusal })
}

/// Reports what was done before something ended it.
fn stopped(plan: &Plan, done: &[Step], failure: Failure, printer: Printer) -> Failure {
    if printer.is_json {
        say!("{:#}", with_steps(plan, done, false));
        return failure;
    }
    let all = done.iter().chain(&plan.steps);
    let number = |progress: Progress| all.clone().filter(|step| step.progress == progress).count();
    let (made, left) = (number(Progress::Done), number(Progress::Planned));
    let words = match (made, number(Progress::Unknown)) {
        (0, 0) => "Nothing was changed.".to_owned(),
        (made, 0) => format!("{made} done, {left} not attempted."),
        (made, unknown) => format!("{made} done, {unknown} unknown, {left} not attempted."),
    };
    printer.remark(&words);
    failure
}

/// The plan with all steps, also those that were done before it was made.
fn with_steps(plan: &Plan, done: &[Step], is_applied: bool) -> Value {
    let mut shown = plan.to_json(is_applied);
    shown["steps"] = done.iter().chain(&plan.steps).map(Step::to_json).collect();
    let left = plan.steps.iter().filter(|step| step.progress == Progress::Planned).count();
    shown["not_attempted"] = json!(left);
    shown
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
        deleted => {
            let noun = if deleted == 1 { "resource" } else { "resources" };
            confirm::is_typed(&deleted.to_string(), &format!("This deletes {deleted} {noun} for good."))
        }
    }
}
