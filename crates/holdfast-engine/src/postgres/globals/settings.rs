//! Which settings a restore sets, and which rights to settings it grants. Only settings on a list are restored: every
//! version of PostgreSQL adds some, and one that is wrong, or was put there by somebody else, can run code in the
//! server, damage its data or lock everybody out. Names with a dot belong to applications, of which nobody has a list,
//! and to extensions: they are restored unless their prefix is on a list, or the server knows them as settings that not
//! everybody may change. What is left out is reported, with the statement that sets it manually.

use std::collections::BTreeSet;

use super::{DatabaseFacts, Globals, Name, ParameterPrivilege, Setting, sql};
use crate::postgres::quoting;

/// Restored for a single role or database. A session can set nearly all of these for itself, and they end with it: how
/// values are formatted, how long to wait, which schemas to search, how to plan, how much memory to use.
const SESSION: &[&str] = &[
    "application_name",
    "array_nulls",
    "backend_flush_after",
    "bytea_output",
    "check_function_bodies",
    "client_connection_check_interval",
    "client_min_messages",
    "commit_siblings",
    "constraint_exclusion",
    "cpu_index_tuple_cost",
    "cpu_operator_cost",
    "cpu_tuple_cost",
    "cursor_tuple_fraction",
    "DateStyle",
    "default_statistics_target",
    "default_table_access_method",
    "default_tablespace",
    "default_text_search_config",
    "default_toast_compression",
    "default_transaction_deferrable",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "effective_cache_size",
    "effective_io_concurrency",
    "escape_string_warning",
    "extra_float_digits",
    "from_collapse_limit",
    "geqo",
    "geqo_effort",
    "geqo_generations",
    "geqo_pool_size",
    "geqo_seed",
    "geqo_selection_bias",
    "geqo_threshold",
    "gin_fuzzy_search_limit",
    "gin_pending_list_limit",
    "hash_mem_multiplier",
    "icu_validation_level",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "IntervalStyle",
    "io_combine_limit",
    "jit",
    "jit_above_cost",
    "jit_expressions",
    "jit_inline_above_cost",
    "jit_optimize_above_cost",
    "jit_tuple_deforming",
    "join_collapse_limit",
    "lc_messages",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "lock_timeout",
    "logical_decoding_work_mem",
    "maintenance_io_concurrency",
    "maintenance_work_mem",
    "max_parallel_maintenance_workers",
    "max_parallel_workers",
    "max_parallel_workers_per_gather",
    "min_parallel_index_scan_size",
    "min_parallel_relation_size",
    "min_parallel_table_scan_size",
    "parallel_leader_participation",
    "parallel_setup_cost",
    "parallel_tuple_cost",
    "plan_cache_mode",
    "quote_all_identifiers",
    "random_page_cost",
    "recursive_worktable_factor",
    "row_security",
    "search_path",
    "seq_page_cost",
    "statement_timeout",
    "stats_fetch_consistency",
    "synchronize_seqscans",
    "synchronous_commit",
    "tcp_keepalives_count",
    "tcp_keepalives_idle",
    "tcp_keepalives_interval",
    "tcp_user_timeout",
    "temp_buffers",
    "temp_file_limit",
    "temp_tablespaces",
    "TimeZone",
    "timezone_abbreviations",
    "track_functions",
    "track_io_timing",
    "transaction_timeout",
    "transform_null_equals",
    "vacuum_buffer_usage_limit",
    "vacuum_cost_delay",
    "vacuum_cost_limit",
    "vacuum_cost_page_dirty",
    "vacuum_cost_page_hit",
    "vacuum_cost_page_miss",
    "vacuum_freeze_min_age",
    "vacuum_freeze_table_age",
    "vacuum_multixact_freeze_min_age",
    "vacuum_multixact_freeze_table_age",
    "wal_sender_timeout",
    "wal_skip_threshold",
    "work_mem",
    "xmlbinary",
    "xmloption",
];

