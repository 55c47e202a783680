//! Tests of what the test support brings itself.

/// A short pass of fuzzing over every parser, and every input that failed before.
mod fuzz;

/// Servers that lie, through the whole service.
mod hostile;
