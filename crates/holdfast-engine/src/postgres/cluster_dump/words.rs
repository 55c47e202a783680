//! What statements of a dump mean, and words that several of them share.

/// What a statement means for the rest of the dump, or for who restores it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StatementKind {
    Encoding(&'static str),
    StandardStrings,
    /// `COPY`: rows follow.
    Rows,
    CreateRole(String),
    DropRole(String),
    /// One of its settings.
    AlterRole(String),
    /// What it is, and whether it has a password.
    RoleOptions(String, Vec<&'static str>, bool),
    /// A role, who becomes a member of it, and whether that may make others members.
    Membership(String, String, bool),
    CreateDatabase(String),
    DropDatabase(String),
    CreateTablespace(String),
    /// Never restored; says so, for a person.
    Withheld(String),
    Other,
}

pub(super) fn strip<'a>(text: &'a [u8], start: &str) -> Option<&'a [u8]> {
    text.strip_prefix(start.as_bytes())
}

/// Words that mean another role than one of that name, unless they are quoted. `pg_dumpall` quotes them.
pub(super) fn is_role_keyword(name: &[u8]) -> bool {
    const KEYWORDS: &[&[u8]] =
        &[b"all", b"current_role", b"current_user", b"none", b"public", b"session_user", b"user"];
    KEYWORDS.contains(&name)
}
