use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::process::{Command, Output, Stdio};

use holdfast_engine::postgres::cluster_dump::{Filter, FilterOptions, check};
use holdfast_engine::postgres::describe_dump;
use holdfast_engine::postgres::globals::{self, Globals, sql};
use holdfast_testkit::PostgresServer;

fn tool(server: &PostgresServer, name: &str) -> Command {
    let mut command = Command::new(name);
    command.args(["-h", "127.0.0.1", "-U", "holdfast", "-p", &server.port().to_string()]);
    command.env("PGCLIENTENCODING", "UTF8").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn feed(mut command: Command, input: &[u8]) -> Output {
    let mut child = command.spawn().expect("PostgreSQL's tools are installed");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // The command may exit before it has read everything.
    let feeding = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().unwrap();
    let _ended_early = feeding.join().unwrap();
    output
}

/// The output of `psql`, which must succeed.
fn psql(server: &PostgresServer, database: &str, script: &str) -> Vec<u8> {
    let mut command = tool(server, "psql");
    command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", database]);
    let output = feed(command, format!("{script};").as_bytes());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Runs `psql` as a restore does; without `PGCLIENTENCODING`, because the dump sets the encoding itself.
fn restore(server: &PostgresServer, script: &[u8]) -> Output {
    let mut command = tool(server, "psql");
    command.env_remove("PGCLIENTENCODING");
    command.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null", "-d", "postgres"]);
    feed(command, script)
}

fn dump(server: &PostgresServer) -> Vec<u8> {
    let mut command = tool(server, "pg_dumpall");
    command.env_remove("PGCLIENTENCODING").args(["--clean", "--if-exists", "--no-password"]);
    let output = feed(command, b"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn without_tokens(dump: &[u8]) -> String {
    let text = String::from_utf8_lossy(dump).into_owned();
    let is_token = |line: &&str| line.starts_with("\\restrict ") || line.starts_with("\\unrestrict ");
    text.lines().filter(|line| !is_token(line)).collect::<Vec<_>>().join("\n")
}

fn filtered(dump: &[u8], existing_roles: BTreeSet<String>) -> Vec<u8> {
    let mut out = Vec::new();
    let options = FilterOptions { existing_roles, ..FilterOptions::default() };
    Filter::new(dump, options).read_to_end(&mut out).unwrap();
    out
}

const ODD_DATABASES: [&str; 3] = ["my-app", "ascii", "latin"];

fn odd_server() -> PostgresServer {
    let server = PostgresServer::start(false);
    psql(&server, "postgres", include_str!("postgres/cluster.sql"));
    for database in ODD_DATABASES {
        psql(&server, database, include_str!("postgres/database.sql"));
    }
    server
}

#[test]
fn a_cluster_dump_with_odd_databases_restores_to_the_same_server() {
    let (source, target) = (odd_server(), PostgresServer::start(false));
    let dumped = dump(&source);
    let found = check(&mut dumped.as_slice()).unwrap();
    assert!(found.is_complete);
    assert!(without_tokens(&dumped).contains("SET SESSION AUTHORIZATION"), "rights that somebody else granted");
    for name in ["my-app", "Wei\"rd", "a'b", "x\\y", "Upper", "user", "dätabase", "ascii", "latin"] {
        assert!(found.databases.contains(name) && found.dropped_databases.contains(name), "{name}");
    }
    assert!(found.roles.contains("a'b\\c"), "{:?}", found.roles);

    let output = restore(&target, &filtered(&dumped, BTreeSet::from(["holdfast".to_owned()])));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(without_tokens(&dump(&target)), without_tokens(&dumped));

    // Again, over the existing databases.
    psql(&target, "postgres", "ALTER DATABASE tmpl IS_TEMPLATE false;");
    let output = restore(&target, &filtered(&dumped, found.roles));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(without_tokens(&dump(&target)), without_tokens(&dumped));
}

const HEAD: &str = "--\n-- PostgreSQL database cluster dump\n--\n\nSET client_encoding = 'UTF8';\n\
    SET standard_conforming_strings = on;\n";

/// A function in a dump, called by a constraint, can change how the next statement is quoted or encoded.
#[test]
fn code_in_a_dump_cannot_change_how_psql_reads_the_rest() {
    let server = PostgresServer::start(false);
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let attacks = [
        // With standard strings these are two literals; otherwise the quote is escaped, and the second is not quoted.
        ("standard_conforming_strings", "off", "COMMENT ON TABLE public.t IS '\\';\nCOMMENT ON TABLE public.t IS '"),
        // In SJIS the last byte of the character and the quote after it form one character.
        ("client_encoding", "SJIS", "COMMENT ON TABLE public.t IS 'あ';\nCOMMENT ON TABLE public.t IS '"),
    ];
    for (setting, value, texts) in attacks {
        let dump = format!(
            "{HEAD}CREATE FUNCTION public.f(i integer) RETURNS boolean\n    LANGUAGE plpgsql\n    \
             AS $$ BEGIN PERFORM set_config('{setting}', '{value}', false); RETURN true; END $$;\n\
             CREATE TABLE public.t (\n    a integer,\n    CONSTRAINT c CHECK (public.f(a))\n);\n\
             COPY public.t (a) FROM stdin;\n1\n\\.\n{texts}\n\\! touch {}\n';\n\
             DROP TABLE public.t;\nDROP FUNCTION public.f(integer);\n",
            mark.display()
        );
        restore(&server, dump.as_bytes());
        assert!(std::fs::remove_file(&mark).is_ok(), "{setting}: the attack works on psql alone");
        psql(&server, "postgres", "DROP TABLE IF EXISTS t; DROP FUNCTION IF EXISTS f(integer);");
        check(&mut dump.as_bytes()).unwrap();
        let output = restore(&server, &filtered(dump.as_bytes(), BTreeSet::new()));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(!mark.exists(), "{setting}");
    }
}

/// Combines pieces of dumps and attacks at random; the real `psql` runs no command from any that passes the filter.
#[test]
fn no_dump_that_passes_runs_a_command() {
    let server = PostgresServer::start(false);
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let command = format!("\\! touch {}\n", mark.display());
    let pieces = [
        "COMMENT ON TABLE t IS ",
        "COPY t (a) FROM stdin;\n",
        "\\.\n",
        &command,
        &command,
        "\n",
        " ",
        ";\n",
        ";",
        "'",
        "'",
        "\"",
        "E'",
        "\\",
        "$$",
        " $a$",
        "$a$",
        "--",
        "-- x\n",
        "\r",
        "(",
        ")",
        ":",
        "1",
        "a",
        "é",
        "';\n",
        "$$;\n",
        "CREATE VIEW v AS SELECT ",
        "CREATE FUNCTION f() ",
        "BEGIN ATOMIC ",
        "END",
        "CASE ",
        "GRANT a TO \"",
    ];
    psql(&server, "postgres", "CREATE TABLE t (a text);");
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |limit: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % limit as u64).unwrap()
    };
    const WANTED: usize = 150;
    let mut passed = 0;
    while passed < WANTED {
        let body: String = (0..2 + next(12)).map(|_| pieces[next(pieces.len())]).collect();
        let dump = format!("{HEAD}{body}");
        if !body.contains("touch") || check(&mut dump.as_bytes()).is_err() {
            continue;
        }
        passed += 1;
        restore(&server, &filtered(dump.as_bytes(), BTreeSet::new()));
        assert!(!mark.exists(), "{dump:?}");
    }
}

fn ask(server: &PostgresServer) -> Globals {
    assert_eq!(psql(server, "postgres", globals::CAN_READ_PASSWORDS), b"t\n");
    globals::parse(&psql(server, "postgres", &globals::globals_query(true))).unwrap()
}

#[test]
fn roles_settings_and_databases_come_back_as_they_were() {
    let (source, target) = (odd_server(), PostgresServer::start(false));
    let asked = ask(&source);
    let version = asked.server_version;
    // PostgreSQL before 15 has no privileges on parameters.
    let grants = if version >= 150_000 { 3 } else { 0 };
    assert_eq!(asked.parameter_grants.len(), grants, "{:?}", asked.parameter_grants);
    for role in asked.roles.iter().filter(|role| role.name.as_str() != "holdfast") {
        psql(&target, "postgres", &sql::create_role_sql(role));
    }
    let mut script: Vec<String> = asked.roles.iter().map(sql::alter_role_sql).collect();
    script.extend(asked.roles.iter().filter_map(sql::comment_on_role_sql));
    script.extend(asked.memberships.iter().map(|membership| sql::membership_sql(membership, version)));
    script.extend(asked.settings.iter().map(sql::setting_sql));
    script.extend(sql::parameter_grants_sql(&asked, version));
    for facts in &asked.databases {
        if !["postgres", "template1"].contains(&facts.name.as_str()) {
            script.push(sql::create_database_sql(facts, &facts.name, version).unwrap());
        }
        script.extend(sql::finish_database_sql(facts, &facts.name, true));
    }
    psql(&target, "postgres", &script.join("\n"));
    let mut expected = asked.clone();
    // The databases are still empty.
    expected.databases.iter_mut().for_each(|facts| facts.roles.clear());
    assert_eq!(ask(&target), expected);

    let facts = asked.databases.iter().find(|facts| facts.name.as_str() == "my-app").unwrap();
    assert_eq!(facts.roles.iter().map(globals::Name::as_str).collect::<Vec<_>>(), ["Odd \"role", "a'b\\c", "app"]);
    assert_eq!(facts.settings.len(), 2);
    let one = psql(&source, "postgres", &globals::database_query(&facts.name));
    assert_eq!(globals::parse_database(&one).unwrap().as_ref(), Some(facts));
    let missing = globals::Name::try_from("no'such\\".to_owned()).unwrap();
    assert_eq!(globals::parse_database(&psql(&source, "postgres", &globals::database_query(&missing))), Ok(None));
}

#[test]
fn without_access_to_passwords_everything_else_is_read() {
    let server = PostgresServer::start(false);
    psql(&server, "postgres", "CREATE ROLE plain LOGIN PASSWORD 'x';");
    let asked = |script: &str| psql(&server, "postgres", &format!("SET ROLE plain;\n{script}"));
    assert_eq!(asked(globals::CAN_READ_PASSWORDS), b"f\n");
    let told = globals::parse(&asked(&globals::globals_query(false))).unwrap();
    assert!(!told.has_passwords && told.roles.iter().all(|role| role.password.is_none()));
    assert_eq!(told.warnings().len(), 1);
}

#[test]
fn a_dump_of_one_database_tells_what_is_in_it() {
    let server = odd_server();
    let dumped = |database: &str| {
        let mut command = tool(&server, "pg_dump");
        command.env_remove("PGCLIENTENCODING").args(["--format=custom", "--compress=0", "-d", database]);
        let output = feed(command, b"");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        describe_dump(&mut output.stdout.as_slice()).unwrap()
    };
    let facts = dumped("latin");
    assert_eq!((facts.database.as_deref(), facts.encoding.as_deref()), (Some("latin"), Some("LATIN1")));
    assert_eq!(facts.owners, BTreeSet::from(["app".to_owned(), "holdfast".to_owned()]));
    assert!(facts.has_objects && facts.schemas.contains("public"));
    assert_eq!((facts.tables_with_data, facts.kinds["TABLE DATA"]), (7, 7));
    let tables = facts.tables.as_ref().unwrap();
    assert_eq!(tables.len() as u64, facts.kinds["TABLE"] + facts.kinds["FOREIGN TABLE"]);
    let table = |name: &str| ("public".to_owned(), name.to_owned());
    let own = tables.iter().find(|(_, name)| name.is_ascii()).unwrap().clone();
    // Non-ASCII names are encoded differently in this dump, so they are not reported.
    assert_eq!(facts.lacks(vec![own, table("later"), table("sp\u{e4}ter")]), [table("later")]);
    let empty = dumped("Upper");
    assert!(!empty.has_objects && empty.owners.is_empty(), "{empty:?}");
}
