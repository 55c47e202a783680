//! Output of database servers and their tools: dumps in PostgreSQL's custom format and in SQL, roles as JSON, and dumps
//! of Vanguard's database.

/// Included by path because `holdfast` is not a library; the file uses nothing else of that crate.
#[path = "../../../holdfast/src/vanguard/dump.rs"]
#[allow(dead_code, reason = "the program uses the rest")]
mod vanguard_dump;

use std::io::{self, Read};

use holdfast_engine::fuzzing;
use holdfast_engine::postgres::cluster_dump::{Filter, FilterOptions, check};
use holdfast_engine::postgres::describe_dump;
use holdfast_engine::postgres::globals::{self, sql};
use serde_json::{Value, json};

use self::vanguard_dump::Dump;
use super::mutate::damage;
use super::rng::Rng;

const NAMES: &[&str] = &["app", "my-app", "it's", "a\"b", "x; DROP", "\\", "$$", "\u{e4}", "a\nb", "pg_x", "--", "/*"];

/// A dump in the custom format of versions 1.10 to 1.17.
pub fn make_dump(rng: &mut Rng) -> Vec<u8> {
    let mut dump = PgDump { minor: 10 + rng.byte() % 8, int_bytes: 4, out: b"PGDMP".to_vec() };
    if rng.one_in(8) {
        dump.int_bytes = 1 + rng.below(10);
    }
    let int_bytes = u8::try_from(dump.int_bytes).unwrap_or(4);
    dump.out.extend([1, dump.minor, 0, int_bytes, 8, 1]);
    if dump.minor >= 15 {
        dump.out.push(0);
    } else {
        dump.int(0);
    }
    (0..7).for_each(|_| dump.int(1));
    (0..3).for_each(|_| dump.text(rng.pick(NAMES).as_bytes()));
    let count = rng.below(5);
    dump.int(if rng.one_in(20) { rng.extreme() } else { count as u64 });
    let with_data: Vec<bool> = (0..count).map(|_| rng.one_in(2)).collect();
    for (id, has_data) in (1..).zip(&with_data) {
        dump.item(rng, id, *has_data);
    }
    for (id, has_data) in (1_u64..).zip(&with_data) {
        if *has_data || rng.one_in(20) {
            dump.block(rng, id);
        }
    }
    let mut out = dump.out;
    if rng.one_in(2) {
        damage(rng, &mut out, &[b"PGDMP", b"\0\xff\xff\xff\x7f", b"\x01\x01\0\0\0", b"\0\0\0\0\0"]);
    }
    out
}

struct PgDump {
    minor: u8,
    int_bytes: usize,
    out: Vec<u8>,
}

impl PgDump {
    fn int(&mut self, value: u64) {
        self.out.push(0);
        let digits = value.to_le_bytes();
        self.out.extend((0..self.int_bytes).map(|place| digits.get(place).copied().unwrap_or_default()));
    }

    fn text(&mut self, text: &[u8]) {
        self.int(text.len() as u64);
        self.out.extend(text);
    }

    fn no_text(&mut self) {
        self.out.push(1);
        self.out.push(1);
        self.out.extend(vec![0; self.int_bytes - 1]);
    }

    fn item(&mut self, rng: &mut Rng, id: u64, has_data: bool) {
        const KINDS: &[&str] = &[
            "TABLE",
            "TABLE DATA",
            "ENCODING",
            "SEARCHPATH",
            "SCHEMA",
            "DATABASE",
            "COMMENT",
            "BLOBS",
            "ACL",
            "INDEX",
            "INDEX",
            "INDEX ATTACH",
            "MATERIALIZED VIEW DATA",
        ];
        const DEFINITIONS: &[&str] = &[
            "SET client_encoding = 'UTF8';",
            "",
            "CREATE TABLE x ();",
            "CREATE INDEX a ON b (c);",
            "CREATE UNIQUE INDEX a ON b (c);",
            "REFRESH MATERIALIZED VIEW a;",
        ];
        self.int(id);
        self.int(has_data.into());
        (0..2).for_each(|_| self.text(b"0"));
        let tag = rng.pick(NAMES);
        let tag = if rng.one_in(4) { format!("INDEX \"{}\"", tag.replace('"', "\"\"")) } else { (*tag).to_owned() };
        self.text(tag.as_bytes());
        self.text(rng.pick(KINDS).as_bytes());
        if self.minor >= 11 {
            self.int(2);
        }
        self.text(rng.pick(DEFINITIONS).as_bytes());
        (0..2).for_each(|_| self.text(b""));
        self.text(rng.pick(NAMES).as_bytes());
        self.no_text();
        if self.minor >= 14 {
            self.text(b"heap");
        }
        if self.minor >= 16 {
            self.int(u64::from(b'r'));
        }
        self.text(rng.pick(NAMES).as_bytes());
        self.text(b"false");
        (0..rng.below(3)).for_each(|_| self.text(b"1"));
        self.no_text();
        self.out.extend([0; 9]);
    }

