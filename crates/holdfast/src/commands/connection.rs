//! The connection to the service that a command uses.

use holdfast_client::Client;

use crate::failure::Failure;
use crate::settings::ClientSettings;

pub fn client(settings: &ClientSettings) -> Result<Client, Failure> {
    let url = settings.url.as_deref().ok_or_else(|| {
        Failure::settings(
            "set HOLDFAST_URL (or --url) to the service, for example https://backup.example.org, or use --profile",
        )
    })?;
    let token = settings.token.as_ref().ok_or_else(|| {
        Failure::settings("set HOLDFAST_TOKEN or HOLDFAST_TOKEN_FILE to a token from your account page")
    })?;
    Ok(Client::new(url, token.reveal(), settings.ca_pem.as_deref())?)
}
