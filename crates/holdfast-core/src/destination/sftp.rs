//! A folder on a server that is reached over SFTP: a NAS, a storage box, any machine with SSH.

use std::fmt;

use crate::fields::{DefaultValue, FieldSpec};
use crate::input::{Errors, Input};
use crate::refusal::Rule;
use crate::secret::SecretChange;
use crate::server::{DEFAULT_PORT, is_username};
use crate::{limits, network};

use super::keys::Keys;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SftpDestination {
    pub host: String,
    pub port: u16,
    pub username: String,
    /// Absolute, or relative to the folder in which the server starts this user.
    pub path: String,
    /// The only host key that the server may present, as `SHA256:…`: configured, or the first one it presented.
    pub host_key: Option<String>,
    /// Without a password, the owner's SSH key is used.
    pub has_password: bool,
}

const SFTP: &[&str] = &["sftp"];

const HOST: FieldSpec = FieldSpec::line("sftp_host", limits::TEXT_CHARS)
    .min_chars(1)
    .about("Needed for `sftp`: an IP address or a host name.")
    .not_null()
    .only_if("type", SFTP)
    .requires_secrets()
    .shown_at("/sftp_host");
const PORT: FieldSpec = FieldSpec::integer("sftp_port", 1, 65535)
    .about("Defaults to 22.")
    .default_to(DefaultValue::Integer(DEFAULT_PORT))
    .only_if("type", SFTP)
    .requires_secrets()
    .shown_at("/sftp_port");
const USERNAME: FieldSpec = FieldSpec::line("sftp_username", limits::TEXT_CHARS)
    .min_chars(1)
    .about("Needed for `sftp`.")
    .not_null()
    .only_if("type", SFTP)
    .requires_secrets()
    .shown_at("/sftp_username");
const PATH: FieldSpec = FieldSpec::line("sftp_path", limits::PATH_CHARS)
    .trims_slashes()
    .min_chars(1)
    .about(
        "Needed for `sftp`: a folder, which is created if it does not exist. It is absolute, or relative to the folder \
         in which\nthe server starts the user. It must be used for nothing else.",
    )
    .not_null()
    .only_if("type", SFTP)
    .shown_at("/sftp_path");
const PASSWORD: FieldSpec = FieldSpec::secret("sftp_password", limits::SECRET_CHARS)
    .about(
        "Without it, your own SSH key is used (`GET /api/ssh-key`). Never returned; null removes it. A change of the \
         host, port,\nuser or host key needs it in the same request.",
    )
    .only_if("type", SFTP)
    .shown_at("/is_sftp_password_set");
const HOST_KEY: FieldSpec = FieldSpec::line("sftp_host_key_fingerprint", 50)
    .pattern("^SHA256:[A-Za-z0-9+/]{43}$")
    .about(
        "The only host key that the server may show, as `ssh-keygen -l` prints it. If it is left out, the key that the \
         server\nshows first is kept. Null forgets the key.",
    )
    .only_if("type", SFTP)
    .requires_secrets()
    .shown_at("/sftp_host_key_fingerprint");

/// In the order of the forms.
pub const FIELDS: &[FieldSpec] = &[HOST, PORT, USERNAME, PASSWORD, PATH, HOST_KEY];
/// The fields that responses show, in this order.
pub const SHOWN: &[FieldSpec] = &[HOST, PORT, USERNAME, PATH, PASSWORD, HOST_KEY];

impl SftpDestination {
    pub fn check(errors: &mut Errors, input: &Input, current: Option<&Self>) -> (Option<Self>, Keys) {
        let password = PASSWORD.secret_change(errors, input);
        let has_password = match &password {
            SecretChange::Keep => current.is_some_and(|was| was.has_password),
            SecretChange::Clear => false,
            SecretChange::Set(_) => true,
        };
        let settings = Self::check_settings(errors, input, current, has_password);
        if let (Some(was), Some(settings)) = (current, &settings)
            && was.has_password
            && matches!(password, SecretChange::Keep)
            && !was.keeps_secrets_with(settings)
            && errors.is_empty()
        {
            errors.add(PASSWORD.name, Rule::PasswordAgain);
        }
        (settings, Keys { access_key: SecretChange::Clear, secret_key: password })
    }

