//! The messages that Holdfast sends, and the channels it sends them over. Texts are composed in one place; each channel
//! only formats them, so that nothing a user typed is interpreted there.

mod channels;
mod chart;
mod compose;
mod email;
mod mailer;
mod message;
mod refusal;
mod sender;
mod settings;
mod smtp;
mod summary;
mod text;

pub use channels::Channel;
pub use compose::{
    About, BackupDamaged, IncidentCause, IncidentFacts, Maintenance, Outcome, RunEnded, TaskFacts, backup_suspicious,
    destination_unreachable, digest, host_key_changed, incident_begun, incident_ended, incident_grown, missed, overdue,
    repository_neglected, run_ended, server_unreachable, test_message, token_expiring,
};
pub use mailer::MAILS_AT_ONCE;
pub use message::{Fact, Item, Message, NoticeContent, Ping, Tone};
pub use refusal::Refusal;
pub use sender::Sender;
pub use settings::Settings;
pub use smtp::{Security, Smtp, is_mail_sender};
pub use summary::{DayLine, Summary, TaskLine};
