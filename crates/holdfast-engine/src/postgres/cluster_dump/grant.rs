//! `GRANT` and `REVOKE` as `pg_dumpall` writes them: rights to one object for one role. Any other form might grant a
//! right to a setting without being noticed.

use super::words::{StatementKind, is_role_keyword, strip};
use crate::postgres::globals::{Guarded, ParameterPrivilege};
use crate::postgres::quoting;

const RIGHTS: &[&str] = &[
    "ALL",
    "ALTER SYSTEM",
    "CONNECT",
    "CREATE",
    "DELETE",
    "EXECUTE",
    "INSERT",
    "MAINTAIN",
    "REFERENCES",
    "SELECT",
    "SET",
    "TEMPORARY",
    "TRIGGER",
    "TRUNCATE",
    "UPDATE",
    "USAGE",
];

/// The kinds of objects that there are rights to, other than settings.
const THINGS: &[&str] = &[
    "DATABASE",
    "DOMAIN",
    "FOREIGN DATA WRAPPER",
    "FOREIGN SERVER",
    "FUNCTION",
    "LANGUAGE",
    "LARGE OBJECT",
    "PROCEDURE",
    "ROUTINE",
    "SCHEMA",
    "SEQUENCE",
    "TABLE",
    "TABLESPACE",
    "TYPE",
];

/// Parses what follows `GRANT `: a membership, or a right, which may be one to a setting that is never granted.
pub(super) fn granted(text: &[u8], guarded: &Guarded) -> Option<StatementKind> {
    if let Some(membership) = membership(text) {
        return Some(membership);
    }
    let Right { is_more, setting, rest } = right(text, " TO ")?;
    if strip(rest, " WITH GRANT OPTION").unwrap_or(rest) != b";" {
        return None;
    }
    let Some(setting) = setting else { return Some(StatementKind::Other) };
    let setting = String::from_utf8(setting).ok()?;
    let privilege = if is_more { ParameterPrivilege::AlterSystem } else { ParameterPrivilege::Set };
    Some(guarded.why_right_withheld(&setting, privilege).map_or(StatementKind::Other, |why| {
        let statement = String::from_utf8_lossy(text);
        let is_shown = statement.len() <= 300 && !statement.chars().any(char::is_control);
        let by_hand = if is_shown { format!(" To give it by hand: GRANT {statement}") } else { String::new() };
        let setting = quoting::shown(setting.as_bytes());
        StatementKind::Withheld(format!("A right to the setting {setting} was not restored: {why}.{by_hand}"))
    }))
}

/// Parses what follows `REVOKE `.
pub(super) fn revoked(text: &[u8]) -> Option<StatementKind> {
    let right = right(strip(text, "GRANT OPTION FOR ").unwrap_or(text), " FROM ")?;
    (right.rest == b";").then_some(StatementKind::Other)
}

/// `a TO b WITH ADMIN OPTION, INHERIT FALSE GRANTED BY c;`, where everything after `b` is optional.
fn membership(text: &[u8]) -> Option<StatementKind> {
    const OPTIONS: &[&str] =
        &["ADMIN OPTION", "ADMIN TRUE", "ADMIN FALSE", "INHERIT TRUE", "INHERIT FALSE", "SET TRUE", "SET FALSE"];
    let option = |rest| OPTIONS.iter().find_map(|option| strip(rest, option));
    let (group, rest) = role(text)?;
    let (member, mut rest) = role(strip(rest, " TO ")?)?;
    let mut is_admin = false;
    let mut options = strip(rest, " WITH ");
    while let Some(text) = options {
        is_admin |= strip(text, "ADMIN OPTION").or_else(|| strip(text, "ADMIN TRUE")).is_some();
        rest = option(text)?;
        options = strip(rest, ", ");
    }
    if let Some(after) = strip(rest, " GRANTED BY ") {
        rest = role(after)?.1;
    }
    (rest == b";").then_some(StatementKind::Membership(group, member, is_admin))
}

/// A role by its name; as names, keywords that mean another role are quoted.
fn role(text: &[u8]) -> Option<(String, &[u8])> {
    let (name, rest) = quoting::read_identifier(text)?;
    let is_name = text.starts_with(b"\"") || !is_role_keyword(&name);
    Some((String::from_utf8(name).ok().filter(|_| is_name)?, rest))
}

/// `rights ON thing name TO role`.
struct Right<'a> {
    /// Whether the rights include more than `SET`.
    is_more: bool,
    /// The name of the setting, if the rights are to one.
    setting: Option<Vec<u8>>,
    /// The text that follows.
    rest: &'a [u8],
}

fn right<'a>(text: &'a [u8], to: &str) -> Option<Right<'a>> {
    let (mut rest, mut is_more) = (one_right(text)?, strip(text, "SET").is_none());
    while let Some(after) = strip(rest, ",") {
        is_more |= strip(after, "SET").is_none();
        rest = one_right(after)?;
    }
    let rest = strip(rest, " ON ")?;
    let (setting, rest) = match strip(rest, "PARAMETER ") {
        Some(after) => quoting::read_identifier(after).map(|(name, rest)| (Some(name), rest))?,
        None => (None, named(THINGS.iter().find_map(|thing| strip(strip(rest, thing)?, " ")))?),
    };
    let rest = strip(rest, to)?;
    let rest = strip(rest, "PUBLIC").or_else(|| role(rest).map(|(_, rest)| rest))?;
    Some(Right { is_more, setting, rest })
}

/// Skips one right, with the column that it is for, if any.
fn one_right(text: &[u8]) -> Option<&[u8]> {
    let rest = RIGHTS.iter().find_map(|right| strip(text, right))?;
    match strip(rest, "(") {
        Some(column) => quoting::read_identifier(column).and_then(|(_, rest)| strip(rest, ")")),
        None => Some(rest),
    }
}

/// Skips the number of a large object, or a name with its optional schema and argument types.
fn named(text: Option<&[u8]>) -> Option<&[u8]> {
    let text = text?;
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits > 0 {
        return Some(&text[digits..]);
    }
    let (_, mut rest) = quoting::read_identifier(text)?;
    if let Some(after) = strip(rest, ".") {
        (_, rest) = quoting::read_identifier(after)?;
    }
    if strip(rest, "(").is_some() { arguments(rest) } else { Some(rest) }
}

/// Skips what is in parentheses, and quoted names as a whole.
fn arguments(text: &[u8]) -> Option<&[u8]> {
    let (mut rest, mut depth) = (text, 0_usize);
    while let Some((byte, after)) = rest.split_first() {
        rest = match byte {
            b'"' => quoting::read_identifier(rest)?.1,
            b'\'' | b'$' | b';' => return None,
            _ => after,
        };
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        if depth == 0 {
            return Some(rest);
        }
    }
    None
}
