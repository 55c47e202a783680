use std::path::PathBuf;

use holdfast_core::clock::{self, Zone};
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{RunId, TaskId};
use holdfast_core::{Secret, Timestamp};
use holdfast_notify::{
    About, BackupDamaged, Channel, DayLine, IncidentCause, IncidentFacts, Message, NoticeContent, Outcome, RunEnded,
    Sender, Settings, Smtp, Summary, TaskFacts, TaskLine,
};
use holdfast_testkit::{MailServer, Receiver};
use serde_json::{Value, json};

/// A label that tries to inject markup, mention everybody or reverse the text.
const HOSTILE: &str = "<b>@everyone</b> <!channel> [x](http://evil) *a* & \"q\" \u{202e}gnp";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Compares with the golden file; with `UPDATE_GOLDEN` set, writes it instead.
fn compare(name: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, wanted, "{name} is not what it was; look at it, then set UPDATE_GOLDEN=1");
}

fn about(zone: &Zone) -> About<'_> {
    let at = at("2025-03-03T02:07:30Z");
    About { event: "0123456789abcdef", base_url: "https://backup.example.org", zone, at }
}

fn messages(zone: &Zone) -> Vec<(&'static str, Message)> {
    let about = &about(zone);
    let task = TaskFacts {
        label: "Website",
        server: "web-1",
        destination: "Offsite",
        next_run_at: Some(at("2025-03-04T02:00:00Z")),
    };
    let hostile = TaskFacts { label: HOSTILE, server: HOSTILE, destination: HOSTILE, next_run_at: None };
    let ended = |outcome, warnings| RunEnded {
        run: RunId(42),
        started_at: Some(at("2025-03-03T02:00:00Z")),
        warnings,
        outcome,
    };
    let stored = |was_failing| Outcome::Stored {
        plain_bytes: 178_000_000,
        stored_bytes: 82_192_136,
        files: 20_000,
        before: Some((176_500_000, 19_990)),
        was_failing,
    };
    let failed = |code, reason, is_reminder, is_paused| Outcome::Failed { code, reason, is_reminder, is_paused };
    let refused = "Connecting to web-1 (port 22) was refused.";
    let labels = ["web files", "shop"].map(str::to_owned);
    let incident = |cause, tasks| IncidentFacts {
        cause,
        code: FailureCode::Connect,
        tasks,
        labels: &labels,
        since: at("2025-03-03T02:00:00Z"),
    };
    let missed = IncidentFacts { code: FailureCode::Missed, ..incident(IncidentCause::NoWorker, 300) };
    let run = |outcome, warnings| holdfast_notify::run_ended(about, &task, &ended(outcome, warnings));
    let damaged = BackupDamaged {
        task: "Website",
        destination: "Offsite",
        key: "website/2025-03-01.tar.zst",
        made_at: at("2025-03-01T02:00:00Z"),
        run: RunId(43),
        reason: "The stored bytes are not the ones that were written.",
    };
    let all = vec![
        ("success", run(stored(false), 2)),
        ("failure", run(failed(FailureCode::Connect, refused, false, false), 0)),
        ("reminder", run(failed(FailureCode::Connect, refused, true, false), 0)),
        ("paused", run(failed(FailureCode::WorkerLost, "The worker went away.", false, true), 0)),
        ("recovered", run(stored(true), 0)),
        (
            "hostile",
            holdfast_notify::run_ended(
                about,
                &hostile,
                &ended(
                    failed(FailureCode::RemoteFailed, &format!("{HOSTILE}\r\nBcc: all@example.org"), false, false),
                    0,
                ),
            ),
        ),
        ("missed", holdfast_notify::missed(about, &task, RunId(44), at("2025-03-01T02:00:00Z"), 2)),
        ("overdue", holdfast_notify::overdue(about, &task, TaskId(7), Some(at("2025-03-01T02:09:00Z")), None)),
        ("damaged", damaged.message(about)),
        (
            "suspicious",
            holdfast_notify::backup_suspicious(
                about,
                &task,
                RunId(48),
                TaskId(7),
                "The newest backup looks wrong: it is empty, where a normal backup had 20000 entries.",
            ),
        ),
        ("host-key", holdfast_notify::host_key_changed(about, "web-1", RunId(45))),
        (
            "server",
            holdfast_notify::server_unreachable(
                about,
                "web-1",
                RunId(46),
                FailureCode::Timeout,
                "No answer within 15 s.",
            ),
        ),
        (
            "destination",
            holdfast_notify::destination_unreachable(
                about,
                "Offsite",
                RunId(47),
                FailureCode::DestinationDenied,
                "the secret key is wrong (403 SignatureDoesNotMatch)",
            ),
        ),
        (
            "repository",
            holdfast_notify::repository_neglected(
                about,
                ("Web files", "Offsite"),
                holdfast_notify::Maintenance::Prune,
                RunId(49),
                FailureCode::Locked,
                "The repository is exclusively locked by process 4711 on laptop, last at 2026-01-31T22:00:00Z.",
            ),
        ),
        (
            "incident-begun",
            holdfast_notify::incident_begun(about, &incident(IncidentCause::Server("web-1"), 3), RunId(48), refused),
        ),
        ("incident-grown", holdfast_notify::incident_grown(about, &incident(IncidentCause::Servers, 500))),
        (
            "incident-ended",
            holdfast_notify::incident_ended(about, &incident(IncidentCause::Destination("Offsite"), 12)),
        ),
        (
            "incident-missed",
            holdfast_notify::incident_begun(about, &missed, RunId(49), "No worker was running when they were due."),
        ),
        (
            "incident-interrupted",
            holdfast_notify::incident_ended(
                about,
                &IncidentFacts { code: FailureCode::WorkerLost, ..incident(IncidentCause::LostWorker, 50) },
            ),
        ),
        ("token", holdfast_notify::token_expiring(about, "deploy", at("2025-03-09T12:00:00Z"))),
        ("test", holdfast_notify::test_message(about, "ops")),
        (
            "plain-host",
            holdfast_notify::test_message(&About { base_url: "http://backup:8080", ..*about }, "Büro 本社 \u{200e}"),
        ),
        ("empty", holdfast_notify::test_message(about, "\u{200e}\u{200f}")),
    ];
    let overdue: Vec<Message> = all.iter().filter(|(name, _)| *name == "overdue").map(|(_, one)| one.clone()).collect();
    let digest = holdfast_notify::digest(&[&overdue[..], &overdue[..]].concat()).unwrap();
    assert_eq!(digest.link.as_deref(), Some("https://backup.example.org/account"));
    let some: Vec<Message> = all.iter().take(3).map(|(_, message)| message.clone()).collect();
    let digest = holdfast_notify::digest(&some).unwrap();
    all.into_iter().chain([("digest", digest)]).collect()
}

