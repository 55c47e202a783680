//! Delivers content to a channel and returns the channel's answer. The caller decides whether to try again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdfast_core::Secret;
use holdfast_core::clock;
use holdfast_core::failure::FailureCode;
use holdfast_engine::egress::{self, Egress, Limits};
use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use serde_json::Value;
use url::{Host, Url};

use crate::channels::{self, Channel};
use crate::email;
use crate::mailer::Mailer;
use crate::message::NoticeContent;
use crate::refusal::Refusal;
use crate::settings::Settings;
use crate::text::answer_line;

/// How much of an answer is read.
const ANSWER_BYTES: usize = 4096;

/// How long the body of an answer may take after its status.
const EXCERPT_LIMIT: Duration = Duration::from_secs(1);

/// Cheap to clone.
#[derive(Clone)]
pub struct Sender {
    settings: Arc<Settings>,
    /// By whether the scheme is HTTPS, and by whether private networks are allowed.
    clients: Arc<Mutex<HashMap<(bool, bool), reqwest::Client>>>,
    mailer: Arc<Mailer>,
}

impl Sender {
    pub fn new(settings: Settings) -> Self {
        let settings = Arc::new(settings);
        Self { clients: Arc::default(), mailer: Arc::new(Mailer::new(settings.clone())), settings }
    }

    pub fn base_url(&self) -> &str {
        self.settings.base_url.trim_end_matches('/')
    }

    /// Whether a mail server is configured.
    pub fn can_mail(&self) -> bool {
        self.settings.smtp.is_some()
    }

    /// Delivers once, and returns the channel's answer. `allow_private` is for resources of administrators.
    pub async fn deliver(
        &self,
        channel: &Channel,
        content: &NoticeContent,
        allow_private: bool,
    ) -> Result<String, Refusal> {
        let _turn = match channel {
            Channel::Email(_) => self.mailer.turn().await?,
            Channel::Discord(_)
            | Channel::Slack(_)
            | Channel::Teams(_)
            | Channel::Pushover { .. }
            | Channel::Heartbeat(_) => None,
        };
        let delivering = async {
            match (channel, content) {
                (Channel::Email(address), NoticeContent::Message(message)) => {
                    self.mailer.send(address, email::of_message(message)).await
                }
                (Channel::Email(address), NoticeContent::Summary(summary)) => {
                    self.mailer.send(address, email::of_summary(summary)).await
                }
                (Channel::Discord(url), NoticeContent::Message(message)) => {
                    let url = parse(url)?;
                    self.post(&url, Some(&channels::discord(message)), allow_private, plain_answer).await
                }
                (Channel::Slack(url), NoticeContent::Message(message)) => {
                    self.post(&parse(url)?, Some(&channels::slack(message)), allow_private, plain_answer).await
                }
                (Channel::Teams(url), NoticeContent::Message(message)) => {
                    let url = parse(url)?;
                    if channels::is_connector(&url) {
                        let card = channels::teams_connector(message);
                        return self.post(&url, Some(&card), allow_private, connector_answer).await;
                    }
                    self.post(&url, Some(&channels::teams(message)), allow_private, plain_answer).await
                }
                (Channel::Pushover { user, token }, NoticeContent::Message(message)) => {
                    let Some(token) = token.as_ref().or(self.settings.pushover_token.as_ref()) else {
                        return Err(Refusal::final_(
                            "This stream has no pushover_token, and HOLDFAST_PUSHOVER_TOKEN is not set.",
                        ));
                    };
                    let url = Url::parse(&self.settings.pushover_url)
                        .map_err(|_| Refusal::final_("The address of Pushover is not valid."))?;
                    self.post(&url, Some(&channels::pushover(message, user, token)), allow_private, plain_answer).await
                }
                (Channel::Heartbeat(url), NoticeContent::Ping(ping)) => {
                    let url = channels::ping_url(&parse(url)?, ping);
                    self.post(&url, None, allow_private, plain_answer).await
                }
                (Channel::Email(_), NoticeContent::Ping(_))
                | (
                    Channel::Discord(_) | Channel::Slack(_) | Channel::Teams(_) | Channel::Pushover { .. },
                    NoticeContent::Summary(_) | NoticeContent::Ping(_),
                )
                | (Channel::Heartbeat(_), NoticeContent::Message(_) | NoticeContent::Summary(_)) => {
                    Err(Refusal::final_("This channel does not accept messages of this kind."))
                }
            }
        };
        // An upper limit, whatever the channel does.
        match tokio::time::timeout(self.settings.limit + EXCERPT_LIMIT * 2, delivering).await {
            Ok(delivered) => delivered,
            Err(_) => {
                if matches!(channel, Channel::Email(_)) {
                    self.mailer.disconnect();
                }
                Err(Refusal::passing("The channel did not answer in time."))
            }
        }
    }

