//! Tests what is accepted, what is refused, and that nothing escapes from its quotes.

use proptest::prelude::*;

use super::sql::*;
use super::*;

fn name(text: &str) -> Name {
    Name::try_from(text.to_owned()).unwrap()
}

fn role(text: &str) -> Role {
    Role {
        name: name(text),
        is_superuser: false,
        inherits: true,
        creates_roles: false,
        creates_databases: false,
        can_login: true,
        replicates: false,
        bypasses_row_security: false,
        connection_limit: -1,
        password: None,
        valid_until: None,
        comment: None,
    }
}

fn facts() -> DatabaseFacts {
    let text = |text: &str| Text(text.to_owned());
    let grant =
        |grantee: Option<&str>, privilege, can_grant| Grant { grantee: grantee.map(name), privilege, can_grant };
    DatabaseFacts {
        name: name("my-app"),
        owner: name("app"),
        encoding: name("UTF8"),
        collate: text("de_DE.UTF-8"),
        ctype: text("C"),
        provider: Some(Provider::Icu),
        locale: Some(text("de")),
        icu_rules: None,
        is_template: true,
        allows_connections: false,
        connection_limit: 7,
        tablespace: name("pg_default"),
        comment: Some(text("it's \\")),
        acl: Some(vec![grant(None, Privilege::Connect, false), grant(Some("a\"b"), Privilege::Create, true)]),
        settings: vec![
            setting(None, "search_path", "\"$user\", \"x y\", public"),
            setting(Some("app"), "my.x", "a, b"),
        ],
        roles: vec![name("app")],
    }
}

fn setting(role: Option<&str>, setting: &str, value: &str) -> Setting {
    let asked = AskedSetting { role: role.map(name), name: setting.to_owned(), value: Text(value.to_owned()) };
    Setting::try_from(asked).unwrap()
}

#[test]
fn roles_are_written_as_they_were() {
    let mut role = role("Odd \"role");
    assert_eq!(create_role_sql(&role), "CREATE ROLE \"Odd \"\"role\";");
    role.password = Some(Password("md50123456789abcdef0123456789abcdef".to_owned()));
    role.valid_until = Some(Expiry::try_from("2030-01-01 00:00:00.000000+00".to_owned()).unwrap());
    assert_eq!(
        alter_role_sql(&role),
        "ALTER ROLE \"Odd \"\"role\" WITH NOSUPERUSER INHERIT NOCREATEROLE NOCREATEDB LOGIN NOREPLICATION NOBYPASSRLS \
         CONNECTION LIMIT -1 PASSWORD 'md50123456789abcdef0123456789abcdef' VALID UNTIL '2030-01-01 00:00:00.000000+00';"
    );
    assert!(!format!("{role:?}").contains("md5"));
}

#[test]
fn only_hashes_of_known_forms_are_passwords() {
    let scram = "SCRAM-SHA-256$4096:qzVLaAU2ldDwrJos8/Y1Jg==$8lSOltw3Iq7/lkf5n5TDQFiZtdaqRyxRd/IY7lGr8l4=:\
        FW5r1gI9Vouh5R+uAgRtieS6AwHpYVm3XcC1R/q8294=";
    assert!(Password(scram.to_owned()).hash().is_some());
    let others = [
        "secret",
        "",
        "md5",
        "md50123456789ABCDEF0123456789abcdef",
        "md50123456789abcdef0123456789abcdef'",
        "SCRAM-SHA-256$4096:a$b:c",
        &scram.replace("4096", "4096x"),
        &scram.replace("Jg==", "Jg="),
        &format!("{scram}'"),
        &format!("{scram}:AAAA"),
    ];
    let mut globals = empty();
    for other in others {
        let mut role = role("app");
        role.password = Some(Password(other.to_owned()));
        assert!(!alter_role_sql(&role).contains("PASSWORD"), "{other}");
        globals.roles = vec![role];
        assert_eq!(globals.warnings().len(), 1, "{other}");
    }
}

fn empty() -> Globals {
    Globals {
        server_version: 150_000,
        has_passwords: true,
        roles: Vec::new(),
        memberships: Vec::new(),
        settings: Vec::new(),
        databases: Vec::new(),
        tablespaces: Vec::new(),
        parameter_grants: Vec::new(),
    }
}

