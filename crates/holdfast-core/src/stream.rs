//! Notification streams: the channels over which users are notified about backups.

use crate::changes::Changes;
use crate::input::{Errors, Field, Input};
use crate::refusal::Rule;
use crate::secret::SecretChange;
use crate::{Secret, limits, network, rules};

string_enum! {
    StreamKind {
        Email = "email",
        Discord = "discord",
        Slack = "slack",
        Teams = "teams",
        Pushover = "pushover",
    }
}

impl StreamKind {
    /// The names that related products use.
    pub const ALIASES: &[(&str, Self)] =
        &[("discord_webhook", Self::Discord), ("slack_webhook", Self::Slack), ("teams_webhook", Self::Teams)];

    pub fn human(self) -> &'static str {
        match self {
            Self::Email => "Email",
            Self::Discord => "Discord",
            Self::Slack => "Slack",
            Self::Teams => "Teams",
            Self::Pushover => "Pushover",
        }
    }

    /// Also accepts the aliases.
    pub fn parse_input(text: &str) -> Option<Self> {
        let alias = Self::ALIASES.iter().find(|(alias, _)| *alias == text);
        alias.map(|(_, kind)| *kind).or_else(|| Self::parse(text))
    }

    fn check_value(self, errors: &mut Errors, value: &str) -> Option<Secret> {
        let value = rules::line(errors, "value", value, limits::URL_CHARS)?;
        let (good, rule) = match self {
            Self::Email => (network::is_email(&value), Rule::Email),
            Self::Discord | Self::Slack | Self::Teams => (network::is_web_url(&value), Rule::Url),
            Self::Pushover => (is_pushover_key(&value), Rule::PushoverKey),
        };
        if !good {
            errors.add("value", rule);
            return None;
        }
        Some(Secret::new(value))
    }
}