    fn block(&mut self, rng: &mut Rng, id: u64) {
        let is_blobs = rng.one_in(4);
        self.out.push(if is_blobs { 3 } else { 1 });
        self.int(id);
        for object in 1..=if is_blobs { rng.below(3) } else { 1 } {
            if is_blobs {
                self.int(object as u64);
            }
            for _ in 0..rng.below(3) {
                let data = rng.bytes(40);
                self.int(if rng.one_in(20) { rng.extreme() } else { data.len() as u64 });
                self.out.extend(data);
            }
            self.int(0);
        }
        if is_blobs {
            self.int(0);
        }
    }
}

pub fn run_dump(input: &[u8]) -> bool {
    let mut rest = input;
    let Ok(facts) = describe_dump(&mut rest) else { return false };
    assert!(rest.is_empty(), "a dump was accepted before its end was read");
    let again = describe_dump(&mut Pieces { bytes: input, piece: 1 });
    assert_eq!(again.ok().as_ref(), Some(&facts), "a dump reads differently in pieces");
    fuzzing::split_dump(input);
    true
}

/// A reader that returns a few bytes at a time.
struct Pieces<'a> {
    bytes: &'a [u8],
    piece: usize,
}

impl Read for Pieces<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.piece.min(buffer.len()).min(self.bytes.len());
        buffer[..length].copy_from_slice(&self.bytes[..length]);
        self.bytes = &self.bytes[length..];
        Ok(length)
    }
}

const CLUSTER_HEAD: &str = "--\n-- PostgreSQL database cluster dump\n--\n\nSET client_encoding = 'UTF8';\n\
    SET standard_conforming_strings = on;\n\n";
const CLUSTER_FOOT: &str = "\n--\n-- PostgreSQL database cluster dump complete\n--\n\n";
const CLUSTER_PARTS: &[&str] = &[
    "\\restrict abc123\n",
    "\\unrestrict abc123\n",
    "DROP DATABASE IF EXISTS \"my-app\";\n",
    "DROP ROLE IF EXISTS app;\n",
    "CREATE ROLE app;\n",
    "ALTER ROLE app WITH NOSUPERUSER LOGIN PASSWORD 'SCRAM-SHA-256$4096:a==$b=:c=';\n",
    "COMMENT ON ROLE app IS E'it''s \\\\ a\nrole';\n",
    "GRANT app TO other WITH INHERIT TRUE GRANTED BY postgres;\n",
    "CREATE TABLESPACE fast OWNER app LOCATION '/srv/fast';\n",
    "CREATE DATABASE \"my-app\" WITH TEMPLATE = template0 ENCODING = 'UTF8';\n",
    "\\encoding SQL_ASCII\n",
    "\\connect -reuse-previous=on \"dbname='my-app'\"\n",
    "\\connect app\n",
    "SET client_encoding = 'LATIN1';\n",
    "SET standard_conforming_strings = on;\n",
    "-- Name: it's \"odd\" /* \\! id $$\n",
    "CREATE TABLE public.t (\n    id integer,\n    \"we ird\" text DEFAULT 'x''y'::text\n);\n",
    "CREATE VIEW public.v AS\n SELECT '\\'::text AS x, t.arr[1:2] AS s\n   FROM public.t;\n",
    "CREATE FUNCTION public.f() RETURNS text\n    LANGUAGE plpgsql\n    AS $_$ BEGIN /* \\! id */ RETURN $$x$$; END $_$;\n",
    "COPY public.t (id, \"we ird\") FROM stdin;\n1\ta\\\\b\\tc\n2\t\\N\n\\.\n",
    "COPY public.t (id) FROM stdin;\n\\.\n",
    "\n\n",
];
const CLUSTER_WORDS: &[&[u8]] = &[
    b"\\!",
    b"\\",
    b"'",
    b"\"",
    b"$$",
    b"$a$",
    b"--",
    b"/*",
    b"*/",
    b";",
    b"\n",
    b"\\.\n",
    b"E'",
    b"U&'",
    b"COPY ",
    b" FROM stdin;\n",
    b"\r",
    b"\0",
    b"\xff",
    b"BEGIN ATOMIC",
    b"END",
    b"CASE",
    b"\\connect x\n",
    b"\\gexec\n",
    b":x",
];

