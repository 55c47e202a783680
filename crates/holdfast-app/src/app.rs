//! What every use case works with: the store, the clock, the limits, and state that is kept between requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_core::Timestamp;
use holdfast_core::audit::AuditAction;
use holdfast_core::changes::Changes;
use holdfast_core::clock::SharedClock;
use holdfast_core::ids::{RunId, UserId};
use holdfast_core::rate::Quota;
use holdfast_core::scope::Scope;
use holdfast_store::runs::{self, NewRun};
use holdfast_store::{DbTime, Store, Tx, audit};
use tokio::sync::Notify;

use crate::access::written;
use crate::caller::{Caller, LimitKey};
use crate::checks::LastChecks;
use crate::identity_providers::IdentityProviders;
use crate::limiter::Limiter;
use crate::passwords::Hasher;
use crate::places::{EVENT_STREAMS, Place, Places};
use crate::token_cache::TokenCache;
use crate::{AppError, BackupReader, Mailer, Origin, Result};

/// Rate limits; each can be set by the operator.
#[derive(Debug, Clone)]
pub struct Limits {
    pub requests: Quota,
    /// Runs and checks start work elsewhere, so their limit is lower.
    pub runs: Quota,
    pub sign_ins: Quota,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests: Quota::per_second(50, 500), runs: Quota::per_minute(30), sign_ins: Quota::per_minute(5) }
    }
}

/// The ports through which use cases reach external systems.
#[derive(Clone)]
pub struct Ports {
    pub backup_reader: Arc<dyn BackupReader>,
    pub mailer: Arc<dyn Mailer>,
    pub providers: Arc<dyn IdentityProviders>,
}

pub struct App {
    pub store: Store,
    pub clock: SharedClock,
    pub limits: Limits,
    pub device_auth_enabled: bool,
    pub(crate) ports: Ports,
    pub(crate) tokens: TokenCache,
    pub(crate) requests: Limiter<i64>,
    pub(crate) actions: Limiter<LimitKey>,
    pub(crate) sign_ins: Limiter<[u8; 32]>,
    pub(crate) denials: Limiter<(LimitKey, Scope)>,
    /// Secrets that a dry run found to differ, by user.
    pub(crate) differences: Limiter<i64>,
    /// Entries of the audit log about many such differences, by user.
    pub(crate) guesses: Limiter<i64>,
    pub(crate) hasher: Hasher,
    pub(crate) last_checks: LastChecks,
    pub(crate) event_streams: Places,
    is_stopping: AtomicBool,
    exports_audit_log: AtomicBool,
    run_queued: Arc<Notify>,
    notice_written: Arc<Notify>,
}

impl App {
    pub fn new(store: Store, clock: SharedClock, limits: Limits, device_auth_enabled: bool, ports: Ports) -> Self {
        Self {
            store,
            clock,
            limits,
            device_auth_enabled,
            ports,
            tokens: TokenCache::default(),
            requests: Limiter::default(),
            actions: Limiter::default(),
            sign_ins: Limiter::default(),
            denials: Limiter::default(),
            differences: Limiter::default(),
            guesses: Limiter::default(),
            hasher: Hasher::default(),
            last_checks: LastChecks::default(),
            event_streams: Places::new(EVENT_STREAMS),
            is_stopping: AtomicBool::new(false),
            exports_audit_log: AtomicBool::new(false),
            run_queued: Arc::default(),
            notice_written: Arc::default(),
        }
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The process was told to stop: it still answers, but is not ready for new clients.
    pub fn begin_stopping(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// The process exports the audit log, alone or in turn with others.
    pub fn begin_audit_export(&self) {
        self.exports_audit_log.store(true, Ordering::Relaxed);
    }

    pub(crate) fn exports_audit_log(&self) -> bool {
        self.exports_audit_log.load(Ordering::Relaxed)
    }

    /// Room for another event stream of this caller, if there is any.
    pub fn open_stream(&self, caller: &Caller) -> Option<Place> {
        self.event_streams.take(caller).ok()
    }

    /// Queues a run that a user requested. Workers of other processes are notified on commit, those of this process by
    /// `wake_worker`.
    pub(crate) async fn queue_run(&self, tx: &mut Tx, new: &NewRun) -> Result<Option<RunId>> {
        let queued = runs::insert(tx, new, self.now()).await?;
        runs::announce(tx).await?;
        Ok(queued)
    }

    /// Queues a check, or returns the same one if it is queued already.
    pub(crate) async fn queue_check(&self, mut tx: Tx, new: &NewRun) -> Result<RunId> {
        let run = match self.queue_run(&mut tx, new).await? {
            Some(run) => run,
            None => written(runs::find_same(&mut tx, new.owner, new.subject).await?)?,
        };
        tx.commit().await?;
        self.wake_worker();
        Ok(run)
    }

    /// Whether mail can be sent.
    pub fn can_mail(&self) -> bool {
        self.ports.mailer.is_set_up()
    }

    /// Wakes a worker of this process.
    pub fn wake_worker(&self) {
        self.run_queued.notify_one();
    }

    /// Notified when a run was queued in this process.
    pub fn run_queued(&self) -> Arc<Notify> {
        self.run_queued.clone()
    }

    /// Wakes the dispatcher of notices in this process.
    pub fn wake_dispatcher(&self) {
        self.notice_written.notify_one();
    }

    /// Notified when notices may have been written in this process.
    pub fn notice_written(&self) -> Arc<Notify> {
        self.notice_written.clone()
    }

    /// Records who did what, in the transaction that does it.
    pub(crate) async fn audit(&self, tx: &mut Tx, caller: &Caller, action: AuditAction, detail: &str) -> Result<()> {
        self.audit_as(tx, Some(caller.user), &caller.origin, action, detail).await
    }

    pub(crate) async fn audit_as(
        &self,
        tx: &mut Tx,
        user: Option<UserId>,
        origin: &Origin,
        action: AuditAction,
        detail: &str,
    ) -> Result<()> {
        audit::insert(tx, DbTime(self.now()), user, origin, action, detail).await?;
        Ok(())
    }

    /// Records what an edit changed, if it changed anything.
    pub(crate) async fn audit_changes(
        &self,
        tx: &mut Tx,
        caller: &Caller,
        action: AuditAction,
        subject: &str,
        changes: &Changes,
    ) -> Result<()> {
        match changes.describe(subject) {
            Some(detail) => self.audit(tx, caller, action, &detail).await,
            None => Ok(()),
        }
    }

    /// Counts an action that starts work elsewhere.
    pub(crate) fn limit_action(&self, key: LimitKey) -> Result<()> {
        let decision = self.actions.take(key, self.limits.runs, self.now());
        if decision.allowed {
            return Ok(());
        }
        Err(AppError::TooManyRequests { limit: decision.limit, retry_after_secs: decision.retry_after_secs })
    }
}
