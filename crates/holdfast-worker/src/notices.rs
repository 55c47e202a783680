//! Notices to users: written to the outbox in the same transaction as the event, delivered by the dispatcher.

pub(crate) mod dispatcher;
mod incidents;
pub(crate) mod mailer;
pub(crate) mod outbox;
pub(crate) mod warnings;
pub(crate) mod weekly_summary;
pub(crate) mod writing;
