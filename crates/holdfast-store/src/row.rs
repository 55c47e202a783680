//! Row types that list their columns once, each with its SQL.

use holdfast_core::backup::{DeletedReason, Verification};
use holdfast_core::clock;
use holdfast_core::content::Content;
use holdfast_core::destination::{DestinationSpec, Reachability};
use holdfast_core::failure::FailureCode;
use holdfast_core::ids::{
    BackupId, CopyId, DestinationId, NoticeId, RepositoryId, RunId, ServerId, StreamId, TagId, TaskId, TokenId, UserId,
};
use holdfast_core::notice::{NoticeKind, NoticeStatus, Trouble};
use holdfast_core::run::{RunKind, RunStatus, Trigger};
use holdfast_core::server::Connectivity;
use holdfast_core::source::TaskKind;
use holdfast_core::storage::Format;
use holdfast_core::stream::StreamKind;
use holdfast_core::task::TaskSpec;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgRow, PgValueRef};
use sqlx::sqlite::{SqliteRow, SqliteValueRef};
use sqlx::{Decode, Error, Postgres, Row, Sqlite, ValueRef as _};

use crate::{DbTime, spec};

/// A value of a row of either database.
pub(crate) enum Value<'r> {
    Sqlite(SqliteValueRef<'r>),
    Postgres(PgValueRef<'r>),
}

impl<'r> Value<'r> {
    fn is_null(&self) -> bool {
        match self {
            Self::Sqlite(value) => value.is_null(),
            Self::Postgres(value) => value.is_null(),
        }
    }

    fn decode<T: Decode<'r, Sqlite> + Decode<'r, Postgres>>(self) -> Result<T, BoxDynError> {
        match self {
            Self::Sqlite(value) => <T as Decode<'r, Sqlite>>::decode(value),
            Self::Postgres(value) => <T as Decode<'r, Postgres>>::decode(value),
        }
    }
}

/// A row of either database.
pub(crate) trait AnyRow {
    fn value(&self, index: usize) -> Result<Value<'_>, Error>;

    fn named(&self, column: &str) -> Result<Value<'_>, Error>;

    fn count(&self) -> usize;
}

impl AnyRow for SqliteRow {
    fn value(&self, index: usize) -> Result<Value<'_>, Error> {
        self.try_get_raw(index).map(Value::Sqlite)
    }

    fn named(&self, column: &str) -> Result<Value<'_>, Error> {
        self.try_get_raw(column).map(Value::Sqlite)
    }

    fn count(&self) -> usize {
        self.len()
    }
}

impl AnyRow for PgRow {
    fn value(&self, index: usize) -> Result<Value<'_>, Error> {
        self.try_get_raw(index).map(Value::Postgres)
    }

    fn named(&self, column: &str) -> Result<Value<'_>, Error> {
        self.try_get_raw(column).map(Value::Postgres)
    }

    fn count(&self) -> usize {
        self.len()
    }
}

/// What a field can be read from. The type of the column is not checked: the migrations create it.
pub(crate) trait FromValue: Sized {
    fn from_value(value: Value<'_>) -> Result<Self, BoxDynError>;
}

/// The fields of a row type, in order. It is not generic, so that each row type is compiled once for both databases.
pub(crate) struct Fields<'r> {
    row: &'r dyn AnyRow,
    type_name: &'static str,
    next: usize,
}

impl<'r> Fields<'r> {
    pub(crate) fn of(row: &'r dyn AnyRow, type_name: &'static str) -> Self {
        Self { row, type_name, next: 0 }
    }

    #[inline(never)]
    pub(crate) fn next<T: FromValue>(&mut self, field: &str) -> Result<T, Error> {
        let value = self.row.value(self.next)?;
        self.next += 1;
        T::from_value(value).map_err(|source| self.unreadable(field, source))
    }

    #[cold]
    fn unreadable(&self, field: &str, source: BoxDynError) -> Error {
        let id = self.row.value(0).ok().and_then(|id| i64::from_value(id).ok());
        let id = id.map(|id| format!(" {id}")).unwrap_or_default();
        Error::ColumnDecode { index: format!("{field} of {}{id}", self.type_name), source }
    }
}

pub(crate) trait FromAnyRow: Sized {
    fn from_any(row: &dyn AnyRow) -> Result<Self, Error>;
}

