//! Backup destinations: where backups are stored. Each type has its own file with its fields, its checks and its stored
//! form.

mod keys;
pub mod local;
pub mod s3;
pub mod sftp;

use crate::changes::Changes;
use crate::fields::{DefaultValue, FieldSpec};
use crate::input::{Errors, Input};
use crate::limits;

pub use keys::Keys;
pub use local::LocalDestination;
pub use s3::{DEFAULT_REGION, S3Settings};
pub use sftp::SftpDestination;

string_enum! {
    DestinationKind { S3 = "s3", CustomS3 = "custom_s3", Local = "local", Sftp = "sftp" }
}

string_enum! {
    /// What the last check or run found.
    Reachability { Unknown = "unknown", Reachable = "reachable", Unreachable = "unreachable" }
}

impl DestinationKind {
    pub fn human(self) -> &'static str {
        match self {
            Self::S3 => "S3",
            Self::CustomS3 => "Custom S3",
            Self::Local => "Local",
            Self::Sftp => "SFTP",
        }
    }
}

/// How a destination is recognised after its first use, so that another one in its place is not used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DestinationIdentity {
    /// The content of the marker in its folder.
    pub marker: Option<String>,
    /// The fingerprint of its server's host key.
    pub host_key: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DestinationSpec {
    Local(LocalDestination),
    S3(S3Settings),
    CustomS3(S3Settings),
    Sftp(SftpDestination),
}

const LABEL: FieldSpec = FieldSpec::line("label", limits::TEXT_CHARS).min_chars(1).required().shown_at("/label");
const KIND: FieldSpec = FieldSpec::choice("type", DestinationKind::WORDS).required().shown_at("/type");

/// The fields of each type.
const OF_TYPES: &[&[FieldSpec]] = &[local::FIELDS, s3::FIELDS, sftp::FIELDS];

/// Every field of a destination.
pub fn fields() -> impl Iterator<Item = &'static FieldSpec> {
    const FIRST: &[FieldSpec] = &[LABEL, KIND];
    FIRST.iter().chain(type_fields())
}

/// The fields that depend on the type.
pub fn type_fields() -> impl Iterator<Item = &'static FieldSpec> {
    OF_TYPES.iter().copied().flatten()
}

/// The fields that depend on the type and that responses show, in this order.
pub fn shown_fields() -> impl Iterator<Item = &'static FieldSpec> {
    const SHOWN: &[&[FieldSpec]] = &[local::SHOWN, s3::SHOWN, sftp::SHOWN];
    SHOWN.iter().copied().flatten()
}

/// What a field of a destination of this type is if it is omitted on create.
pub fn default_of(field: &FieldSpec, kind: DestinationKind) -> Option<DefaultValue> {
    match kind {
        DestinationKind::S3 => s3::default_of(field, false),
        DestinationKind::CustomS3 => s3::default_of(field, true),
        DestinationKind::Local | DestinationKind::Sftp => field.default,
    }
}

impl DestinationSpec {
    pub fn kind(&self) -> DestinationKind {
        match self {
            Self::Local(_) => DestinationKind::Local,
            Self::S3(_) => DestinationKind::S3,
            Self::CustomS3(_) => DestinationKind::CustomS3,
            Self::Sftp(_) => DestinationKind::Sftp,
        }
    }

    pub fn s3(&self) -> Option<&S3Settings> {
        match self {
            Self::Local(_) | Self::Sftp(_) => None,
            Self::S3(settings) | Self::CustomS3(settings) => Some(settings),
        }
    }

    pub fn sftp(&self) -> Option<&SftpDestination> {
        match self {
            Self::Local(_) | Self::S3(_) | Self::CustomS3(_) => None,
            Self::Sftp(settings) => Some(settings),
        }
    }

    /// A short location for lists: the bucket, or the host and folder. Empty for a local folder.
    pub fn short_place(&self) -> String {
        match self {
            Self::Local(_) => String::new(),
            Self::S3(settings) | Self::CustomS3(settings) => settings.bucket.clone(),
            Self::Sftp(settings) => format!("{}:{}", settings.host, settings.path),
        }
    }

    /// Whether it holds a marker that identifies it as the one used before.
    pub fn has_marker(&self) -> bool {
        match self {
            Self::Local(_) | Self::Sftp(_) => true,
            Self::S3(_) | Self::CustomS3(_) => false,
        }
    }