fn summary() -> Summary {
    let day = |name: &str, succeeded, failed| DayLine { name: name.to_owned(), succeeded, failed };
    let task = |label: &str, attention: Option<&str>| TaskLine {
        label: label.to_owned(),
        succeeded: 6,
        failed: 1,
        missed: 0,
        size: Some(178_000_000),
        size_before: Some(150_000_000),
        oldest: Some("Sunday, 2 February 2025 03:02".to_owned()),
        newest: Some("Sunday, 2 March 2025 03:02".to_owned()),
        attention: attention.map(str::to_owned),
    };
    Summary {
        event: "0123456789abcdef".to_owned(),
        title: "Your week of backups".to_owned(),
        week: "Monday, 24 February 2025 to Sunday, 2 March 2025".to_owned(),
        at_micros: at("2025-03-03T07:00:00Z").as_microsecond(),
        days: vec![
            day("Mon", 3, 0),
            day("Tue", 3, 0),
            day("Wed", 2, 1),
            day("Thu", 3, 0),
            day("Fri", 0, 3),
            day("Sat", 3, 0),
            day("Sun", 3, 0),
        ],
        tasks: vec![
            task("Website", None),
            task("Orders database", Some("Failing: Check database user and password of the remote server.")),
            TaskLine {
                size: None,
                size_before: None,
                oldest: None,
                newest: None,
                ..task(HOSTILE, Some("Nothing can be restored."))
            },
        ],
        more_tasks: 2,
        needing: 2,
        stored_bytes: 4_200_000_000,
        stored_before: 4_000_000_000,
        link: "https://backup.example.org/account".to_owned(),
    }
}

