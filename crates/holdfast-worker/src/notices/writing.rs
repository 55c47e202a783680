//! What every notice needs: the preferences of its owner, its recipients, and its row.

use holdfast_core::clock::{self, Zone};
use holdfast_core::ids::{TaskId, UserId};
use holdfast_core::notice::NoticeKind;
use holdfast_core::{Timestamp, random};
use holdfast_notify::{About, Message, NoticeContent};
use holdfast_store::notices::{self, Listener, NewNotice, Recipient, Subject};
use holdfast_store::{StoreError, Tx, users};

pub(crate) type Result<T = ()> = std::result::Result<T, StoreError>;

/// A user, their time zone, and until when their notices are held back.
pub(crate) struct Owner {
    pub user: UserId,
    pub zone: Zone,
    held_until: Option<Timestamp>,
}

impl Owner {
    pub(crate) fn new(user: UserId, timezone: &str, quiet: (Option<&str>, Option<&str>), now: Timestamp) -> Self {
        let zone = clock::zone_or_utc(timezone);
        let held_until = users::read_quiet_hours(quiet.0, quiet.1).and_then(|quiet| quiet.end(now, &zone));
        Self { user, zone, held_until }
    }

    pub(crate) fn of(subject: &Subject, now: Timestamp) -> Self {
        let quiet = (subject.quiet_from.as_deref(), subject.quiet_until.as_deref());
        Self::new(subject.user_id, &subject.timezone, quiet, now)
    }

    pub(crate) async fn find(tx: &mut Tx, user: UserId, now: Timestamp) -> Result<Option<Self>> {
        let row = users::find(tx, user).await?;
        Ok(row
            .map(|row| Self::new(row.id, &row.timezone, (row.quiet_from.as_deref(), row.quiet_until.as_deref()), now)))
    }
}

pub(crate) fn about<'a>(base_url: &'a str, event: &'a str, owner: &'a Owner, at: Timestamp) -> About<'a> {
    About { event, base_url, zone: &owner.zone, at }
}

pub(crate) fn new_event() -> String {
    random::hex(&random::bytes::<8>())
}

/// Writes a notice for each of the streams that want it.
pub(crate) async fn tell(
    tx: &mut Tx,
    owner: &Owner,
    listeners: &[Listener],
    task: Option<TaskId>,
    kind: NoticeKind,
    message: &Message,
    now: Timestamp,
) -> Result {
    for listener in listeners.iter().filter(|listener| kind.is_wanted(listener.on_success, listener.on_failure)) {
        let recipient = Recipient::Stream(listener.id);
        post(tx, owner, recipient, task, kind, message.clone(), now).await?;
    }
    Ok(())
}

pub(crate) async fn post(
    tx: &mut Tx,
    owner: &Owner,
    recipient: Recipient,
    task: Option<TaskId>,
    kind: NoticeKind,
    message: Message,
    now: Timestamp,
) -> Result {
    let (event, title) = (message.event.clone(), message.title.clone());
    let content = NoticeContent::Message(message).to_text();
    let new = NewNotice {
        owner: owner.user,
        recipient,
        task,
        kind,
        event: &event,
        title: &title,
        content: &content,
        held_until: owner.held_until,
    };
    notices::insert(tx, &new, now).await
}