    fn check_settings(errors: &mut Errors, input: &Input, current: Option<&Self>, has_password: bool) -> Option<Self> {
        let host = HOST.required_line(errors, input, current.map(|was| &*was.host));
        if host.as_deref().is_some_and(|host| !network::is_host(host)) {
            errors.add(HOST.name, Rule::Host);
        }
        let port = PORT.checked_integer(errors, input, current.map_or(DEFAULT_PORT, |was| was.port.into()));
        let username = USERNAME.required_line(errors, input, current.map(|was| &*was.username));
        if username.as_deref().is_some_and(|name| !is_username(name)) {
            errors.add(USERNAME.name, Rule::Format);
        }
        let path = PATH.required_line(errors, input, current.map(|was| &*was.path)).map(|path| tidy(&path));
        if path.as_deref().is_some_and(|path| !is_folder(path)) {
            errors.add(PATH.name, Rule::Format);
        }
        // A host key pinned for another machine says nothing about this one.
        let is_same = current.is_some_and(|was| Some(&was.host) == host.as_ref() && i64::from(was.port) == port);
        let was = current.filter(|_| is_same).and_then(|was| was.host_key.clone());
        let host_key = HOST_KEY.optional_line(errors, input, was, is_fingerprint);
        let port = u16::try_from(port).ok()?;
        Some(Self { host: host?, port, username: username?, path: path?, host_key, has_password })
    }

    pub fn write(&self, values: &mut Input) {
        values.set(HOST.name, self.host.as_str());
        values.set(PORT.name, i64::from(self.port));
        values.set(USERNAME.name, self.username.as_str());
        values.set(PATH.name, self.path.as_str());
        values.set(HOST_KEY.name, self.host_key.clone());
        // Only whether there is a password; the secret itself is stored separately.
        values.set(PASSWORD.name, self.has_password);
    }

    pub fn read(stored: &Input) -> Self {
        let text = |field: &FieldSpec| stored.text(field.name).value().cloned();
        let port = stored.integer(PORT.name).value().and_then(|port| u16::try_from(*port).ok());
        Self {
            // With missing values this destination is unusable, but reading it must not fail: that would hide the
            // others.
            host: text(&HOST).unwrap_or_default(),
            port: port.unwrap_or(22),
            username: text(&USERNAME).unwrap_or_default(),
            path: text(&PATH).unwrap_or_default(),
            host_key: text(&HOST_KEY),
            has_password: stored.boolean(PASSWORD.name).value().copied().unwrap_or(false),
        }
    }

    /// Reads `sftp://user@host:port/path`. The path is absolute, or relative to the user's start folder if it begins
    /// with `/~/`.
    pub fn of_url(text: &str) -> Option<Self> {
        let url = url::Url::parse(text).ok().filter(|url| url.scheme() == "sftp" && url.password().is_none())?;
        let decoded = |part: &str| percent_encoding::percent_decode_str(part).decode_utf8().ok().map(String::from);
        let path = decoded(url.path())?;
        let sftp = Self {
            host: url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port().unwrap_or(22),
            username: decoded(url.username())?,
            path: match tidy(&path).as_str() {
                "/~" => ".".to_owned(),
                path => path.strip_prefix("/~/").unwrap_or(path).to_owned(),
            },
            host_key: None,
            has_password: false,
        };
        sftp.is_sound().then_some(sftp)
    }

    /// Whether a request could have created these settings; an import accepts nothing else.
    pub fn is_sound(&self) -> bool {
        let (mut errors, mut input) = (Errors::default(), Input::default());
        self.write(&mut input);
        let checked = Self::check_settings(&mut errors, &input, None, self.has_password);
        errors.is_empty() && checked.as_ref() == Some(self)
    }

    /// Whether data is sent to the same account on the same machine.
    fn keeps_secrets_with(&self, other: &Self) -> bool {
        let reader = |of: &Self| (of.host.clone(), of.port, of.username.clone(), of.host_key.clone());
        reader(self) == reader(other)
    }
}

/// The location, for display.
impl fmt::Display for SftpDestination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, username, path, .. } = self;
        write!(formatter, "{path} of {username}@{host}, port {port}")
    }
}

fn tidy(path: &str) -> String {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() && !path.is_empty() { "/".to_owned() } else { trimmed.to_owned() }
}

/// `~` is refused: shells expand it, but SFTP would take it as the name of a folder.
fn is_folder(path: &str) -> bool {
    let parts = path.strip_prefix('/').unwrap_or(path).split('/');
    path == "/" || (!path.starts_with('~') && parts.clone().all(|part| !part.is_empty() && part != ".."))
}

/// Whether this is the fingerprint of a host key, as `ssh-keygen -l` prints it.
pub fn is_fingerprint(text: &str) -> bool {
    let base64 = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    text.strip_prefix("SHA256:").is_some_and(|hash| hash.len() == 43 && hash.bytes().all(base64))
}

#[cfg(test)]
mod tests {
    use crate::destination::{CurrentDestination, DestinationDraft, DestinationSpec};
    use crate::input::Value;

    use super::*;

