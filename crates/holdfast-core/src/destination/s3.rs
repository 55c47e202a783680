//! A bucket of Amazon S3 or of a compatible service.

use std::fmt;

use crate::fields::{DefaultValue, FieldSpec};
use crate::input::{Errors, Input};
use crate::refusal::Rule;
use crate::secret::SecretChange;
use crate::{limits, network};

use super::keys::Keys;

/// AWS's own default, which most compatible services accept.
pub const DEFAULT_REGION: &str = "us-east-1";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Settings {
    pub bucket: String,
    pub region: String,
    /// Only for `custom_s3`.
    pub endpoint: Option<String>,
    /// The bucket name is part of the path, not of the host name.
    pub path_style: bool,
}

const ANY_S3: &[&str] = &["s3", "custom_s3"];
const ABOUT_KEYS: &str = "Needed for `s3` and `custom_s3`. Never returned. An update keeps it when it is left out; a \
     change of the endpoint, region,\nbucket or path style needs both keys in the same request.";

const ACCESS_KEY: FieldSpec =
    FieldSpec::secret("s3_access_key", limits::SECRET_CHARS).about(ABOUT_KEYS).not_null().only_if("type", ANY_S3);
const SECRET_KEY: FieldSpec =
    FieldSpec::secret("s3_secret_key", limits::SECRET_CHARS).about(ABOUT_KEYS).not_null().only_if("type", ANY_S3);
const BUCKET: FieldSpec = FieldSpec::line("s3_bucket_name", 63)
    .min_chars(3)
    .about("Needed for `s3` and `custom_s3`. Cannot change while the destination holds backups.")
    .not_null()
    .only_if("type", ANY_S3)
    .requires_secrets()
    .shown_at("/s3_bucket_name");
const REGION: FieldSpec = FieldSpec::line("s3_region", 64)
    .pattern("^[A-Za-z0-9-]{1,64}$")
    .about("Defaults to `us-east-1`.")
    .also_called(&["custom_s3_region"])
    .only_if("type", ANY_S3)
    .requires_secrets()
    .shown_at("/s3_region")
    .shown_if(&["s3"]);
/// Where responses show the region of a `custom_s3` destination: the API document has `s3_region` only for `s3`.
const SHOWN_REGION: FieldSpec =
    FieldSpec::line("s3_region", 64).only_if("type", &["custom_s3"]).shown_at("/custom_s3_region");
const ENDPOINT: FieldSpec = FieldSpec::line("custom_s3_endpoint", limits::URL_CHARS)
    .trims_slashes()
    .pattern("^https?://")
    .about("Needed for `custom_s3`: an http or https URL.")
    .not_null()
    .only_if("type", &["custom_s3"])
    .requires_secrets()
    .shown_at("/s3_endpoint");
const PATH_STYLE: FieldSpec = FieldSpec::switch("path_style_endpoint")
    .about("Defaults to false for `s3` and true for `custom_s3`.")
    .only_if("type", ANY_S3)
    .requires_secrets()
    .shown_at("/path_style_endpoint");

/// In the order of the forms.
pub const FIELDS: &[FieldSpec] = &[BUCKET, REGION, ACCESS_KEY, SECRET_KEY, ENDPOINT, PATH_STYLE];
/// The fields that responses show, in this order.
pub const SHOWN: &[FieldSpec] = &[BUCKET, PATH_STYLE, REGION, SHOWN_REGION, ENDPOINT];

/// What a field is if it is omitted on create.
pub(super) fn default_of(field: &FieldSpec, is_custom: bool) -> Option<DefaultValue> {
    match field.name {
        name if name == REGION.name => Some(DefaultValue::Text(DEFAULT_REGION)),
        name if name == PATH_STYLE.name => Some(DefaultValue::Switch(is_custom)),
        _ => field.default,
    }
}

impl S3Settings {
    /// Checks the settings for Amazon S3 or, if `is_custom`, for the service at an endpoint.
    pub fn check(errors: &mut Errors, input: &Input, is_custom: bool, current: Option<&Self>) -> (Option<Self>, Keys) {
        let settings = Self::check_settings(errors, input, is_custom, current);
        let access_key = ACCESS_KEY.required_secret(errors, input, current.is_some());
        let secret_key = SECRET_KEY.required_secret(errors, input, current.is_some());
        if let (Some(was), Some(settings)) = (current, &settings)
            && !was.keeps_secrets_with(settings)
            && ![BUCKET, REGION, ENDPOINT].iter().any(|field| errors.has(field.name))
        {
            for (field, key) in [(&ACCESS_KEY, &access_key), (&SECRET_KEY, &secret_key)] {
                needs_new(errors, field, key);
            }
        }
        (settings, Keys { access_key, secret_key })
    }

