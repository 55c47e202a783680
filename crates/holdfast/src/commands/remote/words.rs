//! Resources as text.

use holdfast_client::kinds::{DESTINATIONS, ResourceKind, SERVERS, STREAMS, TASKS, shown_name};
use serde_json::Value;

use crate::commands::table::text;

/// The columns of a list of this kind.
pub fn columns(kind: &ResourceKind) -> &'static [&'static str] {
    match kind.name {
        name if name == TASKS.name => &["ID", "LABEL", "SOURCE", "SCHEDULE", "STATUS", "LAST RUN (UTC)", "RESULT"],
        name if name == SERVERS.name => &["ID", "LABEL", "ADDRESS", "STATUS", "LAST CONTACT"],
        name if name == DESTINATIONS.name => &["ID", "LABEL", "TYPE", "STATUS", "LAST CHECK"],
        name if name == STREAMS.name => &["ID", "LABEL", "TYPE", "LAST DELIVERY"],
        _ => &["ID", "LABEL", "COLOUR", "DESCRIPTION"],
    }
}

/// The cells of a row of that list.
pub fn cells(kind: &ResourceKind, row: &Value) -> Vec<String> {
    let more = match kind.name {
        name if name == TASKS.name => {
            let time = text(&row["last_run_utc_time"]);
            vec![source(&row["source"]), schedule(&row["schedule"]), status(row), time, result(&row["last_run"])]
        }
        name if name == SERVERS.name => {
            let status = &row["status"];
            vec![address(&row["connection"]), text(&status["connectivity"]), text(&status["last_connected_at"])]
        }
        name if name == DESTINATIONS.name => {
            vec![text(&row["type"]), text(&row["status"]), text(&row["last_checked_at"])]
        }
        name if name == STREAMS.name => vec![text(&row["type"]), text(&row["last_delivery"]["at"])],
        _ => vec![text(&row["colour"]), text(&row["description"])],
    };
    [vec![text(&row["id"]), text(&row["label"])], more].concat()
}

/// One resource.
pub fn words(kind: &ResourceKind, found: &Value) -> String {
    match kind.name {
        name if name == TASKS.name => task(found),
        name if name == SERVERS.name => server(found),
        name if name == DESTINATIONS.name => {
            let status =
                format!("  status: {}\n  last check: {}", text(&found["status"]), text(&found["last_checked_at"]));
            let error = found["last_error"].as_str().map(|error| format!("\n  error: {error}"));
            format!("{}\n{status}{}", fields(kind, found), error.unwrap_or_default())
        }
        name if name == STREAMS.name => {
            let last = |name: &str| {
                let text = found[name]["message"].as_str()?;
                Some(format!("\n  {}: {text}", name.replace('_', " ")))
            };
            fields(kind, found) + &["last_test", "last_delivery"].into_iter().filter_map(last).collect::<String>()
        }
        _ => fields(kind, found),
    }
}

fn fields(kind: &ResourceKind, found: &Value) -> String {
    let is = kind.read(found);
    let line = |name: &str, shown: &str| {
        let value = is.get(name).filter(|value| !value.is_null())?;
        Some(format!("\n  {shown}: {}", text(value)))
    };
    let head = format!("{} ({} {})", text(&found["label"]), kind.one, text(&found["id"]));
    let lines = kind.plain().filter(|field| field.name != "label");
    head + &lines.filter_map(|field| line(field.name, shown_name(field))).collect::<String>()
}

fn status(row: &Value) -> String {
    if row["paused_at"].is_null() { text(&row["status"]) } else { "paused".to_owned() }
}

/// How a run ended, with the reason if it failed.
fn result(run: &Value) -> String {
    let status = text(&run["status"]);
    match (run["error_code"].as_str(), run["warnings"].as_i64()) {
        (Some(code), _) => format!("{status} ({code})"),
        (None, Some(1)) => format!("{status} (1 warning)"),
        (None, Some(warnings)) if warnings > 0 => format!("{status} ({warnings} warnings)"),
        (None, _) => status,
    }
}

fn address(connection: &Value) -> String {
    format!("{}@{}:{}", text(&connection["username"]), text(&connection["host"]), connection["port"])
}

fn task(found: &Value) -> String {
    format!(
        "{} (task {})\n  source       {}\n  schedule     {}\n  keeps        {}\n  encrypted    {}\n  \
         status       {}\n  last run     {} {}",
        text(&found["label"]),
        text(&found["id"]),
        source(&found["source"]),
        schedule(&found["schedule"]),
        text(&found["storage"]["max_backups"]),
        if found["has_encryption_password"] == true { "yes" } else { "no" },
        status(found),
        text(&found["last_run_utc_time"]),
        result(&found["last_run"]),
    )
}

fn source(found: &Value) -> String {
    match found["type"].as_str() {
        Some("database") => {
            let place = found["path"].as_str().or(found["database_name"].as_str());
            let name = place.unwrap_or("all databases");
            format!("{} {name}", text(&found["database_engine"]))
        }
        _ => text(&found["path"]),
    }
}

fn schedule(found: &Value) -> String {
    let zone = found["timezone"].as_str().unwrap_or("UTC");
    match found["custom_cron"].as_str() {
        Some(cron) => format!("{cron} {zone}"),
        None => {
            let time = found["time_to_run_at"].as_str().map(|time| format!("{time} {zone}")).unwrap_or_default();
            format!("{} {time}", text(&found["frequency"])).trim().to_owned()
        }
    }
}

fn server(found: &Value) -> String {
    let (connection, status) = (&found["connection"], &found["status"]);
    let mut words = format!(
        "{} (server {})\n  address      {}\n  status       {}\n  last contact {}\n  host key     {}",
        text(&found["label"]),
        text(&found["id"]),
        address(connection),
        text(&status["connectivity"]),
        text(&status["last_connected_at"]),
        text(&connection["host_key_fingerprint"]),
    );
    if !connection["offered_host_key_fingerprint"].is_null() {
        words += &format!("\n  offered key  {}", text(&connection["offered_host_key_fingerprint"]));
    }
    if !status["last_error"].is_null() {
        words += &format!("\n  error        {}", text(&status["last_error"]));
    }
    for tool in status["tools"].as_array().into_iter().flatten() {
        words += &format!("\n  {:<12} {}", text(&tool["name"]), text(&tool["version"]));
    }
    words
}