pub fn make_cluster(rng: &mut Rng) -> Vec<u8> {
    let mut dump = CLUSTER_HEAD.as_bytes().to_vec();
    for _ in 0..rng.below(10) {
        dump.extend(rng.pick(CLUSTER_PARTS).as_bytes());
    }
    dump.extend(CLUSTER_FOOT.as_bytes());
    if rng.below(3) > 0 {
        damage(rng, &mut dump, CLUSTER_WORDS);
    }
    dump
}

pub fn run_cluster(input: &[u8]) -> bool {
    let whole = check(&mut &*input);
    let piece = 1 + input.len() % 7;
    let pieces = check(&mut Pieces { bytes: input, piece });
    assert_eq!(whole.is_ok(), pieces.is_ok(), "a dump is checked differently in pieces");
    let options = FilterOptions {
        existing_roles: ["app".to_owned()].into(),
        own_roles: ["app".to_owned()].into(),
        turned_off: ["idle_session_timeout".to_owned()].into(),
        without_restrict: input.len().is_multiple_of(2),
        ..FilterOptions::default()
    };
    for options in [FilterOptions::default(), options] {
        let mut passed = Vec::new();
        let filtered = Filter::new(input, options.clone()).read_to_end(&mut passed);
        assert_eq!(whole.is_ok(), filtered.is_ok(), "the filter and the check disagree");
        let mut in_pieces = Vec::new();
        let again = Filter::new(Pieces { bytes: input, piece }, options).read_to_end(&mut in_pieces);
        assert_eq!(filtered.is_ok(), again.is_ok(), "a dump is filtered differently in pieces");
        if filtered.is_ok() {
            assert_eq!(passed, in_pieces, "a dump is filtered differently in pieces");
            // The filter removes comments, so the ones that begin and end every dump are added again.
            let whole = [CLUSTER_HEAD.as_bytes(), &passed, CLUSTER_FOOT.as_bytes()].concat();
            let checked = check(&mut whole.as_slice());
            assert!(checked.is_ok(), "what the filter passes on is not accepted itself: {checked:?}");
        }
    }
    match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => {
            assert_eq!(whole, pieces, "a dump is understood differently in pieces");
            true
        }
        _ => false,
    }
}

pub fn make_globals(rng: &mut Rng) -> Vec<u8> {
    let document = json!({
        "server_version": 90_600 + rng.below(100_000), "has_passwords": rng.one_in(2),
        "roles": list(rng, role), "memberships": list(rng, membership), "settings": list(rng, setting),
        "databases": list(rng, database), "tablespaces": list(rng, |rng| json!(name(rng))),
        "parameter_grants": list(rng, parameter_grant),
    });
    let mut document = document.to_string().into_bytes();
    if rng.one_in(3) {
        damage(rng, &mut document, &[b"\\u0000", b"\\\"", b"null", b"-1", b"[]", b"{}", b"\\\\", b"'", b"\xc3\xa4"]);
    }
    document
}

fn list(rng: &mut Rng, make: fn(&mut Rng) -> Value) -> Value {
    (0..rng.below(4)).map(|_| make(rng)).collect()
}

/// Any text, also with quotes, which must be escaped.
fn name(rng: &mut Rng) -> String {
    const LETTERS: &[&str] = &["'", "\"", "\\", ";", "a", " ", "\n", "$", "-", ",", "\u{e4}", "\u{2028}", "/*", "E'"];
    if rng.one_in(2) {
        return rng.pick(NAMES).to_owned();
    }
    (0..=rng.below(8)).map(|_| rng.pick(LETTERS)).collect()
}

fn maybe(rng: &mut Rng, make: fn(&mut Rng) -> String) -> Option<String> {
    rng.one_in(2).then(|| make(rng))
}

