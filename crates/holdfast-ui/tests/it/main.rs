//! The pages from outside, over real sockets, on SQLite and on PostgreSQL.

/// First account, sign-in, tokens, notifications, cross-site forms.
mod account;
/// The API and the pages follow the same rules.
mod agreement;
mod browser;
/// The destination form.
mod destinations;
/// Signing in with external identity providers.
mod identity;
/// Downloads and live events end when the session does.
mod long_responses;
/// Messages, and incidents that are not over.
mod notices;
/// Two-factor authentication, sessions, invitations, registration, password resets by mail.
mod people;
/// Messages about servers that move or present another host key.
mod servers;
