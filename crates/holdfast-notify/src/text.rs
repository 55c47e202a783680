//! Formats words and numbers for people, and makes foreign text harmless.

use std::fmt::Write as _;

use holdfast_core::characters::turns_text;
use holdfast_core::figures::size;

/// Removes from foreign text what could change how the rest is shown: control characters become spaces, and those that
/// change the text direction are dropped. Line breaks stay if `lines` is true.
pub(crate) fn clean(text: &str, lines: bool) -> String {
    let kept = text.chars().filter(|c| !turns_text(*c));
    kept.map(|c| if c.is_control() && !(lines && c == '\n') { ' ' } else { c }).collect()
}

/// Cuts a text to at most `most` characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// `+1.2 MB`, `−300 bytes`, or `the same size`.
pub(crate) fn growth(bytes: i64) -> String {
    match bytes {
        0 => "the same size".to_owned(),
        1.. => format!("+{}", size(bytes)),
        _ => format!("−{}", size(-bytes)),
    }
}

/// `+3 files`, or `None` for 0.
pub(crate) fn more(count: i64, one: &str, many: &str) -> Option<String> {
    let sign = if count < 0 { '−' } else { '+' };
    (count != 0).then(|| format!("{sign}{}", counted(count.abs(), one, many)))
}

/// `1 file`, `20,000 files`.
pub(crate) fn counted(count: i64, one: &str, many: &str) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    write!(text, " {}", if count == 1 { one } else { many }).expect("writing to a string");
    text
}

/// `1 h 5 min`, `3 min 20 s`, `4.2 s`.
pub(crate) fn duration(millis: i64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{:.1} s", millis as f64 / 1000.0),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// What a channel or mail server answered, as part of a line of text.
pub(crate) fn answer_line(text: &str) -> String {
    const LONGEST: usize = 160;
    cut(clean(text, false).trim(), LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(size(999), "999 bytes");
        assert_eq!(size(82_192_136), "82.2 MB");
        assert_eq!(size(999_950_000), "1.0 GB");
        assert_eq!(growth(-1_500), "−1.5 kB");
        assert_eq!(growth(0), "the same size");
        assert_eq!(counted(20_000, "file", "files"), "20,000 files");
        assert_eq!(counted(1, "file", "files"), "1 file");
        assert_eq!(more(-2, "file", "files").unwrap(), "−2 files");
        assert_eq!(duration(4_210), "4.2 s");
        assert_eq!(duration(200_000), "3 min 20 s");
        assert_eq!(duration(3_900_000), "1 h 5 min");
    }

    #[test]
    fn foreign_text_cannot_turn_or_break_a_line() {
        assert_eq!(clean("a\r\nb\u{202e}c\u{7}", false), "a  bc ");
        assert_eq!(clean("a\nb", true), "a\nb");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abc", 3), "abc");
    }
}