#[test]
fn a_document_cannot_replace_what_every_database_is_made_from() {
    let of = |database: &str| {
        let databases = vec![DatabaseFacts { name: name(database), ..facts() }];
        parse(&serde_json::to_vec(&Globals { databases, ..empty() }).unwrap())
    };
    assert!(of("template1").is_ok());
    assert!(of("template0").is_err());
}

#[test]
fn memberships_have_the_options_that_the_server_knows() {
    let mut membership =
        Membership { role: name("a"), member: name("b"), is_admin: true, inherits: Some(false), can_set: Some(true) };
    assert_eq!(membership_sql(&membership, 150_018), "GRANT \"a\" TO \"b\" WITH ADMIN OPTION;");
    assert_eq!(membership_sql(&membership, 160_000), "GRANT \"a\" TO \"b\" WITH ADMIN TRUE, INHERIT FALSE, SET TRUE;");
    (membership.is_admin, membership.inherits, membership.can_set) = (false, None, None);
    assert_eq!(membership_sql(&membership, 120_000), "GRANT \"a\" TO \"b\";");
    assert_eq!(membership_sql(&membership, 160_000), "GRANT \"a\" TO \"b\" WITH ADMIN FALSE;");
}

fn parameter_grant(parameter: &str, grantee: Option<&str>) -> ParameterGrant {
    ParameterGrant {
        parameter: Parameter::try_from(parameter.to_owned()).unwrap(),
        grantee: grantee.map(name),
        privilege: ParameterPrivilege::Set,
        can_grant: false,
    }
}

#[test]
fn rights_to_parameters_are_for_servers_that_know_them() {
    let mut globals = empty();
    globals.parameter_grants = vec![parameter_grant("my.x", Some("a\"b")), parameter_grant("work_mem", None)];
    globals.parameter_grants[1].privilege = ParameterPrivilege::AlterSystem;
    globals.parameter_grants[1].can_grant = true;
    assert_eq!(
        parameter_grants_sql(&globals, 150_000),
        [
            "GRANT SET ON PARAMETER \"my\".\"x\" TO \"a\"\"b\";",
            "GRANT ALTER SYSTEM ON PARAMETER \"work_mem\" TO PUBLIC WITH GRANT OPTION;"
        ]
    );
    assert_eq!(parameter_grants_sql(&globals, 140_009), [""; 0]);
}

#[test]
fn lists_of_names_are_written_name_by_name() {
    let sql = |setting_name: &str, value: &str| setting_sql(&setting(Some("app"), setting_name, value));
    assert_eq!(
        sql("search_path", "\"$user\", \"x, y\", public"),
        "ALTER ROLE \"app\" SET \"search_path\" TO '$user', 'x, y', 'public';"
    );
    assert_eq!(sql("search_path", "\"\""), "ALTER ROLE \"app\" SET \"search_path\" TO '';");
    assert_eq!(sql("search_path", ""), "ALTER ROLE \"app\" SET \"search_path\" TO '';");
    assert_eq!(sql("DateStyle", "ISO, DMY"), "ALTER ROLE \"app\" SET \"DateStyle\" TO 'ISO, DMY';");
    assert_eq!(sql("my.x", "a'b\\"), "ALTER ROLE \"app\" SET \"my.x\" TO E'a''b\\\\';");
    assert_eq!(setting_sql(&setting(None, "work_mem", "8MB")), "ALTER ROLE ALL SET \"work_mem\" TO '8MB';");
    for list in ["a b", "a,", ",a", "\"a", "\"a\"b", "a, , b"] {
        assert_eq!(split_names(list), None, "{list}");
    }
}

