//! The statements that `pg_dumpall` writes. Those about the contents of databases are accepted by their first words:
//! the server runs them like those of any dump. Those that change how the rest is read, and those about roles,
//! databases and rights, must have one exact form.

use super::grant::{granted, revoked};
use super::words::{StatementKind, is_role_keyword, strip};
use crate::postgres::globals::{Guarded, VALIDITY, Whose, withheld_text};
use crate::postgres::quoting;

/// Encodings that servers can use: every byte of a character beyond ASCII is itself beyond ASCII. In the others, such
/// as SJIS and GBK, a character may contain a quote or a backslash.
const ENCODINGS: &[&str] = &[
    "SQL_ASCII",
    "UTF8",
    "LATIN1",
    "LATIN2",
    "LATIN3",
    "LATIN4",
    "LATIN5",
    "LATIN6",
    "LATIN7",
    "LATIN8",
    "LATIN9",
    "LATIN10",
    "WIN1250",
    "WIN1251",
    "WIN1252",
    "WIN1253",
    "WIN1254",
    "WIN1255",
    "WIN1256",
    "WIN1257",
    "WIN1258",
    "WIN866",
    "WIN874",
    "KOI8R",
    "KOI8U",
    "ISO_8859_5",
    "ISO_8859_6",
    "ISO_8859_7",
    "ISO_8859_8",
    "EUC_JP",
    "EUC_CN",
    "EUC_KR",
    "EUC_TW",
    "EUC_JIS_2004",
    "MULE_INTERNAL",
];

pub(super) fn encoding(name: &[u8]) -> Option<&'static str> {
    ENCODINGS.iter().copied().find(|known| known.as_bytes() == name)
}

/// Settings of a session that do not affect how the dump is read.
const SETTINGS: &[&str] = &[
    "statement_timeout",
    "lock_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "transaction_timeout",
    "default_transaction_read_only",
    "check_function_bodies",
    "xmloption",
    "client_min_messages",
    "row_security",
    "default_tablespace",
    "default_table_access_method",
    "default_with_oids",
    "search_path",
];

/// `%s` is a literal, `%i` an identifier, `%n` a number, `%b` a truth value; everything else stands for itself.
const FIXED: &[&str] = &[
    "BEGIN;",
    "COMMIT;",
    // Around rights that were not granted by the owner.
    "SET SESSION AUTHORIZATION %i;",
    "RESET SESSION AUTHORIZATION;",
    "SELECT pg_catalog.set_config('search_path', '', false);",
    "SELECT pg_catalog.setval(%s, %n, %b);",
    "SELECT pg_catalog.lo_create(%s);",
    "SELECT pg_catalog.lo_open(%s, 131072);",
    "SELECT pg_catalog.lowrite(0, %s);",
    "SELECT pg_catalog.lo_close(0);",
    "SELECT pg_catalog.lo_unlink(%s);",
    "SELECT pg_catalog.lo_unlink(oid) FROM pg_catalog.pg_largeobject_metadata WHERE oid = %s;",
    "UPDATE pg_catalog.pg_database SET datistemplate = %s WHERE datname = %s;",
    "UPDATE pg_catalog.pg_database SET datistemplate = %b WHERE datname = %s;",
];

/// What can be created, altered and dropped, by the first word of its kind.
const OBJECTS: &[&str] = &[
    "ACCESS",
    "AGGREGATE",
    "CAST",
    "COLLATION",
    "CONSTRAINT",
    "CONVERSION",
    "DATABASE",
    "DEFAULT",
    "DOMAIN",
    "EVENT",
    "EXTENSION",
    "FOREIGN",
    "FUNCTION",
    "INDEX",
    "LANGUAGE",
    "LARGE",
    "MATERIALIZED",
    "OPERATOR",
    "POLICY",
    "PROCEDURAL",
    "PROCEDURE",
    "PUBLICATION",
    "ROLE",
    "ROUTINE",
    "RULE",
    "SCHEMA",
    "SEQUENCE",
    "SERVER",
    "STATISTICS",
    "SUBSCRIPTION",
    "TABLE",
    "TABLESPACE",
    "TEXT",
    "TRANSFORM",
    "TRIGGER",
    "TRUSTED",
    "TYPE",
    "UNIQUE",
    "UNLOGGED",
    "USER MAPPING",
    "VIEW",
];

