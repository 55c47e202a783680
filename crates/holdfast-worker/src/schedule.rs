//! When tasks run: slots that come due, and what a clock that jumped did to them.

pub(crate) mod corrections;
pub(crate) mod tick;