    const KEY: &str = "SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU";

    fn input() -> Input {
        Input::default()
            .with("label", "nas")
            .with("type", "sftp")
            .with("sftp_host", "nas.example.org")
            .with("sftp_username", "backup")
            .with("sftp_path", "/volume1/backup/")
    }

    fn check(input: &Input, current: Option<&CurrentDestination>) -> Result<(SftpDestination, Keys), Errors> {
        let draft = DestinationDraft::check(input, current)?;
        let DestinationSpec::Sftp(sftp) = draft.spec else { panic!("another type") };
        Ok((sftp, draft.keys))
    }

    fn current(input: &Input) -> CurrentDestination {
        CurrentDestination { label: "nas".into(), spec: DestinationDraft::check(input, None).unwrap().spec }
    }

    #[test]
    fn defaults_and_storage() {
        let (sftp, _) = check(&input(), None).unwrap();
        assert_eq!((sftp.port, sftp.path.as_str(), sftp.has_password), (22, "/volume1/backup", false));
        let with_all =
            input().with("sftp_port", 2222).with("sftp_password", "s").with("sftp_host_key_fingerprint", KEY);
        for input in [input(), with_all] {
            let spec = current(&input).spec;
            assert_eq!(DestinationSpec::read(&spec.write()), Some(spec));
        }
    }

    #[test]
    fn folders() {
        for good in ["/", "/a", "a", "a/b c", "./a", "/a/.b"] {
            assert!(is_folder(&tidy(good)), "{good}");
        }
        for bad in ["~", "~/a", "/a/../b", "..", "a//b"] {
            assert!(!is_folder(&tidy(bad)), "{bad}");
        }
        let errors = check(&input().with("sftp_path", "~/x").with("sftp_host", "a b").with("sftp_port", 0), None);
        let errors = errors.unwrap_err();
        assert!(["sftp_path", "sftp_host", "sftp_port"].iter().all(|field| errors.has(field)));
    }

    #[test]
    fn urls() {
        let of = |url: &str| SftpDestination::of_url(url).map(|sftp| (sftp.username, sftp.host, sftp.port, sftp.path));
        let is = |username: &str, host: &str, port, path: &str| {
            Some((username.to_owned(), host.to_owned(), port, path.to_owned()))
        };
        assert_eq!(of("sftp://backup@nas/volume%201/a/"), is("backup", "nas", 22, "/volume 1/a"));
        assert_eq!(of("sftp://u@[::1]:2222/~/a"), is("u", "::1", 2222, "a"));
        assert_eq!(of("sftp://u@nas/~/"), is("u", "nas", 22, "."));
        for bad in ["sftp://nas/a", "ssh://u@nas/a", "sftp://u:secret@nas/a", "sftp://u@nas"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_password_is_given_again_for_another_reader() {
        let was = current(&input().with("sftp_password", "secret").with("sftp_host_key_fingerprint", KEY));
        let another = KEY.replace('4', "5");
        let changes = [
            ("sftp_host", Value::from("evil.example.org")),
            ("sftp_port", Value::from(2222)),
            ("sftp_username", Value::from("eve")),
            ("sftp_host_key_fingerprint", Value::from(another.as_str())),
            ("sftp_host_key_fingerprint", Value::Null),
        ];
        for (field, value) in changes {
            let change = Input::default().with(field, value);
            assert!(check(&change, Some(&was)).unwrap_err().has("sftp_password"), "{field}");
            check(&change.clone().with("sftp_password", "secret"), Some(&was)).unwrap();
            // With the SSH key instead of a password, there is no stored secret to expose.
            let (sftp, _) = check(&change.with("sftp_password", Value::Null), Some(&was)).unwrap();
            assert!(!sftp.has_password);
        }
        let (moved, keys) = check(&Input::default().with("sftp_path", "/elsewhere"), Some(&was)).unwrap();
        assert!(moved.has_password && matches!(keys.secret_key, SecretChange::Keep));
    }

    #[test]
    fn a_pinned_key_is_kept_for_the_same_machine_only() {
        let was = current(&input().with("sftp_host_key_fingerprint", KEY));
        let kept = |change: Input| check(&change, Some(&was)).unwrap().0.host_key;
        assert_eq!(kept(Input::default().with("sftp_path", "x")).as_deref(), Some(KEY));
        assert_eq!(kept(Input::default().with("sftp_host", "other.example.org")), None);
        assert_eq!(kept(Input::default().with("sftp_port", 23)), None);
        let wrong = Input::default().with("sftp_host_key_fingerprint", "SHA256:short");
        assert!(check(&wrong, Some(&was)).unwrap_err().has("sftp_host_key_fingerprint"));
    }
}
