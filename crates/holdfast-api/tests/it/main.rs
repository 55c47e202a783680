//! The API from outside, over real sockets, on SQLite and on PostgreSQL.

/// Tokens, scopes, other users' ids, unknown ids and invalid bodies, for every route.
mod access;
/// What the audit log records of every change.
mod audit;
/// Backup destinations.
mod destinations;
/// The device-token endpoint.
mod device;
/// Requests that are carried out without effect, and labels that must be new.
mod dry_run;
/// Malformed requests, limits, headers.
mod errors;
/// Following runs, backups and notices as they happen.
mod events;
/// The examples of the OpenAPI document.
mod examples;
/// Following queued work, and sending requests again.
mod following;
/// Pagination, search, filters, and that lists contain only the owner's rows.
mod lists;
/// Logs of runs.
mod logs;
/// Responses that go on for long end when their caller is no longer let in.
mod long_responses;
/// The OpenAPI document is up to date and matches the responses.
mod openapi;
/// Remote servers and the SSH key.
mod servers;
/// Notification streams.
mod streams;
/// Accounts that are suspended and resumed.
mod suspension;
/// Tags.
mod tags;
/// Backup tasks.
mod tasks;
/// What null and an empty text do to each kind of field in an update.
mod updates;
/// The current user.
mod user;
/// Changing only the version that was seen, and refusing unknown fields.
mod versions;
