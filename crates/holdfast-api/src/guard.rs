//! The middleware in front of every route: checks the token, then the rate limit, then the scope.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_app::{
    AppError, Caller, Context, Credential, DryRun, Origin, authenticate, record_guessing, require_scope,
};
use holdfast_core::rate::Decision;

use crate::access::Access;
use crate::error::{ApiError, RATE_LIMIT, RATE_REMAINING};
use crate::preferences::{KnownFields, PREFERENCE_APPLIED, STRICT, expected, wants_strict};
use crate::state::Api;
use crate::{dry_run, idempotency};

/// What the guard knows of a route.
#[derive(Clone)]
pub(crate) struct Guarded {
    pub api: Arc<Api>,
    pub access: Access,
    pub known: KnownFields,
    /// Whether its requests can be dry runs.
    pub has_dry_run: bool,
}

pub(crate) async fn guard(State(route): State<Guarded>, mut request: Request, next: Next) -> Response {
    let is_strict = wants_strict(request.headers());
    if is_strict {
        request.extensions_mut().insert(route.known.clone());
    }
    let asked = dry_run::is_asked(request.headers(), request.method(), route.has_dry_run);
    let is_dry_run = matches!(asked, Ok(true));
    let mut response = admitted(&route, asked, request, next).await;
    if is_dry_run {
        dry_run::mark(&mut response);
    }
    if is_strict {
        response.headers_mut().insert(PREFERENCE_APPLIED, STRICT);
    }
    response
}

/// `asked` says whether the request asks for a dry run, or why it cannot have one.
async fn admitted(route: &Guarded, asked: Result<bool, ApiError>, mut request: Request, next: Next) -> Response {
    let Guarded { api, access, has_dry_run, .. } = route;
    if *access == Access::Public {
        return match asked {
            Ok(_) => next.run(request).await,
            Err(error) => error.into_response(),
        };
    }
    // Cloned first, because a request cannot be borrowed across an await.
    let token = bearer(request.headers()).map(str::to_owned);
    let context = request.extensions().get::<Context>().cloned();
    let origin = context.as_ref().map(|context| context.origin("")).unwrap_or_default();
    let (mut caller, decision) = match admit(api, token.as_deref(), origin).await {
        Ok(admitted) => admitted,
        Err(error) => return error.into_response(),
    };
    if let (Some(context), Some(token)) = (&context, &token) {
        context.show(Credential::token(token));
    }
    let mut response = match require_scopes(api, &caller, *access).await.and(asked) {
        Ok(is_dry_run) => {
            let dry_run = is_dry_run.then(DryRun::default);
            caller.gone = context.map(|context| context.gone).unwrap_or_default();
            caller.expected = expected(request.method(), request.headers());
            let (user, actor) = (caller.user, caller.origin.actor.clone());
            caller.dry_run = dry_run.clone().filter(|_| *has_dry_run);
            let asking = dry_run.filter(|_| *has_dry_run).map(|dry_run| (caller.clone(), dry_run));
            request.extensions_mut().insert(caller);
            match asking {
                // A dry run changes nothing, so it can be repeated without an idempotency key.
                Some((asking, dry_run)) => {
                    let mut response = next.run(request).await;
                    dry_run::describe(&mut response, &dry_run);
                    match record_guessing(&api.app, &asking, &dry_run).await {
                        Ok(()) => response,
                        Err(error) => ApiError::from(error).into_response(),
                    }
                }
                None => idempotency::once(api, (user, &actor), request, next).await,
            }
        }
        Err(error) => error.into_response(),
    };
    let headers = response.headers_mut();
    if !headers.contains_key(RATE_LIMIT) {
        headers.insert(RATE_LIMIT, decision.limit.into());
        headers.insert(RATE_REMAINING, decision.remaining.into());
    }
    response
}

async fn require_scopes(api: &Api, caller: &Caller, access: Access) -> Result<(), ApiError> {
    for scope in access.scopes() {
        require_scope(&api.app, caller, scope).await?;
    }
    Ok(())
}

async fn admit(api: &Api, token: Option<&str>, origin: Origin) -> Result<(Caller, Decision), ApiError> {
    let token = token.ok_or(AppError::Unauthenticated)?;
    let (caller, decision) = authenticate(&api.app, token, origin).await?;
    if !decision.allowed {
        let retry_after_secs = decision.retry_after_secs;
        return Err(AppError::TooManyRequests { limit: decision.limit, retry_after_secs }.into());
    }
    Ok((caller, decision))
}

/// The token of an `Authorization: Bearer …` header; the scheme's case does not matter.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION).map(HeaderValue::to_str)?.ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
