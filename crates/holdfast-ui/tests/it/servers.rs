use holdfast_core::ids::ServerId;
use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::json;

use crate::browser::signed_in;

on_both_engines! {
    async fn moving_a_server_reports_which_secrets_were_removed(app: TestApp) {
        let ada = app.user("ada").await;
        let server = json!({"label": "db", "ip_address": "192.0.2.1", "username": "backup", "database_password": "planted"});
        let id = ada.client.post("/api/remote-servers", server).await.id(201);
        let mut tx = app.app.store.begin().await.unwrap();
        holdfast_store::servers::pin_host_key(&mut tx, ServerId(id), "SHA256:old").await.unwrap();
        tx.commit().await.unwrap();
        let mut browser = signed_in(&app, "ada").await;
        let (page, edit) = (format!("/servers/{id}"), format!("/servers/{id}/edit"));
        browser.get(&edit).await;
        let fields = |label: &'static str, host: &'static str| {
            vec![("label", label), ("ip_address", host), ("username", "backup"), ("port", "22")]
        };
        let renamed = browser.submit(&edit, &fields("other", "192.0.2.1")).await;
        assert_eq!(renamed.header("location"), Some(&*format!("{page}?said=saved")));
        let moved = browser.submit(&edit, &fields("other", "192.0.2.2")).await;
        let told = moved.header("location").unwrap().to_owned();
        assert_eq!(told, format!("{page}?said=server-moved"));
        assert!(browser.get(&told).await.text.contains("its database password was removed"));
        let connection = ada.client.get(&format!("/api/remote-servers/{id}")).await.data(200)["connection"].clone();
        assert_eq!(connection["is_database_password_set"], false);
    }

    /// The button accepts the key that the page shows, not another one that the server has presented since.
    async fn the_key_that_was_shown_is_the_one_that_is_accepted(app: TestApp) {
        let ada = app.user("ada").await;
        let id = ada.server().await;
        let offer = async |key: &str| {
            let mut tx = app.app.store.begin().await.unwrap();
            holdfast_store::servers::update_offered_host_key(&mut tx, ServerId(id), key).await.unwrap();
            tx.commit().await.unwrap();
        };
        offer("SHA256:first").await;
        let mut browser = signed_in(&app, "ada").await;
        assert!(browser.get(&format!("/servers/{id}")).await.text.contains("name=\"key\" value=\"SHA256:first\""));
        offer("SHA256:second").await;
        let accept = format!("/servers/{id}/accept-key");
        assert_eq!(browser.submit(&accept, &[("key", "SHA256:first")]).await.status, 409);
        assert_eq!(browser.submit(&accept, &[]).await.status, 409);
        assert_eq!(browser.submit(&accept, &[("key", "SHA256:second")]).await.status, 303);
    }
}
