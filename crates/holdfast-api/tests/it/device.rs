use holdfast_app::{Limits, Origin, tokens, two_factor};
use holdfast_testkit::{Engine, PASSWORD, Settings, TestApp, on_both_engines};
use serde_json::json;

const PATH: &str = "/api/device-auth/token";

on_both_engines! {
    async fn valid_credentials_yield_a_token_for_all_scopes(app: TestApp) {
        let user = app.user("ada").await;
        let body = json!({"email": "ADA@example.org", "password": PASSWORD, "device_name": "phone"});
        let answer = app.client().post(PATH, body).await.expect(200);
        assert_eq!(answer.as_object().unwrap().keys().collect::<Vec<_>>(), ["token"]);
        let token = answer["token"].as_str().unwrap();
        assert!(token.starts_with("hf_"));
        let phone = app.client().with_token(token);
        assert_eq!(phone.get("/api/user").await.data(200)["id"], user.id.0);
        phone.post("/api/tags", json!({"label": "x"})).await.expect(201);
    }

    async fn unknown_account_and_wrong_password_get_the_same_answer(app: TestApp) {
        app.user("ada").await;
        let post = async |email: &str, password: &str| {
            app.client().post(PATH, json!({"email": email, "password": password, "device_name": "x"})).await
        };
        let wrong = post("ada@example.org", "wrong").await;
        let unknown = post("nobody@example.org", "wrong").await;
        assert_eq!((wrong.status, &wrong.text), (422, &unknown.text));
        assert_eq!(wrong.error_of("email"), "The provided credentials are incorrect.");
        let body = app.client().post(PATH, json!({})).await.expect(422);
        for field in ["email", "password", "device_name"] {
            assert!(body["errors"][field].is_array(), "{field}");
        }
    }

    async fn two_factor_needs_a_code_and_each_works_once(app: TestApp) {
        let user = app.user("ada").await;
        let row = tokens::user_by_email(&app.app, &user.email).await.unwrap();
        let url = two_factor::enable(&app.app, &Origin::default(), &row).await.unwrap();
        let totp = totp_rs::Totp::from_url(url.reveal()).unwrap();
        let body = |otp: serde_json::Value| {
            json!({"email": user.email, "password": PASSWORD, "device_name": "x", "otp": otp})
        };
        let post = async |otp| app.client().post(PATH, body(otp)).await;
        assert_eq!(post(json!(null)).await.error_of("otp"), "The otp field is required.");
        assert_eq!(post(json!("000000")).await.error_of("otp"), "The otp field is incorrect.");
        let seconds = app.app.now().as_second();
        let code = totp.generate(u64::try_from(seconds).unwrap()).to_string();
        post(json!(code)).await.expect(200);
        assert_eq!(post(json!(code)).await.error_of("otp"), "The otp field is incorrect.");
        let row = tokens::user_by_email(&app.app, &user.email).await.unwrap();
        two_factor::disable(&app.app, &Origin::default(), &row).await.unwrap();
        post(json!(null)).await.expect(200);
    }
}

#[tokio::test]
async fn a_disabled_endpoint_responds_like_an_unknown_path() {
    let app = TestApp::start_with(Engine::Sqlite, settings(false)).await;
    let off = app.client().post(PATH, json!({"email": "a@example.org"})).await;
    let unknown = app.client().post("/api/nothing-here", json!({})).await;
    assert_eq!((off.status, &off.text), (404, &unknown.text));
    assert_eq!(app.client().get(PATH).await.status, 404, "whatever the method");
}

#[tokio::test]
async fn guesses_from_elsewhere_do_not_lock_out_known_addresses() {
    let app = TestApp::start_with(Engine::Sqlite, settings(true)).await;
    app.user("ada").await;
    let post = async |last: u8, password: &str| {
        let client = app.client().from_address([127, 0, 0, last].into());
        client.post(PATH, json!({"email": "ada@example.org", "password": password, "device_name": "x"})).await
    };
    post(200, PASSWORD).await.expect(200);
    app.clock.advance_secs(60);
    for stranger in 1..=6 {
        for _ in 0..5 {
            post(stranger, "guess").await.expect(422);
        }
    }
    post(7, PASSWORD).await.expect(429);
    post(200, PASSWORD).await.expect(200);
    for _ in 0..4 {
        post(200, "guess").await.expect(422);
    }
    post(200, PASSWORD).await.expect(429);
}

#[tokio::test]
async fn guessing_is_slowed_down_per_email_and_address() {
    let app = TestApp::start_with(Engine::Sqlite, settings(true)).await;
    app.user("ada").await;
    let post = async |email: &str| {
        app.client().post(PATH, json!({"email": email, "password": "guess", "device_name": "x"})).await
    };
    for _ in 0..5 {
        post("ada@example.org").await.expect(422);
    }
    let refused = post("ada@example.org").await;
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(refused.expect(429)["error"], "Too Many Requests");
    post("bob@example.org").await.expect(422);
    app.clock.advance_secs(60);
    post("ada@example.org").await.expect(422);
}

fn settings(device_auth_enabled: bool) -> Settings {
    Settings { limits: Limits::default(), device_auth_enabled, ..Settings::default() }
}
