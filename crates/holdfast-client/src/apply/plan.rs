//! The steps from the current state of the service to what a file specifies.

use std::collections::BTreeSet;

use serde_json::Value;

use super::file::{Item, Section, Wanted};
use super::rehearsal::rehearse;
use super::request::Ids;
use super::step::{Action, Labels, Step, compare, create, delete};
use crate::call::{Client, Result};
use crate::error::ClientError;
use crate::field_change::FieldChange;
use crate::kinds::{DESTINATIONS, Fields, KINDS, ResourceKind, TASKS};

/// What else a plan does.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlanOptions {
    /// Send secrets that the service already has again, be they the same or not.
    pub resend_secrets: bool,
    /// Delete what the file does not mention, of the kinds that it lists.
    pub prune: bool,
    /// The plan is only looked at, so that the token need not be allowed to change anything.
    pub only_shown: bool,
}

/// What the file does not mention, and what the service does not delete now.
#[derive(Debug)]
pub struct Kept {
    pub kind: &'static str,
    pub label: String,
    pub reason: String,
}

pub struct Plan {
    pub steps: Vec<Step>,
    /// What the service has and the file does not mention, and what stays as it is.
    pub unnamed: Vec<(&'static str, String)>,
    /// Whether what the file does not mention is deleted, where the file has a list of its kind.
    pub prunes: bool,
    pub kept: Vec<Kept>,
    pub unchanged: usize,
    /// Secrets in the file that the service has, too, and did not compare: it is of an earlier version, or the token may
    /// not change them.
    pub unknown_secrets: usize,
    pub(super) ids: Ids,
}

fn wrong(text: String) -> ClientError {
    ClientError::Settings(text)
}

fn several(text: String) -> ClientError {
    ClientError::Ambiguous(text)
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
    /// them are compared by it.
    fn rename(&mut self, wanted: &Wanted) -> Result<()> {
        for Section { kind, items, .. } in &wanted.0 {
            for item in items {
                let Some(old) = &item.renamed_from else { continue };
                let (was, new) = ((kind.name, old.clone()), (kind.name, item.label.clone()));
                let Some(id) = self.ids.get(&was).copied() else { continue };
                let of = |what: &str| format!("{} {:?}: renamed_from is {old:?}, {what}", kind.one, item.label);
                if items.iter().any(|other| other.label == *old) {
                    return Err(wrong(of("but the file also has an item with that label")));
                } else if self.ids.contains_key(&new) {
                    return Err(wrong(of("and the service has both; rename or delete one of them first")));
                } else if self.ambiguous.contains(&was) {
                    return Err(several(of("but the service has several with that label; rename them first")));
                } else {
                    self.ids.remove(&was);
                    self.ids.insert(new, id);
                    self.labels.insert((kind.name, id), item.label.clone());
                }
            }
        }
        Ok(())
    }

    /// Refuses resources of a kind that refer to each other in a circle, which none of them could be the first of, and
    /// chains of them, which no service accepts.
    fn check_loops_and_chains(&self, wanted: &Wanted) -> Result<()> {
        for (Section { kind, items, .. }, rows) in wanted.0.iter().zip(&self.rows) {
            let Some(link) = kind.links.iter().find(|link| link.kind == kind.name) else { continue };
            let of_service = |label: &str| {
                let id = self.ids.get(&(kind.name, label.to_owned()))?;
                let row = rows.iter().find(|row| row["id"] == *id)?;
                let other = kind.read(row).get(link.id_field)?.as_i64()?;
                self.labels.get(&(kind.name, other)).map(String::as_str)
            };
            let next = |label: &str| match items.iter().find(|item| item.label == label) {
                Some(item) if item.links.contains_key(link.field) => {
                    item.links.get(link.field)?.first().map(String::as_str)
                }
                Some(_) | None => of_service(label),
            };
            for item in items {
                if let Some(path) = find_loop(&item.label, next) {
                    let path: Vec<String> = path.iter().map(|label| format!("{label:?}")).collect();
                    let text = format!("{} of these {} is a loop: {}", link.field, kind.name, path.join(" -> "));
                    return Err(wrong(text));
                }
                let Some(first) = next(&item.label) else { continue };
                if let Some(second) = next(first) {
                    let subject = format!("{} {:?}: {} is {first:?}", kind.one, item.label, link.field);
                    return Err(wrong(format!(
                        "{subject}, which has one itself: {second:?}; chains are not supported"
                    )));
                }
            }
        }
        Ok(())
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
                        let of =
                            |what: &str| format!("{} {:?}: {} is {label:?}, {what}", kind.one, item.label, link.field);
                        if self.ambiguous.contains(&(link.kind, label.clone())) {
                            return Err(several(of("but the service has several with that label; rename them first")));
                        } else if !is_known(link.kind, label) {
                            return Err(wrong(of("which neither the file nor the service has")));
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// A loop of references: labels from the first one to itself.
fn find_loop<'a>(first: &'a str, next: impl Fn(&str) -> Option<&'a str>) -> Option<Vec<&'a str>> {
    let mut path = vec![first];
    while let Some(label) = next(path[path.len() - 1]) {
        if path.contains(&label) {
            path.push(label);
            return (label == first).then_some(path);
        }
        path.push(label);
    }
    None
}

impl Plan {
    /// Compares the file with the service, and asks the service what each step would do.
    pub async fn make(client: &Client, wanted: Wanted, options: PlanOptions) -> Result<Self> {
        let has_dry_runs = client.has_dry_runs().await?;
        let mut found = Found::fetch(client).await?;
        found.rename(&wanted)?;
        found.check_links(&wanted)?;
        found.check_loops_and_chains(&wanted)?;
        let ids = std::mem::take(&mut found.ids);
        let plan = Self {
            steps: Vec::new(),
            prunes: options.prune,
            unnamed: Vec::new(),
            kept: Vec::new(),
            unchanged: 0,
            unknown_secrets: 0,
            ids,
        };
        let mut maker = Maker { client, found, options, has_dry_runs, plan };
        let mut superfluous = Vec::new();
        for (number, section) in wanted.0.into_iter().enumerate() {
            superfluous.extend(maker.section(number, section).await?);
        }
        // In the reverse order of creation, so that nothing refers to what is deleted.
        for (kind, row) in superfluous.into_iter().rev() {
            maker.deletion(kind, &row).await?;
        }
        Ok(maker.plan)
    }

    /// Fields that the service clears because of steps for other resources, by path and name.
    fn elsewhere(&self) -> impl Iterator<Item = &(String, String)> {
        self.steps.iter().flat_map(|step| &step.elsewhere)
    }

    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// How many steps there are of this kind.
    pub fn count(&self, action: Action) -> usize {
        self.steps.iter().filter(|step| step.action == action).count()
    }
}

struct Maker<'a> {
    client: &'a Client,
    found: Found,
    options: PlanOptions,
    /// Earlier versions of the service cannot try out a change.
    has_dry_runs: bool,
    plan: Plan,
}

impl Maker<'_> {
    fn label(&self, kind: &ResourceKind, row: &Value) -> Option<&String> {
        row["id"].as_i64().and_then(|id| self.found.labels.get(&(kind.name, id)))
    }

    /// Plans what the file lists of a kind. Returns what is to be deleted.
    async fn section(&mut self, number: usize, section: Section) -> Result<Vec<(&'static ResourceKind, Value)>> {
        let Section { kind, is_given, items } = section;
        let rows = std::mem::take(&mut self.found.rows[number]);
        let mut superfluous = Vec::new();
        for row in in_order(kind, rows.iter().collect(), |row| !row["connection"]["jump_server_id"].is_null()) {
            let label = self.label(kind, row).cloned();
            if items.iter().any(|item| label.as_ref() == Some(&item.label)) {
                continue;
            }
            if self.options.prune && is_given {
                superfluous.push((kind, row.clone()));
            } else {
                self.plan.unnamed.push((kind.one, label.unwrap_or_default()));
            }
        }
        let has_own_links = |item: &Item| {
            let mut own = kind.links.iter().filter(|link| link.kind == kind.name);
            own.any(|link| item.links.get(link.field).is_some_and(|labels| !labels.is_empty()))
        };
        for item in in_order(kind, items, has_own_links) {
            if self.found.ambiguous.contains(&(kind.name, item.label.clone())) {
                let subject = format!("{} {:?}", kind.one, item.label);
                return Err(several(format!("{subject}: the service has several with this label; rename them first")));
            }
            match rows.iter().find(|row| self.label(kind, row) == Some(&item.label)) {
                Some(row) => self.update(kind, item, row).await?,
                None => self.creation(kind, item).await?,
            }
        }
        self.found.rows[number] = rows;
        Ok(superfluous)
    }

    async fn creation(&mut self, kind: &'static ResourceKind, item: Item) -> Result<()> {
        let mut step = create(kind, item);
        self.rehearse(&mut step, Vec::new()).await?;
        self.plan.steps.push(step);
        Ok(())
    }

    async fn update(&mut self, kind: &'static ResourceKind, item: Item, row: &Value) -> Result<()> {
        // What another step makes the service forget is given again.
        let path = format!("{}/{}", kind.path, row["id"]);
        let forgotten: Vec<String> =
            self.plan.elsewhere().filter(|(other, _)| *other == path).map(|(_, name)| name.clone()).collect();
        let resends_all = self.options.resend_secrets;
        let resends = |name: &str| resends_all || forgotten.iter().any(|field| field == name);
        let mut compared = compare(kind, item.clone(), row, &self.found.labels, resends);
        if let Some(id) = compared.step.id.filter(|_| !compared.step.changes.is_empty()) {
            // Lists have no versions: what is changed is compared as it is in the version that is changed.
            let (row, version) = self.client.get_versioned(&format!("{}/{id}", kind.path)).await?;
            compared = compare(kind, item, &row, &self.found.labels, resends);
            compared.step.version = version;
        }
        let (mut step, secrets) = (compared.step, compared.unknown_secrets);
        if !step.changes.is_empty() || !secrets.is_empty() {
            // Secrets that are sent in any case are shown in any case.
            let is_kept = |change: &&FieldChange| resends_all || resends(&change.name);
            let kept = step.changes.iter().filter(is_kept).cloned().collect();
            self.rehearse(&mut step, secrets).await?;
            step.keep(kept);
            if !forgotten.is_empty() {
                // The step that makes the service forget it makes a new version.
                step.version = None;
            }
        }
        if step.changes.is_empty() && step.refusal.is_none() {
            self.plan.unchanged += 1;
        } else {
            self.plan.steps.push(step);
        }
        Ok(())
    }

    /// Asks the service about a step, if it can be asked.
    async fn rehearse(&mut self, step: &mut Step, secrets: Vec<(&'static str, String)>) -> Result<()> {
        if !self.has_dry_runs {
            self.plan.unknown_secrets += secrets.len();
            return Ok(());
        }
        self.plan.unknown_secrets += rehearse(self.client, step, secrets, &self.plan.ids).await?;
        if self.options.only_shown && matches!(step.refusal, Some(ClientError::Denied(_))) {
            step.refusal = None;
        }
        Ok(())
    }

    /// Plans a deletion, unless the service would refuse it.
    async fn deletion(&mut self, kind: &'static ResourceKind, row: &Value) -> Result<()> {
        let mut step = delete(kind, row);
        let Some(id) = step.id else { return Ok(()) };
        let users = self.affected_users(kind, id);
        let reason = if !users.is_empty() {
            // A dry run would be refused because of what the plan changes before.
            self.backups_left(kind, id, &users).await?
        } else {
            self.rehearse(&mut step, Vec::new()).await?;
            match step.refusal.take() {
                Some(ClientError::Conflict(reason)) => Some(reason),
                refusal => {
                    step.refusal = refusal;
                    None
                }
            }
        };
        match reason {
            Some(reason) => self.plan.kept.push(Kept { kind: kind.one, label: step.label, reason }),
            None => self.plan.steps.push(step),
        }
        Ok(())
    }

    /// What refers to a resource, and is changed or deleted by the plan.
    fn affected_users(&self, kind: &ResourceKind, id: i64) -> Vec<(&'static str, i64)> {
        let mut users = Vec::new();
        for (other, rows) in KINDS.iter().zip(&self.found.rows) {
            for row in rows.iter().filter(|row| refers(other, row, kind, id)) {
                let Some(user) = row["id"].as_i64() else { continue };
                let is_user = |step: &&Step| step.kind.name == other.name && step.id == Some(user);
                if self.plan.steps.iter().any(|step| is_user(&step)) {
                    users.push((other.name, user));
                }
            }
        }
        users
    }

    /// Why a destination cannot be deleted although the plan deletes its tasks: their backups stay.
    async fn backups_left(
        &self,
        kind: &ResourceKind,
        destination: i64,
        users: &[(&'static str, i64)],
    ) -> Result<Option<String>> {
        if kind.name != DESTINATIONS.name {
            return Ok(None);
        }
        let mut left = 0;
        for (_, task) in users.iter().filter(|(name, _)| *name == TASKS.name) {
            let backups = self.client.list("/api/backups", &[("backup_task_id", &task.to_string())]).await?;
            left += backups.iter().filter(|backup| backup["backup_destination_id"] == destination).count();
        }
        let noun = if left == 1 { "backup" } else { "backups" };
        Ok((left > 0).then(|| format!("This backup destination still holds {left} {noun}. Delete them first.")))
    }
}

/// Whether a row of one kind refers to this resource of another.
fn refers(kind: &ResourceKind, row: &Value, other: &ResourceKind, id: i64) -> bool {
    let links = kind.links.iter().filter(|link| link.kind == other.name);
    let is: Fields = kind.read(row);
    let mut values = links.filter_map(|link| is.get(link.id_field));
    values.any(|value| match value {
        Value::Array(ids) => ids.iter().any(|found| *found == id),
        found => *found == id,
    })
}

/// Puts those that others of the same kind refer to first.
fn in_order<T>(kind: &ResourceKind, mut items: Vec<T>, refers: impl Fn(&T) -> bool) -> Vec<T> {
    if kind.links.iter().any(|link| link.kind == kind.name) {
        items.sort_by_key(refers);
    }
    items
}
