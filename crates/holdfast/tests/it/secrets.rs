use std::time::{Duration, Instant};

use holdfast_testkit::{Answer, Client, Engine, Receiver, Reply};
use serde_json::{Value, json};
use sqlx::{Connection as _, Row as _};

use crate::process::{Installation, all_bytes};

/// The secrets that are sent, unlike anything that could occur by chance.
const PLANTED: &[&str] = &[
    "planted-admin-password-7Qx",
    "planted-user-password-8Rw",
    "planted-wrong-password-9Sv",
    "planted-s3-access-key-1Ab",
    "planted-s3-secret-key-2Bc",
    "planted-database-password-3Cd",
    "planted-encryption-password-4De",
    "planted-hook-5Ef",
    "plantedpushoveruserkey00000006",
    "plantedpushoverapptoken0000007",
    "planted-in-a-refused-body-6Fg",
    "planted-heartbeat-7Gh",
    "planted-smtp-password-8Hi",
    "planted-mailbox-9Ij",
];

/// Sends every secret, in bodies that are accepted and in bodies that are refused; returns all responses.
async fn plant(client: &Client, hooks: &Receiver) -> Vec<Reply> {
    let mut answers = Vec::new();
    let mut post = async |path: &str, body: Value| {
        let reply = client.post(path, body).await;
        answers.push(reply.clone());
        reply
    };
    let server = json!({"label": "s", "ip_address": "127.0.0.1", "username": "u", "database_password": PLANTED[5]});
    let server = post("/api/remote-servers", server).await.id(201);
    let s3 = json!({"label": "d", "type": "s3", "s3_bucket_name": "bucket", "s3_access_key": PLANTED[3], "s3_secret_key": PLANTED[4]});
    let destination = post("/api/backup-destinations", s3).await.id(201);
    let hook = json!({"label": "h", "type": "slack", "value": hooks.url(&format!("/{}", PLANTED[7]))});
    let hook = post("/api/notification-streams", hook).await.id(201);
    let mail = json!({"label": "m", "type": "email", "value": format!("{}@example.org", PLANTED[13])});
    let mail = post("/api/notification-streams", mail).await.id(201);
    let pushover = json!({"label": "p", "type": "pushover", "value": PLANTED[8], "pushover_token": PLANTED[9]});
    let stream = post("/api/notification-streams", pushover).await.id(201);
    let task = json!({"remote_server_id": server, "backup_destination_id": destination, "label": "t", "type": "files",
        "source_path": "/srv", "frequency": "hourly", "encryption_password": PLANTED[6],
        "notification_stream_ids": [stream, hook, mail], "heartbeat_url": hooks.url(&format!("/{}", PLANTED[11]))});
    let task = post("/api/backup-tasks", task).await.id(201);
    post(&format!("/api/backup-tasks/{task}/run"), json!({})).await;
    for stream in [stream, hook, mail] {
        post(&format!("/api/notification-streams/{stream}/test"), json!({})).await;
    }
    // The heartbeat gets a start and a failure; the webhook and Pushover get a test and a failure each.
    let deadline = Instant::now() + Duration::from_secs(60);
    while hooks.received().len() < 6 {
        assert!(Instant::now() < deadline, "only these arrived: {:?}", hooks.received());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    post("/api/backup-destinations", json!({"type": "s3", "s3_secret_key": PLANTED[10]})).await.expect(422);
    post("/api/notification-streams", json!({"type": "email", "value": PLANTED[10]})).await.expect(422);
    post("/api/backup-tasks", json!({"encryption_password": PLANTED[10]})).await.expect(422);
    for path in [
        "user",
        "remote-servers",
        "backup-destinations",
        "notification-streams",
        "backup-tasks",
        "backup-task-logs",
        "backup-tasks/upcoming",
        "notices",
        "notification-settings",
        "ssh-key",
    ] {
        answers.push(client.get(&format!("/api/{path}")).await);
    }
    for (path, id) in [
        ("remote-servers", server),
        ("backup-destinations", destination),
        ("notification-streams", stream),
        ("backup-tasks", task),
    ] {
        answers.push(client.put(&format!("/api/{path}/{id}"), json!({"label": "renamed"})).await);
        answers.push(client.get(&format!("/api/{path}/{id}")).await);
    }
    answers
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

async fn check(engine: Engine) {
    let installation = Installation::new(engine).await;
    // It echoes the path of the request, as servers do.
    let hooks = Receiver::start().await;
    hooks.answer(Answer::Says(500, format!("Cannot POST /{} nor /{}", PLANTED[7], PLANTED[11])));
    let (smtp, pushover) = (format!("smtp://u:{}@127.0.0.1:1", PLANTED[12]), hooks.url("/pushover"));
    let service = installation.serve(&[
        ("HOLDFAST_SMTP_URL", &smtp),
        ("HOLDFAST_PUSHOVER_URL", &pushover),
        ("HOLDFAST_EGRESS_ALLOW", "127.0.0.0/8"),
        ("HOLDFAST_RETRY_SECS", "0"),
        ("HOLDFAST_LOG", "trace"),
        ("HOLDFAST_ADMIN_EMAIL", "root@example.org"),
        ("HOLDFAST_ADMIN_PASSWORD", PLANTED[0]),
        ("ENABLE_DEVICE_AUTH_ENDPOINT", "true"),
    ]);
    let add = ["user", "create", "--email", "ada@example.org", "--name", "Ada"];
    installation.succeed(&add, &format!("{}\n", PLANTED[1]));
    let sign_in = async |password: &str| {
        let body = json!({"email": "ada@example.org", "password": password, "device_name": "test"});
        service.client().post("/api/device-auth/token", body).await
    };
    let mut answers = vec![sign_in(PLANTED[2]).await];
    let token = sign_in(PLANTED[1]).await.expect(200)["token"].as_str().unwrap().to_owned();
    let client = service.client().with_token(&token);
    answers.extend(plant(&client, &hooks).await);
    let ssh_seed_is_sealed = client.get("/api/ssh-key").await.data(200);
    assert!(ssh_seed_is_sealed.get("private_key").is_none());
    let mut trigger = Value::Null;
    for task in client.get("/api/backup-tasks").await.expect(200)["data"].as_array().unwrap() {
        trigger =
            client.act(&format!("/api/backup-tasks/{}/trigger-url", task["id"])).await.data(200)["secret"].clone();
        let hook = format!("/webhooks/backup-tasks/{}/run?secret={}", task["id"], trigger.as_str().unwrap());
        answers.push(service.client().act(&hook).await);
    }
    let log = service.log.clone();
    service.signal("TERM");
    service.wait();

    let mut secrets: Vec<&str> = PLANTED.to_vec();
    secrets.push(&token);
    secrets.push(trigger.as_str().unwrap());
    let log = log.lock().unwrap().clone();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "the log was as talkative as it can be");
    let mut at_rest = all_bytes(&installation.data_dir());
    if let Some(url) = &installation.database_url {
        at_rest.extend(dump(url).await.into_bytes());
    }
    assert!(contains(&at_rest, "renamed"), "the search looks in the right place");
    for secret in secrets {
        assert!(!log.contains(secret), "{secret} is in the log");
        assert!(!contains(&at_rest, secret), "{secret} is in the database");
        for answer in &answers {
            assert!(!answer.text.contains(secret), "{secret} is in an answer: {}", answer.text);
        }
    }
}

/// Every value of every table as text.
async fn dump(url: &str) -> String {
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    let tables: Vec<String> =
        sqlx::query_scalar("SELECT table_name::text FROM information_schema.tables WHERE table_schema = 'public'")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    let mut text = String::new();
    for table in tables {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT encode(t::text::bytea, 'escape') FROM {table} t")));
        for row in rows.fetch_all(&mut connection).await.unwrap() {
            text.push_str(&row.get::<String, _>(0));
        }
    }
    text
}

#[tokio::test]
async fn no_secret_is_found_in_answers_logs_or_database_on_sqlite() {
    check(Engine::Sqlite).await;
}

#[tokio::test]
async fn no_secret_is_found_in_answers_logs_or_database_on_postgres() {
    check(Engine::Postgres).await;
}
