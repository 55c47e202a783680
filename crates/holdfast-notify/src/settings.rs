//! The settings of delivery.

use std::time::Duration;

use holdfast_core::Secret;
use holdfast_core::network::Network;

use crate::smtp::Smtp;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The URL at which users reach the service; links lead there.
    pub base_url: String,
    pub smtp: Option<Smtp>,
    /// The sender of mails.
    pub mail_from: String,
    /// For streams that have no application token of their own.
    pub pushover_token: Option<Secret>,
    pub pushover_url: String,
    pub egress_allow: Vec<Network>,
    /// Certificates to trust in addition to the system's.
    pub ca_pem: Option<Vec<u8>>,
    /// Time limit for one delivery, from connecting to the end of the answer.
    pub limit: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            base_url: "http://127.0.0.1:8080".to_owned(),
            smtp: None,
            mail_from: "Holdfast <holdfast@localhost>".to_owned(),
            pushover_token: None,
            pushover_url: "https://api.pushover.net/1/messages.json".to_owned(),
            egress_allow: Vec::new(),
            ca_pem: None,
            limit: Duration::from_secs(10),
        }
    }
}
