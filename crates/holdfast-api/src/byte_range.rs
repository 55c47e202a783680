//! `Range`: a part of a download, so that an interrupted one can be continued.

use std::ops::Range;

use axum::http::{HeaderMap, header};

use crate::error::ApiError;

/// The part of `size` bytes that a request asks for. `None` is all of them: also if it asks for several parts, or if what
/// it has so far is of another version than `tag`.
pub(crate) fn asked(headers: &HeaderMap, tag: &str, size: u64) -> Result<Option<Range<u64>>, ApiError> {
    let is_outdated = headers.get(header::IF_RANGE).is_some_and(|version| version != tag);
    let text = headers.get(header::RANGE).and_then(|value| value.to_str().ok()).filter(|_| !is_outdated);
    let Some((first, last)) = text.and_then(parse) else { return Ok(None) };
    let range = match (first, last) {
        (Some(first), last) => first..last.map_or(size, |last| last.saturating_add(1).min(size)),
        (None, last) => size.saturating_sub(last.unwrap_or_default())..size,
    };
    if range.is_empty() { Err(ApiError::NoSuchRange { size }) } else { Ok(Some(range)) }
}

/// The first and the last byte. Without the first one, the other is a number of bytes at the end.
fn parse(text: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, range) = text.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    let number = |text: &str| match text {
        "" => Some(None),
        digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(Some(digits.parse().unwrap_or(u64::MAX))),
        _ => None,
    };
    let range = (number(first)?, number(last)?);
    let is_valid = match range {
        (Some(first), Some(last)) => first <= last,
        (None, None) => false,
        (Some(_), None) | (None, Some(_)) => true,
    };
    (unit.trim().eq_ignore_ascii_case("bytes") && is_valid).then_some(range)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read(range: &'static str, version: Option<&'static str>) -> Result<Option<Range<u64>>, ApiError> {
        let mut headers = HeaderMap::from_iter([(header::RANGE, HeaderValue::from_static(range))]);
        if let Some(version) = version {
            headers.insert(header::IF_RANGE, HeaderValue::from_static(version));
        }
        asked(&headers, "\"a\"", 100)
    }

    #[test]
    fn one_range_is_read_and_others_are_ignored() {
        assert_eq!(asked(&HeaderMap::new(), "\"a\"", 100).unwrap(), None);
        let ranges = [
            ("bytes=0-0", 0..1),
            ("Bytes=10-19", 10..20),
            ("bytes=90-", 90..100),
            ("bytes=-5", 95..100),
            ("bytes=-500", 0..100),
            ("bytes=99-99999999999999999999999", 99..100),
        ];
        for (text, expected) in ranges {
            assert_eq!(read(text, None).unwrap(), Some(expected), "{text}");
        }
        for ignored in ["bytes=0-1,5-6", "bytes=5-4", "bytes=-", "bytes", "items=0-1", "bytes=+1-2", "bytes=a-"] {
            assert_eq!(read(ignored, None).unwrap(), None, "{ignored}");
        }
        for outside in ["bytes=100-", "bytes=100-200", "bytes=-0"] {
            assert!(matches!(read(outside, None), Err(ApiError::NoSuchRange { size: 100 })), "{outside}");
        }
    }

    #[test]
    fn what_is_continued_must_be_of_the_same_version() {
        assert_eq!(read("bytes=10-", Some("\"a\"")).unwrap(), Some(10..100));
        for other in ["\"b\"", "W/\"a\"", "Wed, 18 Nov 2026 09:00:00 GMT"] {
            assert_eq!(read("bytes=10-", Some(other)).unwrap(), None, "{other}");
            assert_eq!(read("bytes=200-", Some(other)).unwrap(), None, "{other}");
        }
    }
}
