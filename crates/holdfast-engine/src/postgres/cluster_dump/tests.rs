//! Dumps that pass, and dumps that must not: each payload is something that `psql` would read differently.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const HEAD: &str = "--\n-- PostgreSQL database cluster dump\n--\n\nSET client_encoding = 'UTF8';\n\
    SET standard_conforming_strings = on;\n\n";
const FOOT: &str = "\n--\n-- PostgreSQL database cluster dump complete\n--\n\n";

fn look(body: &str) -> Result<ClusterDump, CheckError> {
    check(&mut format!("{HEAD}{body}{FOOT}").as_bytes())
}

fn refusal(body: &str) -> String {
    match look(body) {
        Err(CheckError::Refused(refused)) => refused.to_string(),
        other => panic!("{body:?} passed: {other:?}"),
    }
}

fn filtered(body: &str, options: FilterOptions) -> String {
    let dump = format!("{HEAD}{body}{FOOT}");
    let mut out = String::new();
    Filter::new(dump.as_bytes(), options).read_to_string(&mut out).unwrap();
    out
}

#[test]
fn what_pg_dumpall_writes_passes() {
    let body = r#"\restrict abc123

DROP DATABASE IF EXISTS "my-app";
DROP ROLE IF EXISTS app;
CREATE ROLE app;
ALTER ROLE app WITH NOSUPERUSER LOGIN PASSWORD 'SCRAM-SHA-256$4096:a==$b=:c=';
COMMENT ON ROLE app IS E'it''s \\ a
role';

\unrestrict abc123
\encoding SQL_ASCII
\connect -reuse-previous=on "dbname='my-app'"
\restrict abc123

SET client_encoding = 'LATIN1';
SET standard_conforming_strings = on;
-- Name: it's "odd" /* \! id $$
CREATE VIEW public.v AS
 SELECT '\'::text AS x, t.begin, t.arr[1:2] AS s, t.arr[t.lo:t.hi] AS u, (t.j ? 'k'::text) AS q
   FROM public.t;
CREATE FUNCTION public.f() RETURNS text
    LANGUAGE plpgsql COST 1e+06
    AS $_$ BEGIN /* \! id */ -- it's
 EXECUTE $b$ SELECT '\' $b$; RETURN $$x$$; END $_$;
CREATE FUNCTION public.g(i integer) RETURNS integer
    LANGUAGE sql
    BEGIN ATOMIC
 SELECT
         CASE
             WHEN (i > 1) THEN 2
             ELSE $1
         END AS "case";
 SELECT 3;
END;
CREATE RULE r AS
    ON INSERT TO public.v DO INSTEAD ( INSERT INTO public.a VALUES (1);
 INSERT INTO public.b VALUES (2);
);
CREATE TABLE public."evil
\! id
" (
	a integer DEFAULT B'101'
);
COPY public.t (a, "B ""c") FROM stdin;
1	\N
\\!	back\\slash\ttab'$$"
\\.	x
\.


BEGIN;

SELECT pg_catalog.lo_open('4711', 131072);
SELECT pg_catalog.lowrite(0, '\x00ff');
COMMIT;
\unrestrict abc123
"#;
    let found = look(body).unwrap();
    assert!(found.is_complete);
    assert_eq!(found.databases, BTreeSet::from(["my-app".to_owned()]));
    assert_eq!(found.dropped_databases, BTreeSet::from(["my-app".to_owned()]));
    assert_eq!(found.roles, BTreeSet::from(["app".to_owned()]));
    assert_eq!((found.tables, found.rows), (1, 3));
    assert_eq!(found.with_password, BTreeSet::from(["app".to_owned()]));
    assert_eq!(found.attributes["app"], BTreeSet::from(["LOGIN"]));
}

#[test]
fn what_is_never_restored_is_named_and_not_passed_on() {
    let body = "ALTER ROLE app SET session_preload_libraries TO 'nope';\nALTER ROLE app SET work_mem TO '8MB';\n";
    let said = look(body).unwrap().withheld;
    assert_eq!(said.len(), 1);
    assert!(
        said.first().unwrap().starts_with("The setting \"session_preload_libraries\" of role \"app\" "),
        "{said:?}"
    );
    let passed = filtered(body, FilterOptions::default());
    assert!(passed.contains("work_mem") && !passed.contains("preload"), "{passed}");
}

