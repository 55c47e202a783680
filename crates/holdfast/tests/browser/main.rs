//! The pages in a real Chromium, on the built binary with a real server behind it.
#![allow(clippy::print_stderr, reason = "skipped tests print a message")]

/// A new user's way from the first start to a restored file, and other workflows.
mod journey;
/// Every page: no console errors, no accessibility problems, usable on a phone.
mod pages;
#[path = "../it/process.rs"]
#[allow(dead_code, reason = "shared with the other tests, which use all of it")]
mod process;
/// The service, server and browser that the tests use.
mod stage;
