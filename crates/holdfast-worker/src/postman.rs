//! Delivers notices. Each recipient is served on its own and in order, so that one that hangs costs nobody else; what
//! was sent but not yet noted when a process dies is sent again by the next.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_app::{App, Result};
use holdfast_core::Timestamp;
use holdfast_core::ids::{StreamId, TaskId, UserId};
use holdfast_core::notice::{self, NoticeKind, NoticeStatus};
use holdfast_core::stream::StreamKind;
use holdfast_notify::{Channel, Content, Courier, Message, Refusal};
use holdfast_store::notices::{self, ClaimedNotice, Recipient};
use holdfast_store::{Tx, streams, tasks, users};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::scheduler::later;

/// How often a worker looks for notices that nobody told it of.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Recipients that are served at once; each takes a connection for a few seconds at most.
const RECIPIENTS_AT_ONCE: usize = 128;
/// Notices of one recipient that are taken at a time, and for how long: longer than all of them can take.
const NOTICES_AT_ONCE: i64 = 8;
const CLAIM_SECS: i64 = 120;
/// Held back notices go as one message, however many.
const HELD_AT_ONCE: i64 = 500;
/// How long a recipient that cannot be reached is left alone.
const REST_SECS: i64 = 30;
/// After the database did not answer.
const PAUSE_AFTER_ERROR: Duration = Duration::from_secs(2);
/// What is on its way when the process is to end may arrive.
const LAST_DELIVERIES: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct Postman {
    pub app: Arc<App>,
    pub courier: Courier,
}

