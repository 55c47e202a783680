//! Delivers notices. Each recipient is served on its own and in order, so that one that hangs costs nobody else; what
//! was sent but not yet noted when a process dies is sent again by the next.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_app::{App, AppError, Result};
use holdfast_core::Timestamp;
use holdfast_core::ids::{StreamId, TaskId, UserId};
use holdfast_core::notice::{self, NoticeKind, NoticeStatus};
use holdfast_core::stream::StreamKind;
use holdfast_notify::{Channel, Message, NoticeContent, Refusal, Sender};
use holdfast_store::notices::{self, ClaimedNotice, DueRecipient, Recipient};
use holdfast_store::{Tx, streams, tasks, users};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use holdfast_core::clock::later;

/// How often a worker looks for notices that nobody told it of, and how long it waits at least after a look.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const BREATH: Duration = Duration::from_millis(50);
/// Recipients that are served at once; each takes a connection for a few seconds at most. Those that could not be
/// reached the last time get half of the places.
const RECIPIENTS_AT_ONCE: usize = 512;
/// Mails wait for each other anyway; while they do they take no places from others.
const MAIL_RECIPIENTS_AT_ONCE: usize = 2 * holdfast_notify::MAILS_AT_ONCE;
/// Notices of one recipient that are taken at a time, and for how long: longer than all of them can take.
const NOTICES_AT_ONCE: i64 = 8;
const CLAIM_SECS: i64 = 120;
/// Held back notices go as one message, however many.
const HELD_AT_ONCE: i64 = 500;
/// How long a recipient that cannot be reached is left alone, unless it asks for longer.
const REST_SECS: i64 = 30;
/// A start that is older than this would come after the end of its run.
const START_SECS: i64 = 60;
/// After the database did not answer, and how long what was sent is tried to be noted.
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(2);
const NOTE_AGAIN: Duration = Duration::from_millis(500);
const NOTE_LIMIT: Duration = Duration::from_secs(30);
/// A database that hangs must not hang deliveries.
const STEP_LIMIT: Duration = Duration::from_secs(60);
/// What is on its way when the process is to end may arrive and be noted.
const LAST_DELIVERIES: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub(crate) struct Dispatcher {
    app: Arc<App>,
    sender: Sender,
}

