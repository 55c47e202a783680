//! Test support: a running app on either database, API clients with tokens, factories, and private servers that stop
//! with the test.
#![allow(clippy::print_stderr, reason = "tests print to the terminal")]

mod both_engines;
mod chromium;
mod client;
mod clock;
pub mod fuzz;
pub mod hostile;
mod identity;
mod identity_server;
mod mail_server;
mod mariadb;
mod password_server;
mod postgres;
mod proxy;
mod receiver;
mod s3_server;
mod service;
mod small_disk;
mod ssh_server;
mod test_app;
pub mod torture;
mod tree;

pub use chromium::Chromium;
pub use client::{Client, Reply};
pub use clock::ManualClock;
pub use identity_server::{CLIENT_ID, CLIENT_SECRET, IdentityServer};
pub use mail_server::{Mail, MailServer};
pub use mariadb::MariaDbServer;
pub use password_server::{PasswordMethod, PasswordServer};
pub use postgres::{PausedPostgres, PostgresServer};
pub use proxy::FaultProxy;
pub use receiver::{Answer, Received, Receiver};
pub use s3_server::{Fault, S3Server};
pub use service::{Service, free_port};
pub use small_disk::SmallDisk;
pub use ssh_server::{SshServer, SshServerBuilder};
pub use test_app::{Engine, PASSWORD, Settings, TestApp, TestUser};
pub use tree::{Fingerprint, Ignore, SampleTree, assert_same, assert_same_but, random};
