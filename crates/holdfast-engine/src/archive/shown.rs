//! Formats paths of members for messages.

use holdfast_core::backup::name_text;

/// The path of a member, for messages.
pub(crate) fn shown(path: &[u8]) -> String {
    name_text(path)
}

/// Shortens a path that is too long for a log line to its beginning and end.
pub(crate) fn shown_short(path: &str) -> String {
    const SHOWN: usize = 100;
    let length = path.chars().count();
    if length <= 10 * SHOWN {
        return path.to_owned();
    }
    let (start, end): (String, String) =
        (path.chars().take(SHOWN).collect(), path.chars().skip(length - SHOWN).collect());
    format!("{start}…{end}")
}