#[test]
fn settings_that_could_take_over_a_server_are_withheld() {
    let mut globals = empty();
    globals.settings = vec![
        setting(None, "Session_Preload_Libraries", "nope"),
        setting(Some("app"), "role", "postgres"),
        setting(Some("app"), "default_transaction_read_only", "on"),
    ];
    globals.databases = vec![facts()];
    globals.databases[0].settings.push(setting(None, "dynamic_library_path", "/tmp"));
    globals.databases[0].settings.push(setting(Some("app"), "local_preload_libraries", "x"));
    globals.parameter_grants =
        vec![parameter_grant("shared_preload_libraries", None), parameter_grant("work_mem", None)];
    let said: Vec<String> = globals.withhold(&Guarded::default()).into_iter().collect();
    let code = "was not restored: it decides which code the server loads or runs. To";
    assert_eq!(
        said,
        [
            format!(
                "The right SET of everybody to the setting \"shared_preload_libraries\" {code} give it by hand: GRANT SET ON \
                 PARAMETER \"shared_preload_libraries\" TO PUBLIC;"
            ),
            format!(
                "The setting \"Session_Preload_Libraries\" of all roles {code} set it by hand: ALTER ROLE ALL SET \
                 \"Session_Preload_Libraries\" TO 'nope';"
            ),
            format!(
                "The setting \"dynamic_library_path\" of database \"my-app\" {code} set it by hand: ALTER DATABASE \"my-app\" SET \
                 \"dynamic_library_path\" TO '/tmp';"
            ),
            format!(
                "The setting \"local_preload_libraries\" of role \"app\" in database \"my-app\" {code} set it by hand: ALTER ROLE \
                 \"app\" IN DATABASE \"my-app\" SET \"local_preload_libraries\" TO 'x';"
            ),
            "The setting \"role\" of role \"app\" was not restored: it changes who a session acts as. To set it by hand: ALTER \
             ROLE \"app\" SET \"role\" TO 'postgres';"
                .to_owned(),
        ]
    );
    assert_eq!(globals.settings, [setting(Some("app"), "default_transaction_read_only", "on")]);
    assert_eq!(globals.databases, [facts()]);
    assert_eq!(globals.parameter_grants, [parameter_grant("work_mem", None)]);
    assert!(globals.withhold(&Guarded::default()).is_empty());
}

#[test]
fn only_settings_that_are_known_to_be_harmless_are_restored() {
    let everywhere = ["timezone", "datestyle", "lc_messages", "jit"];
    let of_one = [
        "search_path",
        "work_mem",
        "statement_timeout",
        "default_transaction_read_only",
        "enable_something_new",
        "app.tenant",
        "a.b.c",
    ];
    let never = [
        ("zero_damaged_pages", "damage"),
        ("ignore_checksum_failure", "damage"),
        ("ignore_system_indexes", "damage"),
        ("allow_system_table_mods", "damage"),
        ("session_replication_role", "damage"),
        ("LO_compat_privileges", "what roles may do"),
        ("password_encryption", "who can connect"),
        ("log_statement", "what the server logs"),
        ("plperl.on_init", "which code"),
        ("pljava.libjvm_location", "which code"),
        ("PGAudit.log", "an extension"),
        ("postgis.gdal_enabled_drivers", "an extension"),
        ("duckdb.x", "an extension"),
        ("extwlist.extensions", "an extension"),
        ("client_encoding", "how quotes"),
        ("standard_conforming_strings", "how quotes"),
        ("exit_on_error", "not known to be harmless"),
        ("setting_of_a_later_version", "not known to be harmless"),
    ];
    for name in everywhere {
        assert_eq!((why_withheld(name, Whose::AllRoles), why_withheld(name, Whose::One)), (None, None), "{name}");
    }
    for name in of_one {
        let why = why_withheld(name, Whose::AllRoles).unwrap();
        assert_eq!(
            (why_withheld(name, Whose::One), why),
            (None, "it would change the sessions of everybody on the server")
        );
    }
    for (name, cause) in never {
        assert!(why_withheld(name, Whose::One).unwrap().contains(cause), "{name}");
        assert!(why_withheld(name, Whose::AllRoles).is_some(), "{name}");
        let is_withheld = |privilege| why_right_withheld(name, privilege).is_some();
        assert_eq!(is_withheld(ParameterPrivilege::Set), name != "log_statement", "{name}");
        assert!(is_withheld(ParameterPrivilege::AlterSystem), "{name}");
    }
}

#[test]
fn settings_that_the_server_guards_are_withheld() {
    let guarded = Guarded::new(["ext.path".to_owned()].into());
    let mut globals = empty();
    globals.settings = vec![setting(Some("app"), "Ext.Path", "/"), setting(Some("app"), "ext.own", "x")];
    globals.databases = vec![facts()];
    globals.databases[0].settings.push(setting(None, "ext.path", "/"));
    globals.parameter_grants = vec![parameter_grant("ext.path", None)];
    let said = globals.withhold(&guarded);
    assert_eq!(said.len(), 3);
    assert!(said.iter().all(|text| text.contains("extension of this server, and not everybody may change it")));
    assert_eq!((globals.settings.len(), globals.parameter_grants.len()), (1, 0));
    assert_eq!(globals.databases, [facts()]);
}

