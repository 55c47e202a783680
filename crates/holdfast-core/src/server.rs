//! Remote servers: where backups come from, reached over SSH.

use crate::changes::Changes;
use crate::fields::{DefaultValue, FieldSpec};
use crate::ids::ServerId;
use crate::input::{Errors, Input};
use crate::refusal::Rule;
use crate::secret::SecretChange;
use crate::{limits, network};

string_enum! {
    /// What the last attempt to reach a server found.
    Connectivity { Unknown = "unknown", Online = "online", Offline = "offline" }
}

pub const DEFAULT_PORT: i64 = 22;

const LABEL: FieldSpec = FieldSpec::line("label", limits::TEXT_CHARS).min_chars(1).required().shown_at("/label");
pub const HOST: FieldSpec = FieldSpec::line("ip_address", limits::TEXT_CHARS)
    .min_chars(1)
    .about("An IP address or a host name.")
    .also_called(&["host"])
    .required()
    .requires_secrets()
    .shown_at("/connection/host");
const USERNAME: FieldSpec = FieldSpec::line("username", limits::TEXT_CHARS)
    .pattern("^[A-Za-z0-9_][A-Za-z0-9._@\\\\+$-]{0,254}$")
    .required()
    .requires_secrets()
    .shown_at("/connection/username");
pub const PORT: FieldSpec = FieldSpec::integer("port", 1, 65535)
    .default_to(DefaultValue::Integer(DEFAULT_PORT))
    .requires_secrets()
    .shown_at("/connection/port");
const DATABASE_USERNAME: FieldSpec =
    FieldSpec::line("database_username", limits::TEXT_CHARS).shown_at("/connection/database_username");
pub const DATABASE_PASSWORD: FieldSpec = FieldSpec::secret("database_password", limits::SECRET_CHARS)
    .about("Never returned; null removes it.")
    .shown_at("/connection/is_database_password_set");
pub const JUMP_SERVER: FieldSpec = FieldSpec::id("jump_server_id")
    .about("Another remote server through which this one is reached; null for none.")
    .requires_secrets()
    .shown_at("/connection/jump_server_id");

/// Every field of a server.
pub fn fields() -> impl Iterator<Item = &'static FieldSpec> {
    const FIELDS: &[FieldSpec] = &[LABEL, HOST, USERNAME, PORT, DATABASE_USERNAME, DATABASE_PASSWORD, JUMP_SERVER];
    FIELDS.iter()
}

#[derive(Debug, Clone)]
pub struct ServerDraft {
    pub label: String,
    pub host: String,
    pub username: String,
    pub port: i64,
    pub database_username: Option<String>,
    pub database_password: SecretChange,
    pub jump_server: Option<ServerId>,
}

/// What an update starts from.
#[derive(Debug, Clone)]
pub struct CurrentServer {
    pub label: String,
    pub host: String,
    pub username: String,
    pub port: i64,
    pub database_username: Option<String>,
    pub jump_server: Option<ServerId>,
}

impl CurrentServer {
    fn write(&self) -> Input {
        Input::default()
            .with(LABEL.name, self.label.as_str())
            .with(HOST.name, self.host.as_str())
            .with(USERNAME.name, self.username.as_str())
            .with(PORT.name, self.port)
            .with(DATABASE_USERNAME.name, self.database_username.clone())
            .with(JUMP_SERVER.name, self.jump_server.map(|id| id.0))
    }
}

impl ServerDraft {
    /// What it changes, for the audit log.
    pub fn changes(&self, current: &CurrentServer, has_password: bool) -> Changes {
        let after = CurrentServer {
            label: self.label.clone(),
            host: self.host.clone(),
            username: self.username.clone(),
            port: self.port,
            database_username: self.database_username.clone(),
            jump_server: self.jump_server,
        };
        Changes::between(&current.write(), &after.write()).with_secret(
            DATABASE_PASSWORD.name,
            &self.database_password,
            has_password,
        )
    }

