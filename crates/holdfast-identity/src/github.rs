//! GitHub, which uses OAuth 2.0 but not OpenID Connect.

use std::sync::Arc;

use holdfast_app::Result;
use holdfast_app::identities::{AuthorizationRequest, AuthorizationResponse, Identity};

use crate::settings::GitHubSettings;
use crate::web::{self, Web, refused};

pub(crate) struct GitHub {
    pub settings: GitHubSettings,
    pub web: Arc<Web>,
}

impl GitHub {
    pub(crate) fn authorization_url(&self, request: &AuthorizationRequest) -> Result<String> {
        let mut url = web::parse(&format!("{}/login/oauth/authorize", self.settings.url))?;
        url.query_pairs_mut()
            .append_pair("client_id", &self.settings.client.id)
            .append_pair("redirect_uri", &request.redirect_uri)
            .append_pair("state", &request.state)
            // Identifying the user needs no scope.
            .append_pair("scope", "")
            .append_pair("code_challenge", &request.challenge)
            .append_pair("code_challenge_method", "S256");
        Ok(url.into())
    }

    pub(crate) async fn identify(&self, back: &AuthorizationResponse) -> Result<Identity> {
        let (client, url) = self.web.at(&format!("{}/login/oauth/access_token", self.settings.url))?;
        let form = [
            ("client_id", self.settings.client.id.as_str()),
            ("client_secret", self.settings.client.secret.reveal()),
            ("code", back.code.as_str()),
            ("redirect_uri", back.redirect_uri.as_str()),
            ("code_verifier", back.verifier.reveal()),
        ];
        let answer = web::json(web::form(client.post(url), &form)).await?;
        let token = answer["access_token"].as_str().ok_or_else(refused)?.to_owned();
        let (client, url) = self.web.at(&format!("{}/user", self.settings.api_url))?;
        let user = web::json(client.get(url).bearer_auth(token).header("user-agent", "holdfast")).await?;
        // The login can change and be taken by someone else; the numeric id cannot.
        let subject = user["id"].as_i64().filter(|id| *id > 0).ok_or_else(refused)?;
        let name = user["login"].as_str().unwrap_or_default().to_owned();
        Ok(Identity { subject: subject.to_string(), name })
    }
}
