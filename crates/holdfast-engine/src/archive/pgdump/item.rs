//! The table of contents of a dump.

/// Different owners, schemas and kinds of objects, and how long each may be. Names have 63 bytes in servers as they
/// are built by everybody.
pub(super) const NAMES: usize = 100_000;
pub(super) const NAME_BYTES: usize = 255;

/// One line of the table of contents, as far as it is looked at.
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
    /// Whether a new database has nothing like it: settings of the dump, the database itself, what is said about other
    /// objects and what every database starts with do not count.
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

    /// A function whose definition may say so. A text in its body that looks like it is no reason to keep silent.
    pub(super) fn runs_as_owner(&self) -> bool {
        const SAID: &[u8] = b"DEFINER";
        self.kind != "TABLE DATA" && self.definition.windows(SAID.len()).any(|part| part.eq_ignore_ascii_case(SAID))
    }

    /// The database itself, which `pg_restore` does not make.
    pub(super) fn is_about_database(&self) -> bool {
        let is_said_of_it = matches!(self.kind.as_str(), "COMMENT" | "ACL" | "SECURITY LABEL");
        self.kind.starts_with("DATABASE") || (is_said_of_it && self.tag.starts_with(b"DATABASE "))
    }

    /// What it says of which object, unless every database starts with that.
    pub(super) fn said(&self) -> Option<String> {
        let is_said = matches!(self.kind.as_str(), "ACL" | "COMMENT" | "SECURITY LABEL") && !self.is_about_database();
        let is_given = self.kind == "COMMENT" && self.tag == b"EXTENSION plpgsql";
        (is_said && !is_given).then(|| format!("{} {}", self.kind, self.short_tag()))
    }

    pub(super) fn schema_text(&self) -> String {
        String::from_utf8_lossy(&self.schema).into_owned()
    }

    /// As much of it as a person is told.
    pub(super) fn short_tag(&self) -> String {
        String::from_utf8_lossy(&self.tag).chars().take(NAME_BYTES).collect()
    }

    /// The table that it makes.
    pub(super) fn table(&self) -> Option<(String, String)> {
        let is_table = matches!(self.kind.as_str(), "TABLE" | "FOREIGN TABLE");
        is_table.then(|| (self.schema_text(), String::from_utf8_lossy(&self.tag).into_owned()))
    }

    /// The name in `SET client_encoding = 'UTF8';`.
    pub(super) fn encoding(&self) -> Option<String> {
        let name = self.definition.split(|byte| *byte == b'\'').nth(1)?;
        let is_name = name.len() <= NAME_BYTES && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        is_name.then(|| String::from_utf8_lossy(name).into_owned())
    }
}