fn sender(mail: &MailServer, hooks: &Receiver) -> Sender {
    let url = format!("smtp://{}:{}@127.0.0.1:{}", MailServer::USER, "mail%20p%2Fw%2B%3F", mail.port());
    Sender::new(Settings {
        smtp: Some(Smtp::parse(&url).unwrap()),
        mail_from: "Holdfast <backup@example.org>".to_owned(),
        pushover_url: hooks.url("/1/messages.json"),
        ca_pem: Some(mail.certificate().to_vec()),
        ..Settings::default()
    })
}

#[tokio::test]
async fn every_message_matches_its_golden_files() {
    let (mail, hooks) = (MailServer::start(), Receiver::start().await);
    let sender = sender(&mail, &hooks);
    let zone = clock::zone("Europe/Berlin").unwrap();
    let hook = |path: &str| Secret::new(hooks.url(path));
    let channels = [
        ("discord", Channel::Discord(hook("/discord"))),
        ("slack", Channel::Slack(hook("/slack"))),
        ("teams", Channel::Teams(hook("/workflows/1"))),
        ("teams-connector", Channel::Teams(hook("/webhookb2/a@b/IncomingWebhook/c/d"))),
        ("pushover", Channel::Pushover { user: Secret::new("u".repeat(30)), token: Some(Secret::new("a".repeat(30))) }),
    ];
    let mut ids = std::collections::HashSet::new();
    for (name, message) in messages(&zone) {
        let content = NoticeContent::Message(message.clone());
        assert_eq!(
            NoticeContent::parse(&content.to_text()),
            Some(content.clone()),
            "it is the same when it was stored"
        );
        let mut wire = serde_json::Map::new();
        for (channel, to) in &channels {
            sender.deliver(to, &content, true).await.unwrap();
            let [received] = hooks.take().try_into().unwrap();
            assert_eq!(received.method, "POST");
            assert!(received.headers.contains(&("content-type".to_owned(), "application/json".to_owned())));
            let body = received.json();
            assert!(body.to_string().contains(&message.event), "the event is in it");
            wire.insert((*channel).to_owned(), body);
        }
        check_limits(&wire);
        compare(&format!("{name}.json"), &format!("{}\n", serde_json::to_string_pretty(&Value::Object(wire)).unwrap()));

        sender.deliver(&Channel::Email("ops@example.org".to_owned()), &content, false).await.unwrap();
        let arrived = mail.mails().pop().unwrap();
        assert_eq!(
            (arrived.from.as_str(), arrived.to.as_slice()),
            ("backup@example.org", &["ops@example.org".to_owned()][..])
        );
        assert!(arrived.is_tls && arrived.user.as_deref() == Some(MailServer::USER));
        let id = arrived.header("message-id").to_owned();
        assert!(id.starts_with(&format!("<{}.", message.event)) && id.ends_with("@example.org>"), "{id}");
        assert!(ids.insert(id), "each mail has an id of its own");
        assert_eq!(arrived.header("x-holdfast-event"), message.event);
        assert_eq!(arrived.header("auto-submitted"), "auto-generated");
        assert_eq!(arrived.header("bcc"), "", "nobody adds headers");
        assert_eq!(arrived.header("date"), "Mon, 03 Mar 2025 02:07:30 +0000");
        compare(&format!("{name}.txt"), &format!("Subject: {}\n\n{}", arrived.header("subject"), arrived.text));
        compare(&format!("{name}.html"), &arrived.html);
    }
}

