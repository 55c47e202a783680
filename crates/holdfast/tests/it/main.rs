//! The built binary, from the perspective of an operator.
#![allow(clippy::print_stderr, reason = "tests that skip something print a message")]

/// `apply`: secrets, refusals, and two of them at once.
mod applying;
/// The export of the audit log.
mod audit_log;
/// Accounts, tokens and keys from the command line, while the service runs.
mod commands;
/// Configuration in a file: `apply` and `export --yaml`.
mod configuration;
/// Ordinary clients next to many slow ones.
mod connections;
/// The commands of the compose files.
mod containers;
/// `holdfast doctor`.
mod doctor;
/// A service with a server to back up, and the command line of a remote user.
mod elsewhere;
/// Exports that somebody has changed.
mod hostile_import;
/// Changes whose response is lost.
mod lost;
/// Resources managed from the command line.
mod manage;
/// Databases that cannot be used: readiness and the doctor name the cause, and the service recovers by itself.
mod outages;
/// Output that cannot be written.
mod output;
/// The service as a process.
mod process;
/// Behind a real nginx, configured as in the manual.
mod proxy;
/// The commands of the README.
mod readme;
/// Recorded responses of the first release.
mod recorded;
/// Manual recovery as documented, and the demo.
mod recover;
/// The command line against a remote service, and its error messages.
mod remote;
/// Secrets do not leak.
mod secrets;
/// Starting, stopping, crashes, invalid settings.
mod start;
/// Repeated kills and faults, followed by consistency checks.
mod torture;
/// Moving to another installation, and recovery from a destination.
mod transfer;
/// Upgrades from older versions.
mod upgrade;
/// Imports from Vanguard.
mod vanguard;
/// `--wait`: second attempts, limits, and services without a worker.
mod waiting;
