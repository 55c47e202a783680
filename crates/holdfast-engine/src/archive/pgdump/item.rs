//! Items of the table of contents of a dump.

/// The maximum number of different owners, schemas and kinds of objects, and the maximum length of each. Names have at
/// most 63 bytes in servers built with the usual settings.
pub(super) const NAMES: usize = 100_000;
pub(super) const NAME_BYTES: usize = 255;

/// One item of the table of contents, with the fields that are used.
pub(super) struct Item {
    pub id: i64,
    pub has_data: bool,
    pub tag: Vec<u8>,
    pub kind: String,
    pub definition: Vec<u8>,
    pub schema: Vec<u8>,
    pub tablespace: String,
    pub owner: String,
}

impl Item {
    /// Whether this is an object that a new database does not have. Settings of the dump, the database itself, comments
    /// and privileges of other objects, and what every database starts with do not count.
    pub(super) fn is_object(&self) -> bool {
        const ABOUT_OTHERS: &[&str] = &[
            "ENCODING",
            "STDSTRINGS",
            "SEARCHPATH",
            "DATABASE",
            "DATABASE PROPERTIES",
            "COMMENT",
            "ACL",
            "SECURITY LABEL",
        ];
        let is_given =
            matches!((self.kind.as_str(), self.tag.as_slice()), ("SCHEMA", b"public") | ("EXTENSION", b"plpgsql"));
        !is_given && !ABOUT_OTHERS.contains(&self.kind.as_str())
    }

    /// Whether this may be a function that runs as its owner. A false positive because of similar text in its body is
    /// accepted.
    pub(super) fn runs_as_owner(&self) -> bool {
        const SAID: &[u8] = b"DEFINER";
        self.kind != "TABLE DATA" && self.definition.windows(SAID.len()).any(|part| part.eq_ignore_ascii_case(SAID))
    }

    /// Whether this concerns the database itself, which `pg_restore` does not create.
    pub(super) fn is_about_database(&self) -> bool {
        let is_said_of_it = matches!(self.kind.as_str(), "COMMENT" | "ACL" | "SECURITY LABEL");
        self.kind.starts_with("DATABASE") || (is_said_of_it && self.tag.starts_with(b"DATABASE "))
    }

    /// For privileges, comments and labels, the kind and the object, unless every database starts with them.
    pub(super) fn said(&self) -> Option<String> {
        let is_said = matches!(self.kind.as_str(), "ACL" | "COMMENT" | "SECURITY LABEL") && !self.is_about_database();
        let is_given = self.kind == "COMMENT" && self.tag == b"EXTENSION plpgsql";
        (is_said && !is_given).then(|| format!("{} {}", self.kind, self.short_tag()))
    }

    pub(super) fn schema_text(&self) -> String {
        String::from_utf8_lossy(&self.schema).into_owned()
    }

    /// The tag, shortened for messages.
    pub(super) fn short_tag(&self) -> String {
        String::from_utf8_lossy(&self.tag).chars().take(NAME_BYTES).collect()
    }

    /// Schema and name of the table that it creates.
    pub(super) fn table(&self) -> Option<(String, String)> {
        let is_table = matches!(self.kind.as_str(), "TABLE" | "FOREIGN TABLE");
        is_table.then(|| (self.schema_text(), String::from_utf8_lossy(&self.tag).into_owned()))
    }

    /// The name of the encoding, from `SET client_encoding = 'UTF8';`.
    pub(super) fn encoding(&self) -> Option<String> {
        let name = self.definition.split(|byte| *byte == b'\'').nth(1)?;
        let is_name = name.len() <= NAME_BYTES && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        is_name.then(|| String::from_utf8_lossy(name).into_owned())
    }
}
