//! Asks the service what a step would do, before anything is changed.

use super::request::{Ids, StepRequest};
use super::step::{Action, Step};
use crate::call::{Client, Result, Tried};
use crate::error::ClientError;

/// Tries out a step. `secrets` are in the file, and the service has them too: those that differ become part of the step.
/// An update that would change nothing is left without changes. What the service would refuse is noted in the step.
/// Returns how many secrets were not compared.
pub(super) async fn rehearse(
    client: &Client,
    step: &mut Step,
    secrets: Vec<(&'static str, String)>,
    ids: &Ids,
) -> Result<usize> {
    for (name, secret) in &secrets {
        step.body.insert((*name).to_owned(), secret.as_str().into());
    }
    let request = StepRequest::of(step, ids);
    let tried = client.try_out(&request.change(step.version.as_deref())).await;
    for (name, _) in &secrets {
        step.body.remove(*name);
    }
    match tried {
        Ok(tried) => {
            step.version = step.version.take().or_else(|| tried.version.clone());
            if step.action == Action::Update {
                keep_differences(step, secrets, &tried, request.unknown_links.is_empty());
            }
            Ok(0)
        }
        // What it refers to is created by another step.
        Err(ClientError::Invalid { mut errors, .. }) if !request.unknown_links.is_empty() => {
            errors.retain(|field, _| !request.unknown_links.contains(&field.as_str()));
            step.refusal = (!errors.is_empty()).then(|| ClientError::invalid(errors));
            Ok(secrets.len())
        }
        Err(error @ (ClientError::Invalid { .. } | ClientError::Conflict(_) | ClientError::Denied(_))) => {
            step.refusal = Some(error);
            Ok(secrets.len())
        }
        Err(error) => Err(error.about(&step.subject())),
    }
}

fn keep_differences(step: &mut Step, secrets: Vec<(&'static str, String)>, tried: &Tried, is_complete: bool) {
    let changed = &tried.changed;
    let differs = |name: &str| changed.iter().any(|changed| changed == name);
    // It is sent because the service forgets it otherwise, but it stays the same.
    step.changes.retain(|change| !change.is_sent_again() || differs(&change.name));
    for (name, secret) in secrets.into_iter().filter(|(name, _)| differs(name)) {
        step.add_secret(name, true, Some(&secret));
    }
    step.note_consequences(tried);
    for change in step.changes.iter_mut().filter(|change| change.is_sent_again()) {
        change.is_known_to_differ = true;
    }
    if changed.is_empty() && is_complete {
        step.changes.clear();
    }
}