    /// Whether it is accessed with its owner's SSH key.
    pub fn uses_owner_key(&self) -> bool {
        self.sftp().is_some_and(|sftp| !sftp.has_password)
    }

    /// Whether both are opened at the same host with the same login, so that a key for one may be used for the other.
    pub fn has_same_login(&self, other: &Self) -> bool {
        match (self.sftp(), other.sftp()) {
            (Some(own), Some(other)) => {
                (&own.host, own.port, &own.username) == (&other.host, other.port, &other.username)
            }
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    /// A copy with the host key that its server presented; `None` if it has one already or the type uses none.
    pub fn pinned(&self, host_key: &str) -> Option<Self> {
        let sftp = self.sftp().filter(|sftp| sftp.host_key.is_none())?;
        Some(Self::Sftp(SftpDestination { host_key: Some(host_key.to_owned()), ..sftp.clone() }))
    }

    /// Whether it can report that it keeps versions of deleted objects.
    pub fn reports_versions(&self) -> bool {
        match self {
            Self::Local(_) | Self::Sftp(_) => false,
            Self::S3(_) | Self::CustomS3(_) => true,
        }
    }

    /// Its location, for display.
    pub fn place(&self) -> String {
        match self {
            Self::Local(_) => "the local disk".to_owned(),
            Self::S3(settings) | Self::CustomS3(settings) => settings.to_string(),
            Self::Sftp(settings) => settings.to_string(),
        }
    }

    /// Whether a request could have created the stored settings; an import accepts nothing else.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Local(_) => true,
            Self::S3(settings) => settings.is_sound(false),
            Self::CustomS3(settings) => settings.is_sound(true),
            Self::Sftp(settings) => settings.is_sound(),
        }
    }

    /// Whether both have the same type and may hold the same objects. A service can move to another address and keep its
    /// content, but a bucket cannot be renamed.
    pub fn is_same_destination(&self, other: &Self) -> bool {
        self.kind() == other.kind() && self.may_hold_same_objects(other)
    }

    /// Whether both may hold the same objects, for callers who know the location but not the exact type: a service may have
    /// another address by now. Any two folders count as the same here; their markers tell them apart.
    pub fn may_hold_same_objects(&self, other: &Self) -> bool {
        match self {
            Self::Local(_) => matches!(other, Self::Local(_)),
            Self::Sftp(_) => matches!(other, Self::Sftp(_)),
            Self::S3(own) | Self::CustomS3(own) => other.s3().is_some_and(|other| own.bucket == other.bucket),
        }
    }

    fn check(
        errors: &mut Errors,
        input: &Input,
        kind: DestinationKind,
        current: Option<&Self>,
    ) -> (Option<Self>, Keys) {
        // A new type starts without current values: all of its required fields have to be given.
        let same = current.filter(|was| was.kind() == kind);
        let unused = type_fields().filter(|field| !field.applies(|_| kind.as_str().to_owned()));
        unused.for_each(|field| field.check_kind(errors, input));
        match kind {
            DestinationKind::Local => (Some(Self::Local(LocalDestination)), Keys::NONE),
            DestinationKind::S3 => {
                let (settings, keys) = S3Settings::check(errors, input, false, same.and_then(Self::s3));
                (settings.map(Self::S3), keys)
            }
            DestinationKind::CustomS3 => {
                let (settings, keys) = S3Settings::check(errors, input, true, same.and_then(Self::s3));
                (settings.map(Self::CustomS3), keys)
            }
            DestinationKind::Sftp => {
                let (settings, keys) = SftpDestination::check(errors, input, same.and_then(Self::sftp));
                (settings.map(Self::Sftp), keys)
            }
        }
    }

    /// Its fields, as they are stored and as forms show them.
    pub fn write(&self) -> Input {
        let mut values = Input::default().with(KIND.name, self.kind().as_str());
        match self {
            Self::Local(_) => {}
            Self::S3(settings) | Self::CustomS3(settings) => settings.write(&mut values),
            Self::Sftp(settings) => settings.write(&mut values),
        }
        values
    }

    /// Reads what `write` wrote.
    pub fn read(stored: &Input) -> Option<Self> {
        Some(match DestinationKind::parse(stored.text(KIND.name).value()?)? {
            DestinationKind::Local => Self::Local(LocalDestination),
            DestinationKind::S3 => Self::S3(S3Settings::read(stored)),
            DestinationKind::CustomS3 => Self::CustomS3(S3Settings::read(stored)),
            DestinationKind::Sftp => Self::Sftp(SftpDestination::read(stored)),
        })
    }
}