#[test]
fn the_role_that_restores_is_not_altered() {
    let body = "ALTER ROLE own WITH NOLOGIN;\nALTER ROLE other WITH NOLOGIN;\nALTER ROLE own SET work_mem TO '8MB';\n\
        ALTER ROLE own IN DATABASE y SET work_mem TO '1MB';\nALTER ROLE other SET work_mem TO '8MB';\n";
    let options = FilterOptions { own_roles: BTreeSet::from(["own".to_owned()]), ..FilterOptions::default() };
    let passed = filtered(body, options);
    let expected = "ALTER ROLE other WITH NOLOGIN;\nALTER ROLE other SET work_mem TO '8MB';\n";
    assert!(passed.ends_with(expected) && !passed.contains("own"), "{passed}");
}

#[test]
fn text_that_psql_could_read_as_commands_is_refused() {
    let long = format!("CREATE FUNCTION f() AS $a${}$a$ \\! id\n", "x".repeat(256 * 1024 - 3));
    let bodies = [
        // A comment that ends earlier for psql.
        "-- a\r\\! id\n",
        "--\r\\! id\n",
        // Other forms of COPY.
        "COPY (SELECT 1 AS stdin) TO STDOUT;\n\\! id\n\\.\n",
        "COPY t (a) FROM stdin CSV;\n1\n\\. \n\\! id\n\\.\n",
        "COPY t (a) FROM stdin WITH (FORMAT csv);\n\"\n\\.\n\\! id\n\"\n\\.\n",
        "COPY t (a) FROM PROGRAM 'id';\n",
        "COPY t (a) FROM '/etc/passwd';\n",
        "COPY t (a) TO stdout;\n\\! id\n\\.\n",
        "copy t (a) FROM stdin;\n\\! id\n\\.\n",
        " COPY t (a) FROM stdin;\n\\! id\n\\.\n",
        "COPY t (a) FROM stdin; \n\\! id\n\\.\n",
        "COPY t (a) FROM stdin;\\! id\n\\.\n",
        "COPY t\n(a) FROM stdin;\n\\! id\n\\.\n",
        "GRANT a TO b; COPY t (a) FROM stdin;\n\\! id\n\\.\n",
        "CREATE VIEW v AS SELECT (1;\nCOPY t (a) FROM stdin;\n\\! id\n\\.\n",
        // Table data.
        "COPY t (a) FROM stdin;\n1\n\\. \n\\! id\n\\.\n",
        "COPY t (a) FROM stdin;\n1\n\\.\r\n\\! id\n\\.\n",
        "COPY t (a) FROM stdin;\n1\r\\.\n\\! id\n\\.\n",
        "COPY t (a) FROM stdin;\na\\.\n\\! id\n\\.\n",
        "COPY t (a) FROM stdin;\n\\x41\n\\.\n",
        "COPY t (a) FROM stdin;\n1\n",
        "COPY t (a) FROM stdin;\n1\0\n\\.\n",
        // What looks like a dollar quote and is none, and vice versa.
        "CREATE VIEW v AS SELECT 1$a$ \\! id\n$a$;\n",
        "CREATE VIEW v AS SELECT a$a$ \\! id\n$a$;\n",
        "CREATE VIEW v AS SELECT 'a'$a$ \\! id\n$a$;\n",
        "CREATE VIEW v AS SELECT $1$a$ \\! id\n$a$;\n",
        "CREATE VIEW v AS SELECT $1a$ \\! id\n$a$;\n",
        "CREATE VIEW v AS SELECT $\u{e4}$ \\! id\n$\u{e4}$;\n",
        "CREATE VIEW v AS SELECT $a $a$ \\! id\n$a$;\n",
        "CREATE VIEW v AS SELECT $a$x$a$b$a$ \\! id\n$a$;\n",
        "CREATE VIEW v AS SELECT $a$x$a$1;\n",
        long.as_str(),
        // Quotes.
        "CREATE VIEW v AS SELECT 1E'a\\' \\! id';\n",
        "CREATE VIEW v AS SELECT e'a\\' \\! id';\n",
        "CREATE VIEW v AS SELECT E'a\\' \\! id';\n",
        "CREATE VIEW v AS SELECT E'a'\n'b\\' \\! id';\n",
        "CREATE VIEW v AS SELECT 'a' 'b';\n",
        "CREATE VIEW v AS SELECT U&'a\\' \\! id';\n",
        "CREATE VIEW v AS SELECT U&\"a\" \\! id;\n",
        "CREATE VIEW v AS SELECT n'a';\n",
        "CREATE VIEW v AS SELECT a'b';\n",
        "CREATE VIEW v AS SELECT B'\\';\n",
        "CREATE VIEW v AS SELECT 'a\n",
        // Comments.
        "CREATE VIEW v AS SELECT 1 -- ' \\! id\n;\n",
        "CREATE VIEW v AS SELECT 1\n-- '\n;\n",
        "CREATE VIEW v AS SELECT /* ' */ 1;\n",
        "/* \\! id */\n",
        " -- a\n",
        "- \n",
        // Commands and backslashes.
        "\\! id\n",
        " \\! id\n",
        "GRANT a TO b;\\! id\n",
        "GRANT a TO b \\! id\n",
        "GRANT a TO b\n\\! id\n;\n",
        "\\connect a\tb\tevil.example\n",
        "\\connect postgres app evil.example 5432\n",
        "\\connect -reuse-previous=on \"dbname='a' host='evil'\"\n",
        "\\connect -reuse-previous=on \"dbname='\u{e4}'\"\n",
        "\\restrict a\n\\unrestrict b\n",
        "\\restrict a\n\\connect b\n\\unrestrict a\n",
        "\\restrict a\n",
        // Variables of psql.
        "GRANT a TO :USER;\n",
        "GRANT a TO :\"USER\";\n",
        "GRANT a TO :'USER';\n",
        "GRANT a TO :{?USER};\n",
        "GRANT a TO ::: b;\nGRANT a TO :::USER;\n",
        // Settings that change what quotes mean.
        "SET standard_conforming_strings = off;\n",
        "SET client_encoding = 'SJIS';\n",
        "SELECT pg_catalog.set_config('client_encoding', 'SJIS', false);\n",
        "\\connect a\nCOMMENT ON TABLE t IS 'a\\';\n",
        "\\connect a\nCOMMENT ON TABLE t IS '\u{e4}';\n",
        "\\connect a\nCOPY t (a) FROM stdin;\n\\.\n",
        // Bodies of functions whose end psql does not find.
        "CREATE FUNCTION public.begin() RETURNS int AS 'a';\nCOPY t (a) FROM stdin;\n\\! id\n\\.\n",
        "CREATE FUNCTION f() BEGIN ATOMIC SELECT begin; END;\nCOPY t (a) FROM stdin;\n\\! id\n\\.\n",
        "CREATE FUNCTION f() BEGIN ATOMIC SELECT 1;\nCOPY t (a) FROM stdin;\n\\! id\n\\.\nEND;\n",
        "CREATE FUNCTION f() BEGIN \"a\";\n",
        // Where the server finds the end and psql does not, or the other way round.
        "CREATE FUNCTION f() BEGIN ATOMIC\n SELECT 1 AS case;\nEND;\nCREATE ROLE x SUPERUSER;\nSELECT 1;\nEND;\n",
        "CREATE FUNCTION f() BEGIN ATOMIC\n SELECT 1 case;\nEND;\nSELECT 1;\nEND;\n",
        "CREATE FUNCTION f() BEGIN ATOMIC\n SELECT x.case FROM x;\nEND;\nSELECT 1;\nEND;\n",
        "CREATE FUNCTION f() BEGIN ATOMIC\n SELECT 1 AS end;\n SELECT 2;\nEND;\n",
        "CREATE FUNCTION f() BEGIN ATOMIC\n SELECT 1;\nCREATE ROLE x SUPERUSER;\nEND;\n",
        "CREATE FUNCTION f() BEGIN ATOMIC\n SELECT 1;\nEND; END;\n",
        "CREATE FUNCTION f() BEGIN ATOMIC\n SELECT 1;\nEND x;\n",
        "CREATE FUNCTION f() BEGIN ATOMIC\n SELECT 1;;\nEND;\n",
        "CREATE FUNCTION f() BEGIN ATOMIC\n SELECT (1;\nEND;);\nEND;\n",
        "CREATE FUNCTION f() BEGIN ATOMIC\n \"a\";\nEND;\n",
        "CREATE FUNCTION f() BEGIN ATOMIC\n 1;\nEND;\n",
        // Statements within another one.
        "CREATE SCHEMA s GRANT SET ON PARAMETER work_mem TO x;\n",
        "CREATE OR REPLACE PROCEDURE f() BEGIN;\nCOPY t (a) FROM stdin;\n\\! id\n\\.\n",
        // Letters and numbers on which lexers differ.
        "CREATE VIEW v AS SELECT 1end;\n",
        "CREATE VIEW v AS SELECT \u{e4};\n",
        "CREATE VIEW v AS\u{b}SELECT 1;\n",
        "CREATE VIEW v AS SELECT 1);\n",
    ];
    for body in bodies {
        let _ = refusal(body);
        let dump = format!("{HEAD}{body}{FOOT}");
        let mut filter = Filter::new(dump.as_bytes(), FilterOptions::default());
        let error = io::copy(&mut filter, &mut io::sink()).unwrap_err();
        assert!(Refused::within(&error).is_some(), "{body:?}");
        assert!(filter.read(&mut [0; 8]).is_err(), "a refused dump has no end");
    }
}

