//! Delivers notices. Each recipient is served separately and in order, so that one that hangs does not affect the
//! others; what was sent but not yet recorded when a process dies is sent again by the next.

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

/// How often a worker looks for notices that it was not notified of, and how long it waits at least before each look.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const BETWEEN_DELIVERIES: Duration = Duration::from_millis(50);
/// How many recipients are served at once; each takes a connection for a few seconds at most. Those that could not be
/// reached last time get at most half of the places.
const RECIPIENTS_AT_ONCE: usize = 512;
/// How many of them may be reached by email: mails wait for each other anyway, and must not take places from others.
const MAIL_RECIPIENTS_AT_ONCE: usize = 2 * holdfast_notify::MAILS_AT_ONCE;
/// How many notices of one recipient are claimed at a time, and for how long: longer than all of them can take.
const NOTICES_AT_ONCE: i64 = 8;
const CLAIM_SECS: i64 = 120;
/// How many notices that were held back are claimed at a time; they are sent as one message.
const HELD_AT_ONCE: i64 = 500;
/// How long a recipient that cannot be reached is left alone, unless it asks for longer.
const REST_SECS: i64 = 30;
/// A start ping that is older than this is not sent before the ping for the end of its run any more.
const START_SECS: i64 = 60;
/// The pause after a database error; then how often, and for how long, recording a delivery is retried.
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(2);
const NOTE_AGAIN: Duration = Duration::from_millis(500);
const NOTE_LIMIT: Duration = Duration::from_secs(30);
/// A database that hangs must not block deliveries.
const STEP_LIMIT: Duration = Duration::from_secs(60);
/// How long deliveries that are in progress at shutdown have to finish and be recorded.
const LAST_DELIVERIES: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub(crate) struct Dispatcher {
    app: Arc<App>,
    sender: Sender,
}