/// Checks the limits of the channels.
fn check_limits(wire: &serde_json::Map<String, Value>) {
    let chars = |value: &Value| value.as_str().unwrap_or_default().chars().count();
    let embed = &wire["discord"]["embeds"][0];
    assert!(
        chars(&embed["title"]) <= 256
            && chars(&embed["description"]) <= 4096
            && chars(&embed["footer"]["text"]) <= 2048
    );
    let mut all = chars(&embed["title"]) + chars(&embed["description"]) + chars(&embed["footer"]["text"]);
    for field in embed["fields"].as_array().unwrap() {
        assert!(chars(&field["name"]) <= 256 && (1..=1024).contains(&chars(&field["value"])));
        all += chars(&field["name"]) + chars(&field["value"]);
    }
    assert!(all <= 6000, "{all}");
    assert_eq!(wire["discord"]["allowed_mentions"], json!({"parse": []}));
    let blocks = wire["slack"]["blocks"].as_array().unwrap();
    assert!(blocks.len() <= 50 && chars(&blocks[0]["text"]["text"]) <= 150);
    for block in blocks {
        assert!(chars(&block["text"]["text"]) <= 3000);
        let fields = block["fields"].as_array().map_or(&[][..], Vec::as_slice);
        assert!(fields.len() <= 10 && fields.iter().all(|field| chars(&field["text"]) <= 2000));
    }
    let pushover = &wire["pushover"];
    assert!(chars(&pushover["title"]) <= 250 && chars(&pushover["message"]) <= 1024 && chars(&pushover["url"]) <= 512);
    assert!(wire["teams"].to_string().len() <= 28_000);
}

#[tokio::test]
async fn the_weekly_summary_arrives_with_its_chart() {
    let (mail, hooks) = (MailServer::start(), Receiver::start().await);
    let sender = sender(&mail, &hooks);
    let content = NoticeContent::Summary(Box::new(summary()));
    sender.deliver(&Channel::Email("me@example.org".to_owned()), &content, false).await.unwrap();
    let [arrived] = mail.mails().try_into().unwrap();
    compare("summary.txt", &format!("Subject: {}\n\n{}", arrived.header("subject"), arrived.text));
    compare("summary.html", &arrived.html);
    let [(id, kind, picture)] = arrived.pictures.try_into().unwrap();
    assert_eq!((id.as_str(), kind.as_str()), ("<chart>", "image/png"));
    assert!(arrived.html.contains("src=\"cid:chart\""));
    compare("summary.png.base64", &format!("{picture}\n"));
    let refused = sender.deliver(&Channel::Slack(Secret::new(hooks.url("/x"))), &content, true).await.unwrap_err();
    assert!(!refused.can_retry, "a summary is a mail");
    assert!(hooks.received().is_empty());
}

#[tokio::test]
async fn long_texts_are_cut_to_what_channels_take() {
    let (mail, hooks) = (MailServer::start_open(), Receiver::start().await);
    let sender = sender(&mail, &hooks);
    let zone = clock::zone("UTC").unwrap();
    let long = "[*_~本".repeat(500);
    let task = TaskFacts { label: &long, server: &long, destination: &long, next_run_at: None };
    let outcome =
        Outcome::Failed { code: FailureCode::RemoteFailed, reason: &long, is_reminder: true, is_paused: true };
    let run = RunEnded { run: RunId(1), started_at: None, warnings: 0, outcome };
    let message = holdfast_notify::run_ended(&about(&zone), &task, &run);
    let many = vec![message; 60];
    let digest = holdfast_notify::digest(&many).unwrap();
    for message in [many[0].clone(), digest] {
        let content = NoticeContent::Message(message);
        let mut wire = serde_json::Map::new();
        for (name, channel) in [
            ("discord", Channel::Discord(Secret::new(hooks.url("/d")))),
            ("slack", Channel::Slack(Secret::new(hooks.url("/s")))),
            ("teams", Channel::Teams(Secret::new(hooks.url("/t")))),
            ("pushover", Channel::Pushover { user: Secret::new("u"), token: Some(Secret::new("t")) }),
        ] {
            sender.deliver(&channel, &content, true).await.unwrap();
            wire.insert(name.to_owned(), hooks.take()[0].json());
        }
        check_limits(&wire);
    }
}
