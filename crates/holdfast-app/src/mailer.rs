//! Mails that cannot wait in the outbox: they carry a link that opens an account, and nothing that is kept may hold it.

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
    /// Where people reach the service, as its operator says; what a request claims about it ends up in no mail.
    fn base_url(&self) -> String;

    /// Whether mail can be sent at all.
    fn is_set_up(&self) -> bool;

    /// Sends once; the error is for the log.
    async fn send(&self, mail: Mail) -> Result<(), String>;
}
