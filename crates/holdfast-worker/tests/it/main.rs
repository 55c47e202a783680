//! Runs from end to end: real servers, real destinations, both databases; each backup restored and compared.
#![allow(clippy::print_stderr, reason = "skipped tests print a message")]

// The set-up of all tests: a user, a server that accepts their key, a destination, a task.
mod bench;
// Databases: dumps that are restored, and dumps that must not count.
mod databases;
// Faults, each with its required outcome.
mod faults;
// Files of every kind, over tar and over SFTP.
mod files;
// Dumps of whole servers in the form of the first release.
mod first_release;
// Many failures with one cause, reported together.
mod incidents;
// Browsing servers and backups, and the overview.
mod looks;
// MySQL and MariaDB: restores into servers that have content or are in use.
mod mysql;
// Routines, triggers, views and events of MySQL and MariaDB, whatever their authors wrote.
mod mysql_definitions;
// Tables of MariaDB, and that nothing of a tenant runs as another user.
mod mysql_tables;
// Notices, and whether they arrive.
mod notices;
// PostgreSQL: restores into servers that have content, have other roles, or are in use.
mod postgres;
// Slots, turns, retries, lost workers, and periodic work.
mod queue;
// Restores into targets that have content, and of unusual trees and archives.
mod restores;
// Repositories: incremental backups, pruning, checks, passwords, adoption, beside restic.
mod repositories;
// Transfers of everything to another account.
mod ownership;
// Retention.
mod retention;
// S3 destinations.
mod s3;
// Keys, jump hosts and checks.
mod servers;
// SFTP destinations.
mod sftp;
mod sqlite;
// Inventories: whether every recorded backup is still stored.
mod inventory;
// Stored backups: listed, downloaded, verified, restored in part, deleted.
mod stored;
// Windows in which scheduled runs start.
mod windows;
