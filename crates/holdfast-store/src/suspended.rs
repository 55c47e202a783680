//! Accounts that are suspended: nothing of theirs starts.

// Part of a condition on rows of the table `$alias`: their owner is not suspended. There are few who are, if any, so
// looking them up first costs next to nothing.
macro_rules! is_active {
    ($alias:literal) => {
        concat!($alias, ".user_id NOT IN (SELECT id FROM users WHERE suspended_at IS NOT NULL)")
    };
}