#[test]
fn statements_for_people_show_no_value_that_may_be_a_secret() {
    let said = |name: &str, value: &str| {
        let mut globals = empty();
        globals.settings = vec![setting(None, name, value)];
        globals.withhold(&Guarded::default()).pop_first().unwrap()
    };
    assert!(said("work_mem", "8MB").ends_with(" by hand: ALTER ROLE ALL SET \"work_mem\" TO '8MB';"));
    assert!(said("app.jwt_secret", "hunter2").ends_with(" by hand: ALTER ROLE ALL SET \"app.jwt_secret\" TO …;"));
    assert!(
        said("exit_on_error", "a\nb").ends_with(" TO …;")
            && said("exit_on_error", &"x".repeat(999)).ends_with(" TO …;")
    );
}

#[test]
fn the_role_that_is_connected_keeps_its_settings() {
    let mut globals = empty();
    globals.roles = vec![role("own"), role("app")];
    globals.settings = vec![setting(Some("own"), "work_mem", "8MB"), setting(Some("app"), "work_mem", "8MB")];
    globals.databases = vec![facts()];
    globals.databases[0].settings.push(setting(Some("own"), "search_path", "x"));
    assert_eq!(globals.spare(&["own".to_owned()].into()), [name("own")].into());
    assert_eq!((globals.roles, globals.databases), (vec![role("app")], vec![facts()]));
    assert_eq!(globals.settings, [setting(Some("app"), "work_mem", "8MB")]);
}

#[test]
fn whoever_gains_rights_is_named() {
    let read = |name: &str, is_superuser: bool, member_of: &[&str]| {
        let value = serde_json::json!({"name": name, "is_superuser": is_superuser, "creates_roles": false,
            "creates_databases": true, "replicates": false, "bypasses_row_security": false, "member_of": member_of,
            "admin_of": [], "can_login": name == "app", "valid_until": null, "password": "md5x"});
        serde_json::from_value::<RoleThere>(value).unwrap()
    };
    let there = [
        read("app", false, &["pg_monitor"]),
        read("helper", false, &["app"]),
        read("root", true, &[]),
        read("pg_monitor", false, &[]),
        read("pg_execute_server_program", false, &[]),
    ];
    let hash = Password(format!("md5{}", "0".repeat(32)));
    let all = |name: &str| Role {
        is_superuser: true,
        creates_roles: true,
        creates_databases: true,
        replicates: true,
        bypasses_row_security: true,
        password: Some(hash.clone()),
        ..role(name)
    };
    let member = |role: &str| Membership {
        role: name(role),
        member: name("app"),
        is_admin: false,
        inherits: None,
        can_set: None,
    };
    let mut globals = empty();
    globals.roles = vec![all("app"), all("a\"b"), role("harmless")];
    globals.memberships =
        vec![member("pg_monitor"), member("pg_execute_server_program"), member("a\"b"), member("harmless")];
    assert_eq!(
        globals.gains(&there, false),
        [
            "The role \"app\" will gain SUPERUSER, REPLICATION, CREATEROLE, BYPASSRLS.",
            "The password of the role \"app\" will be the one of the backup.",
            "The new role \"a\"\"b\" will gain SUPERUSER, REPLICATION, CREATEROLE, CREATEDB, BYPASSRLS.",
            "The role \"helper\" will gain what a superuser may do, as a member.",
            "The role \"app\" will gain what \"pg_execute_server_program\" may do, as a member.",
            "The role \"helper\" will gain what \"pg_execute_server_program\" may do, as a member.",
        ]
    );
    // Also by existing memberships, and by a superuser that the restore leaves as it is on the server.
    globals.roles = vec![role("app"), role("boss")];
    globals.memberships = vec![member("root")];
    assert_eq!(
        globals.gains(&there, true),
        [
            "The role \"app\" would gain what a superuser may do, as a member.",
            "The role \"helper\" would gain what a superuser may do, as a member.",
        ]
    );
    globals.roles = vec![Role { creates_databases: true, ..role("app") }];
    globals.memberships = vec![member("pg_monitor")];
    assert_eq!(globals.gains(&there, true), Vec::<String>::new());
    // Also who may connect again, whose role somebody joins or may grant, and the settings of superusers.
    let until = Expiry::try_from("infinity".to_owned()).unwrap();
    globals.roles = vec![Role { can_login: true, valid_until: Some(until), ..role("helper") }, role("new")];
    globals.memberships = vec![member("helper"), Membership { is_admin: true, ..member("pg_monitor") }, member("new")];
    globals.parameter_grants = vec![parameter_grant("log_statement", None)];
    globals.settings = vec![setting(Some("root"), "search_path", "evil"), setting(Some("app"), "search_path", "x")];
    assert_eq!(
        globals.gains(&there, true),
        [
            "The role \"helper\" would gain LOGIN, a new VALID UNTIL.",
            "The role \"app\" would become a member of \"helper\".",
            "The role \"app\" would be able to make roles members of \"pg_monitor\".",
            "Everybody would get the right SET to the setting \"log_statement\".",
            "The setting \"search_path\" of the superuser \"root\" would be the one of the backup.",
        ]
    );
}

