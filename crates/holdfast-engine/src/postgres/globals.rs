//! What a PostgreSQL server has besides the contents of its databases, as data: roles, memberships, settings, and how
//! each database was created. [`globals_query`] or [`database_query`] asks a server, which answers with one JSON
//! document; [`parse`] and [`parse_database`] accept nothing that the grammar does not allow; [`sql`] writes statements
//! from the parsed data. Text from one server reaches another in no other way.

mod attributes;
mod query;
mod settings;
pub mod sql;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use self::attributes::{
    RoleThere, VALIDITY, by_name, gain, gained_by_membership, new_memberships, new_password, roles_query,
};
pub use self::query::{CAN_READ_PASSWORDS, database_query, globals_query};
pub(super) use self::settings::withheld as withheld_text;
pub use self::settings::{Guarded, Whose, why_right_withheld, why_withheld};
use super::name::NAME_BYTES;
pub use super::name::Name;

/// The longest document; that of a server with 10,000 roles has some megabytes.
const DOCUMENT_BYTES: usize = 64 * 1024 * 1024;
/// The most roles, memberships, settings, databases or rights.
const ITEMS: usize = 100_000;
/// The longest comment or value of a setting.
const TEXT_BYTES: usize = 1024 * 1024;

/// Any text without a zero byte.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Text(String);

impl TryFrom<String> for Text {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text.len() > TEXT_BYTES || text.contains('\0') {
            return Err("a text is too long or has a zero byte".to_owned());
        }
        Ok(Self(text))
    }
}

impl From<Text> for String {
    fn from(text: Text) -> Self {
        text.0
    }
}

impl Text {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A password as the server keeps it. Only the two known forms of a hash are ever written anywhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Password(…)")
    }
}

impl Password {
    /// The hash, if it has a known form.
    fn hash(&self) -> Option<&str> {
        let is_md5 = self.0.strip_prefix("md5").is_some_and(|digits| {
            digits.len() == 32 && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        });
        (is_md5 || is_scram(&self.0)).then_some(self.0.as_str())
    }
}

/// `SCRAM-SHA-256$iterations:salt$stored key:server key`, the last three in base 64.
fn is_scram(text: &str) -> bool {
    let is_base64 = |part: &str| {
        let letters = part.trim_end_matches('=');
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
        (4..=1024).contains(&part.len())
            && part.len().is_multiple_of(4)
            && part.len() - letters.len() <= 2
            && letters.bytes().all(is_letter)
    };
    let parse = || {
        let (head, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let is_number = (1..=10).contains(&iterations.len()) && iterations.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && [salt, stored, server].into_iter().all(is_base64)).then_some(())
    };
    parse().is_some()
}

/// A time as [`globals_query`] asks for it: in UTC, or infinity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Expiry(String);

impl TryFrom<String> for Expiry {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        const FORM: &str = "0000-00-00 00:00:00.000000+00";
        let fits = |text: &str| {
            text.len() == FORM.len()
                && text.bytes().zip(FORM.bytes()).all(|(byte, form)| match form {
                    b'0' => byte.is_ascii_digit(),
                    form => byte == form,
                })
        };
        // Years after 9999 have more digits.
        let years = text.find('-').unwrap_or(0).saturating_sub(4);
        let is_later = years <= 3 && text.bytes().take(years).all(|byte| byte.is_ascii_digit());
        if matches!(text.as_str(), "infinity" | "-infinity") || (is_later && fits(&text[years..])) {
            return Ok(Self(text));
        }
        Err("the expiry time of a password has an unknown form".to_owned())
    }
}

