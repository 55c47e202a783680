//! Backup destinations: where backups are stored.

use std::fmt;

use crate::input::{Errors, Field};
use crate::refusal::Rule;
use crate::secret::SecretChange;
use crate::{limits, network, rules};

string_enum! {
    DestinationKind { S3 = "s3", CustomS3 = "custom_s3", Local = "local" }
}

impl DestinationKind {
    pub fn human(self) -> &'static str {
        match self {
            Self::S3 => "S3",
            Self::CustomS3 => "Custom S3",
            Self::Local => "Local",
        }
    }
}

/// AWS's own default, and what most compatible services take.
pub const DEFAULT_REGION: &str = "us-east-1";

#[derive(Debug, Default)]
pub struct DestinationInput {
    pub label: Field<String>,
    pub kind: Field<String>,
    pub s3_access_key: Field<String>,
    pub s3_secret_key: Field<String>,
    pub s3_bucket_name: Field<String>,
    pub s3_region: Field<String>,
    pub custom_s3_endpoint: Field<String>,
    pub path_style_endpoint: Field<bool>,
}

/// The settings of an S3 destination that can be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Settings {
    pub bucket: String,
    pub region: String,
    /// Only of `custom_s3`.
    pub endpoint: Option<String>,
    pub path_style: bool,
}

impl S3Settings {
    /// Whether both are one bucket of one service.
    fn is_same_place(&self, other: &Self) -> bool {
        let url = |s3: &Self| s3.endpoint.as_deref().map(url::Url::parse);
        self.bucket == other.bucket && (self.endpoint == other.endpoint || url(self) == url(other))
    }

    /// Whether the same service is asked, in the same way. If not, somebody else may get what is sent and signed.
    fn has_same_reader(&self, other: &Self) -> bool {
        self.is_same_place(other) && self.region == other.region && self.path_style == other.path_style
    }
}

/// Where it is, for a person.
impl fmt::Display for S3Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bucket, region, endpoint, path_style } = self;
        let endpoint = endpoint.as_deref().unwrap_or("Amazon S3");
        let style = if *path_style { "path" } else { "host name" };
        write!(formatter, "{bucket} at {endpoint} ({region}, bucket in the {style})")
    }
}

#[derive(Debug, Clone)]
pub struct DestinationDraft {
    pub label: String,
    pub kind: DestinationKind,
    pub s3: Option<S3Settings>,
    pub access_key: SecretChange,
    pub secret_key: SecretChange,
}

/// What an update starts from.
#[derive(Debug, Clone)]
pub struct CurrentDestination {
    pub label: String,
    pub kind: DestinationKind,
    pub s3: Option<S3Settings>,
}

impl DestinationDraft {
    pub fn check(input: &DestinationInput, current: Option<&CurrentDestination>) -> Result<Self, Errors> {
        let mut errors = Errors::default();
        let e = &mut errors;
        let label = rules::required_line(e, "label", &input.label, limits::TEXT_CHARS, current.map(|c| &*c.label));
        let kind = rules::choice(e, "type", &input.kind, current.map(|c| c.kind), DestinationKind::parse);
        check_unused(e, input, kind);
        // A change of type starts afresh: the new type's fields are all needed.
        let same = current.filter(|c| Some(c.kind) == kind);
        let (s3, access_key, secret_key) = match kind {
            None | Some(DestinationKind::Local) => (None, SecretChange::Clear, SecretChange::Clear),
            Some(kind) => (
                s3_settings(e, input, kind, same.and_then(|c| c.s3.as_ref())),
                key(e, "s3_access_key", &input.s3_access_key, same.is_some()),
                key(e, "s3_secret_key", &input.s3_secret_key, same.is_some()),
            ),
        };
        let was = same.and_then(|c| c.s3.as_ref());
        if let (Some(was), Some(s3)) = (was, &s3)
            && !was.has_same_reader(s3)
        {
            needs_new(e, "s3_access_key", &access_key);
            needs_new(e, "s3_secret_key", &secret_key);
        }
        match (label, kind) {
            (Some(label), Some(kind)) if errors.is_empty() => Ok(Self { label, kind, s3, access_key, secret_key }),
            _ => Err(errors),
        }
    }
}