#[test]
fn a_refusal_says_where_and_does_not_reveal_texts() {
    assert_eq!(
        refusal("INSERT INTO t VALUES ('hunter2');\n"),
        "Line 8 of the dump (byte 144) is not as pg_dumpall writes it: a statement of another form (INSERT INTO)"
    );
    assert!(refusal("\\! rm -rf /\n").ends_with("a command that psql would run (\\\\!)"));
}

#[test]
fn a_dump_begins_and_ends_as_one() {
    let welcome = format!("Welcome to prod!\n{HEAD}{FOOT}");
    assert!(check(&mut welcome.as_bytes()).is_err());
    assert!(check(&mut "-- MySQL dump\n".as_bytes()).is_err());
    assert!(check(&mut "".as_bytes()).is_err());
    assert!(!check(&mut HEAD.as_bytes()).unwrap().is_complete);
    assert!(
        !look("").map(|_| check(&mut format!("{HEAD}{FOOT}GRANT a TO b;\n").as_bytes())).unwrap().unwrap().is_complete
    );
    assert!(look("").unwrap().is_complete);
}

#[test]
fn roles_that_exist_are_neither_dropped_nor_created() {
    let body = "DROP ROLE IF EXISTS \"a b\";\nDROP ROLE IF EXISTS c;\nCREATE ROLE \"a b\";\nALTER ROLE \"a b\" WITH LOGIN;\n\
        CREATE ROLE c;\n\\restrict x\n\\unrestrict x\n";
    let existing_roles = BTreeSet::from(["a b".to_owned()]);
    let options = FilterOptions { existing_roles, without_restrict: true, ..FilterOptions::default() };
    let out = filtered(body, options);
    let (_, out) = out.split_once("strings = on;\n").unwrap();
    assert_eq!(out, "DROP ROLE IF EXISTS c;\nALTER ROLE \"a b\" WITH LOGIN;\nCREATE ROLE c;\n");
}

