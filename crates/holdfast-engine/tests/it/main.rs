//! Destinations: one conformance suite for all of them, also with decorators. SFTP and PostgreSQL with real servers.
#![allow(clippy::print_stderr, reason = "skipped tests print a message")]

/// The conformance suite of destinations.
mod conformance;
/// PostgreSQL dumps, against a real server and its tools.
mod postgres;
/// Backups into repositories over a real connection, with restic as the second opinion.
mod repository;
/// The SFTP client, against the server of OpenSSH.
mod sftp;
/// SFTP destinations.
mod sftp_store;
/// Local and S3 destinations, and their decorators.
mod stores;