#[derive(Debug, Clone)]
pub struct DestinationDraft {
    pub label: String,
    pub spec: DestinationSpec,
    pub keys: Keys,
}

/// What an update starts from.
#[derive(Debug, Clone)]
pub struct CurrentDestination {
    pub label: String,
    pub spec: DestinationSpec,
}

impl CurrentDestination {
    fn write(&self) -> Input {
        self.spec.write().with(LABEL.name, self.label.as_str())
    }
}

impl DestinationDraft {
    /// What it changes, for the audit log. A key is only removed together with something that says as much.
    pub fn changes(&self, current: &CurrentDestination) -> Changes {
        let after = CurrentDestination { label: self.label.clone(), spec: self.spec.clone() };
        let changes = Changes::between(&current.write(), &after.write());
        match self.spec {
            DestinationSpec::Local(_) => changes,
            DestinationSpec::S3(_) | DestinationSpec::CustomS3(_) => changes
                .with_secret("s3_access_key", &self.keys.access_key, false)
                .with_secret("s3_secret_key", &self.keys.secret_key, false),
            DestinationSpec::Sftp(_) => changes.with_secret("sftp_password", &self.keys.secret_key, false),
        }
    }

    /// The fields of its two keys.
    pub fn secret_fields(&self) -> [&'static str; 2] {
        match self.spec {
            DestinationSpec::Local(_) | DestinationSpec::S3(_) | DestinationSpec::CustomS3(_) => {
                ["s3_access_key", "s3_secret_key"]
            }
            DestinationSpec::Sftp(_) => ["s3_access_key", "sftp_password"],
        }
    }