/// What a field of a [`named_row`] can be read from: the column of its name, or several columns that belong together.
pub(crate) trait FromColumns: Sized {
    fn from_columns(row: &dyn AnyRow, field: &'static str) -> Result<Self, Error>;
}

impl<T: FromValue> FromColumns for T {
    fn from_columns(row: &dyn AnyRow, field: &'static str) -> Result<Self, Error> {
        let decoded = T::from_value(row.named(field)?);
        decoded.map_err(|source| Error::ColumnDecode { index: field.to_owned(), source })
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: Value<'_>) -> Result<Self, BoxDynError> {
        if value.is_null() { Ok(None) } else { T::from_value(value).map(Some) }
    }
}

macro_rules! values {
    ($($name:ty),* $(,)?) => {$(
        impl FromValue for $name {
            fn from_value(value: Value<'_>) -> Result<Self, BoxDynError> {
                value.decode()
            }
        }
    )*};
}

values!(String, Vec<u8>, i64, bool);

impl FromValue for DbTime {
    fn from_value(value: Value<'_>) -> Result<Self, BoxDynError> {
        Ok(Self(clock::from_micros(value.decode()?)))
    }
}

/// Types that are stored as text. A text that is not understood makes the row unreadable; a newer database, which might
/// contain one, is refused at start.
macro_rules! text_values {
    ($($name:ty = $parse:expr),* $(,)?) => {$(
        impl FromValue for $name {
            fn from_value(value: Value<'_>) -> Result<Self, BoxDynError> {
                $parse(value.decode()?).ok_or_else(|| "the value is not known".into())
            }
        }
    )*};
}

text_values!(
    TaskSpec = spec::task,
    DestinationSpec = spec::destination,
    RunKind = RunKind::parse,
    RunStatus = RunStatus::parse,
    Trigger = Trigger::parse,
    FailureCode = FailureCode::parse,
    TaskKind = TaskKind::parse,
    Connectivity = Connectivity::parse,
    Reachability = Reachability::parse,
    Content = Content::parse,
    Format = Format::parse,
    Verification = Verification::parse,
    DeletedReason = DeletedReason::parse,
    StreamKind = StreamKind::parse,
    NoticeKind = NoticeKind::parse,
    NoticeStatus = NoticeStatus::parse,
    Trouble = Trouble::parse,
);

macro_rules! id_values {
    ($($name:ty),* $(,)?) => {$(
        impl FromValue for $name {
            fn from_value(value: Value<'_>) -> Result<Self, BoxDynError> {
                i64::from_value(value).map(Into::into)
            }
        }
    )*};
}

id_values!(
    UserId,
    RunId,
    TaskId,
    ServerId,
    DestinationId,
    StreamId,
    BackupId,
    CopyId,
    RepositoryId,
    TagId,
    NoticeId,
    TokenId,
);

/// Lets a type that can be read from any row be used in queries.
macro_rules! row_of_either {
    ($name:ty) => {
        impl<'r, R: $crate::row::AnyRow + sqlx::Row> sqlx::FromRow<'r, R> for $name {
            fn from_row(row: &'r R) -> std::result::Result<Self, sqlx::Error> {
                <Self as $crate::row::FromAnyRow>::from_any(row)
            }
        }
    };
}

/// A row type whose fields are read from the columns of their names. It can be a field of another one; then its columns
/// are among those of the other.
macro_rules! named_row {
    ($(#[$meta:meta])* $visible:vis struct $name:ident {
        $($(#[$about:meta])* $field_visible:vis $field:ident: $type:ty),* $(,)?
    }) => {
        $(#[$meta])*
        $visible struct $name {
            $($(#[$about])* $field_visible $field: $type),*
        }

        impl $crate::row::FromAnyRow for $name {
            fn from_any(row: &dyn $crate::row::AnyRow) -> std::result::Result<Self, sqlx::Error> {
                Ok(Self {
                    $($field: $crate::row::FromColumns::from_columns(row, stringify!($field))?),*
                })
            }
        }

        impl $crate::row::FromColumns for $name {
            fn from_columns(row: &dyn $crate::row::AnyRow, _: &'static str) -> std::result::Result<Self, sqlx::Error> {
                $crate::row::FromAnyRow::from_any(row)
            }
        }

        row_of_either!($name);
    };
}

/// A row type, each field with its SQL; also defines `columns!()`, the SQL that selects such a row.
macro_rules! row_type {
    ($(#[$meta:meta])* $visible:vis struct $name:ident {
        $first:ident: $first_type:ident = $first_sql:expr
        $(, $(#[$about:meta])* $field:ident: $type:ident $(<$inner:ident>)? = $sql:expr)* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        $visible struct $name {
            pub $first: $first_type,
            $($(#[$about])* pub $field: $type $(<$inner>)?),*
        }

        impl $crate::row::FromAnyRow for $name {
            fn from_any(row: &dyn $crate::row::AnyRow) -> std::result::Result<Self, sqlx::Error> {
                let mut fields = $crate::row::Fields::of(row, stringify!($name));
                Ok(Self {
                    $first: fields.next(stringify!($first))?,
                    $($field: fields.next(stringify!($field))?),*
                })
            }
        }

        row_of_either!($name);

        macro_rules! columns {
            () => {
                concat!($first_sql $(, ", ", $sql)*)
            };
        }
    };
}

/// The row that a query finds, if it finds one. `$rest` is what follows the columns.
macro_rules! find_row {
    ($tx:expr, $rest:expr $(, $bind:expr)* $(,)?) => {
        fetch_optional!($tx, _, concat!("SELECT ", columns!(), " ", $rest) $(, $bind)*)
    };
}
