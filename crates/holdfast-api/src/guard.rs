//! The middleware in front of every route: checks the token, then the rate limit, then the scope.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use holdfast_app::{AppError, Caller, Context, Origin, authenticate, require_scope};
use holdfast_core::rate::Decision;

use crate::access::Access;
use crate::error::{ApiError, RATE_LIMIT, RATE_REMAINING};
use crate::idempotency;
use crate::preferences::{KnownFields, PREFERENCE_APPLIED, STRICT, expected, wants_strict};
use crate::state::Api;

pub(crate) async fn guard(
    State((api, access, known)): State<(Arc<Api>, Access, KnownFields)>,
    mut request: Request,
    next: Next,
) -> Response {
    if !wants_strict(request.headers()) {
        return admitted(&api, access, request, next).await;
    }
    request.extensions_mut().insert(known);
    let mut response = admitted(&api, access, request, next).await;
    response.headers_mut().insert(PREFERENCE_APPLIED, STRICT);
    response
}

async fn admitted(api: &Api, access: Access, mut request: Request, next: Next) -> Response {
    if access == Access::Public {
        return next.run(request).await;
    }
    // Cloned first, because a request cannot be borrowed across an await.
    let token = bearer(request.headers()).map(str::to_owned);
    let context = request.extensions().get::<Context>().cloned();
    let origin = context.as_ref().map(|context| context.origin("")).unwrap_or_default();
    let (mut caller, decision) = match admit(api, token, origin).await {
        Ok(admitted) => admitted,
        Err(error) => return error.into_response(),
    };
    let mut response = match require_scopes(api, &caller, access).await {
        Ok(()) => {
            caller.gone = context.map(|context| context.gone).unwrap_or_default();
            caller.expected = expected(request.method(), request.headers());
            let (user, actor) = (caller.user, caller.origin.actor.clone());
            request.extensions_mut().insert(caller);
            idempotency::once(api, (user, &actor), request, next).await
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

async fn admit(api: &Api, token: Option<String>, origin: Origin) -> Result<(Caller, Decision), ApiError> {
    let token = token.ok_or(AppError::Unauthenticated)?;
    let (caller, decision) = authenticate(&api.app, &token, origin).await?;
    if !decision.allowed {
        let retry_after_secs = decision.retry_after_secs;
        return Err(AppError::TooManyRequests { limit: decision.limit, retry_after_secs }.into());
    }
    Ok((caller, decision))
}

/// The token of an `Authorization: Bearer …` header; the scheme's case does not matter.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION).map(HeaderValue::to_str)?.ok()?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
