//! The outgoing mail server, as the operator specifies it.

use holdfast_core::Secret;
use lettre::message::Mailbox;
use url::Url;

/// The outgoing mail server.
#[derive(Debug, Clone)]
pub struct Smtp {
    pub host: String,
    pub port: u16,
    pub security: Security,
    pub login: Option<(String, Secret)>,
}

/// How the connection to a mail server is secured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// TLS from the first byte.
    Tls,
    /// STARTTLS; a server that does not offer it is not used.
    StartTls,
    /// No encryption, for a server on the same machine.
    None,
}

impl Smtp {
    /// Parses `smtp://user:password@host:587` or `smtps://…`. Unencrypted only with `?tls=none`.
    pub fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let in_the_open = match url.query() {
            None | Some("") => false,
            Some("tls=none") => true,
            Some(_) => return None,
        };
        let (security, port) = match (url.scheme(), in_the_open) {
            ("smtps", false) => (Security::Tls, 465),
            ("smtp", false) => (Security::StartTls, 587),
            ("smtp", true) => (Security::None, 25),
            _ => return None,
        };
        let decode = |part: &str| {
            let form = format!("x={}", part.replace('+', "%2B"));
            url::form_urlencoded::parse(form.as_bytes()).next().map(|(_, value)| value.into_owned())
        };
        let login = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => Some((decode(user)?, Secret::new(decode(password.unwrap_or(""))?))),
        };
        let host = url.host_str().filter(|host| !host.is_empty())?.trim_matches(['[', ']']).to_owned();
        let is_bare = matches!(url.path(), "" | "/") && url.fragment().is_none();
        is_bare.then_some(Self { host, port: url.port().unwrap_or(port), security, login })
    }
}

/// Whether this is a valid sender of mails.
pub fn is_mail_sender(text: &str) -> bool {
    text.parse::<Mailbox>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_servers_are_specified_by_a_url() {
        let smtp = Smtp::parse("smtp://me%40example.org:p%2Fw+x@mail.example.org").unwrap();
        assert_eq!((smtp.host.as_str(), smtp.port, smtp.security), ("mail.example.org", 587, Security::StartTls));
        let (user, password) = smtp.login.unwrap();
        assert_eq!((user.as_str(), password.reveal()), ("me@example.org", "p/w+x"));
        let smtp = Smtp::parse("smtps://mail.example.org").unwrap();
        assert_eq!((smtp.port, smtp.security, smtp.login.is_none()), (465, Security::Tls, true));
        let smtp = Smtp::parse("smtp://127.0.0.1:2525?tls=none").unwrap();
        assert_eq!((smtp.port, smtp.security), (2525, Security::None));
        for bad in
            ["http://x", "smtp://", "smtp://h?tls=maybe", "smtps://h?tls=none", "smtp://h/path", "mail.example.org"]
        {
            assert!(Smtp::parse(bad).is_none(), "{bad}");
        }
    }
}
