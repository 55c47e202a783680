//! What the columns of a document may hold: nothing that no request or run could have stored. A document is data from
//! elsewhere, even if the master key opens it.

use holdfast_core::characters::{turns_text, unhidden};
use holdfast_core::input::Errors;
use holdfast_core::scope::Scope;
use holdfast_core::{limits, network, random, rules, user};

/// The highest id of a row. No installation reaches it by counting, clients can represent it, and it leaves room for
/// more rows than a database can hold.
pub(super) const MAX_ID: i64 = 1 << 48;
/// More than an object has, also if most of it is a hole.
pub(super) const MAX_BYTES: i64 = 1 << 53;
/// The most that the objects of a document have together: sums of them must fit into a column.
pub(super) const MAX_TOTAL_BYTES: i128 = 1 << 56;
pub(super) const MAX_COUNT: i64 = 1 << 40;
/// The longest time that is measured, in microseconds: the work of all runs of a day.
pub(super) const MAX_MICROS: i64 = 1 << 50;
/// A label in lower case can be longer than the label.
const SEARCH_CHARS: usize = 4 * limits::TEXT_CHARS;
/// The names of ten thousand databases.
const LIST_BYTES: usize = 1 << 20;

/// A label as it is stored here, in which hidden characters that older versions accepted can be seen.
pub(super) fn label(text: &str) -> Option<String> {
    if text.contains(char::is_control) {
        return None;
    }
    rules::label(&mut Errors::default(), "label", &unhidden(text), limits::TEXT_CHARS)
}

/// Text that the service wrote, without anything that could harm a terminal or a page.
pub(super) fn output(text: &str) -> Option<String> {
    let is_odd = |c: char| (c.is_control() && !matches!(c, '\n' | '\t')) || turns_text(c);
    let clean = || text.chars().map(|c| if is_odd(c) { char::REPLACEMENT_CHARACTER } else { c }).collect();
    (text.len() <= limits::OUTPUT_BYTES).then(clean)
}

fn is_text(text: &str, max_chars: usize) -> bool {
    text.chars().count() <= max_chars && !text.contains(char::is_control)
}

pub(super) fn is_line(text: &str) -> bool {
    is_text(text, limits::TEXT_CHARS)
}

pub(super) fn is_search_label(text: &str) -> bool {
    is_text(text, SEARCH_CHARS)
}

/// A path on a server, with what may stand before it.
pub(super) fn is_place(text: &str) -> bool {
    is_text(text, 2 * limits::PATH_CHARS)
}

pub(super) fn is_paragraph(text: &str) -> bool {
    let is_refused = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    text.chars().count() <= limits::DESCRIPTION_CHARS && !text.contains(is_refused)
}

pub(super) fn is_email(text: &str) -> bool {
    network::is_email(text) && user::normal_email(text) == text
}

/// The name of a time zone; whether this system knows it is another matter.
pub(super) fn is_zone(text: &str) -> bool {
    is_word(text, b"/_+-")
}

pub(super) fn is_language(text: &str) -> bool {
    is_word(text, b"-")
}

fn is_word(text: &str, others: &[u8]) -> bool {
    (1..=limits::TEXT_CHARS).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
}

pub(super) fn is_totp_secret(text: &str) -> bool {
    is_word(text, b"=")
}

pub(super) fn are_scopes(text: &str) -> bool {
    !text.is_empty() && text.split_whitespace().all(|word| Scope::parse(word).is_some())
}

/// A password or key that a user gave.
pub(super) fn is_secret(text: &str) -> bool {
    !text.is_empty() && is_text(text, limits::SECRET_CHARS)
}

/// The passwords of a repository: a list in JSON, the newest first.
pub(super) fn are_passwords(text: &str) -> bool {
    serde_json::from_str::<Vec<String>>(text).is_ok_and(|all| {
        !all.is_empty() && all.len() <= crate::repositories::MOST_PASSWORDS && all.iter().all(|one| is_secret(one))
    })
}

/// The private half of an SSH key: 32 bytes in base64.
pub(super) fn is_key_seed(text: &str) -> bool {
    text.len() == 44 && text.ends_with('=') && is_word(text, b"+/=")
}

/// A SHA-256 digest in hexadecimal, or nothing where it was not recorded.
pub(super) fn is_digest(text: &str) -> bool {
    text.is_empty() || random::from_hex(text).is_some_and(|bytes| bytes.len() == 32)
}

/// A list of names, as JSON.
pub(super) fn are_names(text: &str) -> bool {
    text.len() <= LIST_BYTES && serde_json::from_str::<Vec<String>>(text).is_ok()
}

/// A day, such as 2026-01-31.
pub(super) fn is_day(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([4, 2, 2]) && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_older_versions_become_harmless_and_control_characters_were_never_accepted() {
        assert_eq!(label("web\u{202e}txt").as_deref(), Some("web\u{fffd}txt"));
        for refused in ["a\nb", "a\u{1b}[2J", "", "  ", &"x".repeat(256)] {
            assert_eq!(label(refused), None, "{refused:?}");
        }
        assert_eq!(output("a\n\u{1b}b\u{2066}").as_deref(), Some("a\n\u{fffd}b\u{fffd}"));
    }

    #[test]
    fn values_are_checked() {
        assert!(is_email("ada@example.org") && !is_email("Ada@example.org") && !is_email("ada\u{202e}@example.org"));
        assert!(are_scopes("manage-tags view-backup-tasks") && !are_scopes("everything") && !are_scopes(""));
        assert!(is_digest("") && is_digest(&"0f".repeat(32)) && !is_digest("0f"));
        assert!(are_names("[\"a\"]") && !are_names("[1]") && !are_names("{"));
        assert!(is_day("2026-01-31") && !is_day("2026-1-31") && !is_day("x"));
        assert!(is_key_seed("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=") && !is_key_seed("AAAA"));
    }
}