/// The switches of the planner; each version adds one or two.
const PLANNER: &str = "enable_";

/// Restored for all roles at once: how values and messages look, and one switch that many servers turn off. Everything
/// else would also change the sessions of the server's administrators.
const EVERYBODY: &[&str] = &[
    "bytea_output",
    "DateStyle",
    "default_text_search_config",
    "extra_float_digits",
    "IntervalStyle",
    "jit",
    "lc_messages",
    "lc_monetary",
    "lc_numeric",
    "lc_time",
    "TimeZone",
];

/// Settings of the server's log: not restored, since they decide what an auditor sees, but rights to set them are.
const LOGGING: &[&str] = &["compute_query_id", "debug_pretty_print", "track_activities", "track_wal_io_timing"];

/// Settings that specify libraries or programs, or where to look for them: in every session, in the server itself, or
/// on first use of a language.
const CODE: &[&str] = &[
    "archive_cleanup_command",
    "archive_command",
    "archive_library",
    "dynamic_library_path",
    "extension_control_path",
    "extension_destdir",
    "jit_provider",
    "local_preload_libraries",
    "oauth_validator_libraries",
    "recovery_end_command",
    "restore_command",
    "session_preload_libraries",
    "shared_preload_libraries",
    "ssl_passphrase_command",
];

/// Settings that make a session act as somebody else.
const IDENTITY: &[&str] = &["role", "session_authorization"];

/// Settings that decide who can connect, or that delay every connection.
const ENTRANCE: &[&str] = &[
    "hba_file",
    "ident_file",
    "krb_server_keyfile",
    "password_encryption",
    "post_auth_delay",
    "pre_auth_delay",
    "ssl_ca_file",
];

/// Settings that let the server continue with damaged data, or turn off what keeps data consistent.
const DATA: &[&str] = &[
    "allow_in_place_tablespaces",
    "allow_system_table_mods",
    "fsync",
    "full_page_writes",
    "ignore_checksum_failure",
    "ignore_invalid_pages",
    "ignore_system_indexes",
    "session_replication_role",
    "wal_compression",
    "wal_consistency_checking",
    "wal_init_zero",
    "wal_recycle",
    "zero_damaged_pages",
];

/// Settings that extend the rights of a role.
const RIGHTS: &[&str] = &["createrole_self_grant", "lo_compat_privileges"];

/// Settings that change where literals in statements end, so that an application's escaping may fail.
const ESCAPING: &[&str] = &["backslash_quote", "client_encoding", "standard_conforming_strings"];

/// Prefixes of languages whose settings are code, or say which code to run.
const LANGUAGES: &[&str] = &[
    "pljava",
    "pllua",
    "plluau",
    "plperl",
    "plperlu",
    "plphp",
    "plpython",
    "plpython3",
    "plr",
    "plrust",
    "plsh",
    "pltcl",
    "pltclu",
    "plv8",
];

/// Prefixes of extensions whose settings decide what is logged, who may do what, what is read from elsewhere, or what
/// runs in the background. The target server reports others, if it has them loaded.
const EXTENSIONS: &[&str] = &[
    "anon",
    "auth_delay",
    "auto_explain",
    "basic_archive",
    "citus",
    "credcheck",
    "cron",
    "duckdb",
    "extwlist",
    "http",
    "passwordcheck",
    "pg_prewarm",
    "pg_stat_statements",
    "pgaudit",
    "pgsodium",
    "pgtle",
    "postgis",
    "sepgsql",
    "set_user",
    "supautils",
    "timescaledb",
];

/// Whose sessions a setting is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    AllRoles,
    /// The sessions of one role, of one database, or of one role in one database.
    One,
}

fn has(list: &[&str], setting: &str) -> bool {
    list.iter().any(|name| name.eq_ignore_ascii_case(setting))
}

