//! Dry runs: a use case does all that it does otherwise, and its transaction is rolled back instead of committed.

use holdfast_core::audit::AuditAction;
use holdfast_core::changes::Changes;
use holdfast_core::ids::ServerId;
use holdfast_core::rate::Quota;
use holdfast_core::secret::SecretChange;
use holdfast_core::{Secret, random};
use holdfast_store::labels::{self, Labelled};
use holdfast_store::{StoreError, Tx};

use crate::access::{Owned, version};
use crate::caller::{Caller, DryRun, Expected};
use crate::refusal::Conflict;
use crate::{App, AppError, Result};

/// How many secrets may be found to differ from the stored ones: enough for files with hundreds of rotated secrets, and
/// too few to guess one by trying.
const DIFFERENCES: Quota = Quota::per_second(1, 1000);
/// The audit log tells of an attempt at guessing once a minute, not once for each guess.
const GUESSES: Quota = Quota::per_minute(1);

/// A secret of a request, and the stored one.
pub(crate) struct SecretPair<'a> {
    field: &'static str,
    given: &'a SecretChange,
    stored: Option<Secret>,
}

impl<'a> SecretPair<'a> {
    /// A stored secret that cannot be opened differs from every other.
    pub(crate) fn new(
        field: &'static str,
        given: &'a SecretChange,
        stored: holdfast_store::Result<Option<Secret>>,
    ) -> Result<Self> {
        let stored = match stored {
            Err(StoreError::Sealed(_)) => None,
            stored => stored?,
        };
        Ok(Self { field, given, stored })
    }

    fn is_same(&self) -> bool {
        match (self.given.set(), &self.stored) {
            (Some(given), Some(stored)) => random::equal(given.reveal().as_bytes(), stored.reveal().as_bytes()),
            _ => false,
        }
    }
}

/// Records for the response of a dry run what an update would change. Secrets that are already stored are no change.
pub(crate) fn note_update(
    app: &App,
    caller: &Caller,
    row: &impl Owned,
    changes: &Changes,
    secrets: &[SecretPair<'_>],
) -> Result<()> {
    let Some(dry_run) = &caller.dry_run else { return Ok(()) };
    for pair in secrets.iter().filter(|pair| pair.given.set().is_some()) {
        // Before the comparison: a refusal must not tell whether the guess was right.
        let decision = app.differences.take(caller.user.0, DIFFERENCES, app.now());
        if decision.remaining == 0 {
            dry_run.write(|report| report.may_be_guessing = true);
        }
        if !decision.allowed {
            let (limit, retry_after_secs) = (decision.limit, decision.retry_after_secs);
            return Err(AppError::TooManyRequests { limit, retry_after_secs });
        }
        if pair.is_same() {
            app.differences.give_back(&caller.user.0, DIFFERENCES);
        }
    }
    let same: Vec<&str> = secrets.iter().filter(|pair| pair.is_same()).map(|pair| pair.field).collect();
    let changed = changes.clone().without(&same).fields().into_iter().map(str::to_owned).collect();
    dry_run.write(|report| (report.version, report.changed) = (Some(version(row)), Some(changed)));
    Ok(())
}

/// Writes to the audit log that the dry runs of a user may be guesses at a secret. Nothing that a dry run itself writes
/// stays.
pub async fn record_guessing(app: &App, caller: &Caller, dry_run: &DryRun) -> Result<()> {
    let is_recent = || !app.guesses.take(caller.user.0, GUESSES, app.now()).allowed;
    if !dry_run.report().may_be_guessing || is_recent() {
        return Ok(());
    }
    tracing::warn!(user = caller.user.0, "dry runs have compared many secrets that differ from the stored ones");
    let mut tx = app.store.begin().await?;
    let detail = format!("over {} of them differed from the stored ones", DIFFERENCES.burst - 1);
    app.audit(&mut tx, caller, AuditAction::SecretsCompared, &detail).await?;
    Ok(tx.commit().await?)
}

/// Records for the response of a dry run which other servers would lose their database password.
pub(crate) fn note_elsewhere(caller: &Caller, servers: Vec<ServerId>) {
    if let Some(dry_run) = &caller.dry_run {
        dry_run.write(|report| report.passwords_behind = servers);
    }
}

/// Records for the response of a dry run which version would be deleted.
pub(crate) fn note_deletion(caller: &Caller, row: &impl Owned) {
    if let Some(dry_run) = &caller.dry_run {
        dry_run.write(|report| report.version = Some(version(row)));
    }
}

/// Ends a use case: for good, or without effect if its caller only wants to know what it would do. Returns whether
/// anything took effect.
pub(crate) async fn commit(tx: Tx, caller: &Caller) -> Result<bool> {
    if caller.dry_run.is_some() {
        // Dropped, it is rolled back.
        return Ok(false);
    }
    tx.commit().await?;
    Ok(true)
}

/// Refuses to create what has the same label as something else of the caller's, if they asked for that.
pub(crate) async fn check_label(tx: &mut Tx, caller: &Caller, kind: Labelled, label: &str) -> Result<()> {
    if caller.expected == Expected::NewLabel && labels::is_taken(tx, kind, caller.user, label).await? {
        return Err(AppError::Conflict(Conflict::LabelTaken));
    }
    Ok(())
}