    pub fn check(input: &Input, current: Option<&CurrentServer>) -> Result<Self, Errors> {
        let mut errors = Errors::default();
        let e = &mut errors;
        let label = LABEL.required_label(e, input, current.map(|was| &*was.label));
        let host = HOST.required_line(e, input, current.map(|was| &*was.host));
        if host.as_deref().is_some_and(|host| !network::is_host(host)) {
            e.add(HOST.name, Rule::Host);
        }
        let username = USERNAME.required_line(e, input, current.map(|was| &*was.username));
        if username.as_deref().is_some_and(|name| !is_username(name)) {
            e.add(USERNAME.name, Rule::Format);
        }
        let port = PORT.checked_integer(e, input, current.map_or(DEFAULT_PORT, |was| was.port));
        let was = current.and_then(|was| was.database_username.clone());
        let database_username = DATABASE_USERNAME.optional_line(e, input, was, |_| true);
        let database_password = DATABASE_PASSWORD.secret_change(e, input);
        let was = current.and_then(|was| was.jump_server).map(|id| id.0);
        let jump_server = JUMP_SERVER.optional_id(e, input, was).map(ServerId);
        match (label, host, username) {
            (Some(label), Some(host), Some(username)) if errors.is_empty() => {
                let mut draft = Self { label, host, username, port, database_username, database_password, jump_server };
                // The stored password was given for another machine or account.
                let is_kept = matches!(draft.database_password, SecretChange::Keep);
                if is_kept && current.is_some_and(|current| draft.changes_reader(current)) {
                    draft.database_password = SecretChange::Clear;
                }
                Ok(draft)
            }
            _ => Err(errors),
        }
    }

    /// Whether the host, port or jump host changes. That makes it another machine: what is known about the old one does
    /// not apply to it.
    pub fn moves(&self, current: &CurrentServer) -> bool {
        self.host != current.host || self.port != current.port || self.jump_server != current.jump_server
    }

    /// Whether someone else would receive what is sent there: another machine, or another account on the same one.
    pub fn changes_reader(&self, current: &CurrentServer) -> bool {
        self.moves(current) || self.username != current.username
    }
}

/// Letters, digits and the few symbols that system and directory accounts use; nothing that could be taken for an
/// option.
pub fn is_username(name: &str) -> bool {
    name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._@\\+-$".contains(&byte))
}

#[cfg(test)]
mod tests {
    use crate::input::Value;

    use super::*;

    fn with(name: &str, value: impl Into<Value>) -> Input {
        Input::default().with(name, value)
    }

    #[test]
    fn a_stored_password_is_dropped_if_someone_else_would_receive_it() {
        let current = CurrentServer {
            label: "db".into(),
            host: "db.example.org".into(),
            username: "backup".into(),
            port: 22,
            database_username: None,
            jump_server: Some(ServerId(1)),
        };
        let change = |input: Input| ServerDraft::check(&input, Some(&current)).unwrap().database_password;
        let moves = [
            with("ip_address", "evil.example.org"),
            with("host", "evil.example.org"),
            with("port", 2222),
            with("jump_server_id", 2),
            with("jump_server_id", Value::Null),
            with("username", "eve"),
        ];
        for input in moves {
            assert!(matches!(change(input), SecretChange::Clear));
        }
        let with_new = with("ip_address", "new.example.org").with("database_password", "x");
        assert!(matches!(change(with_new), SecretChange::Set(_)));
        let stays = [
            with("label", "renamed"),
            with("ip_address", "db.example.org").with("port", 22),
            with("database_username", "dump"),
        ];
        for input in stays {
            assert!(matches!(change(input), SecretChange::Keep));
        }
    }

    #[test]
    fn port_defaults_and_hostile_names_are_refused() {
        let good = || with("label", "web").with("ip_address", "web-1.example.org").with("username", "backup");
        assert_eq!(ServerDraft::check(&good(), None).unwrap().port, 22);
        for host in ["-oProxyCommand=id", "a;id", "$(id)"] {
            let input = good().with("ip_address", host);
            assert!(ServerDraft::check(&input, None).unwrap_err().has("ip_address"), "{host}");
        }
        for name in ["-l", "a b", "$(id)", "a'b"] {
            let input = good().with("username", name);
            assert!(ServerDraft::check(&input, None).unwrap_err().has("username"), "{name}");
        }
    }
}