/// What kind of statement `text` is; its end is missing unless `is_whole`. `guarded` are the settings that the server
/// guards.
pub(super) fn classify(text: &[u8], is_whole: bool, guarded: &Guarded) -> Result<StatementKind, String> {
    let (first, rest) = word(text);
    let (second, _) = word(rest);
    let has_object = |rest: &[u8]| {
        OBJECTS.iter().any(|object| rest.strip_prefix(object.as_bytes()).is_some_and(|end| end.starts_with(b" ")))
    };
    let fixed = || FIXED.iter().any(|form| fits(text, form)).then_some(StatementKind::Other);
    let kind = match first {
        b"SET" if is_whole => setting(rest).or_else(fixed),
        b"COPY" if is_whole => copy(rest).map(|()| StatementKind::Rows),
        b"BEGIN" | b"COMMIT" | b"RESET" | b"SELECT" | b"UPDATE" if is_whole => fixed(),
        b"CREATE" if has_object(rest.strip_prefix(b"OR REPLACE ").unwrap_or(rest)) => created(rest, is_whole),
        b"DROP" if has_object(rest) => dropped(rest, is_whole),
        b"ALTER" if has_object(rest) => altered(rest, is_whole, guarded),
        b"COMMENT" if second == b"ON" => Some(StatementKind::Other),
        b"SECURITY" if second == b"LABEL" => Some(StatementKind::Other),
        b"REFRESH" if second == b"MATERIALIZED" => Some(StatementKind::Other),
        b"GRANT" if is_whole => granted(rest, guarded),
        b"REVOKE" if is_whole => revoked(rest),
        _ => None,
    };
    kind.ok_or_else(|| {
        // Only SQL keywords are shown: literals may contain passwords.
        let shown = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(24)]).into_owned();
        format!("a statement of another form ({} {})", shown(first), shown(second))
    })
}

/// The capital letters at the beginning, and what follows the blank after them.
fn word(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_uppercase()).unwrap_or(text.len());
    let rest = &text[end..];
    (&text[..end], rest.strip_prefix(b" ").unwrap_or(rest))
}

fn setting(text: &[u8]) -> Option<StatementKind> {
    let text = text.strip_suffix(b";")?;
    let equals = text.windows(3).position(|bytes| bytes == b" = ")?;
    let (name, value) = (&text[..equals], &text[equals + 3..]);
    match name {
        b"client_encoding" => {
            let name = value.strip_prefix(b"'")?.strip_suffix(b"'")?;
            encoding(name).map(StatementKind::Encoding)
        }
        b"standard_conforming_strings" => (value == b"on").then_some(StatementKind::StandardStrings),
        name if SETTINGS.iter().any(|known| known.as_bytes() == name) => {
            are_values(value).then_some(StatementKind::Other)
        }
        _ => None,
    }
}

/// Whether this is a list of words, numbers and literals, separated by commas.
fn are_values(text: &[u8]) -> bool {
    let mut rest = value(text);
    while let Some(after) = rest.and_then(|rest| strip(rest, ", ")) {
        rest = value(after);
    }
    rest.is_some_and(<[u8]>::is_empty)
}

fn value(text: &[u8]) -> Option<&[u8]> {
    quoting::read_text(text).or_else(|| number(text)).or_else(|| quoting::read_identifier(text).map(|(_, rest)| rest))
}

fn number(text: &[u8]) -> Option<&[u8]> {
    let unsigned = text.strip_prefix(b"-").unwrap_or(text);
    let digits = unsigned.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (digits > 0).then(|| &unsigned[digits..])
}

