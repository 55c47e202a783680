//! Notices, and users' notification preferences.

use std::collections::BTreeMap;

use holdfast_core::audit::AuditAction;
use holdfast_core::changes::Changes;
use holdfast_core::clock;
use holdfast_core::ids::NoticeId;
use holdfast_core::input::{Errors, Field, Input};
use holdfast_core::notice::{self, QuietHours};
use holdfast_core::page::Page;
use holdfast_core::refusal::Rule;
use holdfast_core::rules;
use holdfast_core::schedule::TimeOfDay;
use holdfast_store::Listing;
use holdfast_store::notices::{self, NoticeFilter, NoticeRow};
use holdfast_store::users::{self, UserRow};
use serde_json::Value;

use crate::access::owned;
use crate::refusal::Conflict;
use crate::{App, AppError, Caller, Result};

pub async fn list(app: &App, listing: &Listing, filter: &NoticeFilter) -> Result<Page<NoticeRow>> {
    Ok(notices::list(&mut app.store.read().await?, listing, filter).await?)
}

/// What a message says, as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoticeText {
    pub text: String,
    /// Pairs of name and value.
    pub facts: Vec<(String, String)>,
}

impl NoticeText {
    /// `None` for what is no message in words, such as a heartbeat.
    fn read(content: &str) -> Option<Self> {
        let content: Value = serde_json::from_str(content).ok()?;
        let message = content.get("message")?;
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let facts = message.get("facts").and_then(Value::as_array).into_iter().flatten();
        let facts = facts.filter_map(|fact| Some((text(fact, "name")?, text(fact, "value")?))).collect();
        Some(Self { text: text(message, "text")?, facts })
    }
}

/// What these notices of the caller say, by their ids.
pub async fn list_texts(app: &App, caller: &Caller, rows: &[NoticeRow]) -> Result<BTreeMap<i64, NoticeText>> {
    let ids: Vec<i64> = rows.iter().filter(|row| row.user_id == caller.user).map(|row| row.id.0).collect();
    let contents = notices::list_contents(&mut app.store.read().await?, &ids).await?;
    Ok(contents.into_iter().filter_map(|(id, content)| Some((id, NoticeText::read(&content)?))).collect())
}

pub async fn show(app: &App, caller: &Caller, id: NoticeId) -> Result<NoticeRow> {
    owned(caller, notices::find(&mut app.store.read().await?, id).await?)
}

/// Queues an undelivered notice for delivery again, starting with the first attempt.
pub async fn retry(app: &App, caller: &Caller, id: NoticeId) -> Result<()> {
    app.limit_action(caller.limit_key)?;
    let mut tx = app.store.begin().await?;
    owned(caller, notices::find(&mut tx, id).await?)?;
    if !notices::retry(&mut tx, id, app.now()).await? {
        return Err(AppError::Conflict(Conflict::NoticeDelivered));
    }
    tx.commit().await?;
    app.wake_dispatcher();
    Ok(())
}

/// A user's notification preferences.
#[derive(Debug, Clone, Copy)]
pub struct NotificationSettings {
    pub weekly_summary: bool,
    pub quiet_hours: Option<QuietHours>,
}

impl NotificationSettings {
    fn of(user: &UserRow) -> Self {
        Self { weekly_summary: user.weekly_summary_enabled, quiet_hours: user.quiet_hours() }
    }

    /// The settings themselves, for requests that want to change what they have seen and nothing newer.
    pub fn version(&self) -> String {
        let quiet = self.quiet_hours.map(|quiet| format!(" {}-{}", quiet.from, quiet.until)).unwrap_or_default();
        format!("{}{quiet}", u8::from(self.weekly_summary))
    }

    /// As the audit log compares them.
    fn write(self) -> Input {
        let quiet = self.quiet_hours.map(|quiet| format!("{}–{}", quiet.from, quiet.until));
        Input::default().with("weekly_summary_enabled", self.weekly_summary).with("quiet_hours", quiet)
    }
}

/// A change to the preferences; absent fields are kept.
#[derive(Debug, Default)]
pub struct NotificationSettingsInput {
    pub weekly_summary: Field<bool>,
    /// Null turns them off.
    pub quiet_hours: Field<QuietInput>,
}

#[derive(Debug, Default)]
pub struct QuietInput {
    pub from: Field<String>,
    pub until: Field<String>,
}

pub async fn show_notification_settings(app: &App, caller: &Caller) -> Result<NotificationSettings> {
    let user = users::find(&mut app.store.read().await?, caller.user).await?;
    user.as_ref().map(NotificationSettings::of).ok_or(AppError::Unauthenticated)
}

pub async fn update_notification_settings(
    app: &App,
    caller: &Caller,
    input: &NotificationSettingsInput,
) -> Result<NotificationSettings> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    let user = users::find(&mut tx, caller.user).await?.ok_or(AppError::Unauthenticated)?;
    let current = NotificationSettings::of(&user);
    if !caller.expected.contains(&current.version()) {
        return Err(AppError::Conflict(Conflict::Outdated));
    }
    let mut errors = Errors::default();
    let weekly_summary =
        rules::boolean(&mut errors, "weekly_summary_enabled", &input.weekly_summary, current.weekly_summary);
    let quiet_hours = match &input.quiet_hours {
        Field::Absent => current.quiet_hours,
        Field::Null => None,
        Field::WrongType => {
            errors.add("quiet_hours", Rule::Object);
            None
        }
        Field::Value(quiet) => check_quiet(&mut errors, quiet),
    };
    if !errors.is_empty() {
        return Err(AppError::Invalid(errors));
    }
    let zone = clock::zone_or_utc(&user.timezone);
    let summary_at = if weekly_summary { notice::next_summary(now, &zone) } else { None };
    users::update_notification_settings(&mut tx, caller.user, quiet_hours, summary_at, now).await?;
    let updated = NotificationSettings { weekly_summary, quiet_hours };
    let changes = Changes::between(&current.write(), &updated.write());
    app.audit_changes(&mut tx, caller, AuditAction::UserNotificationSettingsUpdated, &user.email, &changes).await?;
    tx.commit().await?;
    Ok(updated)
}

fn check_quiet(errors: &mut Errors, quiet: &QuietInput) -> Option<QuietHours> {
    let mut time = |field: &str, input: &Field<String>| match input {
        Field::Value(text) => {
            let time = TimeOfDay::parse(text);
            if time.is_none() {
                errors.add(field, Rule::QuietTime);
            }
            time
        }
        Field::WrongType => {
            errors.add(field, Rule::Text);
            None
        }
        Field::Absent | Field::Null => {
            rules::required(errors, field);
            None
        }
    };
    let (from, until) = (time("quiet_hours.from", &quiet.from), time("quiet_hours.until", &quiet.until));
    let quiet = QuietHours { from: from?, until: until? };
    if quiet.from == quiet.until {
        errors.add("quiet_hours.until", Rule::QuietHours);
    }
    Some(quiet)
}