fn is_logging(setting: &str) -> bool {
    let starts = |prefix: &str| setting.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    has(LOGGING, setting) || starts("log_")
}

/// Why a setting with this prefix is not restored. Those of applications mean nothing to the server, and the
/// applications' policies may depend on them, so they are restored.
fn why_custom_withheld(prefix: &str) -> Option<&'static str> {
    match prefix {
        prefix if has(LANGUAGES, prefix) => Some("it decides which code the server loads or runs"),
        prefix if has(EXTENSIONS, prefix) => Some("it belongs to an extension and is not known to be harmless"),
        _ => None,
    }
}

/// Why a setting is not restored, for messages; `None` if it is. Servers ignore case in names of settings.
pub fn why_withheld(setting: &str, whose: Whose) -> Option<&'static str> {
    let is_planner = setting.get(..PLANNER.len()).is_some_and(|start| start.eq_ignore_ascii_case(PLANNER));
    let is_restored = match (whose, setting.split_once('.')) {
        (Whose::AllRoles, _) => has(EVERYBODY, setting),
        (Whose::One, Some((prefix, _))) => why_custom_withheld(prefix).is_none(),
        (Whose::One, None) => has(SESSION, setting) || is_planner,
    };
    if is_restored {
        return None;
    }
    let lists = [
        (CODE, "it decides which code the server loads or runs"),
        (IDENTITY, "it changes who a session acts as"),
        (ENTRANCE, "it decides who can connect"),
        (DATA, "it can hide, spread or cause damage to data"),
        (RIGHTS, "it widens what roles may do"),
        (ESCAPING, "it changes how quotes in statements are read"),
    ];
    let cause = lists.into_iter().find(|(list, _)| has(list, setting)).map(|(_, why)| why);
    let cause = cause.or_else(|| setting.split_once('.').and_then(|(prefix, _)| why_custom_withheld(prefix)));
    Some(cause.unwrap_or(match whose {
        _ if is_logging(setting) => "it decides what the server logs",
        Whose::AllRoles => "it would change the sessions of everybody on the server",
        Whose::One => "it is not known to be harmless",
    }))
}

/// Why a right to a setting is not granted, for messages. The right to set what the server logs of one's own sessions
/// is restored, although such settings are not.
pub fn why_right_withheld(setting: &str, privilege: ParameterPrivilege) -> Option<&'static str> {
    match privilege {
        // Settings of the server decide, for one thing, which files it writes its log to.
        ParameterPrivilege::AlterSystem => Some("it would let a role change the settings of the whole server"),
        ParameterPrivilege::Set if is_logging(setting) => None,
        ParameterPrivilege::Set => why_withheld(setting, Whose::One),
    }
}

/// Names of settings of extensions that not everybody may change, in lower case, as reported by a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guarded(BTreeSet<String>);

impl Guarded {
    /// Asks a server for them, as a JSON list.
    pub const QUERY: &str = "SELECT coalesce(pg_catalog.json_agg(pg_catalog.lower(name)), '[]') FROM \
        pg_catalog.pg_settings WHERE pg_catalog.strpos(name, '.') > 0 AND context <> 'user'";

    pub fn new(names: BTreeSet<String>) -> Self {
        Self(names)
    }

    fn why(&self, setting: &str) -> Option<&'static str> {
        let is_guarded = self.0.contains(&setting.to_ascii_lowercase());
        is_guarded.then_some("it belongs to an extension of this server, and not everybody may change it")
    }

    /// As [`why_withheld`], for this server.
    pub fn why_withheld(&self, setting: &str, whose: Whose) -> Option<&'static str> {
        why_withheld(setting, whose).or_else(|| self.why(setting))
    }

    /// As [`why_right_withheld`], for this server.
    pub fn why_right_withheld(&self, setting: &str, privilege: ParameterPrivilege) -> Option<&'static str> {
        why_right_withheld(setting, privilege).or_else(|| self.why(setting))
    }
}