impl From<Expiry> for String {
    fn from(expiry: Expiry) -> Self {
        expiry.0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Role {
    pub name: Name,
    pub is_superuser: bool,
    pub inherits: bool,
    pub creates_roles: bool,
    pub creates_databases: bool,
    pub can_login: bool,
    pub replicates: bool,
    pub bypasses_row_security: bool,
    /// -1 is no limit.
    pub connection_limit: i32,
    pub password: Option<Password>,
    pub valid_until: Option<Expiry>,
    pub comment: Option<Text>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Membership {
    pub role: Name,
    pub member: Name,
    pub is_admin: bool,
    /// `None` for servers before 16, as is `can_set`.
    pub inherits: Option<bool>,
    pub can_set: Option<bool>,
}

/// A setting that sessions start with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, try_from = "AskedSetting")]
pub struct Setting {
    /// `None` for all roles.
    pub role: Option<Name>,
    pub name: String,
    pub value: Text,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedSetting {
    role: Option<Name>,
    name: String,
    value: Text,
}

impl TryFrom<AskedSetting> for Setting {
    type Error = String;

    fn try_from(AskedSetting { role, name, value }: AskedSetting) -> Result<Self, String> {
        if !is_setting_name(&name) {
            return Err("a setting has an invalid name".to_owned());
        }
        let setting = Self { role, name, value };
        match setting.words() {
            Some(_) => Ok(setting),
            None => Err(format!("the setting {} is not a list of names", setting.name)),
        }
    }
}

/// Whether a name consists of letters, digits, `_` and `$`, with dots between its parts.
fn is_setting_name(name: &str) -> bool {
    let is_part = |part: &str| {
        let starts = part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        starts && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'))
    };
    name.len() <= NAME_BYTES && name.split('.').all(is_part)
}

impl Setting {
    /// Values that are lists of names are written name by name, as `pg_dump` does: in one pair of quotes they would be
    /// one name.
    fn words(&self) -> Option<Vec<String>> {
        const LISTS: &[&str] = &[
            "local_preload_libraries",
            "search_path",
            "session_preload_libraries",
            "shared_preload_libraries",
            "temp_tablespaces",
            "unix_socket_directories",
        ];
        if LISTS.iter().any(|list| self.name.eq_ignore_ascii_case(list)) {
            split_names(self.value.as_str())
        } else {
            Some(vec![self.value.as_str().to_owned()])
        }
    }
}

/// Names separated by commas, each in double quotes or without blanks. `None` for anything else.
fn split_names(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut rest = list.trim_start();
    if rest.is_empty() {
        return Some(names);
    }
    loop {
        let (name, after) = match rest.strip_prefix('"') {
            Some(_) => super::quoting::read_quoted_name(rest)?,
            None => {
                let end = rest.find(|c: char| c == ',' || c.is_ascii_whitespace()).unwrap_or(rest.len());
                (rest[..end].to_owned(), &rest[end..])
            }
        };
        if name.is_empty() && !rest.starts_with('"') {
            return None;
        }
        names.push(name);
        match after.trim_start().strip_prefix(',') {
            Some(after) => rest = after.trim_start(),
            None => return after.trim_start().is_empty().then_some(names),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Provider {
    #[serde(rename = "c")]
    Libc,
    #[serde(rename = "i")]
    Icu,
    #[serde(rename = "b")]
    Builtin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Privilege {
    Create,
    Connect,
    Temporary,
}

/// One right to a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// `None` is everybody.
    pub grantee: Option<Name>,
    pub privilege: Privilege,
    pub can_grant: bool,
}

/// The name of a setting to which the server can grant rights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Parameter(String);

impl TryFrom<String> for Parameter {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        if is_setting_name(&name) { Ok(Self(name)) } else { Err("a parameter has an invalid name".to_owned()) }
    }
}

impl From<Parameter> for String {
    fn from(parameter: Parameter) -> Self {
        parameter.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParameterPrivilege {
    #[serde(rename = "SET")]
    Set,
    #[serde(rename = "ALTER SYSTEM")]
    AlterSystem,
}

impl ParameterPrivilege {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Set => "SET",
            Self::AlterSystem => "ALTER SYSTEM",
        }
    }
}

/// One right to a parameter of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterGrant {
    pub parameter: Parameter,
    /// `None` is everybody.
    pub grantee: Option<Name>,
    pub privilege: ParameterPrivilege,
    pub can_grant: bool,
}

/// How a database was created, and who has which rights to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DatabaseFacts {
    pub name: Name,
    pub owner: Name,
    pub encoding: Name,
    pub collate: Text,
    pub ctype: Text,
    /// `None` for servers before 15, which have only one.
    pub provider: Option<Provider>,
    /// The locale of ICU or of the builtin provider.
    pub locale: Option<Text>,
    pub icu_rules: Option<Text>,
    pub is_template: bool,
    pub allows_connections: bool,
    /// -1 is no limit.
    pub connection_limit: i32,
    pub tablespace: Name,
    pub comment: Option<Text>,
    /// `None` for the rights of a new database.
    pub acl: Option<Vec<Grant>>,
    pub settings: Vec<Setting>,
    /// Roles that own something in it, or have rights to something in it. The server does not record those of its
    /// initial superuser.
    pub roles: Vec<Name>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Globals {
    /// As in `server_version_num`.
    pub server_version: u32,
    pub has_passwords: bool,
    /// Without those that every server has (`pg_…`).
    pub roles: Vec<Role>,
    pub memberships: Vec<Membership>,
    /// Settings of roles in every database.
    pub settings: Vec<Setting>,
    /// Without `template0`.
    pub databases: Vec<DatabaseFacts>,
    /// Without those that every server has. They are folders on a server, so they are reported and not created.
    pub tablespaces: Vec<Name>,
    /// Empty for servers before 15, and in documents written before this field existed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parameter_grants: Vec<ParameterGrant>,
}

impl Globals {
    /// Forgets all roles, and everything about them that does not belong to a single database.
    pub(crate) fn forget_roles(&mut self) {
        self.roles.clear();
        self.memberships.clear();
        self.settings.clear();
        self.parameter_grants.clear();
        // Roles that stay need no passwords from the backup.
        self.has_passwords = true;
    }

    /// What cannot be restored as it was, as messages.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.has_passwords {
            warnings.push("The passwords of roles are missing: only a superuser may read them.".to_owned());
        }
        for role in &self.roles {
            if role.password.as_ref().is_some_and(|password| password.hash().is_none()) {
                warnings.push(format!("The password of role {} is of an unknown form and is not restored.", role.name));
            }
        }
        for name in &self.tablespaces {
            warnings.push(format!("The tablespace {name} is not restored; its contents go to the default one."));
        }
        warnings
    }
}

/// Why an answer was refused, for messages.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("What the server reports about its roles and databases cannot be used: {0}")]
pub struct Refused(String);

/// Reads the answer to [`globals_query`].
pub fn parse(document: &[u8]) -> Result<Globals, Refused> {
    let globals: Globals = read(document)?;
    let counts = [globals.roles.len(), globals.memberships.len(), globals.settings.len(), globals.databases.len()];
    let others = [globals.tablespaces.len(), globals.parameter_grants.len()];
    if counts.into_iter().chain(others).any(|count| count > ITEMS) {
        return Err(Refused("there are too many of them".to_owned()));
    }
    globals.roles.iter().try_for_each(|role| check_limit(role.connection_limit))?;
    globals.databases.iter().try_for_each(check_database)?;
    Ok(globals)
}

/// Reads the answer to [`database_query`]; `None` if the server has no such database.
pub fn parse_database(document: &[u8]) -> Result<Option<DatabaseFacts>, Refused> {
    if document.trim_ascii().is_empty() {
        return Ok(None);
    }
    let facts: DatabaseFacts = read(document)?;
    check_database(&facts)?;
    Ok(Some(facts))
}

fn read<'a, T: Deserialize<'a>>(document: &'a [u8]) -> Result<T, Refused> {
    if document.len() > DOCUMENT_BYTES {
        return Err(Refused("the answer is too long".to_owned()));
    }
    serde_json::from_slice(document).map_err(|error| Refused(error.to_string()))
}

fn check_database(facts: &DatabaseFacts) -> Result<(), Refused> {
    check_limit(facts.connection_limit)?;
    // Every new database is created from `template0`.
    if facts.name.as_str() == "template0" {
        return Err(Refused("template0 is not a database to restore".to_owned()));
    }
    let is_encoding = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    if !facts.encoding.as_str().bytes().all(is_encoding) {
        return Err(Refused(format!("the encoding of database {} is invalid", facts.name)));
    }
    let counts = [facts.settings.len(), facts.roles.len(), facts.acl.as_ref().map_or(0, Vec::len)];
    if counts.into_iter().any(|count| count > ITEMS) {
        return Err(Refused(format!("database {} has too many settings, roles or rights", facts.name)));
    }
    Ok(())
}

fn check_limit(limit: i32) -> Result<(), Refused> {
    if limit < -1 { Err(Refused("a connection limit is below -1".to_owned())) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
