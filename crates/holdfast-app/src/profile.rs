//! The current user and their statistics.

use holdfast_core::clock;
use holdfast_store::users::{self, Statistics, UserRow};

use crate::{App, AppError, Caller, Result};

pub async fn show(app: &App, caller: &Caller) -> Result<(UserRow, Statistics)> {
    let mut tx = app.store.read().await?;
    let user = users::find(&mut tx, caller.user).await?.ok_or(AppError::Unauthenticated)?;
    let today = clock::start_of_day(app.now(), &caller.zone);
    let statistics = users::statistics(&mut tx, caller.user, today).await?;
    Ok((user, statistics))
}
