use std::os::unix::fs::FileExt as _;

use holdfast_testkit::{Engine, FaultProxy, PostgresServer, SmallDisk};
use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection};

use super::{assert_doctor, assert_refused, token, wait_for};
use crate::process::Installation;

#[tokio::test]
async fn a_read_only_postgresql_is_named_and_the_service_recovers() {
    let installation = Installation::new(Engine::Postgres).await;
    let token = token(&installation);
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    wait_for(&client, 200, "ok").await;
    let url = installation.database_url.clone().unwrap();
    let name = url.rsplit('/').next().unwrap().to_owned();
    let set = async |value: &str| {
        let mut connection = PgConnection::connect(&PostgresServer::shared().url("postgres")).await.unwrap();
        let sql = format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}");
        connection.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
        let sql = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        connection.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    };
    set("on").await;
    wait_for(&client, 503, "the database is read-only").await;
    assert!(client.get("/metrics").await.text.contains("\nholdfast_database_writable 0\n"));
    assert_refused(&client, "Holdfast's database is read-only").await;
    assert_doctor(&installation, "read-only");
    set("off").await;
    wait_for(&client, 200, "ok").await;
    client.post("/api/tags", json!({"label": "new"})).await.expect(201);
}

#[tokio::test]
async fn a_postgresql_that_hangs_or_is_away_is_named_and_the_service_recovers() {
    let mut installation = Installation::new(Engine::Postgres).await;
    let direct = installation.database_url.clone().unwrap();
    let server = PostgresServer::shared();
    let proxy = FaultProxy::start(server.port());
    let through = direct.replace(&format!(":{}/", server.port()), &format!(":{}/", proxy.port()));
    installation.database_url = Some(through);
    let service = installation.serve(&[]);
    let client = service.client();
    wait_for(&client, 200, "ok").await;
    proxy.silence_after(0);
    wait_for(&client, 503, "the database does not answer").await;
    proxy.heal();
    wait_for(&client, 200, "ok").await;
    // Metrics do not wait for ever, even if a connection that has just been used hangs.
    proxy.silence_after(0);
    let metrics = client.get("/metrics").await.text;
    assert!(metrics.contains("\nholdfast_database_up 0\n"), "{metrics}");
    proxy.heal();
    wait_for(&client, 200, "ok").await;
    proxy.refuse();
    proxy.cut_after(0);
    wait_for(&client, 503, "the database does not answer").await;
    assert_doctor(&installation, "cannot reach PostgreSQL");
    proxy.heal();
    wait_for(&client, 200, "ok").await;
}

/// Executes a statement as an administrator of PostgreSQL, after ending all connections of a database.
async fn administer(name: &str, sql: String) {
    let mut connection = PgConnection::connect(&PostgresServer::shared().url("postgres")).await.unwrap();
    // Others may connect again at any moment.
    loop {
        let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        connection.execute(sqlx::AssertSqlSafe(end)).await.unwrap();
        match connection.execute(sqlx::AssertSqlSafe(sql.clone())).await {
            Ok(_) => return,
            Err(error) => {
                let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
                assert_eq!(code.as_deref(), Some("55006"), "in use is all that may be wrong: {error}");
            }
        }
    }
}

#[tokio::test]
async fn a_postgresql_that_refuses_connections_is_named_and_the_service_recovers() {
    let installation = Installation::new(Engine::Postgres).await;
    let mut with_user = Installation::new(Engine::Postgres).await;
    let service = installation.serve(&[]);
    let client = service.client();
    wait_for(&client, 200, "ok").await;
    let url = installation.database_url.clone().unwrap();
    let name = url.rsplit('/').next().unwrap();
    administer(name, format!("ALTER DATABASE {name} RENAME TO {name}_away")).await;
    wait_for(&client, 503, "PostgreSQL does not have the database").await;
    assert_doctor(&installation, "PostgreSQL does not have the database");
    administer(&format!("{name}_away"), format!("ALTER DATABASE {name}_away RENAME TO {name}")).await;
    wait_for(&client, 200, "ok").await;
    // An empty database in place of ours.
    administer(name, format!("ALTER DATABASE {name} RENAME TO {name}_away")).await;
    administer(name, format!("CREATE DATABASE {name}")).await;
    wait_for(&client, 503, "the database does not contain an installation").await;
    let key = installation.data_dir().join("master.key");
    let kept = key.with_extension("kept");
    std::fs::rename(&key, &kept).unwrap();
    let said = assert_doctor(&installation, "");
    assert!(!said.contains("put back the copy that belongs to it"), "an empty database needs no old key: {said}");
    std::fs::rename(&kept, &key).unwrap();
    administer(name, format!("DROP DATABASE {name}")).await;
    administer(&format!("{name}_away"), format!("ALTER DATABASE {name}_away RENAME TO {name}")).await;
    wait_for(&client, 200, "ok").await;
    // Any password is right on this server, but not any user.
    let url = with_user.database_url.take().unwrap();
    with_user.database_url = Some(url.replace("holdfast@", "nobody@"));
    assert_doctor(&with_user, "does not accept the user or the password");
}

