//! Repositories in folders, with restic itself as the second opinion.

/// A repository in a folder, read and written with nothing but this crate.
mod folder;
/// What restic writes is understood, and what we write is accepted by restic.
mod restic;
