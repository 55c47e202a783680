//! Tests of what the test support brings itself.

/// A short pass of fuzzing over every parser, and every input that failed before.
mod fuzz;