#[test]
fn what_could_end_a_session_is_turned_off_in_each() {
    let turned_off = BTreeSet::from(["idle_session_timeout".to_owned(), "lock_timeout".to_owned()]);
    let out = filtered("\\connect y\n", FilterOptions { turned_off, ..FilterOptions::default() });
    assert!(out.ends_with("\\connect y\nSET idle_session_timeout = 0;\nSET lock_timeout = 0;\n"), "{out}");
}

#[test]
fn settings_that_quotes_depend_on_are_set_before_every_statement_with_quotes() {
    let body = "COMMENT ON TABLE t IS '\\';\nGRANT a TO b;\nGRANT \"\u{e4}\" TO b;\nCOPY t (a) FROM stdin;\n\\.\n";
    let pin = "SET standard_conforming_strings = on;\nSET client_encoding = 'UTF8';\n";
    let expected = format!(
        "{pin}COMMENT ON TABLE t IS '\\';\nGRANT a TO b;\n{pin}GRANT \"\u{e4}\" TO b;\n{pin}COPY t (a) FROM stdin;\n\\.\n"
    );
    assert!(filtered(body, FilterOptions::default()).ends_with(&expected));
    let long = format!("COMMENT ON TABLE t IS '{}';\n", "\\".repeat(3 * CHUNK_BYTES));
    assert!(filtered(&long, FilterOptions::default()).ends_with(&format!("{pin}{long}")));
}

