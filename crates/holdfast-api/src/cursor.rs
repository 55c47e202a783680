//! Cursors: positions in lists, as clients carry them from one response to the next request of the same list.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use holdfast_core::clock;
use holdfast_core::page::{Position, SortKey};
use serde::{Deserialize, Serialize};

/// The content of a cursor, which is opaque to clients.
#[derive(Serialize, Deserialize)]
struct Content {
    /// Which list it is a position in.
    of: String,
    id: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    label: Option<String>,
}

pub(crate) fn write(position: &Position, list: &str) -> String {
    let mut content = Content { of: list.to_owned(), id: position.id, at: None, label: None };
    match &position.key {
        SortKey::Id => {}
        SortKey::Created(at) => content.at = Some(at.as_microsecond()),
        SortKey::Label(label) => content.label = Some(label.clone()),
    }
    URL_SAFE_NO_PAD.encode(serde_json::json!(content).to_string())
}

/// `None` if it is none, or one of another list.
pub(crate) fn read(text: &str, list: &str) -> Option<Position> {
    let content: Content = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    if content.of != list {
        return None;
    }
    let key = match (content.at, content.label) {
        (None, None) => SortKey::Id,
        (Some(at), None) => SortKey::Created(clock::from_micros(at)),
        // PostgreSQL stores no NUL in text, and refuses it.
        (None, Some(label)) if !label.contains('\0') => SortKey::Label(label),
        (Some(_) | None, Some(_)) => return None,
    };
    Some(Position { key, id: content.id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_was_written() {
        let keys = [SortKey::Id, SortKey::Created(clock::from_micros(5)), SortKey::Label("käse \"".to_owned())];
        for key in keys {
            let position = Position { key, id: 7 };
            let cursor = write(&position, "a");
            assert_eq!(read(&cursor, "a"), Some(position));
            assert_eq!(read(&cursor, "b"), None);
        }
        for bad in ["", "7", "e30", "????", "bnVsbA"] {
            assert_eq!(read(bad, "a"), None, "{bad}");
        }
    }
}
