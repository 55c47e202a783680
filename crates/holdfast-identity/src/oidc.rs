//! OpenID Connect: any issuer that supports discovery.

use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use holdfast_app::Result;
use holdfast_app::identities::{AuthorizationRequest, AuthorizationResponse, Identity};
use holdfast_core::{Timestamp, random};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::settings::{Client, OidcSettings};
use crate::web::{self, Web, refused, unavailable};

/// Tolerance for differences between clocks.
const SKEW_SECS: i64 = 60;

/// Where the issuer's endpoints are.
#[derive(Clone)]
struct Endpoints {
    authorization: String,
    token: String,
    /// The issuer accepts the client's secret only in the form.
    wants_form: bool,
}

pub(crate) struct Oidc {
    settings: OidcSettings,
    web: Arc<Web>,
    /// Discovered once; a failed discovery is tried again.
    endpoints: Mutex<Option<Endpoints>>,
}

impl Oidc {
    pub(crate) fn new(settings: OidcSettings, web: Arc<Web>) -> Self {
        Self { settings, web, endpoints: Mutex::default() }
    }

    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    pub(crate) fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    async fn discover(&self) -> Result<Endpoints> {
        let mut known = self.endpoints.lock().await;
        if let Some(endpoints) = known.as_ref() {
            return Ok(endpoints.clone());
        }
        let issuer = self.settings.issuer.trim_end_matches('/');
        let (client, url) = self.web.at(&format!("{issuer}/.well-known/openid-configuration"))?;
        let found = web::json(client.get(url)).await?;
        if found["issuer"].as_str() != Some(&self.settings.issuer) {
            return Err(unavailable("the issuer's name for itself differs from HOLDFAST_OIDC_ISSUER"));
        }
        let text = |name: &str| {
            let missing = || unavailable(format!("the issuer has no {name}"));
            found[name].as_str().map(str::to_owned).ok_or_else(missing)
        };
        let methods = found["token_endpoint_auth_methods_supported"].as_array();
        let offers = |method: &str| methods.is_some_and(|all| all.iter().any(|known| known == method));
        let endpoints = Endpoints {
            authorization: text("authorization_endpoint")?,
            token: text("token_endpoint")?,
            // By default, the secret is sent in the header.
            wants_form: methods.is_some() && !offers("client_secret_basic"),
        };
        *known = Some(endpoints.clone());
        Ok(endpoints)
    }

    pub(crate) async fn authorization_url(&self, request: &AuthorizationRequest) -> Result<String> {
        let mut url = web::parse(&self.discover().await?.authorization)?;
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("scope", "openid profile email")
            .append_pair("client_id", &self.settings.client.id)
            .append_pair("redirect_uri", &request.redirect_uri)
            .append_pair("state", &request.state)
            .append_pair("nonce", &request.nonce)
            .append_pair("code_challenge", &request.challenge)
            .append_pair("code_challenge_method", "S256");
        Ok(url.into())
    }

    pub(crate) async fn identify(&self, back: &AuthorizationResponse) -> Result<Identity> {
        let endpoints = self.discover().await?;
        let (client, url) = self.web.at(&endpoints.token)?;
        let Client { id, secret } = &self.settings.client;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", back.code.as_str()),
            ("redirect_uri", back.redirect_uri.as_str()),
            ("code_verifier", back.verifier.reveal()),
        ];
        let request = client.post(url);
        let request = if endpoints.wants_form {
            form.extend([("client_id", id.as_str()), ("client_secret", secret.reveal())]);
            request
        } else {
            // Both parts are encoded before they are joined.
            let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            request.basic_auth(encoded(id), Some(encoded(secret.reveal())))
        };
        let answer = web::json(web::form(request, &form)).await?;
        let token = answer["id_token"].as_str().ok_or_else(refused)?;
        self.read(token, &back.nonce, back.now)
    }

    /// The identity in an ID token. The token came directly from the issuer over an authenticated connection, so its
    /// signature need not be checked. What is checked here is that it is the issuer's, meant for us, not expired, and
    /// the answer to this request.
    fn read(&self, token: &str, nonce: &str, now: Timestamp) -> Result<Identity> {
        let payload = token.split('.').nth(1).and_then(|part| BASE64_URL_SAFE_NO_PAD.decode(part).ok());
        let claims: Value = payload.and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or_else(refused)?;
        let id = self.settings.client.id.as_str();
        let is_for_us = match &claims["aud"] {
            Value::String(audience) => audience == id,
            Value::Array(audiences) => {
                let is_named = audiences.iter().any(|audience| audience == id);
                is_named && (claims["azp"] == id || (audiences.len() == 1 && claims["azp"].is_null()))
            }
            _ => false,
        };
        let is_fresh = claims["exp"].as_i64().is_some_and(|end| end + SKEW_SECS > now.as_second());
        let is_answer = claims["nonce"].as_str().is_some_and(|given| random::equal(given.as_bytes(), nonce.as_bytes()));
        let is_issuers = claims["iss"].as_str() == Some(&self.settings.issuer);
        if !(is_for_us && is_fresh && is_answer && is_issuers) {
            tracing::warn!(is_for_us, is_fresh, is_answer, is_issuers, "the ID token of the provider is invalid");
            return Err(refused());
        }
        let text = |name: &str| claims[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let subject = text("sub").filter(|subject| subject.len() <= 255).ok_or_else(refused)?;
        let name = text("preferred_username").or_else(|| text("email")).or_else(|| text("name"));
        Ok(Identity { name: name.unwrap_or_else(|| subject.clone()), subject })
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::Secret;
    use serde_json::json;

    use super::*;

    fn oidc() -> Oidc {
        let client = Client { id: "us".into(), secret: Secret::new("s") };
        let settings = OidcSettings { client, issuer: "https://id.example.org".into(), name: "Company".into() };
        Oidc::new(settings, Arc::new(Web::new(Vec::new(), None)))
    }

    fn token(change: impl FnOnce(&mut Value)) -> String {
        let mut claims = json!({"iss": "https://id.example.org", "aud": "us", "sub": "7", "exp": 2_000, "nonce": "n"});
        change(&mut claims);
        format!("x.{}.x", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[test]
    fn a_token_must_be_the_issuers_for_us_fresh_and_the_answer_to_our_request() {
        let read = |token: &str| oidc().read(token, "n", Timestamp::from_second(1_000).unwrap());
        assert_eq!(read(&token(|_| {})).unwrap().subject, "7");
        assert_eq!(read(&token(|claims| claims["preferred_username"] = json!("ada"))).unwrap().name, "ada");
        let both = json!(["us", "them"]);
        assert!(read(&token(|claims| (claims["aud"], claims["azp"]) = (both.clone(), json!("us")))).is_ok());
        assert!(read(&token(|claims| claims["aud"] = json!(["us"]))).is_ok());
        let wrong: [fn(&mut Value); 7] = [
            |claims| claims["iss"] = json!("https://evil.example"),
            |claims| claims["aud"] = json!("them"),
            |claims| claims["aud"] = json!(["us", "them"]),
            |claims| claims["exp"] = json!(900),
            |claims| claims["nonce"] = json!("other"),
            |claims| claims["nonce"] = Value::Null,
            |claims| claims["sub"] = json!(""),
        ];
        for change in wrong {
            assert!(read(&token(change)).is_err());
        }
        for rubbish in ["", "a.b", "a.!!.c"] {
            assert!(read(rubbish).is_err());
        }
    }
}