impl Postman {
    /// Delivers until it is told to stop.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let written = self.app.notice_written();
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let (mut rounds, mut busy) = (JoinSet::new(), HashSet::new());
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => break,
                () = written.notified() => {}
                Some(ended) = rounds.join_next() => self.note_end(ended, &mut busy),
                _ = look.tick() => {}
            }
            while let Some(ended) = rounds.try_join_next() {
                self.note_end(ended, &mut busy);
            }
            if let Err(error) = self.start_rounds(&mut rounds, &mut busy).await {
                tracing::warn!(%error, "notices wait: the database did not answer");
                tokio::time::sleep(PAUSE_AFTER_ERROR).await;
            }
        }
        let all = async { while rounds.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_DELIVERIES, all).await.is_err() {
            tracing::warn!("some notices were not delivered before the end; they are on record");
        }
    }

    fn note_end(&self, ended: std::result::Result<Recipient, tokio::task::JoinError>, busy: &mut HashSet<Recipient>) {
        match ended {
            Ok(recipient) => drop(busy.remove(&recipient)),
            Err(error) => {
                // Whose round it was is not known any more. Claims keep others off what it had.
                tracing::error!(%error, "a delivery broke");
                busy.clear();
            }
        }
    }

    async fn start_rounds(&self, rounds: &mut JoinSet<Recipient>, busy: &mut HashSet<Recipient>) -> Result<()> {
        let now = self.app.now();
        let mut tx = self.app.store.read().await?;
        if !notices::has_due(&mut tx, now).await? {
            return Ok(());
        }
        // As many more as are busy, since those may be among them.
        let limit = i64::try_from(RECIPIENTS_AT_ONCE + busy.len()).unwrap_or(i64::MAX);
        let due = notices::list_due_recipients(&mut tx, now, limit).await?;
        drop(tx);
        for recipient in due {
            if busy.len() >= RECIPIENTS_AT_ONCE {
                break;
            }
            if busy.insert(recipient) {
                let postman = self.clone();
                rounds.spawn(async move {
                    if let Err(error) = postman.serve(recipient).await {
                        tracing::warn!(%error, ?recipient, "a delivery was not noted; it may happen again");
                        tokio::time::sleep(PAUSE_AFTER_ERROR).await;
                    }
                    recipient
                });
            }
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
            for recipient in due {
                self.serve(recipient).await?;
            }
        }
    }

    /// Everything that is due for one recipient, until nothing is or it cannot be reached.
    async fn serve(&self, recipient: Recipient) -> Result<()> {
        loop {
            let held = self.claim(recipient, true).await?;
            if !held.is_empty() && !self.deliver_together(recipient, &held).await? {
                return Ok(());
            }
            let claimed = self.claim(recipient, false).await?;
            if held.is_empty() && claimed.is_empty() {
                return Ok(());
            }
            let claimed = match recipient {
                Recipient::Heartbeat(_) => self.newest_only(claimed).await?,
                _ => claimed,
            };
            for (number, notice) in claimed.iter().enumerate() {
                if !self.deliver(recipient, notice).await? {
                    self.leave_alone(recipient, &claimed[number + 1..]).await?;
                    return Ok(());
                }
            }
        }
    }

    async fn claim(&self, recipient: Recipient, held: bool) -> Result<Vec<ClaimedNotice>> {
        let now = self.app.now();
        let limit = if held { HELD_AT_ONCE } else { NOTICES_AT_ONCE };
        let mut tx = self.app.store.begin().await?;
        let claimed = notices::claim(&mut tx, recipient, held, limit, later(now, CLAIM_SECS), now).await?;
        tx.commit().await?;
        Ok(claimed)
    }

    /// Of a heartbeat's signs only the newest says anything; a start that comes late would even be wrong.
    async fn newest_only(&self, mut claimed: Vec<ClaimedNotice>) -> Result<Vec<ClaimedNotice>> {
        let Some(newest) = claimed.pop() else { return Ok(claimed) };
        let is_start = |notice: &ClaimedNotice| notice.kind == NoticeKind::HeartbeatStart.as_str();
        // The start just before the end of a short run is not late.
        let kept = claimed.pop_if(|notice| is_start(notice) && notice.tries == 0 && !is_start(&newest));
        if !claimed.is_empty() {
            let mut tx = self.app.store.begin().await?;
            for old in &claimed {
                let why = "A later sign of life took its place.";
                notices::finish(&mut tx, old, NoticeStatus::Superseded, why, self.app.now()).await?;
            }
            tx.commit().await?;
        }
        Ok(kept.into_iter().chain([newest]).collect())
    }

    /// True when the recipient can be given the next one.
    async fn deliver(&self, recipient: Recipient, notice: &ClaimedNotice) -> Result<bool> {
        let delivered = match (Content::parse(&notice.content), self.channel(recipient).await?) {
            (None, _) => Err(refused("This notice cannot be read any more.")),
            (_, None) => Err(refused("Whom this was for is gone.")),
            (Some(content), Some((channel, is_admin))) => self.courier.deliver(&channel, &content, is_admin).await,
        };
        self.note(recipient, std::slice::from_ref(notice), &delivered).await
    }

    /// What was held back over quiet hours goes as one message.
    async fn deliver_together(&self, recipient: Recipient, held: &[ClaimedNotice]) -> Result<bool> {
        let messages: Vec<Message> = held
            .iter()
            .filter_map(|notice| match Content::parse(&notice.content) {
                Some(Content::Message(message)) => Some(message),
                _ => None,
            })
            .collect();
        let delivered = match (holdfast_notify::digest(&messages), self.channel(recipient).await?) {
            (None, _) => Err(refused("These notices cannot be read any more.")),
            (_, None) => Err(refused("Whom this was for is gone.")),
            (Some(digest), Some((channel, is_admin))) => {
                self.courier.deliver(&channel, &Content::Message(digest), is_admin).await
            }
        };
        self.note(recipient, held, &delivered).await
    }

    /// Writes down what a delivery met; true when the next can go.
    async fn note(
        &self,
        recipient: Recipient,
        sent: &[ClaimedNotice],
        delivered: &std::result::Result<String, Refusal>,
    ) -> Result<bool> {
        let now = self.app.now();
        let mut tx = self.app.store.begin().await?;
        let mut is_undelivered = false;
        for notice in sent {
            match delivered {
                Ok(answer) => drop(notices::finish(&mut tx, notice, NoticeStatus::Delivered, answer, now).await?),
                Err(refusal) => {
                    let again = next_try(notice, refusal, now);
                    is_undelivered |= again.is_none();
                    match again {
                        Some(at) => drop(notices::postpone(&mut tx, notice, &refusal.text, at).await?),
                        None => {
                            let end = NoticeStatus::Undelivered;
                            notices::finish(&mut tx, notice, end, &refusal.text, now).await?;
                        }
                    }
                }
            }
        }
        let (succeeded, words) = match delivered {
            Ok(answer) => (true, answer),
            Err(refusal) => (false, &refusal.text),
        };
        if let Recipient::Stream(stream) = recipient {
            streams::update_delivery(&mut tx, stream, succeeded, words, now).await?;
        }
        tx.commit().await?;
        let result = if succeeded {
            "delivered"
        } else if is_undelivered {
            "undelivered"
        } else {
            "postponed"
        };
        metrics::counter!("holdfast_notices_total", "result" => result).increment(sent.len() as u64);
        if is_undelivered {
            tracing::warn!(?recipient, reason = words, "a notice could not be delivered");
        }
        Ok(delivered.as_ref().err().is_none_or(|refusal| !refusal.can_retry))
    }

    /// A recipient that cannot be reached now is not asked for each of its notices.
    async fn leave_alone(&self, recipient: Recipient, rest: &[ClaimedNotice]) -> Result<()> {
        let now = self.app.now();
        let until = later(now, REST_SECS);
        let mut tx = self.app.store.begin().await?;
        for notice in rest {
            notices::release(&mut tx, notice, until).await?;
        }
        notices::rest(&mut tx, recipient, until, now).await?;
        Ok(tx.commit().await?)
    }

    /// Where a recipient is reached now, and whether its owner is an administrator. `None` when it is gone.
    async fn channel(&self, recipient: Recipient) -> Result<Option<(Channel, bool)>> {
        let mut tx = self.app.store.read().await?;
        let (owner, channel) = match recipient {
            Recipient::Stream(id) => match stream_channel(&mut tx, id).await? {
                Some(found) => found,
                None => return Ok(None),
            },
            Recipient::Heartbeat(task) => match heartbeat(&mut tx, task).await? {
                Some(found) => found,
                None => return Ok(None),
            },
            Recipient::User(id) => {
                let user = users::find(&mut tx, id).await?;
                return Ok(user.map(|user| (Channel::Email(user.email), user.is_admin)));
            }
        };
        let user = users::find(&mut tx, owner).await?;
        Ok(user.map(|user| (channel, user.is_admin)))
    }
}

