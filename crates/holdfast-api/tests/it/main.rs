//! The API from outside, over real sockets, on SQLite and on PostgreSQL.

/// Tokens, scopes, foreign and unknown ids, rubbish: every route of the table.
mod access;
/// Backup destinations.
mod destinations;
/// The device-token endpoint.
mod device;
/// Malformed requests, limits, headers.
mod errors;
/// Pagination, search, filters, and that lists hold the owner's rows alone.
mod lists;
/// Runs as logs.
mod logs;
/// The OpenAPI document: current, and true of the answers.
mod openapi;
/// Remote servers and the SSH key.
mod servers;
/// Notification streams.
mod streams;
/// Tags.
mod tags;
/// Backup tasks.
mod tasks;
/// The current user.
mod user;
