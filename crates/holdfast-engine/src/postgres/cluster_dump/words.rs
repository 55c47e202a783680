//! The meaning of statements of a dump, and keywords that several of them share.

/// What a statement means for the rest of the dump, or for the user of the restore.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StatementKind {
    Encoding(&'static str),
    StandardStrings,
    /// `COPY`: rows follow.
    Rows,
    CreateRole(String),
    DropRole(String),
    /// A setting of the role is changed.
    AlterRole(String),
    /// The name of the role, its attributes, and whether it has a password.
    RoleOptions(String, Vec<&'static str>, bool),
    /// A role, its new member, and whether that may make others members.
    Membership(String, String, bool),
    CreateDatabase(String),
    DropDatabase(String),
    CreateTablespace(String),
    /// Never restored; with the message that says so.
    Withheld(String),
    Other,
}

pub(super) fn strip<'a>(text: &'a [u8], start: &str) -> Option<&'a [u8]> {
    text.strip_prefix(start.as_bytes())
}

/// Keywords that, unless quoted, do not mean a role of that name. `pg_dumpall` quotes them in names.
pub(super) fn is_role_keyword(name: &[u8]) -> bool {
    const KEYWORDS: &[&[u8]] =
        &[b"all", b"current_role", b"current_user", b"none", b"public", b"session_user", b"user"];
    KEYWORDS.contains(&name)
}
