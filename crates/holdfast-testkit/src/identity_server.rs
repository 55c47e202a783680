//! An identity provider for OpenID Connect and GitHub's OAuth, as strict as the real ones about requests.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use holdfast_core::clock::{Clock as _, SystemClock};
use holdfast_core::random;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub const CLIENT_ID: &str = "holdfast client";
pub const CLIENT_SECRET: &str = "s3cret/+ %";

/// The authorization request that a code was issued for.
struct Asked {
    redirect_uri: String,
    challenge: String,
    nonce: String,
    subject: i64,
}

struct Shared {
    base_url: String,
    codes: Mutex<HashMap<String, Asked>>,
    /// The account that everybody is signed in with at the provider.
    subject: Mutex<i64>,
}

/// Stops with the test's runtime.
pub struct IdentityServer {
    shared: Arc<Shared>,
}

type Params = HashMap<String, String>;

impl IdentityServer {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let base_url = format!("http://{}", listener.local_addr().expect("bound"));
        let shared = Arc::new(Shared { base_url, codes: Mutex::default(), subject: Mutex::new(7) });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discover))
            .route("/authorize", get(authorize))
            .route("/login/oauth/authorize", get(authorize))
            .route("/token", post(token))
            .route("/login/oauth/access_token", post(token))
            .route("/user", get(user))
            .with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { shared }
    }

    pub fn base_url(&self) -> &str {
        &self.shared.base_url
    }

    /// Signs in with another account at the provider.
    pub fn become_other(&self, subject: i64) {
        *self.shared.subject.lock().expect("no test panics here") = subject;
    }
}

fn json_answer(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

async fn discover(State(shared): State<Arc<Shared>>) -> Response {
    let base = &shared.base_url;
    json_answer(
        &json!({"issuer": base, "authorization_endpoint": format!("{base}/authorize"), "token_endpoint": format!("{base}/token")}),
    )
}

async fn authorize(State(shared): State<Arc<Shared>>, Query(asked): Query<Params>) -> Response {
    let text = |name: &str| asked.get(name).cloned().unwrap_or_default();
    if text("client_id") != CLIENT_ID || text("code_challenge_method") != "S256" || text("state").is_empty() {
        return StatusCode::BAD_REQUEST.into_response();
    }
    let code = random::hex(&random::bytes::<8>());
    let subject = *shared.subject.lock().expect("no test panics here");
    let redirect_uri = text("redirect_uri");
    let kept =
        Asked { redirect_uri: redirect_uri.clone(), challenge: text("code_challenge"), nonce: text("nonce"), subject };
    shared.codes.lock().expect("no test panics here").insert(code.clone(), kept);
    Redirect::to(&format!("{redirect_uri}?code={code}&state={}", text("state"))).into_response()
}

async fn token(State(shared): State<Arc<Shared>>, headers: HeaderMap, body: String) -> Response {
    let form: Params = url::form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    let text = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
    let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let basic =
        format!("Basic {}", BASE64_STANDARD.encode(format!("{}:{}", encoded(CLIENT_ID), encoded(CLIENT_SECRET))));
    let is_known = headers.get(header::AUTHORIZATION).is_some_and(|value| value.as_bytes() == basic.as_bytes())
        || (text("client_id") == CLIENT_ID && text("client_secret") == CLIENT_SECRET);
    // A code is valid once.
    let asked = shared.codes.lock().expect("no test panics here").remove(text("code"));
    let proof = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(text("code_verifier")));
    let Some(asked) =
        asked.filter(|asked| is_known && asked.redirect_uri == text("redirect_uri") && asked.challenge == proof)
    else {
        return (StatusCode::BAD_REQUEST, json_answer(&json!({"error": "invalid_grant"}))).into_response();
    };
    let claims = json!({
        "iss": shared.base_url, "aud": CLIENT_ID, "sub": asked.subject.to_string(), "nonce": asked.nonce,
        "exp": SystemClock.now().as_second() + 300, "preferred_username": format!("octocat-{}", asked.subject),
    });
    let id_token = format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()));
    let access = format!("access-{}", asked.subject);
    json_answer(&json!({"access_token": access, "token_type": "bearer", "id_token": id_token}))
}

async fn user(headers: HeaderMap) -> Response {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match bearer.strip_prefix("Bearer access-").and_then(|id| id.parse::<i64>().ok()) {
        Some(id) => json_answer(&json!({"id": id, "login": format!("octocat-{id}")})),
        None => StatusCode::UNAUTHORIZED.into_response(),
    }
}