fn role(rng: &mut Rng) -> Value {
    let flag = |rng: &mut Rng| rng.one_in(2);
    json!({
        "name": name(rng), "is_superuser": flag(rng), "inherits": flag(rng), "creates_roles": flag(rng),
        "creates_databases": flag(rng), "can_login": flag(rng), "replicates": flag(rng),
        "bypasses_row_security": flag(rng), "connection_limit": rng.below(9) as i64 - 1,
        "password": maybe(rng, password), "valid_until": maybe(rng, expiry), "comment": maybe(rng, name),
    })
}

fn password(rng: &mut Rng) -> String {
    let scram = "SCRAM-SHA-256$4096:c2FsdA==$a2V5:a2V5";
    let chosen = [scram, "md5d41d8cd98f00b204e9800998ecf8427e", "SCRAM-SHA-256$1:a'b=$b=:c=", "plain'"];
    rng.pick(&chosen).to_owned()
}

fn expiry(rng: &mut Rng) -> String {
    let chosen = ["2030-01-01 00:00:00.000000+00", "infinity", "-infinity", "294276-12-31 23:59:59.999999+00"];
    rng.pick(&chosen).to_owned()
}

fn membership(rng: &mut Rng) -> Value {
    json!({
        "role": name(rng), "member": name(rng), "is_admin": rng.one_in(2), "inherits": rng.one_in(2),
        "can_set": rng.one_in(2),
    })
}

fn setting(rng: &mut Rng) -> Value {
    let setting = rng.pick(&["search_path", "my.x", "work_mem", "temp_tablespaces", "a$b._c"]);
    let list = rng.pick(&["\"$user\", public", "", "a", "\"x\"\"y\",b", "\"\""]).to_owned();
    let value = if setting.contains('_') { list } else { name(rng) };
    json!({ "role": maybe(rng, name), "name": setting, "value": value })
}

fn parameter_grant(rng: &mut Rng) -> Value {
    let parameter = rng.pick(&["work_mem", "my.x", "a$b._c", "log_statement"]);
    let privilege = rng.pick(&["SET", "ALTER SYSTEM"]);
    json!({ "parameter": parameter, "grantee": maybe(rng, name), "privilege": privilege, "can_grant": rng.one_in(2) })
}

fn database(rng: &mut Rng) -> Value {
    let acl: Option<Vec<Value>> = rng.one_in(2).then(|| {
        let grant = |rng: &mut Rng| {
            let privilege = rng.pick(&["CREATE", "CONNECT", "TEMPORARY"]);
            json!({ "grantee": maybe(rng, name), "privilege": privilege, "can_grant": rng.one_in(2) })
        };
        (0..rng.below(3)).map(|_| grant(rng)).collect()
    });
    json!({
        "name": name(rng), "owner": name(rng), "encoding": rng.pick(&["UTF8", "LATIN1", "SQL_ASCII"]),
        "collate": name(rng), "ctype": name(rng), "provider": rng.pick(&["c", "i", "b"]), "locale": maybe(rng, name),
        "icu_rules": maybe(rng, name), "is_template": rng.one_in(2), "allows_connections": rng.one_in(2),
        "connection_limit": -1, "tablespace": "pg_default", "comment": maybe(rng, name), "acl": acl,
        "settings": list(rng, setting), "roles": list(rng, |rng| json!(name(rng))),
    })
}

pub fn run_globals(input: &[u8]) -> bool {
    if let Ok(Some(facts)) = globals::parse_database(input) {
        check_database(&facts);
    }
    let Ok(globals) = globals::parse(input) else { return false };
    let _said = globals.warnings();
    for role in &globals.roles {
        is_one_statement(&sql::create_role_sql(role));
        is_one_statement(&sql::alter_role_sql(role));
        sql::comment_on_role_sql(role).iter().for_each(|sql| is_one_statement(sql));
    }
    for membership in &globals.memberships {
        for version in [90_600, 160_000] {
            is_one_statement(&sql::membership_sql(membership, version));
        }
    }
    globals.settings.iter().for_each(|setting| is_one_statement(&sql::setting_sql(setting)));
    sql::parameter_grants_sql(&globals, 150_000).iter().for_each(|sql| is_one_statement(sql));
    globals.databases.iter().for_each(check_database);
    let written = serde_json::to_vec(&globals).expect("it was read from JSON");
    assert_eq!(globals::parse(&written).as_ref(), Ok(&globals), "what was understood is not read again");
    true
}

