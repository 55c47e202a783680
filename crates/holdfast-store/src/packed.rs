//! Packs a row into one text, and a page into one row.
//!
//! Both drivers return values one by one; on SQLite each is copied, and each row is passed from the connection's thread
//! to the reader's. A list of 15 tasks with 30 columns spent four fifths of its time there. So the database joins the
//! fields of a row, and the rows of a page, with control characters that no stored text can contain, and passes one
//! value instead of 450. See docs/decisions/0003-pages-as-one-row.md.

use std::str::Split;

use holdfast_core::backup::{DeletedReason, Verification};
use holdfast_core::clock;
use holdfast_core::content::Content;
use holdfast_core::destination::Reachability;
use holdfast_core::ids::{BackupId, DestinationId, NoticeId, RunId, ServerId, StreamId, TagId, TaskId, UserId};
use holdfast_core::notice::{NoticeKind, NoticeStatus};
use holdfast_core::run::{FailureCode, RunKind, RunStatus, Trigger};
use holdfast_core::server::Connectivity;
use holdfast_core::source::TaskKind;
use holdfast_core::storage::Format;
use holdfast_core::stream::StreamKind;

use crate::{DbTime, Result, StoreError};

/// Separators of fields and of rows, and the stand-in for NULL. Validation refuses control characters in all stored
/// text.
pub(crate) const FIELD: char = '\u{1f}';
pub(crate) const ROW: char = '\u{1e}';
pub(crate) const NULL: &str = "\u{1d}";

/// The fields of one row, in order.
pub(crate) struct Fields<'a> {
    rest: Split<'a, char>,
    /// The row's id, for error messages.
    id: &'a str,
}

pub(crate) trait Unpack: Sized {
    fn unpack(fields: &mut Fields<'_>) -> Result<Self>;

    /// What lists are ordered by.
    fn id(&self) -> i64;
}

pub(crate) trait FromField: Sized {
    fn from_field(text: &str) -> Option<Self>;
}

impl Fields<'_> {
    pub(crate) fn next<T: FromField>(&mut self, row: &str, field: &str) -> Result<T> {
        let value = self.rest.next().and_then(T::from_field);
        value.ok_or_else(|| StoreError::Broken(format!("{field} of {row} {} cannot be read", self.id)))
    }
}

pub(crate) fn unpack<T: Unpack>(line: &str) -> Result<T> {
    let id = line.split(FIELD).next().unwrap_or_default();
    let mut fields = Fields { rest: line.split(FIELD), id };
    let row = T::unpack(&mut fields)?;
    // An extra field means that the columns do not match the row type, or that a text contains a separator.
    match fields.rest.next() {
        None => Ok(row),
        Some(_) => Err(StoreError::Broken("a packed row has more fields than expected".to_owned())),
    }
}

/// The rows of a page; an empty text is an empty page.
pub(crate) fn unpack_all<T: Unpack>(lines: &str) -> Result<Vec<T>> {
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    lines.split(ROW).map(unpack).collect()
}

/// The rows of a page, by id. Both databases join the lines as they come, which is in order; but only an ORDER BY
/// within the aggregate would guarantee it, at the cost of sorting what is already sorted.
pub(crate) fn unpack_page<T: Unpack>(lines: &str) -> Result<Vec<T>> {
    let mut rows: Vec<T> = unpack_all(lines)?;
    rows.sort_unstable_by_key(Unpack::id);
    Ok(rows)
}

impl FromField for String {
    fn from_field(text: &str) -> Option<Self> {
        Some(text.to_owned())
    }
}

