//! Destinations: one suite that each of them passes, dressed and undressed.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

/// What every destination must do.
mod conformance;
/// The folder, S3 in this process, and what they wear.
mod stores;
