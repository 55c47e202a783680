use std::time::Duration;

use holdfast_app::{Origin, accounts, suspension};
use holdfast_store::users::{self, UserRow};
use holdfast_testkit::{PASSWORD, TestApp, TestUser, on_both_engines};
use reqwest::{Method, Response};

use crate::browser::{Browser, signed_in};

async fn open(browser: &Browser, path: &str) -> Response {
    let request = browser.client.request(Method::GET, path).header("cookie", browser.cookie_header());
    let mut response = request.send().await.unwrap();
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

/// Ends the session of a browser.
async fn end(app: &TestApp, user: &TestUser, browser: &mut Browser, how: &str) {
    let name = user.email.split('@').next().unwrap();
    match how {
        "signed out" => drop(browser.submit("/sign-out", &[]).await),
        "signed out by another" => {
            let mut other = signed_in(app, name).await;
            let page = other.get("/account/security").await;
            let path =
                page.text.split("action=\"/account/sessions/").nth(1).unwrap().split('"').next().unwrap().to_owned();
            assert_eq!(other.submit(&format!("/account/sessions/{path}"), &[]).await.status, 303);
        }
        "new password" => {
            let mut other = signed_in(app, name).await;
            other.get("/account/security").await;
            let fields = [("current_password", PASSWORD), ("password", "another long password")];
            let changed = other.submit("/account/password", &fields).await;
            assert_eq!(changed.status, 303, "{}", changed.text);
        }
        "account suspended" => {
            suspension::suspend(&app.app, &Origin::default(), &account(app, user).await).await.unwrap();
        }
        "account deleted" => {
            accounts::delete(&app.app, None, &Origin::default(), &account(app, user).await).await.unwrap();
        }
        _ => panic!("{how}"),
    }
}

on_both_engines! {
    async fn responses_end_with_the_session(app: TestApp) {
        let ways = ["signed out", "signed out by another", "new password", "account suspended", "account deleted"];
        for (number, how) in ways.into_iter().enumerate() {
            let name = format!("user{number}");
            let user = app.user(&name).await;
            let path = format!("/{}", user.endless_backup(&app).await);
            let mut browser = signed_in(&app, &name).await;
            browser.get("/account").await;
            let (download, live) = (open(&browser, &path).await, open(&browser, "/live").await);
            end(&app, &user, &mut browser, how).await;
            read_on(download).await.expect_err("the download looks complete");
            read_on(live).await.expect("a stream of events ends like any other");
            assert_eq!(browser.get("/account").await.status, 303, "{how}");
        }
    }
}
