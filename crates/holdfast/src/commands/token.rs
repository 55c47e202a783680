//! `holdfast token …`.

use holdfast_app::tokens::{self, TokenRequest};
use holdfast_core::clock::{self, rfc3339};
use holdfast_core::ids::TokenId;
use holdfast_core::scope::{Scope, ScopeSet};
use holdfast_store::tokens::TokenRow;
use holdfast_store::{DbTime, Migrations};
use serde_json::{Value, json};

use super::duration;
use super::origin::origin;
use crate::cli::TokenCommand;
use crate::failure::Failure;
use crate::output::{Printer, say};
use crate::settings::Settings;
use crate::wiring::open_app;

pub async fn run(settings: &Settings, command: TokenCommand, printer: Printer) -> Result<(), Failure> {
    let app = open_app(settings, Migrations::Never).await?;
    match command {
        TokenCommand::Create { user, name, scopes, all_scopes, expires_in } => {
            let scopes = if all_scopes { ScopeSet::all() } else { parse_scopes(&scopes)? };
            let micros = expires_in.as_deref().map(|text| duration::parse("--expires-in", text)).transpose()?;
            let expires_at = micros.map(|micros| clock::from_micros(app.now().as_microsecond().saturating_add(micros)));
            let user = tokens::user_by_email(&app, &user).await?;
            let request = TokenRequest { name, scopes, expires_at };
            let token = tokens::create(&app, user.user_id(), &origin(), &request).await?;
            printer.one(&json!({"token": token.reveal()}), |_| token.reveal().to_owned());
        }
        TokenCommand::List { user } => {
            let user = tokens::user_by_email(&app, &user).await?;
            let tokens = tokens::list(&app, user.user_id()).await?;
            if printer.is_json {
                let tokens: Vec<Value> = tokens.iter().map(shape).collect();
                say!("{:#}", json!(tokens));
            } else {
                tokens.iter().for_each(tell);
            }
        }
        TokenCommand::Revoke { user, id } => {
            let user = tokens::user_by_email(&app, &user).await?;
            tokens::revoke(&app, user.user_id(), &origin(), TokenId(id)).await?;
            printer.done(&format!("Token {id} was revoked."));
        }
    }
    app.store.close().await;
    Ok(())
}

fn tell(token: &TokenRow) {
    let shown = |at: Option<DbTime>| at.map_or_else(|| "never".to_owned(), |at| rfc3339(at.0));
    let (used, expires) = (shown(token.last_used_at), shown(token.expires_at));
    say!("{}\t{}\tused {used}\texpires {expires}\t{}", token.id, token.name, token.scopes);
}

fn shape(token: &TokenRow) -> Value {
    let shown = |at: Option<DbTime>| at.map(|at| rfc3339(at.0));
    json!({"id": token.id.0, "name": token.name, "last_used_at": shown(token.last_used_at),
        "expires_at": shown(token.expires_at), "scopes": token.scopes.to_string()})
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
