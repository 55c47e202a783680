//! A mail server on loopback: aiosmtpd with STARTTLS and logins. It also parses the messages it receives, so that they
//! are read by an implementation other than the one that wrote them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::identity::Identity;
use crate::service::{Service, free_port};

const SCRIPT: &str = include_str!("mail_server.py");
const PYTHON: &str = "/usr/bin/python3";

pub struct MailServer {
    port: u16,
    certificate: Vec<u8>,
    mails: PathBuf,
    _service: Service,
}

/// A mail as it arrived.
#[derive(Debug, Clone, Deserialize)]
pub struct Mail {
    pub from: String,
    pub to: Vec<String>,
    pub is_tls: bool,
    pub user: Option<String>,
    pub headers: Vec<(String, String)>,
    pub text: String,
    pub html: String,
    /// Content id, MIME type and base64 content of all other parts.
    pub pictures: Vec<(String, String, String)>,
}

impl Mail {
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map_or("", |(_, value)| value)
    }
}

impl MailServer {
    pub const USER: &str = "holdfast";
    pub const PASSWORD: &str = "mail p/w+?";

    /// Accepts mail only after STARTTLS and a login.
    pub fn start() -> Self {
        Self::start_as("starttls")
    }

    /// TLS from the first byte.
    pub fn start_tls() -> Self {
        Self::start_as("tls")
    }

    /// Accepts mail from anybody, without TLS.
    pub fn start_open() -> Self {
        Self::start_as("open")
    }

    fn start_as(mode: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder").keep();
        let identity = Identity::of_buckets(&[]).expect("openssl makes a certificate");
        let (key, certificate) = (folder.join("key.pem"), folder.join("certificate.pem"));
        std::fs::write(&key, &identity.key).expect("the server's key");
        std::fs::write(&certificate, &identity.certificate).expect("the server's certificate");
        let script = folder.join("mail_server.py");
        std::fs::write(&script, SCRIPT).expect("the server's script");
        let mails = folder.join("mails");
        std::fs::create_dir(&mails).expect("a folder for mails");
        let port = free_port();
        let path = |path: &Path| path.to_str().expect("a path that is text").to_owned();
        let (script, key, certificate, inbox) = (path(&script), path(&key), path(&certificate), path(&mails));
        let number = port.to_string();
        let command = [PYTHON, &script, &number, mode, &inbox, &certificate, &key, Self::USER, Self::PASSWORD];
        let mut service = Service::start(&folder, None, &command);
        service.wait_for_port(port, &folder.join("log"));
        Self { port, certificate: identity.certificate, mails, _service: service }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The certificate that a client must trust.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// Whether the server has responded to a mail to a `slow` mailbox.
    pub fn has_answered_late(&self) -> bool {
        self.mails.join("late").exists()
    }

    /// Everything that arrived, in order.
    pub fn mails(&self) -> Vec<Mail> {
        let mut names: Vec<PathBuf> = std::fs::read_dir(&self.mails)
            .expect("the folder of mails")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|kind| kind == "json"))
            .collect();
        names.sort();
        let read = |path: &PathBuf| serde_json::from_slice(&std::fs::read(path).expect("a mail")).expect("a mail");
        names.iter().map(read).collect()
    }
}