/// `COPY schema.table (columns) FROM stdin;`, where a table without columns has no list.
fn copy(text: &[u8]) -> Option<()> {
    let (_, mut rest) = quoting::read_identifier(text)?;
    if let Some(after) = rest.strip_prefix(b".") {
        (_, rest) = quoting::read_identifier(after)?;
    }
    rest = rest.strip_prefix(b" ")?;
    if let Some(after) = rest.strip_prefix(b"(") {
        (_, rest) = quoting::read_identifier(after)?;
        while let Some(after) = rest.strip_prefix(b", ") {
            (_, rest) = quoting::read_identifier(after)?;
        }
        rest = rest.strip_prefix(b")")?;
    }
    (rest == b" FROM stdin;").then_some(())
}

fn created(text: &[u8], is_whole: bool) -> Option<StatementKind> {
    let (object, rest) = word(text);
    match object {
        b"ROLE" if is_whole => {
            name(rest).filter(|(_, end)| end == b";").map(|(name, _)| StatementKind::CreateRole(name))
        }
        b"DATABASE" if is_whole => {
            name(rest).filter(|(_, end)| are_database_options(end)).map(|(name, _)| StatementKind::CreateDatabase(name))
        }
        b"TABLESPACE" if is_whole => name(rest)
            .filter(|(_, end)| fits(end, " OWNER %i LOCATION %s;") || fits(end, " LOCATION %s;"))
            .map(|(name, _)| StatementKind::CreateTablespace(name)),
        // Further statements could follow its name.
        b"SCHEMA" if is_whole => {
            let is_plain = name(rest).is_some_and(|(_, end)| end == b";" || fits(&end, " AUTHORIZATION %i;"));
            is_plain.then_some(StatementKind::Other)
        }
        b"ROLE" | b"DATABASE" | b"TABLESPACE" | b"SCHEMA" => None,
        _ => Some(StatementKind::Other),
    }
}

/// ` WITH TEMPLATE = template0 ENCODING = 'UTF8'` and more of that kind.
fn are_database_options(text: &[u8]) -> bool {
    const OPTIONS: &[&str] = &[
        "BUILTIN_LOCALE",
        "COLLATION_VERSION",
        "CONNECTION LIMIT",
        "ENCODING",
        "ICU_LOCALE",
        "ICU_RULES",
        "LC_COLLATE",
        "LC_CTYPE",
        "LOCALE",
        "LOCALE_PROVIDER",
        "OWNER",
        "TABLESPACE",
        "TEMPLATE",
    ];
    let one = |rest| OPTIONS.iter().find_map(|option| value(strip(strip(strip(rest, " ")?, option)?, " = ")?));
    let mut rest = strip(text, " WITH").unwrap_or(text);
    while let Some(after) = one(rest) {
        rest = after;
    }
    rest == b";"
}

/// Parses the options of a role: keywords, then its optional limit, password and validity. Returns what it may do, and
/// whether it has a password.
fn role_options(text: &[u8]) -> Option<(Vec<&'static str>, bool)> {
    const FLAGS: &[&str] = &["SUPERUSER", "INHERIT", "CREATEROLE", "CREATEDB", "LOGIN", "REPLICATION", "BYPASSRLS"];
    let flag = |rest| FLAGS.iter().find_map(|flag| strip(rest, flag).map(|rest| (*flag, rest)));
    let (mut rest, mut attributes) = (text, Vec::new());
    loop {
        let (is_set, word) = strip(rest, "NO").map_or((true, rest), |word| (false, word));
        let (attribute, after) = flag(word)?;
        if is_set && attribute != "INHERIT" {
            attributes.push(attribute);
        }
        rest = after;
        match strip(rest, " ").filter(|next| flag(strip(next, "NO").unwrap_or(next)).is_some()) {
            Some(next) => rest = next,
            None => break,
        }
    }
    rest = strip(rest, " CONNECTION LIMIT ").and_then(number).unwrap_or(rest);
    let password = strip(rest, " PASSWORD ").and_then(quoting::read_text);
    rest = password.unwrap_or(rest);
    if let Some(after) = strip(rest, " VALID UNTIL ").and_then(quoting::read_text) {
        attributes.push(VALIDITY);
        rest = after;
    }
    (rest == b";").then_some((attributes, password.is_some()))
}

