//! The store on both engines: schema, keys, transactions.
#![allow(clippy::print_stderr, reason = "tests that skip something print a message")]

/// Starting with the right, a wrong and no master key; rotation while the service runs.
mod keys;
/// Pages of lists with their totals, and rows that cannot be read.
mod lists;
/// The search for logs that have expired.
mod old_logs;
/// Statements that no function of the store has.
mod raw;
/// Migrations: parity of the two dialects, newer databases.
mod schema;
/// Totals that triggers keep: they are those of the rows, whatever happens.
mod totals;
/// Units of work: all or nothing, one writer with group commit, distinct claims.
mod transactions;
/// The turns of queued runs.
mod turns;
/// The next runs of a user with very many tasks.
mod upcoming;
