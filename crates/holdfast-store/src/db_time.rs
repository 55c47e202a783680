//! An instant as both databases store it: microseconds since 1970 in a 64-bit integer.

use holdfast_core::{Timestamp, clock};
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::{Database, Decode, Encode, Type};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DbTime(pub Timestamp);

impl DbTime {
    /// The time to record for a change: `now`, but always later than `self`, the time of the previous change.
    #[must_use]
    pub fn moved_on(self, now: Timestamp) -> DbTime {
        DbTime(clock::from_micros(now.as_microsecond().max(self.0.as_microsecond() + 1)))
    }
}

impl<DB: Database> Type<DB> for DbTime
where
    i64: Type<DB>,
{
    fn type_info() -> DB::TypeInfo {
        <i64 as Type<DB>>::type_info()
    }

    fn compatible(ty: &DB::TypeInfo) -> bool {
        <i64 as Type<DB>>::compatible(ty)
    }
}

impl<'r, DB: Database> Decode<'r, DB> for DbTime
where
    i64: Decode<'r, DB>,
{
    fn decode(value: DB::ValueRef<'r>) -> Result<Self, BoxDynError> {
        let micros = <i64 as Decode<DB>>::decode(value)?;
        Ok(Self(clock::from_micros(micros)))
    }
}

impl<'q, DB: Database> Encode<'q, DB> for DbTime
where
    i64: Encode<'q, DB>,
{
    fn encode_by_ref(&self, buf: &mut <DB as Database>::ArgumentBuffer) -> Result<IsNull, BoxDynError> {
        self.0.as_microsecond().encode_by_ref(buf)
    }
}
