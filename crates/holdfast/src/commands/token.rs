//! `holdfast token …`.

use holdfast_app::tokens::{self, TokenRequest};
use holdfast_core::clock::{self, rfc3339};
use holdfast_core::ids::TokenId;
use holdfast_core::scope::{Scope, ScopeSet};
use holdfast_store::Migrations;

use super::duration;
use super::origin::origin;
use crate::cli::TokenCommand;
use crate::failure::Failure;
use crate::output::say;
use crate::settings::Settings;
use crate::wiring::open_app;

pub async fn run(settings: &Settings, command: TokenCommand) -> Result<(), Failure> {
    let app = open_app(settings, Migrations::Never).await?;
    match command {
        TokenCommand::Create { user, name, scopes, all_scopes, expires_in } => {
            let scopes = if all_scopes { ScopeSet::all() } else { parse_scopes(&scopes)? };
            let micros = expires_in.as_deref().map(|text| duration::parse("--expires-in", text)).transpose()?;
            let expires_at = micros.map(|micros| clock::from_micros(app.now().as_microsecond().saturating_add(micros)));
            let user = tokens::user_by_email(&app, &user).await?;
            let request = TokenRequest { name, scopes, expires_at };
            let token = tokens::create(&app, user.user_id(), &origin(), &request).await?;
            say!("{}", token.reveal());
        }
        TokenCommand::List { user } => {
            let user = tokens::user_by_email(&app, &user).await?;
            for token in tokens::list(&app, user.user_id()).await? {
                let shown =
                    |at: Option<holdfast_store::DbTime>| at.map_or_else(|| "never".to_owned(), |at| rfc3339(at.0));
                let (used, expires) = (shown(token.last_used_at), shown(token.expires_at));
                say!("{}\t{}\tused {used}\texpires {expires}\t{}", token.id, token.name, token.scopes);
            }
        }
        TokenCommand::Revoke { user, id } => {
            let user = tokens::user_by_email(&app, &user).await?;
            tokens::revoke(&app, user.user_id(), &origin(), TokenId(id)).await?;
            say!("Token {id} was revoked.");
        }
    }
    app.store.close().await;
    Ok(())
}

fn parse_scopes(names: &[String]) -> Result<ScopeSet, Failure> {
    names
        .iter()
        .map(|name| {
            Scope::parse(name).ok_or_else(|| {
                let all: Vec<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
                Failure::settings(format!("{name} is not a scope; the scopes are {}", all.join(", ")))
            })
        })
        .collect()
}