fn refused(text: &str) -> Refusal {
    Refusal { text: text.to_owned(), can_retry: false, retry_after: None }
}

/// A start that did not arrive at once is not worth anything later.
fn next_try(notice: &ClaimedNotice, refusal: &Refusal, now: Timestamp) -> Option<Timestamp> {
    let is_start = notice.kind == NoticeKind::HeartbeatStart.as_str();
    if !refusal.can_retry || is_start {
        return None;
    }
    notice::next_try(notice.tries + 1, refusal.retry_after).map(|seconds| later(now, seconds))
}

/// Where a stream delivers to, and whose it is.
pub(crate) async fn stream_channel(tx: &mut Tx, id: StreamId) -> Result<Option<(UserId, Channel)>> {
    let Some(row) = streams::find(tx, id).await? else { return Ok(None) };
    let Some(value) = streams::open_value(tx, &row).await? else { return Ok(None) };
    let channel = match row.kind()? {
        StreamKind::Email => Channel::Email(value.reveal().to_owned()),
        StreamKind::Discord => Channel::Discord(value),
        StreamKind::Slack => Channel::Slack(value),
        StreamKind::Teams => Channel::Teams(value),
        StreamKind::Pushover => Channel::Pushover { user: value, token: streams::open_pushover_token(tx, &row).await? },
    };
    Ok(Some((UserId(row.user_id), channel)))
}

async fn heartbeat(tx: &mut Tx, task: TaskId) -> Result<Option<(UserId, Channel)>> {
    let Some(row) = tasks::find(tx, task).await? else { return Ok(None) };
    let url = tasks::open_heartbeat_url(tx, &row).await?;
    Ok(url.map(|url| (UserId(row.user_id), Channel::Heartbeat(url))))
}
