//! What all resources have: list, show, create, update, delete, and a check or test.

use holdfast_client::kinds::{ResourceKind, SERVERS};
use holdfast_client::resource::{Given, find, update};
use holdfast_client::{Client, FieldChange};
use serde_json::Value;

use super::words::{cells, columns, words};
use crate::commands::table::{list, text};
use crate::commands::watch::Wait;
use crate::commands::{confirm, watch};
use crate::failure::Failure;
use crate::output::Printer;

pub enum ResourceAction {
    List {
        search: Option<String>,
    },
    Show {
        name: String,
    },
    Create {
        given: Given,
    },
    Update {
        name: String,
        given: Given,
    },
    Delete {
        name: String,
        yes: bool,
        query: &'static str,
    },
    Check {
        name: String,
        check: &'static Check,
        wait: Option<Wait>,
    },
    /// Print the public SSH key.
    Key,
    AcceptHostKey {
        name: String,
        fingerprint: Option<String>,
    },
}

/// How the result of a check appears on its resource.
pub struct Check {
    /// The last part of its route.
    pub verb: &'static str,
    /// The place of the time of the last one, as a JSON pointer.
    pub time: &'static str,
    pub result: &'static str,
    /// The result if all is well.
    pub good: &'static str,
}

pub const CHECK_SERVER: Check =
    Check { verb: "check", time: "/status/last_checked_at", result: "/status/connectivity", good: "online" };
pub const CHECK_DESTINATION: Check =
    Check { verb: "check", time: "/last_checked_at", result: "/status", good: "reachable" };
pub const TEST_STREAM: Check =
    Check { verb: "test", time: "/last_test/tested_at", result: "/last_test/succeeded", good: "true" };

pub async fn run(
    client: &Client,
    kind: &'static ResourceKind,
    action: ResourceAction,
    printer: Printer,
) -> Result<(), Failure> {
    let path = |id: i64| format!("{}/{id}", kind.path);
    match action {
        ResourceAction::List { search } => {
            let query: Vec<(&str, &str)> = search.iter().map(|text| ("search", text.as_str())).collect();
            let rows = client.list(kind.path, &query).await?;
            list(printer, &rows, columns(kind), |row| cells(kind, row));
        }
        ResourceAction::Show { name } => {
            let found = client.get(&path(find(client, kind, &name).await?)).await?;
            printer.one(&found, |found| words(kind, found));
        }
        ResourceAction::Create { given } => {
            let body = given.body(client, kind).await?;
            let made = client.post(kind.path, Some(&body)).await?;
            printer
                .one(&made, |made| format!("Created {} {} ({}).", kind.one, text(&made["id"]), text(&made["label"])));
        }
        ResourceAction::Update { name, given } => {
            if given.is_empty() {
                return Err(Failure::settings("there is nothing to change: give at least one field"));
            }
            let id = find(client, kind, &name).await?;
            let updated = update(client, kind, id, given).await?;
            printer.one(&updated.resource, |found| format!("Changed {} {id} ({}).", kind.one, text(&found["label"])));
            for change in updated.consequences {
                printer.warn(&format!("Because of this change, {}", consequence(&change)));
            }
            for (path, name) in updated.elsewhere {
                printer.warn(&format!("Because of this change, the {name} of {path} has been removed."));
            }
        }
        ResourceAction::Delete { name, yes, query } => {
            let id = find(client, kind, &name).await?;
            if !yes {
                let label = text(&client.get(&path(id)).await?["label"]);
                confirm::typed(&label, &format!("The {} {label:?} is deleted for good.", kind.one))?;
            }
            let found = client.delete(&format!("{}{query}", path(id))).await?;
            printer.one(&found, |found| text(&found["message"]));
        }
        ResourceAction::Check { name, check, wait } => {
            let path = path(find(client, kind, &name).await?);
            run_check(client, kind, (&name, &path), check, wait, printer).await?;
        }
        ResourceAction::Key => {
            let found = client.get("/api/ssh-key").await?;
            printer.one(&found, |found| text(&found["public_key"]));
        }
        ResourceAction::AcceptHostKey { name, fingerprint } => {
            let id = find(client, &SERVERS, &name).await?;
            let body = fingerprint.map(|fingerprint| serde_json::json!({"fingerprint": fingerprint}));
            let found = client.post(&format!("{}/accept-host-key", path(id)), body.as_ref()).await?;
            printer.one(&found, |found| words(kind, found));
        }
    }
    Ok(())
}

fn consequence(change: &FieldChange) -> String {
    match (change.is_secret, change.to.is_null()) {
        (true, _) => format!("the {} has been removed.", change.name),
        (false, true) => format!("{} has been removed; it was {}.", change.name, text(&change.from)),
        (false, false) => format!("{} is now {}; it was {}.", change.name, text(&change.to), text(&change.from)),
    }
}

async fn run_check(
    client: &Client,
    kind: &'static ResourceKind,
    (name, path): (&str, &str),
    check: &Check,
    wait: Option<Wait>,
    printer: Printer,
) -> Result<(), Failure> {
    let at = |found: &Value, place: &str| found.pointer(place).cloned().unwrap_or(Value::Null);
    let before = if wait.is_some() { at(&client.get(path).await?, check.time) } else { Value::Null };
    let queued = client.post(&format!("{path}/{}", check.verb), None).await?;
    let Some(wait) = wait else {
        printer.one(&queued, |_| format!("The {} of {name} has been queued.", check.verb));
        return Ok(());
    };
    let found = watch::until_some(wait, async || {
        let found = client.get(path).await?;
        Ok(Some(found).filter(|found| at(found, check.time) != before))
    })
    .await?;
    printer.one(&found, |found| words(kind, found));
    let result = text(&at(&found, check.result));
    if result == check.good {
        return Ok(());
    }
    let what = if check.verb == "test" { "the test failed".to_owned() } else { format!("it is {result}") };
    Err(Failure::run_failed(format!("{name}: {what}")))
}
