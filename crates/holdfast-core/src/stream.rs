//! Notification streams: the channels over which users are notified about backups.

use crate::changes::Changes;
use crate::fields::{DefaultValue, FieldSpec};
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

const LABEL: FieldSpec = FieldSpec::line("label", limits::TEXT_CHARS).min_chars(1).required().shown_at("/label");
const KIND: FieldSpec = FieldSpec::choice("type", StreamKind::WORDS)
    .about("`discord_webhook`, `slack_webhook` and `teams_webhook` are accepted as aliases.")
    .required()
    .shown_at("/type");
const VALUE: FieldSpec = FieldSpec::secret("value", limits::URL_CHARS)
    .about("An email address, a webhook URL or a Pushover user key. Never returned.")
    .min_chars(1)
    .required();
const PUSHOVER_TOKEN: FieldSpec = FieldSpec::secret("pushover_token", limits::SECRET_CHARS)
    .about("A Pushover application token to use instead of the service's own. Never returned.")
    .pattern("^[A-Za-z0-9]{30}$")
    .only_if("type", &["pushover"])
    .shown_at("/has_pushover_token");
const ON_SUCCESS: FieldSpec = FieldSpec::switch("notifications.on_success")
    .about("Whether to report successful backups.")
    .default_to(DefaultValue::Switch(false))
    .shown_at("/notifications/on_success");
const ON_FAILURE: FieldSpec = FieldSpec::switch("notifications.on_failure")
    .about("Whether to report failed backups.")
    .default_to(DefaultValue::Switch(true))
    .shown_at("/notifications/on_failure");

/// The field of a token, and its check.
type Token = (&'static FieldSpec, fn(&str) -> bool);

/// The object whose fields say what a stream reports. They are listed with its name before theirs.
pub const FLAGS: &str = "notifications";

/// Every field of a stream.
pub fn fields() -> impl Iterator<Item = &'static FieldSpec> {
    const FIELDS: &[FieldSpec] = &[LABEL, KIND, VALUE, PUSHOVER_TOKEN, ON_FAILURE, ON_SUCCESS];
    FIELDS.iter()
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
        let value = rules::line(errors, VALUE.name, value, VALUE.max_chars())?;
        if !self.is_value(&value) {
            let rule = match self {
                Self::Email => Rule::Email,
                Self::Discord | Self::Slack | Self::Teams => Rule::Url,
                Self::Pushover => Rule::PushoverKey,
            };
            errors.add(VALUE.name, rule);
            return None;
        }
        Some(Secret::new(value))
    }

    /// Whether messages of this kind can be addressed to it.
    pub fn is_value(self, value: &str) -> bool {
        match self {
            Self::Email => network::is_email(value),
            Self::Discord | Self::Slack | Self::Teams => network::is_web_url(value),
            Self::Pushover => is_pushover_key(value),
        }
    }

    /// The field of a second secret that streams of this type may have, and what it must look like.
    fn token(self) -> Option<Token> {
        match self {
            Self::Email | Self::Discord | Self::Slack | Self::Teams => None,
            Self::Pushover => Some((&PUSHOVER_TOKEN, is_pushover_key)),
        }
    }

    /// Whether streams of this type may have this token.
    pub fn is_token(self, token: &str) -> bool {
        self.token().is_some_and(|(_, is_good)| is_good(token))
    }

    /// The name of the field of its token, for types that may have one.
    pub fn token_field(self) -> Option<&'static str> {
        self.token().map(|(field, _)| field.name)
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
    /// What some types need in addition to the value.
    pub token: SecretChange,
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
    /// Its fields, as forms show them.
    pub fn write(&self) -> Input {
        Input::default()
            .with(LABEL.name, self.label.as_str())
            .with(KIND.name, self.kind.as_str())
            .with(ON_SUCCESS.name, self.on_success)
            .with(ON_FAILURE.name, self.on_failure)
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
        let changes = Changes::between(&current.write(), &after.write()).with_secret(VALUE.name, &self.value, true);
        let token = self.kind.token_field().or(current.kind.token_field());
        token.into_iter().fold(changes, |all, name| all.with_secret(name, &self.token, has_token))
    }

    pub fn check(input: &Input, current: Option<&CurrentStream>) -> Result<Self, Errors> {
        let mut errors = Errors::default();
        let e = &mut errors;
        let label = LABEL.required_label(e, input, current.map(|was| &*was.label));
        let kind = KIND.required_choice(e, input, current.map(|was| was.kind), StreamKind::parse_input);
        let flags = flags(e, input);
        let on_success = ON_SUCCESS.checked_switch(e, &flags, current.is_some_and(|was| was.on_success));
        let on_failure = ON_FAILURE.checked_switch(e, &flags, current.is_none_or(|was| was.on_failure));
        let keeps_kind = current.is_some_and(|was| Some(was.kind) == kind);
        let value = checked_value(e, input, kind, keeps_kind);
        let token = checked_token(e, input, kind);
        match (label, kind) {
            (Some(label), Some(kind)) if errors.is_empty() => {
                Ok(Self { label, kind, on_success, on_failure, value, token })
            }
            _ => Err(errors),
        }
    }
}

/// The flags under their listed names: requests to the API have them in an object.
fn flags(errors: &mut Errors, input: &Input) -> Input {
    match input.object(FLAGS) {
        Field::Absent => input.clone(),
        Field::Value(flags) => flags.iter().map(|(name, value)| (format!("{FLAGS}.{name}"), value.clone())).collect(),
        Field::Null | Field::WrongType => {
            errors.add(FLAGS, Rule::Object);
            Input::default()
        }
    }
}

/// The stored value is kept only while the type stays: it means nothing to another type.
fn checked_value(errors: &mut Errors, input: &Input, kind: Option<StreamKind>, keeps_kind: bool) -> SecretChange {
    match (VALUE.text(input), kind) {
        (Field::Absent, _) if keeps_kind => {}
        (Field::Absent | Field::Null, _) => rules::required(errors, VALUE.name),
        (Field::WrongType, _) => errors.add(VALUE.name, Rule::Text),
        // Without a valid type the value cannot be checked; the error about the type is enough.
        (Field::Value(_), None) => {}
        (Field::Value(value), Some(kind)) => {
            return kind.check_value(errors, &value).map_or(SecretChange::Keep, SecretChange::Set);
        }
    }
    SecretChange::Keep
}

/// A type without a token drops the stored one.
fn checked_token(errors: &mut Errors, input: &Input, kind: Option<StreamKind>) -> SecretChange {
    let own = kind.and_then(StreamKind::token);
    let is_unused = |field: &&FieldSpec| own.is_none_or(|(own, _)| own.name != field.name);
    fields()
        .filter(|field| field.only_if.is_some())
        .filter(is_unused)
        .for_each(|field| field.check_kind(errors, input));
    let Some((field, is_good)) = own else { return SecretChange::Clear };
    match field.secret_change(errors, input) {
        SecretChange::Set(token) if !is_good(token.reveal()) => {
            errors.add(field.name, Rule::Format);
            SecretChange::Keep
        }
        change => change,
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