/// An installation whose database is on this server.
async fn install_on(server: &PostgresServer) -> Installation {
    let mut installation = Installation::new(Engine::Sqlite).await;
    installation.database_url = Some(server.create_database().await);
    installation
}

#[tokio::test]
async fn a_postgresql_that_is_stopped_is_named_and_the_service_recovers() {
    let mut server = PostgresServer::start(false);
    let installation = install_on(&server).await;
    let service = installation.serve(&[]);
    let client = service.client();
    wait_for(&client, 200, "ok").await;
    server.stop();
    wait_for(&client, 503, "the database does not answer; start PostgreSQL").await;
    assert_doctor(&installation, "cannot reach PostgreSQL");
    assert_doctor(&installation, "start it, or correct HOLDFAST_DATABASE_URL");
    server.start_again();
    wait_for(&client, 200, "ok").await;
}

#[tokio::test]
async fn a_postgresql_that_is_paused_is_named_and_the_service_recovers() {
    let server = PostgresServer::start(false);
    let installation = install_on(&server).await;
    let service = installation.serve(&[]);
    let client = service.client();
    wait_for(&client, 200, "ok").await;
    let paused = server.pause();
    wait_for(&client, 503, "the database does not answer").await;
    assert_doctor(&installation, "cannot reach PostgreSQL");
    drop(paused);
    wait_for(&client, 200, "ok").await;
}

#[tokio::test]
async fn a_full_disk_of_postgresql_is_named_and_the_service_recovers() {
    let server = PostgresServer::start(false);
    let mut installation = Installation::new(Engine::Sqlite).await;
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path(), "64m") else {
        eprintln!("skipped: this user may not mount; `cargo xtask test` as root runs it");
        return;
    };
    let space = folder.path().join("space");
    std::fs::create_dir(&space).unwrap();
    server.give(&space);
    // The folder around it is private.
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut connection = PgConnection::connect(&server.url("postgres")).await.unwrap();
    let sql = format!("CREATE TABLESPACE small LOCATION '{}'", space.display());
    connection.execute(sqlx::AssertSqlSafe(sql)).await.unwrap();
    connection.execute("CREATE DATABASE cramped TABLESPACE small").await.unwrap();
    installation.database_url = Some(server.url("cramped"));
    let token = token(&installation);
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    wait_for(&client, 200, "ok").await;
    let filler = disk.fill();
    wait_for(&client, 503, "the disk of the database is full").await;
    assert!(client.get("/metrics").await.text.contains("\nholdfast_database_writable 0\n"));
    assert_doctor(&installation, "full");
    // Until the pages of the table are full.
    let mut number = 0;
    while client.post("/api/tags", json!({"label": format!("tag {number}")})).await.status == 201 {
        number += 1;
    }
    assert_refused(&client, "the disk of Holdfast's database is full").await;
    std::fs::remove_file(filler).unwrap();
    wait_for(&client, 200, "ok").await;
    client.post("/api/tags", json!({"label": "new"})).await.expect(201);
    drop((service, server));
}

#[tokio::test]
async fn damaged_pages_of_postgresql_are_named_and_the_service_recovers() {
    let mut server = PostgresServer::start_with_checksums();
    let installation = install_on(&server).await;
    let token = token(&installation);
    let service = installation.serve(&[]);
    let client = service.client().with_token(&token);
    client.post("/api/tags", json!({"label": "kept"})).await.expect(201);
    wait_for(&client, 200, "ok").await;
    let mut connection = PgConnection::connect(installation.database_url.as_ref().unwrap()).await.unwrap();
    let found = sqlx::query_as("SELECT pg_relation_filepath('tags')").fetch_one(&mut connection).await;
    let (path,): (String,) = found.unwrap();
    connection.close().await.unwrap();
    server.stop();
    let file = std::fs::File::options().read(true).write(true).open(server.data_folder().join(path)).unwrap();
    let mut intact = [0; 256];
    // In the middle of the first page, where only its checksum tells.
    file.read_exact_at(&mut intact, 4096).unwrap();
    file.write_all_at(&[0xff; 256], 4096).unwrap();
    server.start_again();
    // Nobody asks for tags.
    wait_for(&service.client(), 503, "the database is damaged").await;
    assert!(client.get("/metrics").await.text.contains("\nholdfast_database_damaged 1\n"));
    assert_doctor(&installation, "damaged");
    let body = client.get("/api/tags").await.expect(503);
    assert!(body["message"].as_str().unwrap().contains("damaged"), "{body}");
    server.stop();
    file.write_all_at(&intact, 4096).unwrap();
    server.start_again();
    wait_for(&client, 200, "ok").await;
    assert_eq!(client.get("/api/tags").await.expect(200)["meta"]["total"], 1);
}
