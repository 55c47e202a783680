//! Tests that are part of the test support.

/// A short run of the fuzzer for every parser, and every input that failed before.
mod fuzz;

/// The whole service against hostile servers.
mod hostile;
