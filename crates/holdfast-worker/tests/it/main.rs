//! Runs from end to end: real servers, real destinations, both databases; each backup restored and compared.
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

// What all of them start from: a user, a server that knows their key, a destination, a task.
mod bench;
// Databases: dumps that come back, and dumps that must not count.
mod databases;
// What goes wrong on the way, each with the outcome it must have.
mod faults;
// Files of every kind, over tar and over SFTP.
mod files;
// Dumps of whole servers in the form of the first release.
mod first_release;
// Looking at servers, into backups, and at how everything stands.
mod looks;
// MySQL and MariaDB: dumps into servers that hold something, or are in use.
mod mysql;
// Routines, triggers, views and events of MySQL and MariaDB, whatever their authors wrote.
mod mysql_definitions;
// Tables of MariaDB as data, and who runs what of a tenant.
mod mysql_tables;
// What people are told, and whether it arrives.
mod notices;
// PostgreSQL: dumps into servers that hold something, have other roles, or are in use.
mod postgres;
// Slots, turns, second tries, lost workers, and what happens by itself.
mod queue;
// Restores into places that hold something, of trees and archives that are out of the ordinary.
mod restores;
// What is kept and what goes.
mod retention;
// S3 in place of a folder.
mod s3;
// Keys, jump hosts and checks.
mod servers;
// A server in place of a folder.
mod sftp;
mod sqlite;
// Whether everything on record is still where it was stored.
mod inventory;
// Stored backups: listed, downloaded, verified, restored in part, deleted.
mod stored;