impl Globals {
    /// Removes what is not restored, also from databases. Returns messages about what that was.
    pub fn withhold(&mut self, guarded: &Guarded) -> BTreeSet<String> {
        let mut said = BTreeSet::new();
        self.settings.retain(|setting| {
            let (whose, scope) = match &setting.role {
                Some(role) => (format!("role {}", named(role)), Whose::One),
                None => ("all roles".to_owned(), Whose::AllRoles),
            };
            let why = guarded.why_withheld(&setting.name, scope);
            is_kept(setting, why, &whose, &sql::setting_sql(setting), &mut said)
        });
        self.parameter_grants.retain(|grant| {
            let Some(why) = guarded.why_right_withheld(&grant.parameter.0, grant.privilege) else { return true };
            let privilege = grant.privilege.as_str();
            let whose =
                grant.grantee.as_ref().map_or_else(|| "everybody".to_owned(), |role| format!("role {}", named(role)));
            let (name, statement) = (quoting::shown(grant.parameter.0.as_bytes()), sql::parameter_grant_sql(grant));
            said.insert(format!(
                "The right {privilege} of {whose} to the setting {name} was not restored: {why}. To give it by hand: \
                 {statement}"
            ));
            false
        });
        for facts in &mut self.databases {
            let name = facts.name.clone();
            said.append(&mut facts.withhold(&name, guarded));
        }
        said
    }

    /// Removes the roles in `own`, which stay as they are on the server, and their settings. Returns those that were
    /// found.
    pub fn spare(&mut self, own: &BTreeSet<String>) -> BTreeSet<Name> {
        let mut spared = BTreeSet::new();
        let mut is_kept = |role: &Name| {
            let is_own = own.contains(role.as_str());
            if is_own {
                spared.insert(role.clone());
            }
            !is_own
        };
        self.roles.retain(|role| is_kept(&role.name));
        self.settings.retain(|setting| setting.role.as_ref().is_none_or(&mut is_kept));
        for facts in &mut self.databases {
            spared.append(&mut facts.spare(own));
        }
        spared
    }
}

impl DatabaseFacts {
    /// As [`Globals::withhold`], for a database that gets the name `target`.
    pub fn withhold(&mut self, target: &Name, guarded: &Guarded) -> BTreeSet<String> {
        let (name, mut said) = (named(&self.name), BTreeSet::new());
        self.settings.retain(|setting| {
            let whose = match &setting.role {
                Some(role) => format!("role {} in database {name}", named(role)),
                None => format!("database {name}"),
            };
            let why = guarded.why_withheld(&setting.name, Whose::One);
            is_kept(setting, why, &whose, &sql::database_setting_sql(setting, target), &mut said)
        });
        said
    }

    /// As [`Globals::spare`].
    pub fn spare(&mut self, own: &BTreeSet<String>) -> BTreeSet<Name> {
        let mut spared = BTreeSet::new();
        self.settings.retain(|setting| match &setting.role {
            Some(role) if own.contains(role.as_str()) => {
                spared.insert(role.clone());
                false
            }
            _ => true,
        });
        spared
    }
}

/// A quoted name, for a message that ends with a statement to run.
fn named(name: &Name) -> String {
    quoting::shown(name.as_str().as_bytes())
}

fn is_kept(setting: &Setting, why: Option<&str>, whose: &str, statement: &str, said: &mut BTreeSet<String>) -> bool {
    let Some(why) = why else { return true };
    said.insert(withheld(&setting.name, whose, why, statement));
    false
}

/// The message that a setting is left out, and how to set it nevertheless.
pub fn withheld(setting: &str, whose: &str, why: &str, statement: &str) -> String {
    let statement = sql::shown(statement, setting);
    let setting = quoting::shown(setting.as_bytes());
    format!("The setting {setting} of {whose} was not restored: {why}. To set it by hand: {statement}")
}