    /// Connects to the mail server and signs in, without sending anything.
    pub async fn check_mail_server(&self) -> Result<(), Refusal> {
        self.mailer.check().await
    }

    async fn post(
        &self,
        url: &Url,
        body: Option<&Value>,
        allow_private: bool,
        judge: fn(StatusCode, &str, String) -> Result<String, Refusal>,
    ) -> Result<String, Refusal> {
        let egress = Arc::new(Egress { allow_private, allowed: self.settings.egress_allow.clone() });
        egress.check_url(url).map_err(|_| not_allowed())?;
        let client = self.client(url, &egress)?;
        let mut request = client.post(url.clone()).header("user-agent", "Holdfast");
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.map_err(|error| below_http(&error))?;
        let status = answer.status();
        let retry_after = retry_after(answer.headers());
        // The body of a foreign server is shown only to users who may reach it anyway; it is evaluated in any case.
        let text = excerpt(answer).await;
        let words =
            answered(status, &if allow_private || is_known(url) { without_secrets(&text, url) } else { String::new() });
        judge(status, &text, words)
            .map_err(|refusal| Refusal { retry_after: retry_after.or(refusal.retry_after), ..refusal })
    }

    fn client(&self, url: &Url, egress: &Arc<Egress>) -> Result<reqwest::Client, Refusal> {
        let key = (url.scheme() == "https", egress.allow_private);
        let mut clients = self.clients.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let limits = Limits { connect: self.settings.limit, total: self.settings.limit };
        let made = egress::client(url, egress, self.settings.ca_pem.as_deref(), limits);
        let made = made.map_err(|error| Refusal::final_(error.message))?;
        clients.insert(key, made.clone());
        Ok(made)
    }
}

fn parse(url: &Secret) -> Result<Url, Refusal> {
    Url::parse(url.reveal()).map_err(|_| Refusal::final_("The stream's URL is not valid."))
}

/// This user may not reach the address; the message does not reveal which one it is.
fn not_allowed() -> Refusal {
    Refusal::passing(format!("Connecting to this address is not allowed; {} can open its network.", egress::SETTING))
}

/// The channels' own hosts, whose answers may be shown to everybody.
fn is_known(url: &Url) -> bool {
    const HOSTS: &[&str] =
        &["discord.com", "discordapp.com", "slack.com", "office.com", "office365.com", "azure.com", "pushover.net"];
    let Some(Host::Domain(host)) = url.host() else { return false };
    HOSTS.iter().any(|known| host == *known || host.strip_suffix(known).is_some_and(|rest| rest.ends_with('.')))
}

/// Hides the secret parts of a URL in an answer, because servers often repeat what they were asked.
fn without_secrets(text: &str, url: &Url) -> String {
    const SHORTEST: usize = 6;
    let parts = url.path_segments().into_iter().flatten().chain(url.query()).chain(url.password());
    let mut hidden = text.to_owned();
    for part in parts.filter(|part| part.len() >= SHORTEST) {
        hidden = hidden.replace(part, "…");
    }
    hidden
}

/// How many seconds the channel asks us to wait. A date is compared with the answer's own.
fn retry_after(headers: &HeaderMap) -> Option<i64> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let wanted = text(RETRY_AFTER)?;
    seconds(wanted).or_else(|| {
        let (until, now) = (clock::parse_http_date(wanted)?, clock::parse_http_date(text(DATE)?)?);
        Some((until.as_second() - now.as_second()).max(0))
    })
}

fn seconds(text: &str) -> Option<i64> {
    text.trim().parse::<f64>().ok().filter(|seconds| seconds.is_finite() && *seconds >= 0.0).map(|s| s.ceil() as i64)
}

async fn excerpt(mut answer: reqwest::Response) -> String {
    let mut body = Vec::new();
    // A body that breaks off or hangs does not change what the status says.
    let reading = async {
        while let Ok(Some(chunk)) = answer.chunk().await {
            body.extend_from_slice(&chunk[..chunk.len().min(ANSWER_BYTES - body.len())]);
            if body.len() == ANSWER_BYTES {
                break;
            }
        }
    };
    let _hung = tokio::time::timeout(EXCERPT_LIMIT, reading).await;
    String::from_utf8_lossy(&body).into_owned()
}