#[test]
fn a_database_is_made_as_it_was() {
    let new = name("copy \"1\"");
    assert_eq!(
        create_database_sql(&facts(), &new, 150_000).unwrap(),
        "CREATE DATABASE \"copy \"\"1\"\"\" WITH TEMPLATE = template0 ENCODING = 'UTF8' LOCALE_PROVIDER = icu \
         ICU_LOCALE = 'de' LC_COLLATE = 'de_DE.UTF-8' LC_CTYPE = 'C';"
    );
    assert!(create_database_sql(&facts(), &new, 140_000).unwrap_err().contains("PostgreSQL 15"));
    let finish = finish_database_sql(&facts(), &name("n"), true);
    assert_eq!(
        finish,
        [
            "COMMENT ON DATABASE \"n\" IS E'it''s \\\\';",
            "DO 'BEGIN EXECUTE ''ALTER DATABASE \"n\" SET \"search_path\" TO ''''$user'''', ''''x y'''', ''''public'''';''; \
             EXCEPTION WHEN OTHERS THEN RAISE WARNING USING MESSAGE = ''A setting was refused by this server: ALTER \
             DATABASE \"n\" SET \"search_path\" TO ''''$user'''', ''''x y'''', ''''public''''; '' || SQLERRM; END';",
            "DO 'BEGIN EXECUTE ''ALTER ROLE \"app\" IN DATABASE \"n\" SET \"my.x\" TO ''''a, b'''';''; EXCEPTION WHEN \
             OTHERS THEN RAISE WARNING USING MESSAGE = ''A setting was refused by this server: ALTER ROLE \"app\" IN \
             DATABASE \"n\" SET \"my.x\" TO …; '' || SQLERRM; END';",
            "ALTER DATABASE \"n\" OWNER TO \"app\";",
            "REVOKE ALL ON DATABASE \"n\" FROM PUBLIC;",
            "REVOKE ALL ON DATABASE \"n\" FROM \"app\";",
            "GRANT CONNECT ON DATABASE \"n\" TO PUBLIC;",
            "GRANT CREATE ON DATABASE \"n\" TO \"a\"\"b\" WITH GRANT OPTION;",
            "ALTER DATABASE \"n\" CONNECTION LIMIT 7;",
            "ALTER DATABASE \"n\" IS_TEMPLATE true;",
            "ALTER DATABASE \"n\" ALLOW_CONNECTIONS false;",
        ]
    );
    // A database that existed before keeps its owner, and what cannot be set is reported.
    let there = DatabaseFacts { name: name("n"), ..facts() };
    let existing = finish_existing_sql(&facts(), &there, true);
    assert_eq!(existing.len(), finish.len() - 1);
    assert!(existing.iter().all(|sql| sql.starts_with("DO ") && !sql.contains("OWNER TO")), "{existing:?}");
    assert!(
        existing
            .iter()
            .any(|sql| sql.contains("''This was not restored: REVOKE ALL ON DATABASE \"n\" FROM PUBLIC; ''"))
    );
    let without = finish_database_sql(&facts(), &name("n"), false);
    assert!(without.iter().all(|sql| !sql.contains("app") && !sql.contains("GRANT")), "{without:?}");
}