impl FromField for i64 {
    fn from_field(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// SQLite writes numbers, PostgreSQL letters.
impl FromField for bool {
    fn from_field(text: &str) -> Option<Self> {
        match text {
            "1" | "t" | "true" => Some(true),
            "0" | "f" | "false" => Some(false),
            _ => None,
        }
    }
}

impl FromField for DbTime {
    fn from_field(text: &str) -> Option<Self> {
        text.parse().ok().map(|micros| DbTime(clock::from_micros(micros)))
    }
}

/// String enums. An unknown word makes the row unreadable; a newer database, which might contain one, is refused at
/// start.
macro_rules! string_enum_fields {
    ($($name:ty),* $(,)?) => {$(
        impl FromField for $name {
            fn from_field(text: &str) -> Option<Self> {
                <$name>::parse(text)
            }
        }
    )*};
}

string_enum_fields!(
    RunKind,
    RunStatus,
    Trigger,
    FailureCode,
    TaskKind,
    Connectivity,
    Reachability,
    Content,
    Format,
    Verification,
    DeletedReason,
    StreamKind,
    NoticeKind,
    NoticeStatus,
);

macro_rules! id_fields {
    ($($name:ty),* $(,)?) => {$(
        impl FromField for $name {
            fn from_field(text: &str) -> Option<Self> {
                text.parse::<i64>().ok().map(Into::into)
            }
        }
    )*};
}

id_fields!(UserId, RunId, TaskId, ServerId, DestinationId, StreamId, BackupId, TagId, NoticeId);

impl<T: FromField> FromField for Option<T> {
    fn from_field(text: &str) -> Option<Self> {
        if text == NULL { Some(None) } else { T::from_field(text).map(Some) }
    }
}

/// The SQL of one field.
macro_rules! field_sql {
    (Option String $sql:expr) => {
        concat!("COALESCE(", $sql, ", '\u{1d}')")
    };
    (Option $inner:ident $sql:expr) => {
        concat!("COALESCE(CAST(", $sql, " AS TEXT), '\u{1d}')")
    };
    ($type:ident $sql:expr) => {
        $sql
    };
}

/// A row type, each field with its SQL; also defines `packed_line!()`, the SQL that packs such a row.
macro_rules! packed_row {
    ($(#[$meta:meta])* $visible:vis struct $name:ident {
        $($(#[$about:meta])* $field:ident: $type:ident $(<$inner:ident>)? = $sql:expr),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        $visible struct $name {
            $($(#[$about])* pub $field: $type $(<$inner>)?),*
        }

        impl $crate::packed::Unpack for $name {
            fn unpack(fields: &mut $crate::packed::Fields<'_>) -> $crate::Result<Self> {
                Ok(Self { $($field: fields.next(stringify!($name), stringify!($field))?),* })
            }

            fn id(&self) -> i64 {
                self.id.into()
            }
        }

        macro_rules! packed_line {
            () => {
                concat!("concat_ws('\u{1f}'", $(", ", field_sql!($type $($inner)? $sql)),*, ")")
            };
        }
    };
}

/// The packed row that a query finds, if it finds one. `$rest` is what follows `SELECT line`.
macro_rules! find_packed {
    ($tx:expr, $rest:expr $(, $bind:expr)* $(,)?) => {
        match fetch_optional!($tx, (String,), concat!("SELECT ", packed_line!(), " ", $rest) $(, $bind)*) {
            Ok(Some((line,))) => $crate::packed::unpack(&line).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    packed_row! {
        pub struct Sample {
            id: i64 = "id",
            label: String = "label",
            note: Option<String> = "note",
            seen_at: Option<DbTime> = "seen_at",
            is_on: bool = "is_on",
        }
    }

    #[test]
    fn packed_rows_are_unpacked_as_they_were() {
        assert!(packed_line!().starts_with("concat_ws('\u{1f}', id, label, COALESCE(note, '\u{1d}')"));
        let lines = "1\u{1f}a b\u{1f}\u{1d}\u{1f}1000000\u{1f}t\u{1e}2\u{1f}\u{1f}two\nlines\u{1f}\u{1d}\u{1f}0";
        let rows: Vec<Sample> = unpack_all(lines).unwrap();
        assert_eq!((rows[0].id, rows[0].label.as_str(), &rows[0].note, rows[0].is_on), (1, "a b", &None, true));
        assert_eq!(rows[0].seen_at.unwrap().0.as_second(), 1);
        assert_eq!((rows[1].label.as_str(), rows[1].note.as_deref(), rows[1].seen_at), ("", Some("two\nlines"), None));
        assert!(unpack_all::<Sample>("").unwrap().is_empty());
        assert!(unpack::<Sample>("1\u{1f}a").is_err());
        let whole = "1\u{1f}a\u{1f}b\u{1f}\u{1d}\u{1f}t";
        assert!(unpack::<Sample>(whole).is_ok());
        for extra in ["", "x", "\u{1d}"] {
            assert!(unpack::<Sample>(&format!("{whole}\u{1f}{extra}")).is_err(), "a field too many: {extra:?}");
        }
    }
}