/// Fields that the type does not use are ignored, but not when they are of the wrong kind.
fn check_unused(e: &mut Errors, input: &DestinationInput, kind: Option<DestinationKind>) {
    let is_local = kind == Some(DestinationKind::Local);
    let texts = [
        ("s3_access_key", &input.s3_access_key, is_local),
        ("s3_secret_key", &input.s3_secret_key, is_local),
        ("s3_bucket_name", &input.s3_bucket_name, is_local),
        ("s3_region", &input.s3_region, is_local),
        ("custom_s3_endpoint", &input.custom_s3_endpoint, is_local || kind == Some(DestinationKind::S3)),
    ];
    for (name, field, is_unused) in texts {
        if is_unused && *field == Field::WrongType {
            e.add(name, Rule::Text);
        }
    }
    if is_local && input.path_style_endpoint == Field::WrongType {
        e.add("path_style_endpoint", Rule::Boolean);
    }
}

fn s3_settings(
    e: &mut Errors,
    input: &DestinationInput,
    kind: DestinationKind,
    current: Option<&S3Settings>,
) -> Option<S3Settings> {
    let custom = kind == DestinationKind::CustomS3;
    let was = current.map(|c| &*c.bucket);
    let bucket = rules::required_line(e, "s3_bucket_name", &input.s3_bucket_name, 63, was);
    if bucket.as_deref().is_some_and(|name| !is_bucket_name(name, custom)) {
        e.add("s3_bucket_name", Rule::Format);
    }
    let was = current.map(|c| c.region.clone());
    let region = rules::optional_text(e, "s3_region", &input.s3_region, was, |e, text| {
        let region = rules::line(e, "s3_region", text, 64)?;
        if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
            e.add("s3_region", Rule::Format);
        }
        Some(region)
    });
    let endpoint = custom.then(|| endpoint(e, &input.custom_s3_endpoint, current)).flatten();
    let path_style =
        rules::boolean(e, "path_style_endpoint", &input.path_style_endpoint, current.map_or(custom, |c| c.path_style));
    Some(S3Settings {
        bucket: bucket?,
        region: region.unwrap_or_else(|| DEFAULT_REGION.to_owned()),
        endpoint,
        path_style,
    })
}

fn endpoint(e: &mut Errors, input: &Field<String>, current: Option<&S3Settings>) -> Option<String> {
    const NAME: &str = "custom_s3_endpoint";
    let was = current.and_then(|c| c.endpoint.as_deref());
    let endpoint = rules::required_line(e, NAME, input, limits::URL_CHARS, was)?;
    if !network::is_endpoint_url(&endpoint) {
        e.add(NAME, Rule::Url);
    }
    Some(endpoint)
}

fn key(e: &mut Errors, field: &str, input: &Field<String>, has_one: bool) -> SecretChange {
    match rules::secret_change(e, field, input) {
        SecretChange::Keep if !has_one && input.is_absent() => rules::required(e, field),
        SecretChange::Clear => rules::required(e, field),
        change => return change,
    }
    SecretChange::Keep
}

/// The stored key was given for another service or bucket.
fn needs_new(e: &mut Errors, field: &str, change: &SecretChange) {
    if change.set().is_none() && !e.has(field) {
        e.add(field, Rule::KeysAgain);
    }
}

