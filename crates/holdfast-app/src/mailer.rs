//! Mails that must not be stored in the outbox: they contain a link that opens an account.

use async_trait::async_trait;

/// One mail to one person.
#[derive(Debug, Clone)]
pub struct Mail {
    pub to: String,
    pub subject: String,
    pub text: String,
    pub link: String,
}

#[async_trait]
pub trait Mailer: Send + Sync {
    /// The URL of the service as configured by the operator. URLs taken from requests never end up in a mail.
    fn base_url(&self) -> String;

    /// Whether mail can be sent at all.
    fn is_set_up(&self) -> bool;

    /// Sends without retrying; the error is for the log.
    async fn send(&self, mail: Mail) -> Result<(), String>;
}