fn check_database(facts: &globals::DatabaseFacts) {
    for version in [90_600, 150_000, 160_000, 170_000] {
        if let Ok(sql) = sql::create_database_sql(facts, &facts.name, version) {
            is_one_statement(&sql);
        }
    }
    for with_roles in [false, true] {
        sql::finish_database_sql(facts, &facts.name, with_roles).iter().for_each(|sql| is_one_statement(sql));
    }
}

/// Asserts that both the server's lexer (with either meaning of a backslash in plain quotes) and `psql` read one
/// statement: outside of quotes there are only words, operators and the semicolon at the end.
fn is_one_statement(sql: &str) {
    let body = sql.strip_suffix(';').unwrap_or_else(|| panic!("no end: {sql}"));
    let mut rest = body;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '"' => rest = after_quote(rest, '"', false).unwrap_or_else(|| panic!("an open name: {sql}")),
            '\'' => {
                let (quoted, is_escaped) = (rest, before == 'E');
                rest = after_quote(rest, '\'', is_escaped).unwrap_or_else(|| panic!("an open text: {sql}"));
                let text = &quoted[..quoted.len() - rest.len()];
                assert!(is_escaped || !text.contains('\\'), "a backslash of two meanings: {sql}");
            }
            _ => {
                let is_plain = first.is_ascii_alphanumeric() || " _=,-.".contains(first);
                assert!(is_plain, "{first:?} stands outside of quotes: {sql}");
                assert!(first != '-' || before != '-', "a comment: {sql}");
            }
        }
        before = first;
    }
    assert!(!sql.contains('\0'), "a zero byte: {sql}");
}

/// The rest of the text after the closing quote.
fn after_quote(text: &str, quote: char, has_escapes: bool) -> Option<&str> {
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && has_escapes {
            chars.next()?;
        } else if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return Some(&text[at + 1..]);
        }
    }
    None
}

const VANGUARD_PARTS: &[&str] = &[
    "--\n-- PostgreSQL database dump\n--\n",
    "CREATE TABLE public.tags (\n    id bigint NOT NULL,\n    label text\n);\n",
    "CREATE TABLE `tags` (\n  `id` bigint,\n  `label` varchar(255),\n  PRIMARY KEY (`id`)\n) ENGINE=InnoDB;\n",
    "COPY public.tags (id, label, \"description\") FROM stdin;\n1\ta\\tb\\\\c\\nd\t\\N\n2\tx\t\n\\.\n",
    "COPY public.users (id, email) FROM stdin;\n1\ta@b.example\n\\.\n",
    "INSERT INTO public.tags (id, label) VALUES (1, 'it''s; a \\', NULL);\n",
    "INSERT INTO `tags` VALUES (1,'a\\'b;\\n'),(2,'c');\n",
    "INSERT INTO users (id, email) VALUES (2, 'two\nlines'), (3, E'three'::text);\n",
    "SELECT 1;\n",
];
const VANGUARD_WORDS: &[&[u8]] = &[
    b"'",
    b"''",
    b"\\",
    b"`",
    b"(",
    b")",
    b",",
    b";\n",
    b"\\.\n",
    b"VALUES",
    b"INSERT INTO ",
    b"\n",
    b"\xff",
    b"NULL",
];

pub fn make_vanguard(rng: &mut Rng) -> Vec<u8> {
    let mut dump = Vec::new();
    for _ in 0..=rng.below(6) {
        dump.extend(rng.pick(VANGUARD_PARTS).as_bytes());
    }
    if rng.below(3) > 0 {
        damage(rng, &mut dump, VANGUARD_WORDS);
    }
    dump
}

/// Only the tables that are imported have rows, and no value is longer than the dump.
pub fn run_vanguard(input: &[u8]) -> bool {
    let Ok(dump) = Dump::read(&mut &*input) else { return false };
    for table in ["users", "tags"] {
        // An invalid UTF-8 byte becomes a replacement character of three bytes.
        assert!(dump.rows(table).all(|row| row.text("label").len() <= 3 * input.len()), "a value grew");
    }
    assert_eq!(dump.rows("jobs").count(), 0, "rows of a table that is not imported");
    true
}
