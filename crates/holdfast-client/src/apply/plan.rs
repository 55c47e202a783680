//! The steps from the current state of the service to what a file specifies.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::file::{Item, Section, Wanted};
use super::step::{Action, Labels, Step, compare, create, delete};
use crate::call::Result;
use crate::kinds::{KINDS, ResourceKind};
use crate::{Client, ClientError};

/// What else a plan does.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlanOptions {
    /// Send secrets that the service already has again: it never returns them, so they cannot be compared.
    pub resend_secrets: bool,
    /// Delete what the file does not mention, of the kinds that it lists.
    pub prune: bool,
}

pub struct Plan {
    pub steps: Vec<Step>,
    /// What the service has and the file does not mention, and what stays as it is.
    pub unnamed: Vec<(&'static str, String)>,
    pub unchanged: usize,
    /// Secrets in the file that the service has, too, and that are not sent again.
    pub unknown_secrets: usize,
    ids: Ids,
}

/// Ids by kind and label.
type Ids = BTreeMap<(&'static str, String), i64>;

fn wrong(text: String) -> ClientError {
    ClientError::Settings(text)
}

/// What the service has.
struct Found {
    rows: Vec<Vec<Value>>,
    labels: Labels,
    ids: Ids,
    /// Labels that several resources of a kind have.
    ambiguous: BTreeSet<(&'static str, String)>,
}

impl Found {
    async fn fetch(client: &Client) -> Result<Self> {
        let mut found = Self { rows: Vec::new(), labels: Labels::new(), ids: Ids::new(), ambiguous: BTreeSet::new() };
        for kind in KINDS {
            let rows = client.list(kind.path, &[]).await?;
            for row in &rows {
                let (Some(id), Some(label)) = (row["id"].as_i64(), row["label"].as_str()) else { continue };
                found.labels.insert((kind.name, id), label.to_owned());
                if found.ids.insert((kind.name, label.to_owned()), id).is_some() {
                    found.ambiguous.insert((kind.name, label.to_owned()));
                }
            }
            found.rows.push(rows);
        }
        Ok(found)
    }

    /// Gives resources whose item says what they were called before their new label, so that the items that refer to
    /// them are compared by it. Returns the former labels by id.
    fn rename(&mut self, wanted: &Wanted) -> Result<BTreeMap<(&'static str, i64), String>> {
        let mut former = BTreeMap::new();
        for Section { kind, items, .. } in &wanted.0 {
            for item in items {
                let Some(old) = &item.renamed_from else { continue };
                let (was, new) = ((kind.name, old.clone()), (kind.name, item.label.clone()));
                let Some(id) = self.ids.get(&was).copied() else { continue };
                let problem = if items.iter().any(|other| other.label == *old) {
                    "and the file has both"
                } else if self.ids.contains_key(&new) {
                    "and the service has both; rename or delete one of them first"
                } else if self.ambiguous.contains(&was) {
                    "and there are several; rename them first"
                } else {
                    self.ids.remove(&was);
                    self.ids.insert(new, id);
                    self.labels.insert((kind.name, id), item.label.clone());
                    former.insert((kind.name, id), old.clone());
                    continue;
                };
                let text = format!("{} {:?}: renamed_from is {old:?}, {problem}", kind.one, item.label);
                return Err(wrong(text));
            }
        }
        Ok(former)
    }

    /// Refuses links to what does not exist or is not unique.
    fn check_links(&self, wanted: &Wanted) -> Result<()> {
        let is_known = |kind: &'static str, label: &String| {
            let is_listed =
                |section: &Section| section.kind.name == kind && section.items.iter().any(|item| item.label == *label);
            self.ids.contains_key(&(kind, label.clone())) || wanted.0.iter().any(is_listed)
        };
        for Section { kind, items, .. } in &wanted.0 {
            for item in items {
                for link in kind.links {
                    for label in item.links.get(link.field).into_iter().flatten() {
                        let problem = if self.ambiguous.contains(&(link.kind, label.clone())) {
                            "and there are several; rename them first"
                        } else if !is_known(link.kind, label) {
                            "which does not exist"
                        } else {
                            continue;
                        };
                        let what = format!("{} refers to {label:?}, {problem}", link.field);
                        return Err(wrong(format!("{} {:?}: {what}", kind.one, item.label)));
                    }
                }
            }
        }
        Ok(())
    }
}

impl Plan {
    /// Compares the file with the service.
    pub async fn make(client: &Client, wanted: Wanted, options: PlanOptions) -> Result<Self> {
        let mut found = Found::fetch(client).await?;
        let former = found.rename(&wanted)?;
        found.check_links(&wanted)?;
        let Found { rows, labels, ids, ambiguous } = found;
        let mut plan = Self { steps: Vec::new(), unnamed: Vec::new(), unchanged: 0, unknown_secrets: 0, ids };
        let mut deletions = Vec::new();
        for (section, rows) in wanted.0.into_iter().zip(&rows) {
            let Section { kind, is_given, items } = section;
            let label = |row: &Value| row["id"].as_i64().and_then(|id| labels.get(&(kind.name, id)));
            for row in in_order(kind, rows.iter().collect(), |row| !row["connection"]["jump_server_id"].is_null()) {
                if items.iter().any(|item| label(row) == Some(&item.label)) {
                    continue;
                }
                if options.prune && is_given {
                    deletions.push(delete(kind, row));
                } else {
                    plan.unnamed.push((kind.one, label(row).cloned().unwrap_or_default()));
                }
            }
            let has_own_links = |item: &Item| {
                let mut own = kind.links.iter().filter(|link| link.kind == kind.name);
                own.any(|link| item.links.get(link.field).is_some_and(|labels| !labels.is_empty()))
            };
            for item in in_order(kind, items, has_own_links) {
                if ambiguous.contains(&(kind.name, item.label.clone())) {
                    let text =
                        format!("the service has several {} called {:?}; rename them first", kind.name, item.label);
                    return Err(wrong(text));
                }
                let Some(row) = rows.iter().find(|row| label(row) == Some(&item.label)) else {
                    plan.steps.push(create(kind, item));
                    continue;
                };
                let mut row = row.clone();
                if let Some(old) = row["id"].as_i64().and_then(|id| former.get(&(kind.name, id))) {
                    row["label"] = json!(old);
                }
                let compared = compare(kind, item, &row, &labels, options.resend_secrets);
                plan.unknown_secrets += compared.unknown_secrets;
                match compared.step {
                    Some(step) => plan.steps.push(step),
                    None => plan.unchanged += 1,
                }
            }
        }
        // In the reverse order of creation, so that nothing refers to what is deleted.
        plan.steps.extend(deletions.into_iter().rev());
        Ok(plan)
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many steps there are of this kind.
    pub fn count(&self, action: Action) -> usize {
        self.steps.iter().filter(|step| step.action == action).count()
    }

    /// Carries out the plan step by step. `tell` is called for each step that is done; the first one that is refused
    /// ends it.
    pub async fn carry_out(mut self, client: &Client, mut tell: impl FnMut(&str)) -> Result<()> {
        for step in std::mem::take(&mut self.steps) {
            let what = format!("{} {:?}", step.kind.one, step.label);
            let done = self.carry_out_step(client, step).await.map_err(|error| error.about(&what))?;
            tell(&format!("{done} {what}"));
        }
        Ok(())
    }

    async fn carry_out_step(&mut self, client: &Client, step: Step) -> Result<&'static str> {
        let mut body = step.body;
        for link in step.kind.links {
            let Some(labels) = step.links.get(link.field) else { continue };
            let id = |label: &String| self.ids.get(&(link.kind, label.clone())).copied();
            let ids: Option<Vec<i64>> = labels.iter().map(id).collect();
            let ids = ids.ok_or_else(|| wrong(format!("what {} refers to is gone", link.field)))?;
            let value = if link.is_many { json!(ids) } else { json!(ids.first()) };
            body.insert(link.id_field.to_owned(), value);
        }
        let path = |id: i64| format!("{}/{id}", step.kind.path);
        match (step.action, step.id) {
            (Action::Delete, Some(id)) => {
                client.delete(&path(id)).await?;
                Ok("deleted")
            }
            (Action::Update, Some(id)) => {
                if !body.is_empty() {
                    client.put(&path(id), &Value::Object(body)).await?;
                }
                if let Some(pause) = step.pause {
                    client.post(&format!("{}/{}", path(id), if pause { "pause" } else { "resume" }), None).await?;
                }
                Ok("changed")
            }
            (Action::Create | Action::Update | Action::Delete, _) => {
                let made = client.post(step.kind.path, Some(&Value::Object(body))).await?;
                let id = made["id"].as_i64();
                let id = id.ok_or_else(|| ClientError::Refused("the response has no id".to_owned()))?;
                self.ids.insert((step.kind.name, step.label), id);
                // A service of an earlier version does not know the field.
                if step.pause == Some(true) && made["paused_at"].is_null() {
                    client.post(&format!("{}/{id}/pause", step.kind.path), None).await?;
                }
                Ok("created")
            }
        }
    }
}

/// Puts those that others of the same kind refer to first.
fn in_order<T>(kind: &ResourceKind, mut items: Vec<T>, refers: impl Fn(&T) -> bool) -> Vec<T> {
    if kind.links.iter().any(|link| link.kind == kind.name) {
        items.sort_by_key(refers);
    }
    items
}
