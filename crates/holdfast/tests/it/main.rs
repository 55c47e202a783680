//! The built binary, as an operator meets it.
#![allow(clippy::print_stderr, reason = "a test that leaves something out says so")]

/// Accounts and tokens from the command line, beside a running service.
mod commands;
/// Slow and many clients beside ordinary ones.
mod connections;
/// What the files for containers start.
mod containers;
/// What an operator who asks is told.
mod doctor;
/// The service as a process.
mod process;
/// A real nginx in front, as the manual says.
mod proxy;
/// The README, followed to the letter.
mod readme;
/// Answers of the first release, asked for again.
mod recorded;
/// Recovery by hand, as the page on it says, and the demo.
mod recover;
/// The command line of somebody elsewhere, and what it says when something is wrong.
mod remote;
/// That no secret turns up where it does not belong.
mod secrets;
/// Starting, stopping, being killed, being told nonsense.
mod start;
/// Killed, stopped and cut off, again and again; then the books are checked.
mod torture;
/// Moving to another installation, and coming back from a bucket alone.
mod transfer;
/// States that older versions left.
mod upgrade;
/// From another product's database.
mod vanguard;
