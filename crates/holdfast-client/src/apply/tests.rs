//! What counts as a difference between a file and a service.

use std::path::Path;

use serde_json::{Value, json};

use super::file::read_item;
use super::step::{Compared, Labels, Step, compare, create};
use crate::kinds::{KINDS, ResourceKind};
use crate::yaml;

fn kind(name: &str) -> &'static ResourceKind {
    KINDS.iter().find(|kind| kind.name == name).unwrap()
}

fn compared(name: &str, text: &str, row: &Value, labels: &Labels, resend: bool) -> Compared {
    let item = read_item(kind(name), &yaml::parse(text).unwrap(), Path::new("")).unwrap();
    compare(kind(name), item, row, labels, |_| resend)
}

fn step(name: &str, text: &str, row: &Value) -> Option<Step> {
    Some(compared(name, text, row, &Labels::new(), false).step).filter(|step| !step.changes.is_empty())
}

/// The service forgets the password of a server that moves.
#[test]
fn a_server_that_moves_is_sent_its_password_again() {
    let row = json!({"id": 1, "label": "a", "connection": {"host": "192.0.2.1", "port": 22, "username": "u",
        "database_username": null, "jump_server_id": null, "is_database_password_set": true}});
    let file = |host: &str, username: &str| {
        format!("{{label: a, host: {host}, username: {username}, database_password: s, port: null}}")
    };
    assert!(step("remote_servers", &file("192.0.2.1", "u"), &row).is_none());
    for file in [file("192.0.2.2", "u"), file("192.0.2.1", "other")] {
        assert_eq!(step("remote_servers", &file, &row).unwrap().body["database_password"], "s", "{file}");
    }
    let moved = step("remote_servers", "{label: a, ip_address: 192.0.2.1, port: 2222}", &row).unwrap();
    assert_eq!(moved.body.get("port"), Some(&json!(2222)));
}

/// The service requires the keys again.
#[test]
fn a_destination_that_moves_is_sent_its_keys_again() {
    let row = json!({"id": 1, "label": "a", "type": "custom_s3", "s3_bucket_name": "bucket",
        "s3_endpoint": "https://s3.example.org/", "path_style_endpoint": true, "custom_s3_region": "us-east-1"});
    let file = |endpoint: &str, bucket: &str| {
        format!(
            "{{label: a, custom_s3_endpoint: '{endpoint}', s3_bucket_name: {bucket}, s3_access_key: k, \
             s3_secret_key: s, custom_s3_region: null, path_style_endpoint: null}}"
        )
    };
    assert!(step("backup_destinations", &file("https://s3.example.org", "bucket"), &row).is_none());
    for file in [file("https://s3.example.com", "bucket"), file("https://s3.example.org", "another")] {
        let body = step("backup_destinations", &file, &row).unwrap().body;
        assert_eq!((&body["s3_access_key"], &body["s3_secret_key"]), (&json!("k"), &json!("s")), "{file}");
    }
    let region = step("backup_destinations", "{label: a, s3_region: eu-1}", &row).unwrap();
    assert_eq!(region.body["s3_region"], "eu-1");
    let s3 = json!({"id": 1, "label": "a", "type": "s3", "s3_region": "eu-1", "path_style_endpoint": false});
    assert!(
        step("backup_destinations", "{label: a, custom_s3_region: eu-1, path_style_endpoint: null}", &s3).is_none()
    );
    let default = step("backup_destinations", "{label: a, s3_region: null}", &s3).unwrap();
    assert_eq!(default.body["s3_region"], "us-east-1");
}

fn task() -> Value {
    json!({"id": 7, "label": "a", "source": {"type": "files", "path": "/srv", "excluded_paths": []},
        "schedule": {"frequency": "daily", "time_to_run_at": "03:00"},
        "storage": {"max_backups": 5, "path": "/", "format": "archive"}, "remote_server_id": 1, "tag_ids": [1, 2],
        "has_encryption_password": true, "has_heartbeat_url": false, "paused_at": null})
}

