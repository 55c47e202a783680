//! Validation rules shared by several resources. A rule checks a field, records what is wrong and returns the value if
//! there is one to use.

use unicode_normalization::UnicodeNormalization as _;

use crate::characters::is_hidden;
use crate::input::{Errors, Field};
use crate::limits;
use crate::refusal::Rule;

/// The result of a rule: the value to store; `None` if it stays unchanged or an error was recorded. The caller discards
/// everything if `errors` is not empty, so the two cases need not be distinguished.
pub type Checked<T> = Option<T>;

pub fn required(errors: &mut Errors, field: &str) {
    errors.add(field, Rule::Required);
}

/// A line of text: trimmed, not empty, within its length, without control characters.
pub fn line(errors: &mut Errors, field: &str, value: &str, max_chars: usize) -> Checked<String> {
    text(errors, field, value, max_chars, |c| c.is_control())
}

/// A line by which people recognise something. No two labels may look the same or be mistaken for something else because
/// of characters that cannot be seen. Names from other systems can have such characters, and are lines.
pub fn label(errors: &mut Errors, field: &str, value: &str, max_chars: usize) -> Checked<String> {
    let label = line(errors, field, value, max_chars)?;
    if label.contains(is_hidden) {
        errors.add(field, Rule::HiddenCharacters);
        return None;
    }
    Some(label)
}

/// A name from another system, taken as it is: leading and trailing spaces belong to it.
pub fn exact_line(errors: &mut Errors, field: &str, value: &str, max_chars: usize) -> Checked<String> {
    let trimmed = text(errors, field, value, max_chars, |c| c.is_control())?;
    let is_short = value.chars().count() <= max_chars && !value.chars().any(char::is_control);
    Some(if is_short { value.to_owned() } else { trimmed })
}

/// Text that may run over several lines.
pub fn paragraph(errors: &mut Errors, field: &str, value: &str, max_chars: usize) -> Checked<String> {
    text(errors, field, value, max_chars, |c| c.is_control() && !matches!(c, '\n' | '\r' | '\t'))
}

fn text(
    errors: &mut Errors,
    field: &str,
    value: &str,
    max_chars: usize,
    refused: impl Fn(char) -> bool,
) -> Checked<String> {
    let value = value.trim();
    if value.is_empty() {
        required(errors, field);
        return None;
    }
    if value.chars().count() > max_chars {
        errors.add(field, Rule::MaxChars { max: max_chars });
        return None;
    }
    if value.chars().any(refused) {
        errors.add(field, Rule::ControlCharacters);
        return None;
    }
    Some(value.to_owned())
}

/// A field that is required on create and may be omitted on update.
pub fn required_line(
    errors: &mut Errors,
    field: &str,
    input: &Field<String>,
    max_chars: usize,
    current: Option<&str>,
) -> Checked<String> {
    required_text(errors, field, input, current, |errors, value| line(errors, field, value, max_chars))
}

/// A label that is required on create. One that an update does not change is not checked again.
pub fn required_label(
    errors: &mut Errors,
    field: &str,
    input: &Field<String>,
    max_chars: usize,
    current: Option<&str>,
) -> Checked<String> {
    required_text(errors, field, input, current, |errors, value| match current {
        Some(current) if current == value => Some(value.to_owned()),
        Some(_) | None => label(errors, field, value, max_chars),
    })
}

fn required_text(
    errors: &mut Errors,
    field: &str,
    input: &Field<String>,
    current: Option<&str>,
    check: impl FnOnce(&mut Errors, &str) -> Checked<String>,
) -> Checked<String> {
    match input {
        Field::Absent if current.is_some() => current.map(str::to_owned),
        Field::Absent | Field::Null => {
            required(errors, field);
            None
        }
        Field::WrongType => {
            errors.add(field, Rule::Text);
            None
        }
        Field::Value(value) => check(errors, value),
    }
}

/// An optional text: kept if omitted, cleared if null or blank.
pub fn optional_text(
    errors: &mut Errors,
    field: &str,
    input: &Field<String>,
    current: Option<String>,
    check: impl FnOnce(&mut Errors, &str) -> Checked<String>,
) -> Option<String> {
    match input {
        Field::Absent => current,
        Field::Null => None,
        Field::WrongType => {
            errors.add(field, Rule::Text);
            None
        }
        Field::Value(value) if value.trim().is_empty() => None,
        Field::Value(value) => check(errors, value),
    }
}

/// A whole number within bounds, or `default` if it is omitted or null.
pub fn integer(
    errors: &mut Errors,
    field: &str,
    input: &Field<i64>,
    bounds: std::ops::RangeInclusive<i64>,
    default: i64,
) -> i64 {
    match input {
        Field::Absent | Field::Null => default,
        Field::WrongType => {
            errors.add(field, Rule::Integer);
            default
        }
        Field::Value(value) if bounds.contains(value) => *value,
        Field::Value(_) => {
            let (min, max) = bounds.into_inner();
            errors.add(field, Rule::Between { min, max });
            default
        }
    }
}

pub fn boolean(errors: &mut Errors, field: &str, input: &Field<bool>, default: bool) -> bool {
    match input {
        Field::Absent => default,
        Field::Value(value) => *value,
        Field::Null | Field::WrongType => {
            errors.add(field, Rule::Boolean);
            default
        }
    }
}

