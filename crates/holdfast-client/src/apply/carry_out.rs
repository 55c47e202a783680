//! Carries out a plan step by step.

use serde_json::{Value, json};

use super::plan::Plan;
use super::request::StepRequest;
use super::step::{Action, Progress, Step};
use crate::call::{Client, Result};
use crate::error::ClientError;

impl Plan {
    /// Carries out the steps. `tell` is called for each step that is done; the first one that is refused ends it.
    pub async fn carry_out(&mut self, client: &Client, mut tell: impl FnMut(&str)) -> Result<()> {
        for number in 0..self.steps.len() {
            let subject = self.steps[number].subject();
            match self.carry_out_step(client, number).await {
                Ok(done) => {
                    self.steps[number].progress = Progress::Done;
                    tell(&format!("{done} {subject}"));
                }
                Err(error) => {
                    let is_unknown = matches!(error, ClientError::Uncertain(_));
                    self.steps[number].progress = if is_unknown { Progress::Unknown } else { Progress::Failed };
                    return Err(error.about(&subject));
                }
            }
        }
        Ok(())
    }

    async fn carry_out_step(&mut self, client: &Client, number: usize) -> Result<&'static str> {
        let step = &self.steps[number];
        let request = StepRequest::of(step, &self.ids);
        if let Some(field) = request.unknown_links.first() {
            return Err(ClientError::Outdated(format!("what {field} refers to is gone")));
        }
        let answer = client.change(&request.change(step.version.as_deref())).await?;
        match step.action {
            Action::Delete => Ok("deleted"),
            Action::Update => {
                pause(client, step, step.id, &answer).await?;
                Ok("changed")
            }
            Action::Create => {
                let id = answer["id"].as_i64();
                let id = id.ok_or_else(|| ClientError::Refused("the response has no id".to_owned()))?;
                pause(client, step, Some(id), &answer).await?;
                self.ids.insert((step.kind.name, step.label.clone()), id);
                Ok("created")
            }
        }
    }

    /// Why the service would refuse the first of the steps that it would refuse.
    pub fn refusal(&self) -> Option<ClientError> {
        self.steps.iter().find_map(|step| Some(step.refusal.clone()?.about(&step.subject())))
    }

    /// How many steps the service would refuse.
    pub fn refused(&self) -> usize {
        self.steps.iter().filter(|step| step.refusal.is_some()).count()
    }
}

/// Pauses or resumes a task if the service is of an earlier version, which does not know the field.
async fn pause(client: &Client, step: &Step, id: Option<i64>, answer: &Value) -> Result<()> {
    let (Some(pause), Some(id)) = (step.pause, id) else { return Ok(()) };
    if json!(pause) != !answer["paused_at"].is_null() {
        client.post(&format!("{}/{id}/{}", step.kind.path, if pause { "pause" } else { "resume" }), None).await?;
    }
    Ok(())
}
