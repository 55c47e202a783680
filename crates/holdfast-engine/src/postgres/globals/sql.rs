//! Writes statements from parsed data. Names and literals are quoted so that nothing in them can end them, whatever
//! `standard_conforming_strings` is, and also when `psql` reads them. Each is one statement with its semicolon.

use super::{DatabaseFacts, Globals, Grant, Membership, Name, ParameterGrant, Privilege, Provider, Role, Setting};
use crate::postgres::quoting::{identifier, text};

/// The first version in which a membership specifies whether it is inherited.
const MEMBERSHIP_OPTIONS: u32 = 160_000;
/// The first version with locale providers for databases.
const PROVIDERS: u32 = 150_000;
/// The first version with rights to parameters.
const PARAMETER_GRANTS: u32 = 150_000;
const ICU_RULES: u32 = 160_000;
const BUILTIN: u32 = 170_000;

pub fn create_role_sql(role: &Role) -> String {
    format!("CREATE ROLE {};", identifier(&role.name))
}

/// Sets the attributes of a role, new or existing, to those of the backup. If its password cannot be restored, the
/// present one stays.
pub fn alter_role_sql(role: &Role) -> String {
    let mut sql = format!("ALTER ROLE {} WITH", identifier(&role.name));
    let flags = [
        (role.is_superuser, "SUPERUSER"),
        (role.inherits, "INHERIT"),
        (role.creates_roles, "CREATEROLE"),
        (role.creates_databases, "CREATEDB"),
        (role.can_login, "LOGIN"),
        (role.replicates, "REPLICATION"),
        (role.bypasses_row_security, "BYPASSRLS"),
    ];
    for (is_set, word) in flags {
        sql.push_str(if is_set { " " } else { " NO" });
        sql.push_str(word);
    }
    sql.push_str(&format!(" CONNECTION LIMIT {}", role.connection_limit));
    if let Some(hash) = role.password.as_ref().and_then(|password| password.hash()) {
        sql.push_str(&format!(" PASSWORD {}", text(hash)));
    }
    if let Some(time) = &role.valid_until {
        sql.push_str(&format!(" VALID UNTIL {}", text(&time.0)));
    }
    sql.push(';');
    sql
}

pub fn comment_on_role_sql(role: &Role) -> Option<String> {
    let comment = role.comment.as_ref()?;
    Some(format!("COMMENT ON ROLE {} IS {};", identifier(&role.name), text(comment.as_str())))
}

/// `server_version` is that of the target server. The grantor is not restored.
pub fn membership_sql(membership: &Membership, server_version: u32) -> String {
    let Membership { role, member, is_admin, inherits, can_set } = membership;
    let mut options = Vec::new();
    if server_version >= MEMBERSHIP_OPTIONS {
        let words = [("ADMIN", Some(*is_admin)), ("INHERIT", *inherits), ("SET", *can_set)];
        let option = |(word, is_set): (&str, Option<bool>)| {
            is_set.map(|is_set| format!("{word} {}", if is_set { "TRUE" } else { "FALSE" }))
        };
        options.extend(words.into_iter().filter_map(option));
    } else if *is_admin {
        options.push("ADMIN OPTION".to_owned());
    }
    let options = if options.is_empty() { String::new() } else { format!(" WITH {}", options.join(", ")) };
    format!("GRANT {} TO {}{options};", identifier(role), identifier(member))
}

/// A setting of a role in every database.
pub fn setting_sql(setting: &Setting) -> String {
    let role = setting.role.as_ref().map_or_else(|| "ALL".to_owned(), identifier);
    format!("ALTER ROLE {role} SET {};", assignment(setting))
}

/// Settings of roles in every database. Each is tried by itself, since a server may not know all settings of another.
pub fn settings_sql(globals: &Globals) -> Vec<String> {
    globals.settings.iter().map(|setting| leniently(&setting_sql(setting), &setting.name)).collect()
}

/// Runs a statement that sets something; if the server refuses it, warns and continues. A locale or a setting that the
/// server does not have must not keep anybody from their data.
fn leniently(statement: &str, setting: &str) -> String {
    or_warn(statement, &format!("A setting was refused by this server: {} ", shown(statement, setting)))
}

/// Runs a statement; if the server refuses it, warns with `refused` and the server's message, and continues.
fn or_warn(statement: &str, refused: &str) -> String {
    let refused = text(refused);
    let body = format!(
        "BEGIN EXECUTE {}; EXCEPTION WHEN OTHERS THEN RAISE WARNING USING MESSAGE = {refused} || SQLERRM; END",
        text(statement)
    );
    format!("DO {};", text(&body))
}

