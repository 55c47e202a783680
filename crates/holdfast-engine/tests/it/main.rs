//! Destinations: one suite that each of them passes, dressed and undressed. And SFTP, with OpenSSH at the other end.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

/// What every destination must do.
mod conformance;
/// PostgreSQL as data, against a real server and its own tools.
mod postgres;
/// Our SFTP client and OpenSSH's server.
mod sftp;
/// A server as a destination, over SFTP.
mod sftp_store;
/// The folder, S3 in this process, and their decorators.
mod stores;
