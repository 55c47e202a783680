//! When tasks run: slots that come due, and corrections after a clock has jumped.

pub(crate) mod corrections;
pub(crate) mod tick;