/// Rights to parameters, if the server supports them. The grantors are not restored.
pub fn parameter_grants_sql(globals: &Globals, server_version: u32) -> Vec<String> {
    let grants = globals.parameter_grants.iter().filter(|_| server_version >= PARAMETER_GRANTS);
    grants.map(parameter_grant_sql).collect()
}

pub(super) fn parameter_grant_sql(grant: &ParameterGrant) -> String {
    let privilege = grant.privilege.as_str();
    let grantee = grant.grantee.as_ref().map_or_else(|| "PUBLIC".to_owned(), identifier);
    let option = if grant.can_grant { " WITH GRANT OPTION" } else { "" };
    // It only contains letters, digits, `_`, `$` and dots.
    let parameter = grant.parameter.0.replace('.', "\".\"");
    format!("GRANT {privilege} ON PARAMETER \"{parameter}\" TO {grantee}{option};")
}

/// A setting of a database, or of a role in it.
pub fn database_setting_sql(setting: &Setting, database: &Name) -> String {
    let (database, assignment) = (identifier(database), assignment(setting));
    match &setting.role {
        Some(role) => format!("ALTER ROLE {} IN DATABASE {database} SET {assignment};", identifier(role)),
        None => format!("ALTER DATABASE {database} SET {assignment};"),
    }
}

fn assignment(setting: &Setting) -> String {
    // It only contains letters, digits, `_`, `$` and dots.
    let name = format!("\"{}\"", setting.name);
    let words: Vec<String> = setting.words().unwrap_or_default().iter().map(|word| text(word)).collect();
    // An empty list is one empty name.
    if words.is_empty() { format!("{name} TO ''") } else { format!("{name} TO {}", words.join(", ")) }
}

/// Creates an empty database like the one that was backed up, under the given name. `server_version` is that of the
/// target server; an error tells the user what that server does not support. The tablespace is the default one.
pub fn create_database_sql(facts: &DatabaseFacts, name: &Name, server_version: u32) -> Result<String, String> {
    let mut sql = format!(
        "CREATE DATABASE {} WITH TEMPLATE = template0 ENCODING = {}",
        identifier(name),
        text(facts.encoding.as_str())
    );
    let needs = |version: u32, what: &str| {
        if server_version >= version {
            return Ok(());
        }
        Err(format!("The database {} needs {what}, so PostgreSQL {} or later.", facts.name, version / 10_000))
    };
    match facts.provider.unwrap_or(Provider::Libc) {
        Provider::Libc if server_version >= PROVIDERS => sql.push_str(" LOCALE_PROVIDER = libc"),
        Provider::Libc => {}
        Provider::Icu => {
            needs(PROVIDERS, "a locale of ICU")?;
            sql.push_str(" LOCALE_PROVIDER = icu");
            if let Some(locale) = &facts.locale {
                sql.push_str(&format!(" ICU_LOCALE = {}", text(locale.as_str())));
            }
            if let Some(rules) = &facts.icu_rules {
                needs(ICU_RULES, "rules of ICU")?;
                sql.push_str(&format!(" ICU_RULES = {}", text(rules.as_str())));
            }
        }
        Provider::Builtin => {
            needs(BUILTIN, "a locale of the server itself")?;
            sql.push_str(" LOCALE_PROVIDER = builtin");
            if let Some(locale) = &facts.locale {
                sql.push_str(&format!(" BUILTIN_LOCALE = {}", text(locale.as_str())));
            }
        }
    }
    let (collate, ctype) = (text(facts.collate.as_str()), text(facts.ctype.as_str()));
    sql.push_str(&format!(" LC_COLLATE = {collate} LC_CTYPE = {ctype};"));
    Ok(sql)
}

/// The statements that complete a restored database, in this order, after its contents. Without `with_roles`, owner,
/// rights and the settings of single roles are left out: they refer to roles that the server may not have.
pub fn finish_database_sql(facts: &DatabaseFacts, name: &Name, with_roles: bool) -> Vec<String> {
    let database = identifier(name);
    let mut sql = Vec::new();
    if let Some(comment) = &facts.comment {
        sql.push(format!("COMMENT ON DATABASE {database} IS {};", text(comment.as_str())));
    }
    let settings = facts.settings.iter().filter(|setting| with_roles || setting.role.is_none());
    sql.extend(settings.map(|setting| leniently(&database_setting_sql(setting, name), &setting.name)));
    if with_roles {
        sql.push(owner_sql(facts, name));
        if let Some(acl) = &facts.acl {
            sql.extend(acl_sql(acl, &database, &facts.owner));
        }
    }
    if facts.connection_limit >= 0 {
        sql.push(format!("ALTER DATABASE {database} CONNECTION LIMIT {};", facts.connection_limit));
    }
    if facts.is_template {
        sql.push(format!("ALTER DATABASE {database} IS_TEMPLATE true;"));
    }
    if !facts.allows_connections {
        sql.push(format!("ALTER DATABASE {database} ALLOW_CONNECTIONS false;"));
    }
    sql
}