#[test]
fn slices_of_arrays_are_not_taken_for_variables() {
    let out = filtered("CREATE VIEW v AS SELECT a[1:2], a[x:\"HOST\"], a[:]::text;\n", FilterOptions::default());
    assert!(out.ends_with("CREATE VIEW v AS SELECT a[1: 2], a[x: \"HOST\"], a[:]::text;\n"), "{out}");
}

/// Fragments of dumps and of attacks; most combinations are refused, and none may be read in two different ways.
pub(super) fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("CREATE VIEW v AS SELECT "),
        Just("COMMENT ON TABLE t IS "),
        Just("COPY t (a) FROM stdin;\n"),
        Just("CREATE FUNCTION f() "),
        Just("BEGIN ATOMIC "),
        Just("END"),
        Just("CASE "),
        Just("\\.\n"),
        Just("\\! id\n"),
        Just("\n"),
        Just(" "),
        Just(";\n"),
        Just(";"),
        Just("'"),
        Just("\""),
        Just("E'"),
        Just("\\"),
        Just("$$"),
        Just(" $a$"),
        Just("$a$"),
        Just("-- "),
        Just("--"),
        Just("\r"),
        Just("("),
        Just(")"),
        Just(":"),
        Just("[1:a]"),
        Just("1"),
        Just("a"),
        Just("\u{e4}"),
        Just("\\connect x\n"),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

/// What passed, or why the dump was refused.
fn outcome(dump: &[u8], piece: usize) -> Result<Vec<u8>, Refused> {
    let mut scanner = Scanner::new(FilterOptions::default());
    let mut out = Vec::new();
    for piece in dump.chunks(piece) {
        scanner.feed(piece, &mut out)?;
    }
    scanner.finish().map(|_| out)
}

proptest! {
    #[test]
    fn where_the_pieces_are_cut_makes_no_difference(body in pieces(), piece in 1_usize..40) {
        let dump = format!("{HEAD}{body}{FOOT}");
        prop_assert_eq!(outcome(dump.as_bytes(), piece), outcome(dump.as_bytes(), dump.len()));
    }

    #[test]
    fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut dump = HEAD.as_bytes().to_vec();
        dump.extend(body);
        let _ = outcome(&dump, 7);
    }

    /// Everything that is not a statement, and every backslash, is data or one of the known commands.
    #[test]
    fn lines_that_pass_start_as_statements_commands_or_quoted_text(body in pieces()) {
        let dump = format!("{HEAD}{body}{FOOT}");
        if let Ok(out) = outcome(dump.as_bytes(), dump.len()) {
            let read = model::read(&String::from_utf8(out).unwrap());
            prop_assert!(read.commands.iter().all(|line| line == "\\connect x"), "{:?}", read.commands);
            prop_assert!(read.is_between, "{}", dump);
        }
    }
}

/// A model of how `psql` reads a script, based on its lexer: line by line, with what carries over from one line to the
/// next.
mod model {
    #[derive(Default)]
    pub(super) struct Read {
        pub(super) commands: Vec<String>,
        pub(super) is_between: bool,
    }

