//! Reads and writes identifiers and string literals of PostgreSQL.

use super::name::Name;

/// A name in double quotes: whatever it contains, it is one name.
pub(crate) fn identifier(name: &Name) -> String {
    format!("\"{}\"", name.as_str().replace('"', "\"\""))
}

/// A name in double quotes for messages, so that it cannot be taken for words of the sentence around it.
pub(super) fn shown(name: &[u8]) -> String {
    format!("\"{}\"", holdfast_core::backup::name_text(name).replace('"', "\"\""))
}

/// A string literal that means the same whatever `standard_conforming_strings` is. The value has no zero byte; see
/// `Text`.
pub(crate) fn text(value: &str) -> String {
    let doubled = value.replace('\'', "''");
    if value.contains('\\') { format!("E'{}'", doubled.replace('\\', "\\\\")) } else { format!("'{doubled}'") }
}

/// Reads an identifier as `pg_dump` writes it, quoted or not. Returns the name and what follows.
pub(super) fn read_identifier(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    if text.first() == Some(&b'"') {
        return read_quoted(text, b'"').filter(|(name, _)| !name.is_empty());
    }
    let is_plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_';
    let end = text.iter().position(|byte| !is_plain(byte)).unwrap_or(text.len());
    let name = &text[..end];
    let starts = name.first().is_some_and(|byte| !byte.is_ascii_digit());
    starts.then(|| (name.to_vec(), &text[end..]))
}

/// Reads a name in double quotes, which may be empty. Returns the name and what follows.
pub(super) fn read_quoted_name(text: &str) -> Option<(String, &str)> {
    let (name, rest) = read_quoted(text.as_bytes(), b'"')?;
    Some((String::from_utf8(name).ok()?, std::str::from_utf8(rest).ok()?))
}

/// Skips a literal in single quotes in which a backslash is an ordinary character. Returns what follows.
pub(super) fn read_text(text: &[u8]) -> Option<&[u8]> {
    read_quoted(text, b'\'').map(|(_, rest)| rest)
}

fn read_quoted(text: &[u8], quote: u8) -> Option<(Vec<u8>, &[u8])> {
    let mut rest = text.strip_prefix(&[quote])?;
    let mut value = Vec::new();
    loop {
        let end = rest.iter().position(|byte| *byte == quote)?;
        value.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix(&[quote]) {
            Some(after) => {
                value.push(quote);
                rest = after;
            }
            None => return Some((value, rest)),
        }
    }
}
