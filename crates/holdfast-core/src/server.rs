//! Remote servers: where backups come from, reached over SSH.

use crate::input::{Errors, Field};
use crate::refusal::Rule;
use crate::secret::SecretChange;
use crate::{limits, network, rules};

string_enum! {
    /// What the last attempt to reach a server found.
    Connectivity { Unknown = "unknown", Online = "online", Offline = "offline" }
}

pub const DEFAULT_PORT: i64 = 22;

#[derive(Debug, Default)]
pub struct ServerInput {
    pub label: Field<String>,
    pub host: Field<String>,
    pub username: Field<String>,
    pub port: Field<i64>,
    pub database_username: Field<String>,
    pub database_password: Field<String>,
    /// Another server of the user's that leads to this one.
    pub jump_server_id: Field<i64>,
}

#[derive(Debug, Clone)]
pub struct ServerDraft {
    pub label: String,
    pub host: String,
    pub username: String,
    pub port: i64,
    pub database_username: Option<String>,
    pub database_password: SecretChange,
    pub jump_server: Option<i64>,
}

/// What an update starts from.
#[derive(Debug, Clone)]
pub struct CurrentServer {
    pub label: String,
    pub host: String,
    pub username: String,
    pub port: i64,
    pub database_username: Option<String>,
    pub jump_server: Option<i64>,
}

impl ServerDraft {
    pub fn check(input: &ServerInput, current: Option<&CurrentServer>) -> Result<Self, Errors> {
        let mut errors = Errors::default();
        let e = &mut errors;
        let label = rules::required_line(e, "label", &input.label, limits::TEXT_CHARS, current.map(|c| &*c.label));
        let host = rules::required_line(e, "ip_address", &input.host, limits::TEXT_CHARS, current.map(|c| &*c.host));
        if host.as_deref().is_some_and(|host| !network::is_host(host)) {
            e.add("ip_address", Rule::Host);
        }
        let was = current.map(|c| &*c.username);
        let username = rules::required_line(e, "username", &input.username, limits::TEXT_CHARS, was);
        if username.as_deref().is_some_and(|name| !is_username(name)) {
            e.add("username", Rule::Format);
        }
        let port = rules::integer(e, "port", &input.port, 1..=65535, current.map_or(DEFAULT_PORT, |c| c.port));
        let was = current.and_then(|c| c.database_username.clone());
        let database_username =
            rules::optional_text(e, "database_username", &input.database_username, was, |e, text| {
                rules::line(e, "database_username", text, limits::TEXT_CHARS)
            });
        let database_password = rules::secret_change(e, "database_password", &input.database_password);
        let jump_server = match &input.jump_server_id {
            Field::Absent => current.and_then(|c| c.jump_server),
            Field::Null => None,
            Field::Value(id) => Some(*id),
            Field::WrongType => {
                e.add("jump_server_id", Rule::Integer);
                None
            }
        };
        match (label, host, username) {
            (Some(label), Some(host), Some(username)) if errors.is_empty() => {
                let mut draft = Self { label, host, username, port, database_username, database_password, jump_server };
                // The password was given for another reader.
                let is_kept = matches!(draft.database_password, SecretChange::Keep);
                if is_kept && current.is_some_and(|current| draft.changes_reader(current)) {
                    draft.database_password = SecretChange::Clear;
                }
                Ok(draft)
            }
            _ => Err(errors),
        }
    }

    /// Another host, port or jump host is another machine: what is known of the old one does not hold for it.
    pub fn moves(&self, current: &CurrentServer) -> bool {
        self.host != current.host || self.port != current.port || self.jump_server != current.jump_server
    }

    /// Whether somebody else would read what is sent there: another machine, or another account of the same one.
    pub fn changes_reader(&self, current: &CurrentServer) -> bool {
        self.moves(current) || self.username != current.username
    }
}

/// Letters, digits and the few signs that system and directory accounts use; nothing that could be an option.
fn is_username(name: &str) -> bool {
    name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._@\\+-$".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Field<String> {
        Field::Value(value.to_owned())
    }

    #[test]
    fn a_stored_password_is_dropped_where_somebody_else_would_read_it() {
        let current = CurrentServer {
            label: "db".into(),
            host: "db.example.org".into(),
            username: "backup".into(),
            port: 22,
            database_username: None,
            jump_server: Some(1),
        };
        let change = |input: ServerInput| ServerDraft::check(&input, Some(&current)).unwrap().database_password;
        let moves = [
            ServerInput { host: text("evil.example.org"), ..ServerInput::default() },
            ServerInput { port: Field::Value(2222), ..ServerInput::default() },
            ServerInput { jump_server_id: Field::Value(2), ..ServerInput::default() },
            ServerInput { jump_server_id: Field::Null, ..ServerInput::default() },
            ServerInput { username: text("eve"), ..ServerInput::default() },
        ];
        for input in moves {
            assert!(matches!(change(input), SecretChange::Clear));
        }
        let with_new =
            ServerInput { host: text("new.example.org"), database_password: text("x"), ..ServerInput::default() };
        assert!(matches!(change(with_new), SecretChange::Set(_)));
        let stays = [
            ServerInput { label: text("renamed"), ..ServerInput::default() },
            ServerInput { host: text("db.example.org"), port: Field::Value(22), ..ServerInput::default() },
            ServerInput { database_username: text("dump"), ..ServerInput::default() },
        ];
        for input in stays {
            assert!(matches!(change(input), SecretChange::Keep));
        }
    }

    #[test]
    fn port_defaults_and_hostile_names_are_refused() {
        let good = || ServerInput {
            label: text("web"),
            host: text("web-1.example.org"),
            username: text("backup"),
            ..ServerInput::default()
        };
        assert_eq!(ServerDraft::check(&good(), None).unwrap().port, 22);
        for host in ["-oProxyCommand=id", "a;id", "$(id)"] {
            let input = ServerInput { host: text(host), ..good() };
            assert!(ServerDraft::check(&input, None).unwrap_err().has("ip_address"), "{host}");
        }
        for name in ["-l", "a b", "$(id)", "a'b"] {
            let input = ServerInput { username: text(name), ..good() };
            assert!(ServerDraft::check(&input, None).unwrap_err().has("username"), "{name}");
        }
    }
}