#[test]
fn what_is_the_same_is_no_change() {
    let labels = Labels::from([
        (("remote_servers", 1), "web".to_owned()),
        (("tags", 1), "x".to_owned()),
        (("tags", 2), "y".to_owned()),
    ]);
    let same = "{label: a, source_path: /srv/, frequency: daily, time_to_run_at: '03:00', tags: [y, x], \
                remote_server: web, encryption_password: s, paused: false, excluded_paths: []}";
    let found = compared("backup_tasks", same, &task(), &labels, false);
    assert!(found.step.changes.is_empty() && found.unknown_secrets == [("encryption_password", "s".to_owned())]);
    let found = compared("backup_tasks", same, &task(), &labels, true);
    assert_eq!((found.step.changes.len(), found.unknown_secrets.len()), (1, 0), "secrets are sent");
    let text = "{label: a, maximum_backups_to_keep: 9, tags: [x], paused: true}";
    let other = compared("backup_tasks", text, &task(), &labels, false).step;
    assert_eq!((other.pause, other.body.len(), other.links.len()), (Some(true), 2, 1));
    assert!(step("backup_tasks", "{label: a, heartbeat_url: https://example.org}", &task()).is_some(), "there is none");
}

/// Each of these means what the task has.
#[test]
fn other_spellings_of_the_same_are_no_change() {
    for field in [
        "store_path: ''",
        "store_path: null",
        "maximum_backups_to_keep: null",
        "maximum_backups_to_keep: 5.0",
        "format: null",
        "description: ''",
        "excluded_paths: null",
        "appended_file_name: null",
        "custom_cron_expression: ''",
        "timezone: ''",
        // Not shown for daily tasks, or for files.
        "day_of_week: 3",
        "day_of_month: null",
        "database_name: shop",
        "excluded_database_tables: 'a,,b'",
        "heartbeat_url: null",
        "paused: null",
    ] {
        let found = step("backup_tasks", &format!("{{label: a, {field}}}"), &task());
        assert!(found.is_none(), "{field}: {found:?}");
    }
    for field in ["frequency: weekly", "type: database", "store_path: web", "encryption_password: null", "paused: true"]
    {
        assert!(step("backup_tasks", &format!("{{label: a, {field}}}"), &task()).is_some(), "{field}");
    }
    let cleared = step("backup_tasks", "{label: a, encryption_password: null}", &task()).unwrap();
    assert_eq!(cleared.body.get("encryption_password"), Some(&Value::Null));
    let weekly = step("backup_tasks", "{label: a, frequency: weekly, day_of_week: 3}", &task()).unwrap();
    assert_eq!(weekly.body["day_of_week"], 3);
}

#[test]
fn streams_are_compared_by_their_type_flags_and_whether_there_is_a_token() {
    let row = |kind: &str, has_token: bool| {
        json!({"id": 1, "label": "a", "type": kind, "notifications": {"on_success": false, "on_failure": true},
            "has_pushover_token": has_token})
    };
    let same = "{label: a, type: pushover, value: v, pushover_token: t, notifications: {on_failure: true}}";
    let found = compared("notification_streams", same, &row("pushover", true), &Labels::new(), false);
    assert!(found.step.changes.is_empty() && found.unknown_secrets.len() == 2);
    let sent = step("notification_streams", same, &row("pushover", false)).unwrap();
    assert_eq!(sent.body.get("pushover_token"), Some(&json!("t")));
    assert!(
        step("notification_streams", "{label: a, type: slack_webhook, pushover_token: t}", &row("slack", false))
            .is_none()
    );
    assert!(step("notification_streams", "{label: a, notifications: null}", &row("slack", false)).is_none());
    let flag = step("notification_streams", "{label: a, notifications: {on_success: true}}", &row("slack", false));
    assert_eq!(flag.unwrap().body["notifications"], json!({"on_success": true}));
}

#[test]
fn what_is_created_has_defaults_instead_of_nulls() {
    let text = "{label: a, type: files, store_path: null, database_name: x, description: null, paused: true, \
                encryption_password: null}";
    let item = read_item(kind("backup_tasks"), &yaml::parse(text).unwrap(), Path::new("")).unwrap();
    let step = create(kind("backup_tasks"), item);
    let expected = json!({"label": "a", "type": "files", "store_path": "/", "paused": true});
    assert_eq!((Value::Object(step.body), step.pause), (expected, Some(true)));
}
