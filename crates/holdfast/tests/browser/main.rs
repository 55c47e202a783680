//! The pages in a real Chromium, on the built binary with a real server behind it.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

/// A stranger's way from nothing to a restored file, and everything else that people do.
mod journey;
/// Every page: nothing wrong in the console, nothing that keeps people out, room on a phone.
mod pages;
#[path = "../it/process.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod process;
/// What the pages are tried on.
mod stage;
