//! The pages from outside, over real sockets, on SQLite and on PostgreSQL.

/// First account, sign-in, tokens, messages, forms from elsewhere.
mod account;
/// API and pages never disagree.
mod agreement;
mod browser;
/// Signing in with accounts elsewhere.
mod identity;
/// Two-factor, sessions, invitations, registration, passwords by mail.
mod people;
/// What people are told about servers that move or show other keys.
mod servers;