    fn check_settings(errors: &mut Errors, input: &Input, is_custom: bool, current: Option<&Self>) -> Option<Self> {
        let bucket = BUCKET.required_line(errors, input, current.map(|was| &*was.bucket));
        if bucket.as_deref().is_some_and(|name| !is_bucket_name(name, is_custom)) {
            errors.add(BUCKET.name, Rule::Format);
        }
        let was = current.map(|was| was.region.clone());
        let region = REGION.optional_line(errors, input, was, |region| {
            region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        });
        let was = current.and_then(|was| was.endpoint.as_deref());
        let endpoint = is_custom.then(|| ENDPOINT.required_line(errors, input, was)).flatten();
        if endpoint.as_deref().is_some_and(|url| !network::is_endpoint_url(url)) {
            errors.add(ENDPOINT.name, Rule::Url);
        }
        let path_style = PATH_STYLE.checked_switch(errors, input, current.map_or(is_custom, |was| was.path_style));
        let region = region.unwrap_or_else(|| DEFAULT_REGION.to_owned());
        Some(Self { bucket: bucket?, region, endpoint, path_style })
    }

    pub fn write(&self, values: &mut Input) {
        values.set(BUCKET.name, self.bucket.as_str());
        values.set(REGION.name, self.region.as_str());
        values.set(ENDPOINT.name, self.endpoint.clone());
        values.set(PATH_STYLE.name, self.path_style);
    }

    pub fn read(stored: &Input) -> Self {
        let region = stored.text(REGION.name).value().cloned();
        Self {
            // Without a bucket this destination is unusable, but reading it must not fail: that would hide the others.
            bucket: stored.text(BUCKET.name).value().cloned().unwrap_or_default(),
            region: region.unwrap_or_else(|| DEFAULT_REGION.to_owned()),
            endpoint: stored.text(ENDPOINT.name).value().cloned(),
            path_style: stored.boolean(PATH_STYLE.name).value().copied().unwrap_or(false),
        }
    }

    /// Whether a request could have created these settings; an import accepts nothing else.
    pub fn is_sound(&self, is_custom: bool) -> bool {
        let (mut errors, mut input) = (Errors::default(), Input::default());
        self.write(&mut input);
        let checked = Self::check_settings(&mut errors, &input, is_custom, None);
        errors.is_empty() && checked.as_ref() == Some(self)
    }

    /// Whether both are the same bucket of the same service.
    fn is_same_place(&self, other: &Self) -> bool {
        let url = |s3: &Self| s3.endpoint.as_deref().map(url::Url::parse);
        self.bucket == other.bucket && (self.endpoint == other.endpoint || url(self) == url(other))
    }

    /// Whether requests go to the same service in the same way. If not, someone else may receive signed requests.
    fn keeps_secrets_with(&self, other: &Self) -> bool {
        self.is_same_place(other) && self.region == other.region && self.path_style == other.path_style
    }
}

/// The location, for display.
impl fmt::Display for S3Settings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bucket, region, endpoint, path_style } = self;
        let endpoint = endpoint.as_deref().unwrap_or("Amazon S3");
        let style = if *path_style { "path" } else { "host name" };
        write!(formatter, "{bucket} at {endpoint} ({region}, bucket in the {style})")
    }
}

/// Requires a new key: the stored one was given for another service or bucket.
fn needs_new(errors: &mut Errors, field: &FieldSpec, change: &SecretChange) {
    if change.set().is_none() && !errors.has(field.name) {
        errors.add(field.name, Rule::KeysAgain);
    }
}

/// AWS's rules for `s3`; compatible services also allow upper case and underscores.
fn is_bucket_name(name: &str, is_custom: bool) -> bool {
    let edge = |byte: &u8| byte.is_ascii_alphanumeric();
    let bytes = name.as_bytes();
    (3..=63).contains(&bytes.len())
        && bytes.first().is_some_and(edge)
        && bytes.last().is_some_and(edge)
        && !name.contains("..")
        && bytes.iter().all(|byte| {
            matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-') || is_custom && matches!(byte, b'A'..=b'Z' | b'_')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_names() {
        for bad in ["ab", "-abc", "a..b", "UPPER", "a/b", "a b"] {
            assert!(!is_bucket_name(bad, false), "{bad}");
        }
        assert!(is_bucket_name("My_Bucket", true));
    }
}