/// One word of a closed list. Required on create, kept if an update omits it.
pub fn choice<T: Copy>(
    errors: &mut Errors,
    field: &str,
    input: &Field<String>,
    current: Option<T>,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Checked<T> {
    match input {
        Field::Absent if current.is_some() => current,
        Field::Absent | Field::Null => {
            required(errors, field);
            None
        }
        Field::WrongType => {
            errors.add(field, Rule::Choice);
            None
        }
        Field::Value(value) => {
            let parsed = parse(value);
            if parsed.is_none() {
                errors.add(field, Rule::Choice);
            }
            parsed
        }
    }
}

/// An id that may be omitted.
pub fn optional_id(errors: &mut Errors, field: &str, input: &Field<i64>) -> Option<i64> {
    match input {
        Field::Absent | Field::Null => None,
        Field::Value(id) if *id >= 1 => Some(*id),
        Field::Value(_) => {
            errors.add(field, Rule::Between { min: 1, max: i64::MAX });
            None
        }
        Field::WrongType => {
            errors.add(field, Rule::Integer);
            None
        }
    }
}

/// Ids to attach. An absent field keeps what is attached, null detaches everything.
pub fn id_list(errors: &mut Errors, field: &str, input: &Field<Vec<i64>>) -> Option<Vec<i64>> {
    match input {
        Field::Absent => None,
        Field::Null => Some(Vec::new()),
        Field::WrongType => {
            errors.add(field, Rule::Integers);
            None
        }
        Field::Value(ids) => {
            let mut ids = ids.clone();
            ids.sort_unstable();
            ids.dedup();
            if ids.len() > limits::ATTACHED {
                errors.add(field, Rule::MaxItems { max: limits::ATTACHED });
                return None;
            }
            Some(ids)
        }
    }
}

/// What a request does to a stored secret; blank text is refused rather than stored as a password.
pub fn secret_change(errors: &mut Errors, field: &str, input: &Field<String>) -> crate::secret::SecretChange {
    use crate::secret::SecretChange;
    match input {
        Field::Absent => SecretChange::Keep,
        Field::Null => SecretChange::Clear,
        Field::WrongType => {
            errors.add(field, Rule::Text);
            SecretChange::Keep
        }
        Field::Value(value) => secret(errors, field, value).map_or(SecretChange::Keep, SecretChange::Set),
    }
}

/// A secret keeps its spaces and must be a single line, because it is sent to the server as one.
fn secret(errors: &mut Errors, field: &str, value: &str) -> Checked<crate::Secret> {
    if value.is_empty() {
        required(errors, field);
    } else if value.chars().count() > limits::SECRET_CHARS {
        errors.add(field, Rule::MaxChars { max: limits::SECRET_CHARS });
    } else if value.chars().any(char::is_control) {
        errors.add(field, Rule::ControlCharacters);
    } else {
        return Some(crate::Secret::new(value));
    }
    None
}

/// The form of a label that lists search in: lower case, and with composed letters, so that both databases find the same
/// however it was typed.
pub fn search_form(text: &str) -> String {
    text.to_lowercase().nfc().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(errors: &Errors, field: &str) -> Vec<String> {
        errors.english().find(|(name, _)| *name == field).map(|(_, texts)| texts).unwrap_or_default()
    }

    #[test]
    fn messages_are_worded_as_in_the_api_document() {
        let mut errors = Errors::default();
        required_line(&mut errors, "label", &Field::Absent, 255, None);
        required_line(&mut errors, "source_path", &Field::WrongType, 255, None);
        required_line(&mut errors, "username", &Field::Value("x".repeat(256)), 255, None);
        choice::<u8>(&mut errors, "type", &Field::Value("fax".into()), None, |_| None);
        errors.add("remote_server_id", Rule::Choice);
        integer(&mut errors, "port", &Field::Value(0), 1..=65535, 22);
        assert_eq!(messages(&errors, "label"), ["The label field is required."]);
        assert_eq!(messages(&errors, "source_path"), ["The source path field must be a string."]);
        assert_eq!(messages(&errors, "username"), ["The username field must not be greater than 255 characters."]);
        assert_eq!(messages(&errors, "type"), ["The selected type is invalid."]);
        assert_eq!(messages(&errors, "remote_server_id"), ["The selected remote server is invalid."]);
        assert_eq!(messages(&errors, "port"), ["The port field must be between 1 and 65535."]);
    }

    #[test]
    fn length_counts_characters_and_line_breaks_are_refused_in_lines() {
        let mut errors = Errors::default();
        assert!(line(&mut errors, "label", &"ä".repeat(255), 255).is_some());
        assert!(errors.is_empty());
        assert!(line(&mut errors, "label", "a\r\nBcc: x", 255).is_none());
        assert!(paragraph(&mut errors, "description", "two\nlines", 255).is_some());
        assert!(paragraph(&mut errors, "description", "nul\0", 255).is_none());
    }

    #[test]
    fn labels_have_no_hidden_characters_unless_they_had_them_before() {
        let old = "nightly\u{202e}txt.exe";
        let mut errors = Errors::default();
        assert!(label(&mut errors, "label", old, 255).is_none());
        assert_eq!(
            messages(&errors, "label"),
            ["The label field must not contain invisible characters or ones that change the direction of text."]
        );
        let mut errors = Errors::default();
        assert!(label(&mut errors, "label", "שרת 👩\u{200d}👧", 255).is_some());
        assert!(required_label(&mut errors, "label", &Field::Value(old.into()), 255, Some(old)).is_some());
        assert!(line(&mut errors, "source_path", old, 255).is_some(), "a path is what it is");
        assert!(errors.is_empty());
        assert!(required_label(&mut errors, "label", &Field::Value("b\u{200b}".into()), 255, Some(old)).is_none());
    }
}
