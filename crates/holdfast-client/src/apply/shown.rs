//! A plan as text and as JSON.

use std::fmt;

use serde_json::{Value, json};

use super::plan::{Kept, Plan};
use super::step::{Action, Step};
use crate::field_change::FieldChange;
use crate::kinds::KINDS;

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            let sign = match step.action {
                Action::Create => '+',
                Action::Update => '~',
                Action::Delete => '-',
            };
            writeln!(out, "{sign} {} {:?}", step.kind.one, step.label)?;
            for change in &step.changes {
                writeln!(out, "    {}", line(change, step.action))?;
            }
            for (path, name) in &step.elsewhere {
                writeln!(out, "    {}: {name}: (secret) -> none, because of the other changes", self.subject_of(path))?;
            }
            if let Some(refusal) = &step.refusal {
                writeln!(out, "  ! would be refused: {refusal}")?;
            }
        }
        for Kept { kind, label, reason } in &self.kept {
            writeln!(out, "! {kind} {label:?} is not in the file and cannot be deleted now, so it stays: {reason}")?;
        }
        for (one, label) in &self.unnamed {
            let reason = if self.prunes { ", because the file has no list of its kind" } else { "" };
            writeln!(out, "  {one} {label:?} is not in the file and stays as it is{reason}")?;
        }
        if let Some(text) = self.unknown_secrets_line() {
            writeln!(out, "  {text}")?;
        }
        Ok(())
    }
}

impl Plan {
    /// What the resource at this path is called in messages.
    fn subject_of(&self, path: &str) -> String {
        let known = self.ids.iter().find_map(|((name, label), id)| {
            let kind = KINDS.iter().find(|kind| kind.name == *name)?;
            (format!("{}/{id}", kind.path) == path).then(|| format!("{} {label:?}", kind.one))
        });
        known.unwrap_or_else(|| path.to_owned())
    }

    fn unknown_secrets_line(&self) -> Option<String> {
        match self.unknown_secrets {
            0 => None,
            1 => Some(
                "1 secret was not compared, for lack of a scope or in an earlier version; --secrets sends it again"
                    .to_owned(),
            ),
            count => Some(format!(
                "{count} secrets were not compared, for lack of scopes or in an earlier version; --secrets sends them again"
            )),
        }
    }

    /// `is_applied`: whether everything has been carried out.
    pub fn to_json(&self, is_applied: bool) -> Value {
        let unnamed = self.unnamed.iter().map(|(one, label)| json!({"kind": one, "label": label}));
        let kept = self.kept.iter();
        let kept = kept.map(|kept| json!({"kind": kept.kind, "label": kept.label, "reason": kept.reason}));
        json!({"steps": self.steps.iter().map(Step::to_json).collect::<Vec<_>>(),
            "not_in_file": unnamed.collect::<Vec<_>>(), "kept": kept.collect::<Vec<_>>(),
            "unchanged": self.unchanged, "secrets_not_compared": self.unknown_secrets, "is_applied": is_applied})
    }
}

impl Step {
    pub fn to_json(&self) -> Value {
        let field = |change: &FieldChange| {
            json!({"name": change.name, "from": change.from, "to": change.to, "is_secret": change.is_secret,
                "is_consequence": change.is_consequence})
        };
        let fields: Vec<Value> = self.changes.iter().map(field).collect();
        let elsewhere = self.elsewhere.iter().map(|(path, name)| json!({"path": path, "name": name}));
        let elsewhere = elsewhere.collect::<Vec<_>>();
        let refusal = self.refusal.as_ref().map(ToString::to_string);
        json!({"action": self.action.as_str(), "kind": self.kind.one, "id": self.id, "label": self.label,
            "fields": fields, "cleared_elsewhere": elsewhere, "refusal": refusal, "result": self.progress.as_str()})
    }
}

fn line(change: &FieldChange, action: Action) -> String {
    let shown = |value: &Value| if change.is_secret { secret(value).to_owned() } else { text(value) };
    let (from, to) = (shown(&change.from), shown(&change.to));
    match action {
        Action::Create => format!("{}: {to}", change.name),
        Action::Update | Action::Delete if change.is_known_to_differ => format!("{}: secret changed", change.name),
        Action::Update | Action::Delete if change.is_consequence => {
            format!("{}: {from} -> {to}, because of the other changes", change.name)
        }
        Action::Update | Action::Delete => format!("{}: {from} -> {to}", change.name),
    }
}

fn secret(is_set: &Value) -> &'static str {
    if *is_set == true { "(secret)" } else { "none" }
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(", "),
        value => value.to_string(),
    }
}