fn answered(status: StatusCode, text: &str) -> String {
    match answer_line(text) {
        // An HTML page is not shown in a line of text.
        text if text.is_empty() || text.starts_with('<') => format!("The channel answered {}.", status.as_u16()),
        text => format!("The channel answered {}: {text}", status.as_u16()),
    }
}

/// Interprets an answer as most channels mean it.
fn plain_answer(status: StatusCode, text: &str, words: String) -> Result<String, Refusal> {
    match status.as_u16() {
        200..=299 => Ok(words),
        300..=399 => Err(Refusal::passing(format!("{words} Redirects are not followed; use the address it leads to."))),
        429 => Err(Refusal { retry_after: body_retry_after(text), ..Refusal::passing(words) }),
        // The message or the address is wrong, and stays so. Anything else may be temporary, such as an error of a
        // proxy.
        400 | 404 | 405 | 410 | 413 | 422 => Err(Refusal::final_(words)),
        _ => Err(Refusal::passing(words)),
    }
}

/// Discord says how long to wait in the body, more exactly than in the header.
fn body_retry_after(text: &str) -> Option<i64> {
    let body: Value = serde_json::from_str(text).ok()?;
    body["retry_after"].as_f64().and_then(|wait| seconds(&wait.to_string()))
}

/// Older Teams connectors answer 200 whatever happened, and report errors in the body.
fn connector_answer(status: StatusCode, text: &str, words: String) -> Result<String, Refusal> {
    if status.is_success() && text.contains("error") {
        return Err(Refusal::passing(words));
    }
    plain_answer(status, text, words)
}

/// An error before there was an answer. The HTTP client's own message contains the URL, so it is not used.
fn below_http(error: &reqwest::Error) -> Refusal {
    match egress::classify(error) {
        Some(known) if known.code == FailureCode::ForbiddenAddress => not_allowed(),
        Some(known) => Refusal::passing(known.message),
        None => Refusal::passing("The channel could not be reached."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_do_not_reveal_secret_parts_of_the_url() {
        let url = Url::parse("https://x.example/hooks/very-secret?token=abcdef123").unwrap();
        let said = "Cannot POST /hooks/very-secret?token=abcdef123";
        assert_eq!(without_secrets(said, &url), "Cannot POST /hooks/…?…");
        assert!(is_known(&Url::parse("https://hooks.slack.com/x").unwrap()));
        assert!(!is_known(&Url::parse("https://evilslack.com/x").unwrap()));
        assert!(!is_known(&Url::parse("http://10.0.0.1/x").unwrap()));
    }

    #[test]
    fn waits_are_seconds_or_dates() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            pairs.iter().map(|(name, value)| ((*name).try_into().unwrap(), (*value).try_into().unwrap())).collect()
        };
        let date = ("date", "Sun, 02 Mar 2025 12:00:00 GMT");
        assert_eq!(retry_after(&headers(&[("retry-after", "7")])), Some(7));
        assert_eq!(retry_after(&headers(&[("retry-after", "Sun, 02 Mar 2025 12:01:30 GMT"), date])), Some(90));
        assert_eq!(retry_after(&headers(&[("retry-after", "Sun, 02 Mar 2025 11:00:00 GMT"), date])), Some(0));
        assert_eq!(retry_after(&headers(&[("retry-after", "later"), date])), None);
    }

    #[test]
    fn answers_tell_whether_to_try_again() {
        let answer = |status: u16, text: &str| {
            let status = StatusCode::from_u16(status).unwrap();
            plain_answer(status, text, answered(status, text))
        };
        assert_eq!(answer(204, "").unwrap(), "The channel answered 204.");
        assert_eq!(answer(200, "ok\n").unwrap(), "The channel answered 200: ok");
        assert_eq!(answer(404, "<!doctype html><p>").unwrap_err().text, "The channel answered 404.");
        assert!(!answer(404, "no_service").unwrap_err().can_retry);
        assert!(answer(302, "").unwrap_err().can_retry && answer(401, "").unwrap_err().can_retry);
        assert!(answer(503, "").unwrap_err().can_retry);
        let limited = answer(429, r#"{"message": "slow", "retry_after": 1.2}"#).unwrap_err();
        assert_eq!((limited.can_retry, limited.retry_after), (true, Some(2)));
        let said = "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429";
        assert!(connector_answer(StatusCode::OK, said, String::new()).unwrap_err().can_retry);
        assert_eq!(connector_answer(StatusCode::OK, "1", "fine".to_owned()).unwrap(), "fine");
        assert_eq!(seconds("-1"), None);
    }
}
