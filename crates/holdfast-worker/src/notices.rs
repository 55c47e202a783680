//! What people are told: written to the outbox with what it is about, delivered by the dispatcher.

pub(crate) mod dispatcher;
pub(crate) mod mailer;
pub(crate) mod outbox;
pub(crate) mod weekly_summary;