/// AWS's rules for `s3`; compatible services also know upper case and underscores.
fn is_bucket_name(name: &str, custom: bool) -> bool {
    let edge = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = name.as_bytes();
    (3..=63).contains(&bytes.len())
        && bytes.first().is_some_and(edge)
        && bytes.last().is_some_and(edge)
        && !name.contains("..")
        && bytes.iter().all(|byte| {
            matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-') || custom && matches!(byte, b'A'..=b'Z' | b'_')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Field<String> {
        Field::Value(value.to_owned())
    }

    fn s3() -> DestinationInput {
        DestinationInput {
            label: text("bucket"),
            kind: text("s3"),
            s3_access_key: text("AKIA"),
            s3_secret_key: text("shh"),
            s3_bucket_name: text("my-bucket"),
            ..DestinationInput::default()
        }
    }

    #[test]
    fn defaults_depend_on_the_type() {
        let s3_settings = DestinationDraft::check(&s3(), None).unwrap().s3.unwrap();
        assert_eq!((s3_settings.region.as_str(), s3_settings.path_style), ("us-east-1", false));
        let custom =
            DestinationInput { kind: text("custom_s3"), custom_s3_endpoint: text("http://127.0.0.1:9000"), ..s3() };
        assert!(DestinationDraft::check(&custom, None).unwrap().s3.unwrap().path_style);
        let local = DestinationInput { label: text("disk"), kind: text("local"), ..DestinationInput::default() };
        assert!(DestinationDraft::check(&local, None).unwrap().s3.is_none());
    }

    #[test]
    fn s3_needs_all_its_fields_and_custom_an_endpoint() {
        let bare = DestinationInput { label: text("x"), kind: text("custom_s3"), ..DestinationInput::default() };
        let errors = DestinationDraft::check(&bare, None).unwrap_err();
        for field in ["s3_access_key", "s3_secret_key", "s3_bucket_name", "custom_s3_endpoint"] {
            assert!(errors.has(field), "{field}");
        }
    }

    #[test]
    fn another_type_needs_the_fields_of_the_new_one() {
        let current = CurrentDestination {
            label: "d".into(),
            kind: DestinationKind::S3,
            s3: Some(S3Settings {
                bucket: "abc".into(),
                region: "eu-west-1".into(),
                endpoint: None,
                path_style: false,
            }),
        };
        let rename = DestinationInput { label: text("new"), ..DestinationInput::default() };
        let draft = DestinationDraft::check(&rename, Some(&current)).unwrap();
        assert_eq!(draft.s3.unwrap().region, "eu-west-1");
        let switch = DestinationInput { kind: text("custom_s3"), ..DestinationInput::default() };
        let errors = DestinationDraft::check(&switch, Some(&current)).unwrap_err();
        assert!(errors.has("custom_s3_endpoint") && errors.has("s3_secret_key"));
        let null = DestinationInput { s3_secret_key: Field::Null, ..DestinationInput::default() };
        assert!(DestinationDraft::check(&null, Some(&current)).unwrap_err().has("s3_secret_key"));
    }

    #[test]
    fn keys_are_given_again_for_another_place() {
        let was = |endpoint: &str| CurrentDestination {
            label: "d".into(),
            kind: DestinationKind::CustomS3,
            s3: Some(S3Settings {
                bucket: "abc".into(),
                region: "us-east-1".into(),
                endpoint: Some(endpoint.into()),
                path_style: true,
            }),
        };
        let current = was("https://s3.example.org");
        let endpoint = |url: &str| DestinationInput { custom_s3_endpoint: text(url), ..DestinationInput::default() };
        let others = [
            endpoint("https://evil.example.org"),
            endpoint("http://s3.example.org"),
            endpoint("https://s3.example.org:9000"),
            DestinationInput { s3_bucket_name: text("another"), ..DestinationInput::default() },
            DestinationInput { s3_region: text("eu-west-1"), ..DestinationInput::default() },
            DestinationInput { path_style_endpoint: Field::Value(false), ..DestinationInput::default() },
        ];
        for mut input in others {
            let errors = DestinationDraft::check(&input, Some(&current)).unwrap_err();
            assert!(errors.has("s3_access_key") && errors.has("s3_secret_key"), "{input:?}");
            input.s3_access_key = text("AKIA");
            assert!(DestinationDraft::check(&input, Some(&current)).unwrap_err().has("s3_secret_key"), "{input:?}");
            input.s3_secret_key = text("shh");
            assert!(DestinationDraft::check(&input, Some(&current)).is_ok(), "{input:?}");
        }
        for same in ["https://s3.example.org/", "https://S3.example.org:443"] {
            assert!(DestinationDraft::check(&endpoint(same), Some(&current)).is_ok(), "{same}");
        }
    }

    #[test]
    fn bucket_names() {
        for bad in ["ab", "-abc", "a..b", "UPPER", "a/b", "a b"] {
            assert!(!is_bucket_name(bad, false), "{bad}");
        }
        assert!(is_bucket_name("My_Bucket", true));
    }
}
