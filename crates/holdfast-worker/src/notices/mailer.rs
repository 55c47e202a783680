//! Sends mails directly, without the outbox, through the same sender as everything else.

use async_trait::async_trait;
use holdfast_app::{Mail, Mailer};
use holdfast_core::clock::SharedClock;
use holdfast_core::{clock, random};
use holdfast_notify::{Channel, Message, NoticeContent, Sender, Tone};

pub struct SenderMailer {
    sender: Sender,
    clock: SharedClock,
}

impl SenderMailer {
    pub fn new(sender: Sender, clock: SharedClock) -> Self {
        Self { sender, clock }
    }
}

#[async_trait]
impl Mailer for SenderMailer {
    fn base_url(&self) -> String {
        self.sender.base_url().to_owned()
    }

    fn is_set_up(&self) -> bool {
        self.sender.can_mail()
    }

    async fn send(&self, mail: Mail) -> Result<(), String> {
        let now = self.clock.now();
        let content = NoticeContent::Message(Message {
            event: random::hex(&random::bytes::<8>()),
            kind: "account".to_owned(),
            tone: Tone::Note,
            title: mail.subject,
            text: mail.text,
            facts: Vec::new(),
            link: Some(mail.link),
            at: clock::human_date_time(now, &clock::Zone::UTC),
            at_micros: now.as_microsecond(),
            items: Vec::new(),
        });
        let channel = Channel::Email(mail.to);
        // The mail server is set by the operator, so private addresses are allowed.
        self.sender.deliver(&channel, &content, true).await.map(drop).map_err(|refusal| refusal.text)
    }
}