/// Delivers until it is told to stop; whatever breaks, it goes on.
pub(crate) async fn supervise(dispatcher: Dispatcher, stop: CancellationToken) {
    loop {
        match AbortOnDropHandle::new(tokio::spawn(dispatcher.clone().run(stop.clone()))).await {
            Ok(()) => return,
            Err(error) => {
                tracing::error!(%error, "deliveries broke; they go on");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

/// What somebody who is being served counts as.
#[derive(Clone, Copy)]
struct RecipientKind {
    is_failing: bool,
    by_mail: bool,
}

impl Dispatcher {
    pub(crate) fn new(app: Arc<App>, sender: Sender) -> Self {
        Self { app, sender }
    }

    async fn run(self, stop: CancellationToken) {
        let written = self.app.notice_written();
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut rounds, mut busy) = (JoinSet::new(), HashMap::new());
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => break,
                () = written.notified() => {}
                Some(ended) = rounds.join_next() => note_end(ended, &mut busy),
                _ = look.tick() => {}
            }
            tokio::time::sleep(BREATH).await;
            while let Some(ended) = rounds.try_join_next() {
                note_end(ended, &mut busy);
            }
            let starting = self.start_rounds(&mut rounds, &mut busy, &stop);
            match tokio::time::timeout(STEP_LIMIT, starting).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "notices wait: the database did not answer");
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                }
                Err(_) => tracing::warn!("notices wait: the database did not answer in time"),
            }
        }
        let all = async { while rounds.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_DELIVERIES, all).await.is_err() {
            tracing::warn!("some notices were not delivered before the end; they are on record");
        }
    }

    async fn start_rounds(
        &self,
        rounds: &mut JoinSet<Recipient>,
        busy: &mut HashMap<Recipient, RecipientKind>,
        stop: &CancellationToken,
    ) -> Result<()> {
        let now = self.app.now();
        let mut tx = self.app.store.read().await?;
        if !notices::has_due(&mut tx, now).await? {
            return Ok(());
        }
        // As many more as are busy, since those may be among them.
        let limit = i64::try_from(RECIPIENTS_AT_ONCE + busy.len()).unwrap_or(i64::MAX);
        let due = notices::list_due_recipients(&mut tx, now, limit).await?;
        drop(tx);
        let mut failing = busy.values().filter(|kind| kind.is_failing).count();
        let mut by_mail = busy.values().filter(|kind| kind.by_mail).count();
        for due in due {
            let recipient = due.recipient;
            let is_full = busy.len() >= RECIPIENTS_AT_ONCE
                || (due.is_failing && failing >= RECIPIENTS_AT_ONCE / 2)
                || (due.by_mail && by_mail >= MAIL_RECIPIENTS_AT_ONCE);
            if is_full || busy.contains_key(&recipient) {
                continue;
            }
            busy.insert(recipient, RecipientKind { is_failing: due.is_failing, by_mail: due.by_mail });
            failing += usize::from(due.is_failing);
            by_mail += usize::from(due.by_mail);
            let (dispatcher, stop) = (self.clone(), stop.clone());
            rounds.spawn(async move {
                if let Err(error) = dispatcher.serve(recipient, &stop).await {
                    tracing::warn!(%error, ?recipient, "a round of deliveries broke off");
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                }
                recipient
            });
        }
        Ok(())
    }

    /// Delivers everything that is due now. Tests call this in place of waiting.
    pub(crate) async fn deliver_due(&self) -> Result<()> {
        loop {
            let due = notices::list_due_recipients(&mut self.app.store.read().await?, self.app.now(), 1000).await?;
            if due.is_empty() {
                return Ok(());
            }
            for DueRecipient { recipient, .. } in due {
                self.serve(recipient, &CancellationToken::new()).await?;
            }
        }
    }

    /// Everything that is due for one recipient, until nothing is, it cannot be reached, or there is no more time.
    async fn serve(&self, recipient: Recipient, stop: &CancellationToken) -> Result<()> {
        while !stop.is_cancelled() {
            let claimed = self.claim(recipient).await?;
            let is_last = (claimed.len() as i64) < NOTICES_AT_ONCE;
            let (held, single): (Vec<ClaimedNotice>, Vec<ClaimedNotice>) =
                claimed.into_iter().partition(|notice| notice.is_held);
            if !held.is_empty()
                && let Some(until) = self.deliver_together(recipient, &held).await?
            {
                return self.leave_alone(recipient, &single, until).await;
            }
            for (number, notice) in single.iter().enumerate() {
                if stop.is_cancelled() {
                    return self.leave_alone(recipient, &single[number..], self.app.now()).await;
                }
                if let Some(until) = self.deliver(recipient, notice).await? {
                    return self.leave_alone(recipient, &single[number + 1..], until).await;
                }
            }
            if is_last {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes what is due; when something of it was held back, all that was.
    async fn claim(&self, recipient: Recipient) -> Result<Vec<ClaimedNotice>> {
        let now = self.app.now();
        let until = later(now, CLAIM_SECS);
        let mut tx = self.app.store.begin().await?;
        let mut claimed = notices::claim(&mut tx, recipient, false, NOTICES_AT_ONCE, until, now).await?;
        if claimed.iter().any(|notice| notice.is_held) {
            claimed.extend(notices::claim(&mut tx, recipient, true, HELD_AT_ONCE, until, now).await?);
        }
        if matches!(recipient, Recipient::Heartbeat(_)) && !claimed.is_empty() {
            // Of signs of life the newest counts; the start of a run that has just ended may still go before it.
            let oldest = later(now, -START_SECS);
            let is_start = |notice: &&ClaimedNotice| {
                notice.kind == NoticeKind::HeartbeatStart && notice.tries == 0 && notice.created_at.0 >= oldest
            };
            let before = claimed.len().checked_sub(2).and_then(|at| claimed.get(at));
            let kept = before.filter(is_start).map(|notice| notice.id);
            let newest = notices::supersede_older(&mut tx, recipient, kept, now).await?;
            claimed.retain(|notice| notice.id >= newest || Some(notice.id) == kept);
        }
        tx.commit().await?;
        Ok(claimed)
    }

    /// Gives until when the recipient is to be left alone, if it is.
    async fn deliver(&self, recipient: Recipient, notice: &ClaimedNotice) -> Result<Option<Timestamp>> {
        let content =
            NoticeContent::parse(&notice.content).ok_or_else(|| refused("This notice cannot be read any more."));
        let delivered = self.send(recipient, content).await?;
        self.note(recipient, std::slice::from_ref(notice), &delivered).await
    }

    /// What was held back over quiet hours goes as one message.
    async fn deliver_together(&self, recipient: Recipient, held: &[ClaimedNotice]) -> Result<Option<Timestamp>> {
        let messages: Vec<Message> = held
            .iter()
            .filter_map(|notice| match NoticeContent::parse(&notice.content) {
                Some(NoticeContent::Message(message)) => Some(message),
                _ => None,
            })
            .collect();
        let digest = holdfast_notify::digest(&messages).map(NoticeContent::Message);
        let delivered =
            self.send(recipient, digest.ok_or_else(|| refused("These notices cannot be read any more."))).await?;
        self.note(recipient, held, &delivered).await
    }

    async fn send(
        &self,
        recipient: Recipient,
        content: std::result::Result<NoticeContent, Refusal>,
    ) -> Result<std::result::Result<String, Refusal>> {
        let content = match content {
            Ok(content) => content,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let deadline = tokio::time::Instant::now() + NOTE_LIMIT;
        loop {
            return match self.channel(recipient).await {
                Ok(Some((channel, is_admin))) => Ok(self.sender.deliver(&channel, &content, is_admin).await),
                Ok(None) => Ok(Err(refused("Whom this was for is gone."))),
                Err(AppError::Unavailable(_)) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(NOTE_AGAIN).await;
                    continue;
                }
                Err(AppError::Unavailable(reason)) => Err(AppError::Unavailable(reason)),
                // Counted as a try, so that it ends and is seen.
                Err(error) => {
                    tracing::error!(?recipient, %error, "where this goes to cannot be read");
                    Ok(Err(Refusal { can_retry: true, ..refused("Where this goes to cannot be read.") }))
                }
            };
        }
    }

    /// Writes down what a delivery met. A database that is away is waited for: what was sent is not to be sent again.
    async fn note(
        &self,
        recipient: Recipient,
        sent: &[ClaimedNotice],
        delivered: &std::result::Result<String, Refusal>,
    ) -> Result<Option<Timestamp>> {
        let deadline = tokio::time::Instant::now() + NOTE_LIMIT;
        let is_undelivered = loop {
            match self.try_note(recipient, sent, delivered).await {
                Ok(is_undelivered) => break is_undelivered,
                Err(AppError::Unavailable(reason)) if tokio::time::Instant::now() < deadline => {
                    tracing::warn!(reason, "a delivery is not noted yet; trying again");
                    tokio::time::sleep(NOTE_AGAIN).await;
                }
                Err(error) => return Err(error),
            }
        };
        let result = match delivered {
            Ok(_) => "delivered",
            Err(_) if is_undelivered => "undelivered",
            Err(_) => "postponed",
        };
        metrics::counter!("holdfast_notices_total", "result" => result).increment(sent.len() as u64);
        if is_undelivered {
            // Why is on record; a channel's words do not belong into a log.
            tracing::warn!(
                ?recipient,
                notice = sent.first().map(|notice| notice.id),
                "a notice could not be delivered"
            );
        }
        Ok(delivered.as_ref().err().filter(|refusal| refusal.can_retry).map(|refusal| {
            let wait = refusal.retry_after.map_or(REST_SECS, |wish| wish.clamp(REST_SECS, notice::LONGEST_WAIT));
            later(self.app.now(), wait)
        }))
    }

    /// True when at least one of them will not be tried again.
    async fn try_note(
        &self,
        recipient: Recipient,
        sent: &[ClaimedNotice],
        delivered: &std::result::Result<String, Refusal>,
    ) -> Result<bool> {
        let now = self.app.now();
        let mut tx = self.app.store.begin().await?;
        let (succeeded, words) = match delivered {
            Ok(answer) => (true, answer),
            Err(refusal) => (false, &refusal.text),
        };
        // The stream before its notices, as those who delete it do.
        if let Recipient::Stream(stream) = recipient {
            streams::update_delivery(&mut tx, stream, succeeded, words, now).await?;
        }
        let mut is_undelivered = false;
        for notice in sent {
            let again = match delivered {
                Ok(_) => None,
                Err(refusal) => next_try(notice, refusal, now),
            };
            match again {
                Some(at) => drop(notices::postpone(&mut tx, notice, words, at).await?),
                None => {
                    let end = if succeeded { NoticeStatus::Delivered } else { NoticeStatus::Undelivered };
                    notices::finish(&mut tx, notice, end, words, now).await?;
                    is_undelivered |= !succeeded;
                }
            }
        }
        tx.commit().await?;
        Ok(is_undelivered)
    }

    /// A recipient that cannot be reached now is not asked for each of its notices.
    async fn leave_alone(&self, recipient: Recipient, rest: &[ClaimedNotice], until: Timestamp) -> Result<()> {
        let mut tx = self.app.store.begin().await?;
        for notice in rest {
            notices::release(&mut tx, notice, until).await?;
        }
        notices::rest(&mut tx, recipient, until, self.app.now()).await?;
        Ok(tx.commit().await?)
    }

    /// Where a recipient is reached now, and whether its owner is an administrator. `None` when it is gone.
    async fn channel(&self, recipient: Recipient) -> Result<Option<(Channel, bool)>> {
        let mut tx = self.app.store.read().await?;
        let found = match recipient {
            Recipient::Stream(id) => stream_channel(&mut tx, id).await?,
            Recipient::Heartbeat(task) => heartbeat(&mut tx, task).await?,
            Recipient::User(id) => {
                let user = users::find(&mut tx, id).await?;
                return Ok(user.map(|user| (Channel::Email(user.email), user.is_admin)));
            }
        };
        let Some((owner, channel)) = found else { return Ok(None) };
        let user = users::find(&mut tx, owner).await?;
        Ok(user.map(|user| (channel, user.is_admin)))
    }
}

fn note_end(
    ended: std::result::Result<Recipient, tokio::task::JoinError>,
    busy: &mut HashMap<Recipient, RecipientKind>,
) {
    match ended {
        Ok(recipient) => drop(busy.remove(&recipient)),
        Err(error) => {
            // Whose round it was is not known any more. Claims keep others off what it had.
            tracing::error!(%error, "a delivery broke");
            busy.clear();
        }
    }
}

fn refused(text: &str) -> Refusal {
    Refusal { text: text.to_owned(), can_retry: false, retry_after: None }
}

/// A start that did not arrive at once is not worth anything later.
fn next_try(notice: &ClaimedNotice, refusal: &Refusal, now: Timestamp) -> Option<Timestamp> {
    let is_start = notice.kind == NoticeKind::HeartbeatStart;
    if !refusal.can_retry || is_start {
        return None;
    }
    notice::next_try(notice.tries + 1, refusal.retry_after).map(|seconds| later(now, seconds))
}

/// Where a stream delivers to, and whose it is.
pub(crate) async fn stream_channel(tx: &mut Tx, id: StreamId) -> Result<Option<(UserId, Channel)>> {
    let Some(row) = streams::find(tx, id).await? else { return Ok(None) };
    let Some(value) = streams::open_value(tx, &row).await? else { return Ok(None) };
    let channel = match row.kind {
        StreamKind::Email => Channel::Email(value.reveal().to_owned()),
        StreamKind::Discord => Channel::Discord(value),
        StreamKind::Slack => Channel::Slack(value),
        StreamKind::Teams => Channel::Teams(value),
        StreamKind::Pushover => Channel::Pushover { user: value, token: streams::open_pushover_token(tx, &row).await? },
    };
    Ok(Some((row.user_id, channel)))
}

async fn heartbeat(tx: &mut Tx, task: TaskId) -> Result<Option<(UserId, Channel)>> {
    let Some(row) = tasks::find(tx, task).await? else { return Ok(None) };
    let url = tasks::open_heartbeat_url(tx, &row).await?;
    Ok(url.map(|url| (row.user_id, Channel::Heartbeat(url))))
}