/// Pushover's user, group and application keys are 30 letters and digits.
fn is_pushover_key(text: &str) -> bool {
    text.len() == 30 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// A complete, checked stream, except for its secrets, which stay unchanged unless they are set.
#[derive(Debug, Clone)]
pub struct StreamDraft {
    pub label: String,
    pub kind: StreamKind,
    pub on_success: bool,
    pub on_failure: bool,
    pub value: SecretChange,
    pub pushover_token: SecretChange,
}

/// What an update starts from.
#[derive(Debug, Clone)]
pub struct CurrentStream {
    pub label: String,
    pub kind: StreamKind,
    pub on_success: bool,
    pub on_failure: bool,
}

impl CurrentStream {
    fn write(&self) -> Input {
        Input::default()
            .with("label", self.label.as_str())
            .with("type", self.kind.as_str())
            .with("notifications.on_success", self.on_success)
            .with("notifications.on_failure", self.on_failure)
    }
}

impl StreamDraft {
    /// What it changes, for the audit log.
    pub fn changes(&self, current: &CurrentStream, has_token: bool) -> Changes {
        let after = CurrentStream {
            label: self.label.clone(),
            kind: self.kind,
            on_success: self.on_success,
            on_failure: self.on_failure,
        };
        Changes::between(&current.write(), &after.write()).with_secret("value", &self.value, true).with_secret(
            "pushover_token",
            &self.pushover_token,
            has_token,
        )
    }

    pub fn check(input: &Input, current: Option<&CurrentStream>) -> Result<Self, Errors> {
        let mut errors = Errors::default();
        let e = &mut errors;
        let label =
            rules::required_line(e, "label", &input.text("label"), limits::TEXT_CHARS, current.map(|c| &*c.label));
        let kind = rules::choice(e, "type", &input.text("type"), current.map(|c| c.kind), StreamKind::parse_input);
        let flags = match input.object("notifications") {
            Field::Absent => Input::default(),
            Field::Value(flags) => flags,
            Field::Null | Field::WrongType => {
                e.add("notifications", Rule::Object);
                Input::default()
            }
        };
        let on_success = rules::boolean(
            e,
            "notifications.on_success",
            &flags.boolean("on_success"),
            current.is_some_and(|c| c.on_success),
        );
        let on_failure = rules::boolean(
            e,
            "notifications.on_failure",
            &flags.boolean("on_failure"),
            current.is_none_or(|c| c.on_failure),
        );
        let keeps_kind = current.is_some_and(|c| Some(c.kind) == kind);
        let value = match (&input.text("value"), kind) {
            (Field::Absent, _) if keeps_kind => SecretChange::Keep,
            (Field::Absent | Field::Null, _) => {
                rules::required(e, "value");
                SecretChange::Keep
            }
            (Field::WrongType, _) => {
                e.add("value", Rule::Text);
                SecretChange::Keep
            }
            // Without a valid type the value cannot be checked; the error about the type is enough.
            (Field::Value(_), None) => SecretChange::Keep,
            (Field::Value(value), Some(kind)) => {
                kind.check_value(e, value).map_or(SecretChange::Keep, SecretChange::Set)
            }
        };
        let pushover_token = match (rules::secret_change(e, "pushover_token", &input.text("pushover_token")), kind) {
            (SecretChange::Set(token), Some(StreamKind::Pushover)) if !is_pushover_key(token.reveal()) => {
                e.add("pushover_token", Rule::Format);
                SecretChange::Keep
            }
            (change, Some(StreamKind::Pushover) | None) => change,
            (_, Some(StreamKind::Email | StreamKind::Discord | StreamKind::Slack | StreamKind::Teams)) => {
                SecretChange::Clear
            }
        };
        match (label, kind) {
            (Some(label), Some(kind)) if errors.is_empty() => {
                Ok(Self { label, kind, on_success, on_failure, value, pushover_token })
            }
            _ => Err(errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(kind: &str, value: &str) -> Input {
        Input::default().with("label", "ops").with("type", kind).with("value", value)
    }

    #[test]
    fn each_type_wants_its_own_kind_of_value() {
        let hook = "https://hooks.example.org/x";
        let key = "u".repeat(30);
        let good = [
            ("email", "a@example.org"),
            ("discord", hook),
            ("slack_webhook", hook),
            ("teams", hook),
            ("pushover", &key),
        ];
        for (kind, value) in good {
            let draft = StreamDraft::check(&input(kind, value), None).unwrap();
            assert!(!draft.on_success && draft.on_failure, "failures only, by default");
        }
        for (kind, value) in
            [("email", hook), ("discord", "a@example.org"), ("slack", "file:///etc"), ("pushover", "x")]
        {
            assert!(StreamDraft::check(&input(kind, value), None).unwrap_err().has("value"), "{kind} {value}");
        }
    }

    #[test]
    fn a_switched_off_message_is_described() {
        let current = CurrentStream { label: "l".into(), kind: StreamKind::Email, on_success: true, on_failure: true };
        let off = Input::default().with("notifications", Input::default().with("on_failure", false));
        let draft = StreamDraft::check(&off.with("value", "planted@example.org"), Some(&current)).unwrap();
        let text = draft.changes(&current, false).describe("5").unwrap();
        assert_eq!(text, "5: notifications.on_failure true → false, value changed");
    }

    #[test]
    fn another_type_needs_a_matching_value() {
        let current = CurrentStream { label: "l".into(), kind: StreamKind::Email, on_success: true, on_failure: false };
        let change = Input::default().with("type", "slack");
        assert!(StreamDraft::check(&change, Some(&current)).unwrap_err().has("value"));
        let change = change.with("value", "https://hooks.example.org/x");
        let draft = StreamDraft::check(&change, Some(&current)).unwrap();
        assert!(draft.on_success && !draft.on_failure);
        let same = Input::default().with("type", "email");
        assert!(matches!(StreamDraft::check(&same, Some(&current)).unwrap().value, SecretChange::Keep));
    }
}
