use std::time::Duration;

use holdfast_app::accounts::{self, Keep};
use holdfast_app::tokens::{self, TokenRequest};
use holdfast_app::{Origin, suspension};
use holdfast_core::Secret;
use holdfast_core::clock::later;
use holdfast_core::scope::{Scope, ScopeSet};
use holdfast_store::users::{self, UserRow};
use holdfast_testkit::{Client, TestApp, TestUser, on_both_engines};
use reqwest::{Method, Response};
use serde_json::json;

async fn open(client: &Client, path: &str) -> Response {
    let mut response = client.request(Method::GET, path).bearer_auth(client.token()).send().await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    assert!(!response.chunk().await.unwrap().unwrap().is_empty());
    response
}

/// Reads until the response ends; an error if it looks as if it was cut off.
async fn read_on(mut response: Response) -> reqwest::Result<()> {
    let reading = async {
        while let Some(_piece) = response.chunk().await? {}
        Ok(())
    };
    tokio::time::timeout(Duration::from_secs(60), reading).await.expect("the response goes on")
}

async fn account(app: &TestApp, user: &TestUser) -> UserRow {
    users::find(&mut app.app.store.read().await.unwrap(), user.id).await.unwrap().unwrap()
}

/// Ends a user's right to what they are reading.
async fn end(app: &TestApp, user: &TestUser, how: &str) {
    let (service, origin) = (&app.app, Origin::default());
    match how {
        "token revoked" => {
            for token in tokens::list(service, user.id).await.unwrap() {
                tokens::revoke(service, user.id, &origin, token.id).await.unwrap();
            }
        }
        "token expired" => app.clock.advance_secs(3600),
        "new password" => {
            let (password, keep) = (Secret::new("another long password"), Keep::default());
            accounts::reset_password(service, &origin, user.id, &password, keep).await.unwrap();
        }
        "account suspended" => drop(suspension::suspend(service, &origin, &account(app, user).await).await.unwrap()),
        "account deleted" => accounts::delete(service, None, &origin, &account(app, user).await).await.unwrap(),
        _ => panic!("{how}"),
    }
}

on_both_engines! {
    async fn responses_end_with_the_right_to_them(app: TestApp) {
        let ways = ["token revoked", "token expired", "new password", "account suspended", "account deleted"];
        for (number, how) in ways.into_iter().enumerate() {
            let user = app.user(&format!("user{number}")).await;
            let path = format!("/api/{}", user.endless_backup(&app).await);
            let expires_at = Some(later(app.app.now(), 1800));
            let request = TokenRequest { name: "reader".into(), scopes: ScopeSet::all(), expires_at };
            let token = tokens::create(&app.app, user.id, &Origin::default(), &request).await.unwrap();
            let client = app.client().with_token(token.reveal());
            let (download, events) = (open(&client, &path).await, open(&client, "/api/events").await);
            end(&app, &user, how).await;
            read_on(download).await.expect_err("the download looks complete");
            read_on(events).await.expect("a stream of events ends like any other");
            client.get("/api/user").await.expect(401);
        }
    }

    async fn what_a_client_does_not_read_is_released_too(app: TestApp) {
        let user = app.user("ada").await;
        let path = format!("/api/{}", user.endless_backup(&app).await);
        let mut held = Vec::new();
        let mut second = app.token(user.id, ScopeSet::all()).await;
        for client in [&user.client, &second] {
            while client.get("/api/user").await.status == 200 {
                let sent = client.request(Method::GET, &path).bearer_auth(client.token()).send().await.unwrap();
                if sent.status() != 200 {
                    assert_eq!(sent.status(), 429);
                    break;
                }
                held.push(sent);
            }
        }
        assert!(held.len() > 1);
        second = app.token(user.id, ScopeSet::all()).await;
        drop(held.split_off(7));
        for token in tokens::list(&app.app, user.id).await.unwrap().iter().take(2) {
            tokens::revoke(&app.app, user.id, &Origin::default(), token.id).await.unwrap();
        }
        let mut taken = Vec::new();
        let filling = async {
            while taken.len() < 6 {
                let sent = second.request(Method::GET, &path).bearer_auth(second.token()).send().await.unwrap();
                if sent.status() == 200 {
                    taken.push(sent);
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), filling).await.expect("the places are still taken");
    }

    async fn one_token_cannot_take_the_places_of_another(app: TestApp) {
        let user = app.user("ada").await;
        let path = format!("/api/{}", user.endless_backup(&app).await);
        let narrow = app.scoped(user.id, Scope::ViewBackupTasks).await;
        for path in [path.as_str(), "/api/events"] {
            let mut held = Vec::new();
            loop {
                let sent = narrow.request(Method::GET, path).bearer_auth(narrow.token()).send().await.unwrap();
                if sent.status() != 200 {
                    break;
                }
                held.push(sent);
            }
            assert!(held.len() > 1, "{path}");
            open(&user.client, path).await;
        }
        // Looking through backups has a limit of its own, which others of the user do not share either.
        user.client.post("/api/tags", json!({"label": "still works"})).await.expect(201);
    }
}
