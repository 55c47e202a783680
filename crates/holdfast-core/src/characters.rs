//! Characters that make text look like something else: control characters, those that change the direction of the text
//! around them, and those that cannot be seen.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::limits;

/// Whether it changes the direction of the text around it.
pub fn turns_text(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether it changes the direction of text, breaks the line, or cannot be seen. Emoji and some scripts need joiners
/// (U+200C, U+200D), variation selectors and tags, so these do not count.
pub fn is_hidden(c: char) -> bool {
    turns_text(c)
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{206a}'..='\u{206f}')
        || matches!(c, '\u{ad}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
        || matches!(c, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}')
}

/// The text with each hidden or control character replaced by a visible one.
pub fn unhidden(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_hidden(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// Text from elsewhere, made safe to store: control characters are replaced, so that a line stays one line, and so are
/// characters that change the direction of text, so that it reads as it is. It is truncated to the length of a line.
pub fn stored_line(text: &str) -> String {
    let is_odd = |c: char| (c.is_control() && c != '\t') || turns_text(c);
    let clean = text.chars().map(|c| if is_odd(c) { '\u{fffd}' } else { c });
    clean.take(limits::LINE_CHARS).collect()
}

/// Text for a terminal, in which control characters and hidden ones are written as in JSON, so that JSON stays the same
/// document. Line breaks and tabs stay.
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_where(text, |c| (c.is_control() && !matches!(c, '\n' | '\t')) || is_hidden(c))
}

/// Like `escaped`, for text that has control characters on purpose, such as colours.
pub fn escaped_hidden(text: &str) -> Cow<'_, str> {
    escaped_where(text, is_hidden)
}

fn escaped_where(text: &str, is_harmful: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_harmful(c) {
            // Writing to a string does not fail, and none of them is beyond U+FFFF.
            let _always_written = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_or_turns_text_is_hidden_and_ordinary_text_is_not() {
        for c in
            ['\u{202e}', '\u{2066}', '\u{200e}', '\u{61c}', '\u{200b}', '\u{feff}', '\u{ad}', '\u{3164}', '\u{2028}']
        {
            assert!(is_hidden(c), "{c:?}");
        }
        for text in ["größer", "שלום", "مرحبا", "می\u{200c}خواهم", "👩\u{200d}👧", "❤\u{fe0f}", "한글", "a\u{a0}b"]
        {
            assert!(!text.contains(is_hidden), "{text}");
        }
    }

    #[test]
    fn escaped_text_cannot_control_a_terminal_and_escaped_json_is_the_same_document() {
        assert_eq!(escaped("a\tb\nc"), "a\tb\nc");
        assert_eq!(escaped("\u{1b}[2J\u{202e}x\r"), "\\u001b[2J\\u202ex\\u000d");
        assert_eq!(unhidden("a\u{202e}b\n"), "a\u{fffd}b\u{fffd}");
        let hidden = (0..=0x10_ffff).filter_map(char::from_u32).filter(|c| is_hidden(*c) || c.is_control());
        assert!(hidden.max() <= Some('\u{ffff}'));
    }

    #[test]
    fn log_lines_cannot_forge_further_lines() {
        assert_eq!(stored_line("a\nb\u{1b}[31m"), "a\u{fffd}b\u{fffd}[31m");
    }

    #[test]
    fn log_lines_cannot_change_the_direction_of_text() {
        assert_eq!(stored_line("a\u{202e}b\u{2066}c\u{2069}\tשלום"), "a\u{fffd}b\u{fffd}c\u{fffd}\tשלום");
    }
}
