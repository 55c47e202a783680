//! The fields of notification streams.

use holdfast_core::fields::{DefaultValue, FieldSpec};
use holdfast_core::limits;
use holdfast_core::stream::StreamKind;

/// A flag of `notifications` has a dot in its name.
pub const FIELDS: &[FieldSpec] = &[
    FieldSpec::line("label", limits::TEXT_CHARS).required().shown_at("/label"),
    FieldSpec::choice("type", StreamKind::WORDS).required().shown_at("/type"),
    FieldSpec::secret("value", limits::URL_CHARS)
        .about("An email address, a webhook URL or a Pushover user key.")
        .required(),
    FieldSpec::secret("pushover_token", limits::TEXT_CHARS)
        .about("A Pushover application token to use instead of the service's own.")
        .only_if("type", &["pushover"])
        .shown_at("/has_pushover_token"),
    FieldSpec::switch("notifications.on_success")
        .about("Whether to report successful backups.")
        .default_to(DefaultValue::Switch(false))
        .shown_at("/notifications/on_success"),
    FieldSpec::switch("notifications.on_failure")
        .about("Whether to report failed backups.")
        .default_to(DefaultValue::Switch(true))
        .shown_at("/notifications/on_failure"),
];