    #[derive(Clone, PartialEq)]
    enum In {
        Nothing,
        Text { escapes: bool },
        Identifier,
        Dollar(String),
        Block(u32),
    }

    pub(super) fn read(script: &str) -> Read {
        let mut read = Read::default();
        let (mut state, mut depth, mut blocks, mut is_copying) = (In::Nothing, 0_u32, 0_u32, false);
        let mut words: Vec<String> = Vec::new();
        for line in script.lines() {
            if is_copying {
                is_copying = line != "\\.";
                continue;
            }
            let chars: Vec<char> = line.chars().collect();
            let mut at = 0;
            let rest = |at: usize| chars[at..].iter().collect::<String>();
            while at < chars.len() {
                let sign = chars[at];
                match &mut state {
                    In::Nothing if rest(at).starts_with("--") => {
                        while at < chars.len() && chars[at] != '\r' {
                            at += 1;
                        }
                    }
                    In::Nothing if rest(at).starts_with("/*") => (state, at) = (In::Block(1), at + 2),
                    In::Nothing if sign == '\'' => (state, at) = (In::Text { escapes: false }, at + 1),
                    In::Nothing if sign == '"' => (state, at) = (In::Identifier, at + 1),
                    In::Nothing if matches!(sign, 'e' | 'E') && chars.get(at + 1) == Some(&'\'') => {
                        (state, at) = (In::Text { escapes: true }, at + 2);
                    }
                    In::Nothing if sign == '\\' => {
                        read.commands.push(rest(at));
                        at = chars.len();
                    }
                    In::Nothing if sign == '$' => {
                        let is_tag = |sign: &char| sign.is_alphanumeric() || *sign == '_';
                        let length = chars[at + 1..].iter().take_while(|sign| is_tag(sign)).count();
                        let starts = !chars.get(at + 1).is_some_and(char::is_ascii_digit);
                        if starts && chars.get(at + 1 + length) == Some(&'$') {
                            state = In::Dollar(chars[at..=at + 1 + length].iter().collect());
                            at += length + 2;
                        } else {
                            at += 1;
                        }
                    }
                    In::Nothing if sign.is_alphabetic() || sign == '_' => {
                        let is_word = |sign: &char| sign.is_alphanumeric() || matches!(sign, '_' | '$');
                        let length = chars[at..].iter().take_while(|sign| is_word(sign)).count();
                        let word = chars[at..at + length].iter().collect::<String>().to_uppercase();
                        words.push(word.clone());
                        at += length;
                        if words.len() > 1 && words[0] == "CREATE" && words[1] == "FUNCTION" && depth == 0 {
                            match word.as_str() {
                                "BEGIN" => blocks += 1,
                                "CASE" if blocks > 0 => blocks += 1,
                                "END" => blocks = blocks.saturating_sub(1),
                                _ => {}
                            }
                        }
                    }
                    In::Nothing => {
                        match sign {
                            '(' => depth += 1,
                            ')' => depth = depth.saturating_sub(1),
                            ';' if depth == 0 && blocks == 0 => {
                                is_copying = words.first().is_some_and(|word| word == "COPY");
                                words.clear();
                            }
                            _ => {}
                        }
                        at += 1;
                    }
                    In::Text { escapes: true } if sign == '\\' => at += 2,
                    In::Text { .. } | In::Identifier => {
                        let quote = if state == In::Identifier { '"' } else { '\'' };
                        match (sign == quote, chars.get(at + 1) == Some(&quote)) {
                            (true, true) => at += 2,
                            (true, false) => (state, at) = (In::Nothing, at + 1),
                            _ => at += 1,
                        }
                    }
                    In::Dollar(tag) => {
                        if rest(at).starts_with(tag.as_str()) {
                            at += tag.chars().count();
                            state = In::Nothing;
                        } else {
                            at += 1;
                        }
                    }
                    In::Block(_) => at += 1,
                }
            }
        }
        read.is_between = state == In::Nothing && !is_copying && words.is_empty() && depth == 0 && blocks == 0;
        read
    }
}
