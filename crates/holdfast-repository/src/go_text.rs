//! Text as Go's standard library writes it. restic refuses to change trees whose bytes it would write differently.

use std::fmt::Write as _;

use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory as _};

/// Bytes as base64 text.
pub(crate) mod base64 {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        BASE64_STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)
    }
}

/// A string of JSON, in quotes, as `encoding/json` writes it: safe to put into HTML. What is not UTF-8 is replaced.
pub(crate) fn write_json_string(json: &mut String, bytes: &[u8]) {
    json.push('"');
    for part in bytes.utf8_chunks() {
        for character in part.valid().chars() {
            match character {
                '"' => json.push_str("\\\""),
                '\\' => json.push_str("\\\\"),
                '\n' => json.push_str("\\n"),
                '\r' => json.push_str("\\r"),
                '\t' => json.push_str("\\t"),
                '\0'..' ' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => push_escape(json, "\\u", character, 4),
                _ => json.push(character),
            }
        }
        for _ in part.invalid() {
            json.push_str("\\ufffd");
        }
    }
    json.push('"');
}

/// Any bytes as text, as `strconv.Quote` writes it, without the quotes around it.
pub(crate) fn quote(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for part in bytes.utf8_chunks() {
        for character in part.valid().chars() {
            match character {
                '"' => text.push_str("\\\""),
                '\\' => text.push_str("\\\\"),
                '\x07' => text.push_str("\\a"),
                '\x08' => text.push_str("\\b"),
                '\x0c' => text.push_str("\\f"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                '\x0b' => text.push_str("\\v"),
                '\0'..' ' | '\x7f' => push_escape(&mut text, "\\x", character, 2),
                _ if is_print(character) => text.push(character),
                '\0'..='\u{ffff}' => push_escape(&mut text, "\\u", character, 4),
                _ => push_escape(&mut text, "\\U", character, 8),
            }
        }
        for byte in part.invalid() {
            push_escape(&mut text, "\\x", char::from(*byte), 2);
        }
    }
    text
}

fn push_escape(text: &mut String, start: &str, character: char, digits: usize) {
    text.push_str(start);
    // Writing to a string cannot fail.
    let _always = write!(text, "{:0digits$x}", u32::from(character));
}

/// Whether Go prints it as it is: letters, marks, numbers, punctuation, symbols, and the space of ASCII.
fn is_print(character: char) -> bool {
    match character {
        ' '..='~' => true,
        _ => {
            !matches!(character.general_category_group(), GeneralCategoryGroup::Separator | GeneralCategoryGroup::Other)
        }
    }
}

/// The bytes of text that [`quote`] or Go has written; `None` if it is no such text.
pub(crate) fn unquote(text: &str) -> Option<Vec<u8>> {
    if !text.contains('\\') {
        return Some(text.as_bytes().to_vec());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let kind = escape.chars().next()?;
        rest = &escape[kind.len_utf8()..];
        let digits = match kind {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            '0'..='7' => {
                let octal = escape.get(..3)?;
                bytes.push(u8::from_str_radix(octal, 8).ok()?);
                rest = &escape[3..];
                continue;
            }
            _ => {
                bytes.push(match kind {
                    'a' => 0x07,
                    'b' => 0x08,
                    'f' => 0x0c,
                    'n' => b'\n',
                    'r' => b'\r',
                    't' => b'\t',
                    'v' => 0x0b,
                    '\\' | '\'' | '"' => kind as u8,
                    _ => return None,
                });
                continue;
            }
        };
        let value = rest.get(..digits).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        let value = u32::from_str_radix(value, 16).ok()?;
        if kind == 'x' {
            bytes.push(u8::try_from(value).ok()?);
        } else {
            bytes.extend_from_slice(char::from_u32(value)?.encode_utf8(&mut [0; 4]).as_bytes());
        }
        rest = &rest[digits..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_quoted_like_go_does_it() {
        let cases: &[(&[u8], &str)] = &[
            (b"plain name.txt", "plain name.txt"),
            (b"a\"b\\c'd", r#"a\"b\\c'd"#),
            (b"\x07\x08\x0c\n\r\t\x0b\x00\x1f\x7f", r"\a\b\f\n\r\t\v\x00\x1f\x7f"),
            (b"bad \xff\xc3 byte", r"bad \xff\xc3 byte"),
            ("grün 日本 🎉".as_bytes(), "grün 日本 🎉"),
            // No-break space, soft hyphen, zero-width space, a line separator, private use, a tag.
            ("\u{a0}\u{ad}\u{200b}\u{2028}\u{e000}\u{e0001}".as_bytes(), r"\u00a0\u00ad\u200b\u2028\ue000\U000e0001"),
            // A mark that combines is printed.
            ("e\u{301}".as_bytes(), "e\u{301}"),
            ("\u{fffd}".as_bytes(), "\u{fffd}"),
        ];
        for (bytes, text) in cases {
            assert_eq!(quote(bytes), *text);
            assert_eq!(unquote(text).as_deref(), Some(*bytes), "{text}");
        }
    }

    #[test]
    fn json_strings_are_those_of_go() {
        let mut json = String::new();
        write_json_string(&mut json, "<a href=\"x\">&\u{2028}\u{2029}\\\n\r\t\u{1}\u{8}ü".as_bytes());
        write_json_string(&mut json, b"\xff\xfe");
        let expected =
            concat!(r#""\u003ca href=\"x\"\u003e\u0026\u2028\u2029\\\n\r\t\u0001\u0008ü""#, r#""\ufffd\ufffd""#);
        assert_eq!(json, expected);
    }

    #[test]
    fn text_that_go_does_not_write_is_refused_or_understood() {
        assert_eq!(unquote(r"\101\'").as_deref(), Some(&b"A'"[..]));
        for wrong in [r"\", r"\q", r"\x1", r"\xzz", r"\u12", r"\ud800", r"\U00110000", r"\8", r"\40", r"\400", r"\x+1"]
        {
            assert_eq!(unquote(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_name_survives(bytes: Vec<u8>) {
            prop_assert_eq!(unquote(&quote(&bytes)), Some(bytes));
        }

        #[test]
        fn no_text_makes_it_panic(text: String) {
            unquote(&text);
        }
    }
}
