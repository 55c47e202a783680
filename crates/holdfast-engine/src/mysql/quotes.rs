//! Quoted names and string literals in statements of MySQL and MariaDB.

use super::heads::text_length;
use super::name_length;

/// The first position outside quotes at which `is_it` holds.
pub(crate) fn outside_quotes(statement: &[u8], is_it: impl Fn(&[u8]) -> bool) -> Option<usize> {
    let mut at = 0;
    while at < statement.len() {
        let rest = &statement[at..];
        match rest[0] {
            _ if is_it(rest) => return Some(at),
            b'`' | b'"' | b'\'' => at += quoted_length(rest)?,
            _ => at += 1,
        }
    }
    None
}

/// The length of the quoted name or literal that begins here; `None` if there is none, or it has no end.
pub(super) fn quoted_length(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'`' | b'"' => name_length(text),
        b'\'' => Some(literal_length(text)),
        _ => None,
    }
}

/// The length of a literal in single quotes, in which a quote may be doubled.
pub(super) fn literal_length(text: &[u8]) -> usize {
    let mut length = text_length(text);
    while text[length..].starts_with(b"'") {
        length += text_length(&text[length..]);
    }
    length
}