/// For roles and databases, accepts only what `pg_dumpall` writes: any other form might hide a setting.
fn altered(text: &[u8], is_whole: bool, guarded: &Guarded) -> Option<StatementKind> {
    let (object, rest) = word(text);
    let (name, rest) = match object {
        b"ROLE" | b"DATABASE" if is_whole => quoting::read_identifier(rest)?,
        b"ROLE" | b"DATABASE" => return None,
        _ => return Some(StatementKind::Other),
    };
    let is_role = object == b"ROLE";
    if is_role && is_role_keyword(&name) && !text.starts_with(b"ROLE \"") {
        return None;
    }
    let mut whose = format!("{} {}", if is_role { "role" } else { "database" }, quoting::shown(&name));
    let mut rest = rest.strip_prefix(b" ")?;
    if let Some(after) = rest.strip_prefix(b"IN DATABASE ") {
        let (database, after) = quoting::read_identifier(after)?;
        whose.push_str(&format!(" in database {}", quoting::shown(&database)));
        rest = after.strip_prefix(b" SET ").is_some().then(|| &after[1..])?;
    }
    let (statement, (verb, rest)) = (rest, word(rest));
    match verb {
        b"SET" if !is_role && fits(rest, "TABLESPACE %i;") => Some(StatementKind::Other),
        b"SET" => {
            let (setting, after) = quoting::read_identifier(rest)?;
            after.strip_prefix(b" TO ")?;
            let setting = String::from_utf8(setting).ok()?;
            if let Some(why) = guarded.why_withheld(&setting, Whose::One) {
                let statement = format!("ALTER {}", String::from_utf8_lossy(text));
                return Some(StatementKind::Withheld(withheld_text(&setting, &whose, why, &statement)));
            }
            if is_role {
                String::from_utf8(name).ok().map(StatementKind::AlterRole)
            } else {
                Some(StatementKind::Other)
            }
        }
        b"WITH" if is_role => {
            let (attributes, has_password) = role_options(rest)?;
            Some(StatementKind::RoleOptions(String::from_utf8(name).ok()?, attributes, has_password))
        }
        b"OWNER" | b"CONNECTION" | b"IS" | b"ALLOW" if !is_role => {
            DATABASE.iter().any(|form| fits(statement, form)).then_some(StatementKind::Other)
        }
        _ => None,
    }
}

/// What is altered about a database besides its settings.
const DATABASE: &[&str] = &["OWNER TO %i;", "CONNECTION LIMIT = %n;", "IS_TEMPLATE = %b;", "ALLOW_CONNECTIONS = %b;"];

fn dropped(text: &[u8], is_whole: bool) -> Option<StatementKind> {
    let (object, rest) = word(text);
    let rest = rest.strip_prefix(b"IF EXISTS ").unwrap_or(rest);
    let name = || name(rest).filter(|(_, end)| is_whole && end == b";").map(|(name, _)| name);
    match object {
        b"ROLE" => name().map(StatementKind::DropRole),
        b"DATABASE" => name().map(StatementKind::DropDatabase),
        _ => Some(StatementKind::Other),
    }
}

/// A name that can be compared with what a server answers.
fn name(text: &[u8]) -> Option<(String, Vec<u8>)> {
    let (name, rest) = quoting::read_identifier(text)?;
    Some((String::from_utf8(name).ok()?, rest.to_vec()))
}