/// As [`finish_database_sql`], for a database that existed before and keeps its owner. Each statement is tried by
/// itself: a user who may fill a database need not be its owner.
pub fn finish_existing_sql(facts: &DatabaseFacts, there: &DatabaseFacts, with_roles: bool) -> Vec<String> {
    let facts = facts.owned_as(there);
    let owner = owner_sql(&facts, &there.name);
    let statements = finish_database_sql(&facts, &there.name, with_roles).into_iter().filter(|sql| *sql != owner);
    let one = |sql: String| match sql.starts_with("DO ") {
        true => sql,
        false => or_warn(&sql, &format!("{} ", shown(&format!("This was not restored: {sql}"), ""))),
    };
    statements.map(one).collect()
}

/// What [`finish_existing_sql`] changes about a database, as statements to be shown.
pub fn changed_sql(facts: &DatabaseFacts, there: &DatabaseFacts, with_roles: bool) -> Vec<String> {
    let facts = facts.owned_as(there);
    let rights =
        |facts: &DatabaseFacts| facts.acl.as_ref().map(|acl| acl_sql(acl, &identifier(&there.name), &facts.owner));
    let (mut before, mut after) = (rights(there), rights(&facts));
    [&mut before, &mut after].into_iter().flatten().for_each(|sql| sql.sort());
    let rights = if with_roles && after.is_some() && before != after { rights(&facts) } else { None };
    let others = |facts: &DatabaseFacts| {
        let settings = facts.settings.iter().filter(|setting| with_roles || setting.role.is_none());
        let settings = settings.map(|setting| shown(&database_setting_sql(setting, &there.name), &setting.name));
        let plain = DatabaseFacts { settings: Vec::new(), acl: None, ..facts.clone() };
        settings.chain(finish_database_sql(&plain, &there.name, with_roles)).collect::<Vec<_>>()
    };
    let now = others(there);
    let others = others(&facts).into_iter().filter(|sql| !now.contains(sql));
    others.chain(rights.into_iter().flatten()).collect()
}

fn owner_sql(facts: &DatabaseFacts, name: &Name) -> String {
    format!("ALTER DATABASE {} OWNER TO {};", identifier(name), identifier(&facts.owner))
}

impl DatabaseFacts {
    /// The facts of the backup, for a database that keeps its owner: the rights of the original owner go to the present
    /// one.
    fn owned_as(&self, there: &Self) -> Self {
        let mut facts = Self { owner: there.owner.clone(), ..self.clone() };
        for grant in facts.acl.iter_mut().flatten() {
            if grant.grantee.as_ref() == Some(&self.owner) {
                grant.grantee = Some(there.owner.clone());
            }
        }
        facts
    }
}

/// Revokes what a new database grants, then grants what was granted.
fn acl_sql(acl: &[Grant], database: &str, owner: &Name) -> Vec<String> {
    let revoke = |from: &str| format!("REVOKE ALL ON DATABASE {database} FROM {from};");
    let mut sql = vec![revoke("PUBLIC"), revoke(&identifier(owner))];
    sql.extend(acl.iter().map(|grant| {
        let privilege = match grant.privilege {
            Privilege::Create => "CREATE",
            Privilege::Connect => "CONNECT",
            Privilege::Temporary => "TEMPORARY",
        };
        let grantee = grant.grantee.as_ref().map_or_else(|| "PUBLIC".to_owned(), identifier);
        let option = if grant.can_grant { " WITH GRANT OPTION" } else { "" };
        format!("GRANT {privilege} ON DATABASE {database} TO {grantee}{option};")
    }));
    sql
}

/// Longer statements are not shown completely.
const SHOWN_BYTES: usize = 300;

/// A statement that sets something, for a log that others read: without its value if that is long, or may be a secret,
/// since applications keep secrets in their own settings.
pub fn shown(statement: &str, setting: &str) -> String {
    let is_plain = statement.len() <= SHOWN_BYTES && !statement.chars().any(char::is_control);
    if is_plain && !setting.contains('.') {
        return statement.to_owned();
    }
    match statement.split_once(" TO ") {
        Some((start, _)) if start.len() <= SHOWN_BYTES && !start.chars().any(char::is_control) => {
            format!("{start} TO …;")
        }
        _ => "its statement is in the backup.".to_owned(),
    }
}
