//! Sends mails through the outgoing mail server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_engine::egress;
use lettre::message::Mailbox;
use lettre::transport::smtp::PoolConfig;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::email;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::smtp::{Security, Smtp};
use crate::text::answer_line;

/// How many mails are sent at once: relays allow few connections.
pub const MAILS_AT_ONCE: usize = 4;
const IDLE: Duration = Duration::from_secs(20);

type Transport = AsyncSmtpTransport<Tokio1Executor>;

pub(crate) struct Mailer {
    settings: Arc<Settings>,
    transport: Mutex<Option<Transport>>,
    turns: Semaphore,
}

impl Mailer {
    pub fn new(settings: Arc<Settings>) -> Self {
        Self { settings, transport: Mutex::default(), turns: Semaphore::new(MAILS_AT_ONCE) }
    }

    /// Waits until a mail may be sent. The waiting does not count towards the time limit of the mail.
    pub async fn turn(&self) -> Result<Option<SemaphorePermit<'_>>, Refusal> {
        match tokio::time::timeout(self.settings.limit * 2, self.turns.acquire()).await {
            Ok(turn) => Ok(turn.ok()),
            Err(_) => Err(Refusal::passing("Too many mails are already being sent.")),
        }
    }

    /// Drops the connections: the rest of a conversation that broke off must not be mistaken for the next mail's.
    pub fn disconnect(&self) {
        *self.transport.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = None;
    }

    /// Sends one mail, and returns the answer of the mail server.
    pub async fn send(&self, address: &str, mail: Result<email::Mail, email::InvalidMail>) -> Result<String, Refusal> {
        let (smtp, from) = self.configured()?;
        let invalid = |invalid: email::InvalidMail| Refusal::final_(invalid.0);
        let message = mail.and_then(|mail| email::assemble(mail, &from, address)).map_err(invalid)?;
        let transport = {
            let mut made = self.transport.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            match made.as_ref() {
                Some(transport) => transport.clone(),
                None => made.insert(self.new_transport(smtp, &from)?).clone(),
            }
        };
        match transport.send(message).await {
            Ok(answer) => {
                let words: Vec<&str> = answer.message().collect();
                let words = words.join(" ").replace(address, "…");
                Ok(format!("The mail server answered {} {}", answer.code(), answer_line(&words)))
            }
            Err(error) => Err(refusal_of(&error, address)),
        }
    }

    fn configured(&self) -> Result<(&Smtp, Mailbox), Refusal> {
        let Some(smtp) = &self.settings.smtp else {
            return Err(Refusal::passing("No mail server is set; the operator sets one with HOLDFAST_SMTP_URL."));
        };
        let from: Mailbox = self.settings.mail_from.parse().map_err(|_| {
            Refusal::final_("The sender's address is not valid; the operator sets it with HOLDFAST_MAIL_FROM.")
        })?;
        Ok((smtp, from))
    }

    /// Connects to the mail server and signs in, without sending anything.
    pub async fn check(&self) -> Result<(), Refusal> {
        let (smtp, from) = self.configured()?;
        let transport = self.new_transport(smtp, &from)?;
        let silent = || Refusal::passing("The mail server did not answer in time.");
        match tokio::time::timeout(self.settings.limit * 2, transport.test_connection()).await.map_err(|_| silent())? {
            Ok(true) => Ok(()),
            Ok(false) => Err(Refusal::passing("The mail server closed the connection.")),
            Err(error) => Err(refusal_of(&error, "")),
        }
    }

    fn new_transport(&self, smtp: &Smtp, from: &Mailbox) -> Result<Transport, Refusal> {
        let broken = |what: &str| Refusal::final_(format!("TLS to the mail server cannot be set up: {what}"));
        let tls = || -> Result<TlsParameters, Refusal> {
            let mut parameters = TlsParameters::builder(smtp.host.clone());
            if let Some(pem) = &self.settings.ca_pem {
                let added = Certificate::from_pem(pem).map_err(|_| broken("HOLDFAST_CA_FILE holds no certificate"))?;
                parameters = parameters.add_root_certificate(added);
            }
            parameters.build().map_err(|_| broken("no usable certificates"))
        };
        let tls = match smtp.security {
            Security::Tls => Tls::Wrapper(tls()?),
            Security::StartTls => Tls::Required(tls()?),
            Security::None => Tls::None,
        };
        let mut builder = Transport::builder_dangerous(&smtp.host)
            .port(smtp.port)
            .tls(tls)
            .timeout(Some(self.settings.limit))
            .pool_config(PoolConfig::new().max_size(MAILS_AT_ONCE as u32).idle_timeout(IDLE))
            .hello_name(ClientId::Domain(from.email.domain().to_owned()));
        if let Some((user, password)) = &smtp.login {
            builder = builder.credentials(Credentials::new(user.clone(), password.reveal().to_owned()));
        }
        Ok(builder.build())
    }
}

fn refusal_of(error: &lettre::transport::smtp::Error, address: &str) -> Refusal {
    let words = match error.status() {
        Some(code) => {
            let said = error.to_string().replace(address, "…");
            format!(
                "The mail server refused: {code} {}",
                answer_line(said.split_once(": ").map_or("", |(_, said)| said))
            )
        }
        None if error.is_timeout() => "The mail server did not answer in time.".to_owned(),
        None if error.is_tls() => {
            "TLS to the mail server failed; its certificate may not be trusted (HOLDFAST_CA_FILE).".to_owned()
        }
        None if error.is_client() => {
            format!("The mail server does not offer what is needed: {}", answer_line(&error.to_string()))
        }
        None => match egress::classify(error) {
            Some(known) => format!("The mail server could not be reached: {}", known.message),
            None => "The mail server could not be reached.".to_owned(),
        },
    };
    // The mailbox itself is refused; a login or a policy may change.
    const MAILBOX: &[u16] = &[550, 551, 553];
    let is_final = error.status().is_some_and(|code| MAILBOX.contains(&u16::from(code)));
    if is_final { Refusal::final_(words) } else { Refusal::passing(words) }
}
