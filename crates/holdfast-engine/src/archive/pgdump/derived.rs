//! Which items of a dump are derived from others, or must come last, and are restored after everything else.

use std::collections::BTreeSet;

use super::item::{Item, NAME_BYTES, NAMES};

/// The kind of an item that is restored after everything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Follows {
    Index,
    /// The contents of a materialized view.
    Contents,
    /// A comment on an index, or its attachment to a partitioned index; it depends on the index.
    OfIndex,
    /// An event trigger, or a comment or label on one. They come last, so that creating other objects does not fire
    /// them.
    EventTrigger,
}

/// Recognises such items in the order of the table of contents, where an index comes before what belongs to it.
#[derive(Default)]
pub(super) struct Derived {
    indexes: BTreeSet<(Vec<u8>, Vec<u8>)>,
}

impl Derived {
    pub(super) fn kind(&mut self, item: &Item) -> Option<Follows> {
        if item.has_data {
            return None;
        }
        match item.kind.as_str() {
            // A unique index is a constraint on the rows, so it is not taken out.
            "INDEX" if item.definition.starts_with(b"CREATE INDEX ") => {
                let has_room = self.indexes.len() < NAMES && item.tag.len() <= NAME_BYTES;
                has_room.then(|| {
                    self.indexes.insert((item.schema.clone(), item.tag.clone()));
                    Follows::Index
                })
            }
            "MATERIALIZED VIEW DATA" if item.definition.starts_with(b"REFRESH MATERIALIZED VIEW ") => {
                Some(Follows::Contents)
            }
            "EVENT TRIGGER" => Some(Follows::EventTrigger),
            "COMMENT" | "SECURITY LABEL" if item.tag.starts_with(b"EVENT TRIGGER ") => Some(Follows::EventTrigger),
            "INDEX ATTACH" | "COMMENT" => self.index_of(item).map(|_| Follows::OfIndex),
            _ => None,
        }
    }

    /// The index that an item belongs to, if that is one of those found.
    pub(super) fn index_of(&self, item: &Item) -> Option<Vec<u8>> {
        let name = if item.kind == "COMMENT" { unquoted(item.tag.strip_prefix(b"INDEX ")?) } else { item.tag.clone() };
        self.indexes.contains(&(item.schema.clone(), name.clone())).then_some(name)
    }
}

/// Removes the quotes of a name in a statement.
fn unquoted(name: &[u8]) -> Vec<u8> {
    let Some(inner) = name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\"")) else { return name.to_vec() };
    let (mut plain, mut is_second) = (Vec::new(), false);
    for byte in inner {
        is_second = *byte == b'"' && !is_second;
        if !is_second {
            plain.push(*byte);
        }
    }
    plain
}