#[test]
fn a_document_is_read_back_and_anything_else_in_it_is_refused() {
    let mut globals = empty();
    globals.roles = vec![role("app")];
    globals.databases = vec![facts()];
    globals.settings = vec![setting(None, "a.b", "x")];
    globals.parameter_grants = vec![parameter_grant("my.x", Some("app"))];
    let document = serde_json::to_value(&globals).unwrap();
    let read = |document: &serde_json::Value| parse(document.to_string().as_bytes());
    assert_eq!(read(&document), Ok(globals.clone()));
    let changes: [(&str, serde_json::Value); 16] = [
        ("/roles/0/name", "".into()),
        ("/roles/0/name", "a\0b".into()),
        ("/roles/0/name", "x".repeat(256).into()),
        ("/roles/0/connection_limit", (-2).into()),
        ("/roles/0/is_superuser", "true".into()),
        ("/roles/0/valid_until", "2030-01-01'; DROP".into()),
        ("/roles/0/valid_until", "ä030-01-01 00:00:00.000000+00".into()),
        ("/settings/0/name", "a b".into()),
        ("/settings/0/name", "a\"".into()),
        ("/settings/0/name", "a..b".into()),
        ("/databases/0/settings/0/value", "a b".into()),
        ("/databases/0/encoding", "UTF8'".into()),
        ("/databases/0/provider", "x".into()),
        ("/databases/0/acl/0/privilege", "ALL".into()),
        ("/parameter_grants/0/privilege", "ALL".into()),
        ("/parameter_grants/0/parameter", "a\"b".into()),
    ];
    for (place, value) in changes {
        let mut changed = document.clone();
        *changed.pointer_mut(place).unwrap() = value.clone();
        assert!(read(&changed).is_err(), "{place} {value}");
    }
    for place in ["", "/roles/0", "/databases/0", "/databases/0/acl/0", "/settings/0", "/parameter_grants/0"] {
        let mut changed = document.clone();
        let object = changed.pointer_mut(place).unwrap().as_object_mut().unwrap();
        object.insert("more".to_owned(), 1.into());
        assert!(read(&changed).is_err(), "{place}");
    }
    // A document written before rights to parameters were included.
    let mut older = document.clone();
    older.as_object_mut().unwrap().remove("parameter_grants");
    assert_eq!(read(&older).unwrap().parameter_grants, []);
    let twice = format!("{document}{document}");
    assert!(parse(twice.as_bytes()).is_err());
    assert!(parse(b"Welcome!\n{}").is_err());
    assert_eq!(parse_database(b"\n"), Ok(None));
    assert_eq!(parse_database(serde_json::to_vec(&facts()).unwrap().as_slice()), Ok(Some(facts())));
}

/// Reads one quoted name or literal and returns its value, in both ways that a server may read a backslash.
fn unquote(sql: &str, backslash_escapes: bool) -> Option<(String, String)> {
    let (escapes, rest) = match sql.strip_prefix('E') {
        Some(rest) => (true, rest),
        None => (backslash_escapes && sql.starts_with('\''), sql),
    };
    let quote = rest.chars().next()?;
    let (mut value, mut chars) = (String::new(), rest[1..].chars().peekable());
    loop {
        match chars.next()? {
            '\\' if escapes => value.push(chars.next().filter(|c| *c == '\\')?),
            c if c == quote => match chars.next_if_eq(&quote) {
                Some(_) => value.push(quote),
                None => return Some((value, chars.collect())),
            },
            c => value.push(c),
        }
    }
}

proptest! {
    #[test]
    fn nothing_gets_out_of_its_quotes(value in "[^\0]*", odd in "['\"\\\\E$;\n:-]{0,12}") {
        for value in [value, odd] {
            let sql = crate::postgres::quoting::text(&value);
            for backslash_escapes in [true, false] {
                prop_assert_eq!(unquote(&sql, backslash_escapes), Some((value.clone(), String::new())));
            }
            if let Ok(name) = Name::try_from(value.clone()) {
                let sql = crate::postgres::quoting::identifier(&name);
                prop_assert_eq!(unquote(&sql, true), Some((value, String::new())));
            }
        }
    }

    #[test]
    fn no_document_makes_it_panic(document in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,40}") {
        let _ = parse(&document);
        let _ = parse_database(&document);
        let _ = split_names(&text);
        let _ = Expiry::try_from(text);
    }
}