fn fits(text: &[u8], form: &str) -> bool {
    let (mut text, mut form) = (text, form.as_bytes());
    while let Some((sign, rest)) = form.split_first() {
        let after = match (sign, rest.first()) {
            (b'%', Some(b's')) => quoting::read_text(text),
            (b'%', Some(b'i')) => quoting::read_identifier(text).map(|(_, rest)| rest),
            (b'%', Some(b'n')) => number(text),
            (b'%', Some(b'b')) => text.strip_prefix(b"true").or_else(|| text.strip_prefix(b"false")),
            (sign, _) => text.strip_prefix(&[*sign]),
        };
        let Some(after) = after else { return false };
        text = after;
        form = if *sign == b'%' { &rest[1..] } else { rest };
    }
    text.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Result<StatementKind, String> {
        classify(text.as_bytes(), true, &Guarded::default())
    }

    #[test]
    fn statements_of_a_dump_are_known() {
        assert_eq!(kind("SET client_encoding = 'UTF8';"), Ok(StatementKind::Encoding("UTF8")));
        assert_eq!(kind("SET standard_conforming_strings = on;"), Ok(StatementKind::StandardStrings));
        assert_eq!(kind("DROP ROLE IF EXISTS \"a\"\"b\";"), Ok(StatementKind::DropRole("a\"b".to_owned())));
        assert_eq!(kind("CREATE ROLE app;"), Ok(StatementKind::CreateRole("app".to_owned())));
        let role = |attributes: &[&'static str], has_password| {
            Ok(StatementKind::RoleOptions("app".to_owned(), attributes.to_vec(), has_password))
        };
        assert_eq!(kind("ALTER ROLE app WITH NOLOGIN;"), role(&[], false));
        assert_eq!(
            kind("ALTER ROLE app WITH SUPERUSER NOCREATEDB BYPASSRLS;"),
            role(&["SUPERUSER", "BYPASSRLS"], false)
        );
        let whole = "ALTER ROLE app WITH NOSUPERUSER INHERIT NOCREATEROLE NOCREATEDB LOGIN NOREPLICATION NOBYPASSRLS \
            CONNECTION LIMIT 7 PASSWORD 'md5' VALID UNTIL '2030-01-01 00:00:00+00';";
        assert_eq!(kind(whole), role(&["LOGIN", VALIDITY], true));
        let made = [
            "CREATE DATABASE x WITH TEMPLATE = template0 ENCODING = 'UTF8' LOCALE_PROVIDER = icu LOCALE = 'C' ICU_LOCALE = \
             'de' TABLESPACE = fast CONNECTION LIMIT = 3;",
            "CREATE DATABASE x WITH TEMPLATE = template0 OWNER = \"a b\" ENCODING = 'UTF8' LC_COLLATE = 'C' LC_CTYPE = 'C';",
        ];
        made.iter()
            .for_each(|text| assert_eq!(kind(text), Ok(StatementKind::CreateDatabase("x".to_owned())), "{text}"));
        let fast = Ok(StatementKind::CreateTablespace("fast".to_owned()));
        assert_eq!(kind("CREATE TABLESPACE fast OWNER app LOCATION '/srv/fast';"), fast);
        assert_eq!(kind("DROP DATABASE postgres;"), Ok(StatementKind::DropDatabase("postgres".to_owned())));
        assert_eq!(kind("COPY public.\"T \"\"a\" (a, \"B\") FROM stdin;"), Ok(StatementKind::Rows));
        assert_eq!(kind("COPY public.t  FROM stdin;"), Ok(StatementKind::Rows));
        assert_eq!(kind("COPY t (a) FROM stdin;"), Ok(StatementKind::Rows));
        let others = [
            "BEGIN;",
            "SET SESSION AUTHORIZATION \"a b\";",
            "RESET SESSION AUTHORIZATION;",
            "SELECT pg_catalog.setval('public.\"a''b\"', -42, true);",
            "SELECT pg_catalog.lowrite(0, '\\x00ff');",
            "UPDATE pg_catalog.pg_database SET datistemplate = false WHERE datname = 'template1';",
            "UPDATE pg_catalog.pg_database SET datistemplate = 't' WHERE datname = 'x';",
            "CREATE OR REPLACE VIEW public.v AS SELECT 1;",
            "CREATE USER MAPPING FOR app SERVER s;",
            "SET search_path = public, pg_catalog;",
            "SET default_tablespace = '';",
            "SET lock_timeout = 0;",
        ];
        for text in others {
            assert_eq!(kind(text), Ok(StatementKind::Other), "{text}");
        }
    }

    #[test]
    fn settings_that_could_take_over_a_server_are_withheld() {
        let withheld = [
            ("ALTER ROLE app SET session_preload_libraries TO 'nope';", "session_preload_libraries\" of role \"app\""),
            (
                "ALTER ROLE app SET \"Session_Preload_Libraries\" TO 'nope';",
                "Session_Preload_Libraries\" of role \"app\"",
            ),
            ("ALTER ROLE a IN DATABASE \"b c\" SET role TO 'x';", "role\" of role \"a\" in database \"b c\""),
            (
                "ALTER DATABASE shop SET local_preload_libraries TO 'a', 'b';",
                "local_preload_libraries\" of database \"shop\"",
            ),
            ("GRANT SET,ALTER SYSTEM ON PARAMETER archive_command TO app;", "archive_command\""),
            ("GRANT ALL ON PARAMETER zero_damaged_pages TO app;", "zero_damaged_pages\""),
            ("GRANT ALL ON PARAMETER \"plperl.on_init\" TO PUBLIC WITH GRANT OPTION;", "plperl.on_init\""),
            ("ALTER DATABASE shop SET zero_damaged_pages TO 'on';", "zero_damaged_pages\" of database \"shop\""),
            ("ALTER ROLE app SET something_new TO 'on';", "something_new\" of role \"app\""),
        ];
        for (text, named) in withheld {
            let Ok(StatementKind::Withheld(said)) = kind(text) else { panic!("{text} was kept") };
            assert!(said.contains(&format!("setting \"{named} was not restored: it ")), "{said}");
            assert!(said.ends_with(&format!(" by hand: {text}")), "{said}");
        }
        let Ok(StatementKind::Withheld(said)) = kind("ALTER ROLE app SET \"plperl.on_init\" TO 'secret';") else {
            panic!()
        };
        assert!(said.ends_with(" To set it by hand: ALTER ROLE app SET \"plperl.on_init\" TO …;"), "{said}");
        // What the target server has loaded.
        let guarded = Guarded::new(["ext.path".to_owned()].into());
        for text in ["ALTER ROLE app SET \"Ext.path\" TO '/';", "GRANT SET ON PARAMETER \"ext.path\" TO app;"] {
            let of_it = classify(text.as_bytes(), true, &guarded);
            assert!(
                matches!(of_it, Ok(StatementKind::Withheld(said)) if said.contains("extension of this server")),
                "{text}"
            );
            assert!(!matches!(kind(text), Ok(StatementKind::Withheld(_))), "{text}");
        }
        let own = [
            "ALTER ROLE app SET search_path TO 'a', 'B c';",
            "ALTER ROLE app SET default_transaction_read_only TO 'on';",
            "ALTER ROLE app IN DATABASE \"b c\" SET \"my.x\" TO 'y';",
        ];
        for text in own {
            assert_eq!(kind(text), Ok(StatementKind::AlterRole("app".to_owned())), "{text}");
        }
        assert_eq!(kind("ALTER ROLE \"all\" SET jit TO 'off';"), Ok(StatementKind::AlterRole("all".to_owned())));
        let kept = [
            "ALTER DATABASE shop SET \"DateStyle\" TO 'ISO, DMY';",
            "ALTER DATABASE postgres SET TABLESPACE fast;",
            "ALTER DATABASE shop OWNER TO app;",
            "ALTER DATABASE shop CONNECTION LIMIT = 3;",
            "ALTER DATABASE shop IS_TEMPLATE = true;",
            "GRANT SET ON PARAMETER work_mem TO app;",
            "GRANT SET ON PARAMETER \"my.x\" TO PUBLIC WITH GRANT OPTION;",
            "REVOKE ALL ON PARAMETER archive_command FROM PUBLIC;",
            "GRANT SELECT ON TABLE public.role TO app;",
            "GRANT SELECT ON TABLE parameter TO parameter;",
            "GRANT SELECT(a),UPDATE(\"B c\") ON TABLE public.parameter TO \"public\" WITH GRANT OPTION;",
            "GRANT SELECT,INSERT,MAINTAIN ON SEQUENCE public.\"S\"\" on parameter x\" TO PUBLIC;",
            "GRANT ALL ON FUNCTION public.f(a integer, VARIADIC b public.\"x)\"[]) TO app;",
            "GRANT ALL ON LARGE OBJECT 4711 TO app;",
            "GRANT USAGE ON FOREIGN DATA WRAPPER w TO app;",
            "GRANT CREATE ON TABLESPACE fast TO app;",
            "GRANT TEMPORARY,CONNECT ON DATABASE \"my-app\" TO PUBLIC;",
            "REVOKE GRANT OPTION FOR ALL ON SCHEMA public FROM app;",
            "REVOKE ALL ON SCHEMA public FROM PUBLIC;",
            "CREATE SCHEMA app;",
            "CREATE SCHEMA app AUTHORIZATION \"a b\";",
        ];
        for text in kept {
            assert_eq!(kind(text), Ok(StatementKind::Other), "{text}");
        }
        let memberships = [
            ("GRANT role TO app;", false),
            ("GRANT role TO app WITH ADMIN FALSE, INHERIT TRUE;", false),
            ("GRANT role TO app WITH INHERIT TRUE, ADMIN TRUE;", true),
            ("GRANT role TO app WITH ADMIN OPTION GRANTED BY postgres;", true),
            ("GRANT role TO app WITH ADMIN OPTION, INHERIT FALSE, SET FALSE GRANTED BY \"a b\";", true),
        ];
        for (text, is_admin) in memberships {
            assert_eq!(
                kind(text),
                Ok(StatementKind::Membership("role".to_owned(), "app".to_owned(), is_admin)),
                "{text}"
            );
        }
        let refused = [
            "ALTER ROLE ALL SET session_preload_libraries TO 'nope';",
            "ALTER ROLE app SET SESSION_PRELOAD_LIBRARIES TO 'nope';",
            "ALTER ROLE app SET session_preload_libraries = 'nope';",
            "ALTER ROLE app SET session_preload_libraries FROM CURRENT;",
            "ALTER ROLE app\nSET session_preload_libraries TO 'nope';",
            "ALTER ROLE app  SET session_preload_libraries TO 'nope';",
            "ALTER ROLE app set session_preload_libraries TO 'nope';",
            "ALTER ROLE app IN DATABASE x\nSET role TO 'y';",
            "ALTER ROLE app NOLOGIN;",
            "ALTER ROLE CURRENT_USER WITH NOLOGIN;",
            "ALTER ROLE current_user WITH NOLOGIN;",
            "ALTER ROLE session_user SET search_path TO 'x';",
            "ALTER ROLE all SET search_path TO 'x';",
            "ALTER DATABASE x SET ROLE y;",
            "ALTER DATABASE x RESET ALL;",
            "ALTER DATABASE x OWNER TO CURRENT_USER;",
            "ALTER DATABASE x IS_TEMPLATE = true, CONNECTION LIMIT = 3;",
            "ALTER ROLE app WITH LOGIN USER evil;",
            "ALTER ROLE app WITH LOGIN IN ROLE evil;",
            "GRANT SET ON PARAMETER work_mem, session_preload_libraries TO app;",
            "GRANT SET on parameter session_preload_libraries TO app;",
            "GRANT SET ON Parameter session_preload_libraries TO app;",
            "GRANT ALTER SYSTEM ON  PARAMETER archive_command TO app;",
            "GRANT ALTER SYSTEM ON PARAMETER  archive_command TO app;",
            "GRANT ALTER  SYSTEM ON PARAMETER archive_command TO app;",
            "GRANT ALTER SYSTEM ON\tPARAMETER archive_command TO app;",
            "GRANT ALTER SYSTEM ON PARAMETER\narchive_command TO app;",
            "GRANT ALL PRIVILEGES ON PARAMETER archive_command TO app;",
            "GRANT SET, ALTER SYSTEM ON PARAMETER archive_command TO app;",
            "GRANT SET ON PARAMETER plperl.on_init TO app;",
            "GRANT SET ON PARAMETER ARCHIVE_COMMAND TO app;",
            "GRANT SET ON PARAMETER work_mem TO app, evil;",
            "GRANT SET ON PARAMETER work_mem TO CURRENT_USER;",
            "GRANT SET ON PARAMETER work_mem TO app GRANTED BY evil;",
            "REVOKE SET on PARAMETER work_mem FROM app;",
            "GRANT a, b TO app;",
            "GRANT a TO app, evil;",
            "GRANT a TO current_user;",
            "GRANT SELECT ON public.t TO app;",
            "GRANT SELECT ON TABLE a, b TO app;",
            "GRANT SELECT ON ALL TABLES IN SCHEMA public TO app;",
            "GRANT ALL ON FUNCTION f(; TO app;",
            "REVOKE a FROM b;",
            "ALTER DATABASE x SET SESSION AUTHORIZATION y;",
        ];
        for text in refused {
            assert!(kind(text).is_err(), "{text}");
        }
        assert!(classify(b"ALTER ROLE app SET work_mem TO '", false, &Guarded::default()).is_err());
    }

    #[test]
    fn other_statements_are_refused() {
        let texts = [
            "COPY t FROM stdin;",
            "COPY t (a) FROM stdin WITH (FORMAT csv);",
            "COPY t (a) FROM stdin CSV;",
            "COPY t (a) FROM STDIN;",
            "COPY t (a) FROM PROGRAM 'id';",
            "COPY t (a) FROM '/etc/passwd';",
            "COPY t (a) TO stdout;",
            "COPY (SELECT 1 AS stdin) TO STDOUT;",
            "COPY t (a) WITH CSV FROM stdin;",
            "COPY BINARY t (a) FROM stdin;",
            "SET standard_conforming_strings = off;",
            "SET standard_conforming_strings TO on;",
            "SET client_encoding = 'SJIS';",
            "SET client_encoding = 'utf8';",
            "SET NAMES 'SJIS';",
            "SET backslash_quote = on;",
            "SET SESSION AUTHORIZATION 'evil';",
            "SET SESSION AUTHORIZATION evil; SELECT 1;",
            "SET ROLE evil;",
            "SET search_path = DEFAULT;",
            "SET search_path TO x;",
            "CREATE DATABASE x TEMPLATE y STRATEGY file_copy;",
            "CREATE TABLESPACE fast LOCATION '/srv' WITH (seq_page_cost = 1);",
            "RESET ALL;",
            "SELECT pg_catalog.set_config('standard_conforming_strings', 'off', false);",
            "SELECT pg_catalog.setval('a', 1, true), evil();",
            "SELECT 1;",
            "DO $$ $$;",
            "LOAD 'x';",
            "ALTER SYSTEM SET archive_command = 'id';",
            "CREATE USER evil;",
            "CREATE ROLE evil SUPERUSER;",
            "EXPLAIN ANALYZE SELECT 1;",
            "ROLLBACK;",
            "INSERT INTO t VALUES (1);",
            "UPDATE pg_catalog.pg_class SET relname = 'x';",
        ];
        for text in texts {
            assert!(kind(text).is_err(), "{text}");
        }
    }
}
