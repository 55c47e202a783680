//! What a run reads or writes on its server. Two runs of which one writes what the other reads must not run together.

use crate::database::DatabaseEngine;

/// A part of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    /// Everything below a path.
    Files(String),
    /// One database, or all of them, of one engine; `None` for an unknown engine or for all databases.
    Database(Option<DatabaseEngine>, Option<String>),
}

impl Extent {
    pub fn overlaps(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Files(own), Self::Files(other)) => {
                // One path equals or contains the other: the names of the shorter one are a prefix of those of the
                // longer one.
                names(own).zip(names(other)).all(|(own, other)| own == other)
            }
            (Self::Database(own_engine, own), Self::Database(other_engine, other)) => {
                can_be_same(own_engine, other_engine) && can_be_same(own, other)
            }
            (Self::Files(_), Self::Database(..)) | (Self::Database(..), Self::Files(_)) => false,
        }
    }

    /// Whether everything in the other is also in this one.
    pub fn contains(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Files(own), Self::Files(other)) => {
                let mut inner = names(other);
                names(own).all(|name| inner.next() == Some(name))
            }
            (Self::Database(..), Self::Database(..))
            | (Self::Files(_), Self::Database(..))
            | (Self::Database(..), Self::Files(_)) => self.is(other),
        }
    }

    /// Whether both are the same, as far as is known.
    pub fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Files(own), Self::Files(other)) => names(own).eq(names(other)),
            (Self::Database(..), Self::Database(..)) => self == other,
            (Self::Files(_), Self::Database(..)) | (Self::Database(..), Self::Files(_)) => false,
        }
    }
}

/// `None` stands for unknown or for all.
fn can_be_same<T: PartialEq>(own: &Option<T>, other: &Option<T>) -> bool {
    own.is_none() || other.is_none() || own == other
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !matches!(*name, "" | "."))
}