    pub fn check(input: &Input, current: Option<&CurrentDestination>) -> Result<Self, Errors> {
        let mut errors = Errors::default();
        let label = LABEL.required_label(&mut errors, input, current.map(|was| &*was.label));
        let was = current.map(|was| was.spec.kind());
        let kind = KIND.required_choice(&mut errors, input, was, DestinationKind::parse);
        let checked = kind.map(|kind| DestinationSpec::check(&mut errors, input, kind, current.map(|was| &was.spec)));
        match (label, checked) {
            (Some(label), Some((Some(spec), keys))) if errors.is_empty() => Ok(Self { label, spec, keys }),
            _ => Err(errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::input::Value;

    use crate::fields;

    use super::*;

    #[test]
    fn the_fields_of_every_type_are_listed() {
        for kind in DestinationKind::ALL {
            let (own, shown) = match kind {
                DestinationKind::Local => (local::FIELDS, local::SHOWN),
                DestinationKind::S3 | DestinationKind::CustomS3 => (s3::FIELDS, s3::SHOWN),
                DestinationKind::Sftp => (sftp::FIELDS, sftp::SHOWN),
            };
            for field in own {
                assert!(type_fields().any(|listed| listed.name == field.name), "{}", field.name);
                assert_eq!(field.shown_at.is_some(), shown.iter().any(|one| one.name == field.name), "{}", field.name);
            }
            assert!(shown.iter().all(|field| shown_fields().any(|listed| listed.name == field.name)), "{kind:?}");
        }
        assert_eq!(fields::never_applying(fields()), Vec::<&str>::new());
    }

    fn s3() -> Input {
        Input::default()
            .with("label", "bucket")
            .with("type", "s3")
            .with("s3_access_key", "AKIA")
            .with("s3_secret_key", "shh")
            .with("s3_bucket_name", "my-bucket")
    }

    fn spec(input: &Input) -> DestinationSpec {
        DestinationDraft::check(input, None).unwrap().spec
    }

    #[test]
    fn the_shown_fields_are_those_with_a_place_in_responses() {
        let names = |fields: Vec<&'static FieldSpec>| -> std::collections::BTreeSet<&str> {
            fields.into_iter().map(|field| field.name).collect()
        };
        let said = type_fields().filter(|field| field.shown_at.is_some()).collect();
        assert_eq!(names(said), names(shown_fields().collect()));
    }

    #[test]
    fn the_stated_defaults_are_those_of_the_checks() {
        let custom = s3().with("type", "custom_s3").with("custom_s3_endpoint", "http://127.0.0.1:9000");
        let local = Input::default().with("label", "disk").with("type", "local");
        let sftp = Input::default().with("label", "nas").with("type", "sftp").with("sftp_host", "nas");
        let sftp = sftp.with("sftp_username", "backup").with("sftp_path", "/backup");
        for input in [s3(), custom, local, sftp] {
            let spec = spec(&input);
            let stored = spec.write();
            for field in type_fields().filter(|field| field.applies(|_| spec.kind().as_str().to_owned())) {
                let stated = default_of(field, spec.kind()).map(|default| match default {
                    DefaultValue::Switch(is_on) => Value::from(is_on),
                    DefaultValue::Integer(number) => Value::from(number),
                    DefaultValue::Text(text) => Value::from(text),
                });
                if let Some(stated) = stated {
                    assert_eq!(stored.get(field.name), Some(&stated), "{:?} {}", spec.kind(), field.name);
                }
            }
        }
    }

    #[test]
    fn defaults_depend_on_the_type() {
        let settings = spec(&s3()).s3().unwrap().clone();
        assert_eq!((settings.region.as_str(), settings.path_style), ("us-east-1", false));
        let custom = s3().with("type", "custom_s3").with("custom_s3_endpoint", "http://127.0.0.1:9000");
        assert!(spec(&custom).s3().unwrap().path_style);
        let local = Input::default().with("label", "disk").with("type", "local");
        assert_eq!(spec(&local), DestinationSpec::Local(LocalDestination));
        for input in [s3(), custom, local] {
            assert_eq!(DestinationSpec::read(&spec(&input).write()), Some(spec(&input)));
        }
        let no_bucket = DestinationSpec::read(&Input::default().with("type", "s3")).unwrap();
        assert!(!no_bucket.is_sound() && spec(&s3()).is_sound());
        assert_eq!(DestinationSpec::read(&Input::default().with("type", "tape")), None);
    }

    #[test]
    fn s3_needs_all_its_fields_and_custom_an_endpoint() {
        let bare = Input::default().with("label", "x").with("type", "custom_s3");
        let errors = DestinationDraft::check(&bare, None).unwrap_err();
        for field in ["s3_access_key", "s3_secret_key", "s3_bucket_name", "custom_s3_endpoint"] {
            assert!(errors.has(field), "{field}");
        }
        let wrong = Input::default().with("label", "x").with("type", "local").with("s3_region", 7);
        assert!(DestinationDraft::check(&wrong, None).unwrap_err().has("s3_region"));
    }

    #[test]
    fn another_type_needs_the_fields_of_the_new_one() {
        let spec = spec(&s3().with("s3_region", "eu-west-1"));
        let current = CurrentDestination { label: "d".into(), spec };
        let rename = Input::default().with("label", "new");
        let draft = DestinationDraft::check(&rename, Some(&current)).unwrap();
        assert_eq!(draft.spec.s3().unwrap().region, "eu-west-1");
        let switch = Input::default().with("type", "custom_s3");
        let errors = DestinationDraft::check(&switch, Some(&current)).unwrap_err();
        assert!(errors.has("custom_s3_endpoint") && errors.has("s3_secret_key"));
        let null = Input::default().with("s3_secret_key", Value::Null);
        assert!(DestinationDraft::check(&null, Some(&current)).unwrap_err().has("s3_secret_key"));
    }

    #[test]
    fn keys_are_given_again_for_another_place() {
        let was = s3().with("type", "custom_s3").with("custom_s3_endpoint", "https://s3.example.org");
        let current = CurrentDestination { label: "d".into(), spec: spec(&was) };
        let endpoint = |url: &str| Input::default().with("custom_s3_endpoint", url);
        let others = [
            endpoint("https://evil.example.org"),
            endpoint("http://s3.example.org"),
            endpoint("https://s3.example.org:9000"),
            Input::default().with("s3_bucket_name", "another"),
            Input::default().with("s3_region", "eu-west-1"),
            Input::default().with("path_style_endpoint", false),
        ];
        for input in others {
            let errors = DestinationDraft::check(&input, Some(&current)).unwrap_err();
            assert!(errors.has("s3_access_key") && errors.has("s3_secret_key"), "{input:?}");
            let input = input.with("s3_access_key", "AKIA");
            assert!(DestinationDraft::check(&input, Some(&current)).unwrap_err().has("s3_secret_key"), "{input:?}");
            let input = input.with("s3_secret_key", "shh");
            assert!(DestinationDraft::check(&input, Some(&current)).is_ok(), "{input:?}");
        }
        for same in ["https://s3.example.org/", "https://S3.example.org:443"] {
            assert!(DestinationDraft::check(&endpoint(same), Some(&current)).is_ok(), "{same}");
        }
    }
}