/// Delivers until it is told to stop, and restarts after a panic.
pub(crate) async fn supervise(dispatcher: Dispatcher, stop: CancellationToken) {
    loop {
        match AbortOnDropHandle::new(tokio::spawn(dispatcher.clone().run(stop.clone()))).await {
            Ok(()) => return,
            Err(error) => {
                tracing::error!(%error, "the dispatcher ended unexpectedly; restarting it");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
    }
}

/// How a recipient that is being served is counted.
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
            tokio::time::sleep(BETWEEN_DELIVERIES).await;
            while let Some(ended) = rounds.try_join_next() {
                note_end(ended, &mut busy);
            }
            let starting = self.start_rounds(&mut rounds, &mut busy, &stop);
            match tokio::time::timeout(STEP_LIMIT, starting).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "notices are delayed: the database did not answer");
                    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                }
                Err(_) => tracing::warn!("notices are delayed: the database did not answer in time"),
            }
        }
        let all = async { while rounds.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_DELIVERIES, all).await.is_err() {
            tracing::warn!("some notices were not delivered before the shutdown; they stay in the outbox");
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
        // Recipients that are busy may be among those due, so as many more are listed.
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
                    tracing::warn!(%error, ?recipient, "delivering to this recipient was interrupted");
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

    /// Delivers everything that is due for one recipient, until nothing is, it cannot be reached, or `stop` is
    /// cancelled.
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

    /// Claims what is due; if any of it was held back, everything that was held back is claimed too.
    async fn claim(&self, recipient: Recipient) -> Result<Vec<ClaimedNotice>> {
        let now = self.app.now();
        let until = later(now, CLAIM_SECS);
        let mut tx = self.app.store.begin().await?;
        let mut claimed = notices::claim(&mut tx, recipient, false, NOTICES_AT_ONCE, until, now).await?;
        if claimed.iter().any(|notice| notice.is_held) {
            claimed.extend(notices::claim(&mut tx, recipient, true, HELD_AT_ONCE, until, now).await?);
        }
        if matches!(recipient, Recipient::Heartbeat(_)) && !claimed.is_empty() {
            // Only the newest ping counts; the start of a run that has just ended may still be sent before it.
            let oldest = later(now, -START_SECS);
            let is_start = |notice: &&ClaimedNotice| {
                notice.kind == NoticeKind::HeartbeatStart && notice.tries == 0 && notice.created_at.0 >= oldest
            };
            let before = claimed.len().checked_sub(2).and_then(|at| claimed.get(at));
            let kept = before.filter(is_start).map(|notice| notice.id);
            let newest = notices::supersede_older(&mut tx, recipient, kept, now).await?;
            let is_newest = |notice: &ClaimedNotice| newest.is_none_or(|newest| notice.id >= newest);
            claimed.retain(|notice| is_newest(notice) || Some(notice.id) == kept);
        }
        tx.commit().await?;
        Ok(claimed)
    }

    /// Returns until when the recipient is to be left alone, if it could not be reached.
    async fn deliver(&self, recipient: Recipient, notice: &ClaimedNotice) -> Result<Option<Timestamp>> {
        let content =
            NoticeContent::parse(&notice.content).ok_or_else(|| refused("This notice cannot be read any more."));
        let delivered = self.send(recipient, content).await?;
        self.note(recipient, std::slice::from_ref(notice), &delivered).await
    }

    /// Delivers what was held back during quiet hours as one message.
    async fn deliver_together(&self, recipient: Recipient, held: &[ClaimedNotice]) -> Result<Option<Timestamp>> {
        let messages: Vec<Message> = held
            .iter()
            .filter_map(|notice| match NoticeContent::parse(&notice.content) {
                Some(NoticeContent::Message(message)) => Some(message),
                // Only messages are held back, and a digest has no place for the others.
                Some(NoticeContent::Summary(_) | NoticeContent::Ping(_)) | None => None,
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
                Ok(None) => Ok(Err(refused("The recipient of this notice no longer exists."))),
                Err(AppError::Unavailable(_)) if tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(NOTE_AGAIN).await;
                    continue;
                }
                Err(error @ AppError::Unavailable(_)) => Err(error),
                // Counted as an attempt, so that the notice ends as undelivered and is seen.
                Err(error) => {
                    tracing::error!(?recipient, %error, "the address of this recipient cannot be read");
                    Ok(Err(Refusal { can_retry: true, ..refused("The address of the recipient cannot be read.") }))
                }
            };
        }
    }

    /// Records the result of a delivery. Waits for an unavailable database, so that what was sent is not sent again.
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
                Err(AppError::Unavailable(outage)) if tokio::time::Instant::now() < deadline => {
                    tracing::warn!(reason = outage.reason, "a delivery is not recorded yet; trying again");
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
            // The reason is recorded with the notice; a channel's answer does not belong in a log.
            tracing::warn!(
                ?recipient,
                notice = sent.first().map(|notice| notice.id),
                "a notice could not be delivered"
            );
        }
        Ok(delivered.as_ref().err().filter(|refusal| refusal.can_retry).map(|refusal| {
            let wait = refusal.retry_after.map_or(REST_SECS, |wanted| wanted.clamp(REST_SECS, notice::LONGEST_WAIT));
            later(self.app.now(), wait)
        }))
    }

    /// Returns true if at least one of them is undelivered and will not be tried again.
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
        // Locks the stream before its notices, in the same order as deleting it does.
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

    /// Postpones everything due for a recipient until `until`, and releases the `rest` of what was claimed.
    async fn leave_alone(&self, recipient: Recipient, rest: &[ClaimedNotice], until: Timestamp) -> Result<()> {
        let mut tx = self.app.store.begin().await?;
        for notice in rest {
            notices::release(&mut tx, notice, until).await?;
        }
        notices::rest(&mut tx, recipient, until, self.app.now()).await?;
        Ok(tx.commit().await?)
    }

    /// Where a recipient is reached now, and whether its owner is an administrator. `None` if it no longer exists.
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
            // Which recipient it was is no longer known. Its claims prevent others from taking the same notices.
            tracing::error!(%error, "a delivery ended unexpectedly");
            busy.clear();
        }
    }
}

fn refused(text: &str) -> Refusal {
    Refusal { text: text.to_owned(), can_retry: false, retry_after: None }
}

/// A start ping that did not arrive at once is worthless later, so it is not tried again.
fn next_try(notice: &ClaimedNotice, refusal: &Refusal, now: Timestamp) -> Option<Timestamp> {
    let is_start = notice.kind == NoticeKind::HeartbeatStart;
    if !refusal.can_retry || is_start {
        return None;
    }
    notice::next_try(notice.tries + 1, refusal.retry_after).map(|seconds| later(now, seconds))
}

/// The owner of a stream, and the channel it delivers to.
pub(crate) async fn stream_channel(tx: &mut Tx, id: StreamId) -> Result<Option<(UserId, Channel)>> {
    let Some(row) = streams::find(tx, id).await? else { return Ok(None) };
    let Some(value) = streams::open_value(tx, &row).await? else { return Ok(None) };
    let channel = match row.kind {
        StreamKind::Email => Channel::Email(value.reveal().to_owned()),
        StreamKind::Discord => Channel::Discord(value),
        StreamKind::Slack => Channel::Slack(value),
        StreamKind::Teams => Channel::Teams(value),
        StreamKind::Pushover => Channel::Pushover { user: value, token: streams::open_token(tx, &row).await? },
    };
    Ok(Some((row.user_id, channel)))
}

async fn heartbeat(tx: &mut Tx, task: TaskId) -> Result<Option<(UserId, Channel)>> {
    let Some(row) = tasks::find(tx, task).await? else { return Ok(None) };
    let url = tasks::open_heartbeat_url(tx, &row).await?;
    Ok(url.map(|url| (row.user_id, Channel::Heartbeat(url))))
}
