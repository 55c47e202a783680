//! A string enum in a column, for rows in which it may be NULL.

use sqlx::error::BoxDynError;
use sqlx::{Database, Decode, Type};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DbWord<T>(pub T);

impl<T, DB: Database> Type<DB> for DbWord<T>
where
    String: Type<DB>,
{
    fn type_info() -> DB::TypeInfo {
        <String as Type<DB>>::type_info()
    }

    fn compatible(ty: &DB::TypeInfo) -> bool {
        <String as Type<DB>>::compatible(ty)
    }
}

impl<'r, T, DB: Database> Decode<'r, DB> for DbWord<T>
where
    String: Decode<'r, DB>,
    T: TryFrom<String, Error: Into<BoxDynError>>,
{
    fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
        let word = <String as Decode<DB>>::decode(value)?;
        T::try_from(word).map(Self).map_err(Into::into)
    }
}
