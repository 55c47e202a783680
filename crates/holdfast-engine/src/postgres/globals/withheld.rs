//! Settings that no restore sets and rights to them that no restore gives, whatever a document says. One that is wrong,
//! or was put there by somebody else, would lock everybody out of the server or run code in it.

use std::collections::BTreeSet;

use super::{DatabaseFacts, Globals, ParameterPrivilege, Setting};

/// They name libraries or programs, or where those are looked for: in every session, in the server itself, or with the
/// first use of a language.
const CODE: &[&str] = &[
    "archive_cleanup_command",
    "archive_command",
    "archive_library",
    "dynamic_library_path",
    "extension_control_path",
    "jit_provider",
    "local_preload_libraries",
    "oauth_validator_libraries",
    "plperl.on_init",
    "plperl.on_plperl_init",
    "plperl.on_plperlu_init",
    "pltcl.start_proc",
    "pltclu.start_proc",
    "plv8.start_proc",
    "recovery_end_command",
    "restore_command",
    "session_preload_libraries",
    "shared_preload_libraries",
    "ssl_passphrase_command",
];

/// They make a session somebody else's.
const IDENTITY: &[&str] = &["role", "session_authorization"];

/// They decide who comes in, or let everybody wait before they do.
const ENTRANCE: &[&str] =
    &["hba_file", "ident_file", "krb_server_keyfile", "post_auth_delay", "pre_auth_delay", "ssl_ca_file"];

/// Why a setting is never restored, for a person; `None` for one that is. Servers do not tell cases apart.
pub fn why_withheld(setting: &str) -> Option<&'static str> {
    let lists = [
        (CODE, "it decides which code the server loads or runs"),
        (IDENTITY, "it changes who a session acts as"),
        (ENTRANCE, "it decides who can connect"),
    ];
    let has = |list: &[&str]| list.iter().any(|name| name.eq_ignore_ascii_case(setting));
    lists.into_iter().find(|(list, _)| has(list)).map(|(_, why)| why)
}

impl Globals {
    /// Takes out what is never restored, also of databases. Says, for a person, what that was.
    pub fn withhold(&mut self) -> BTreeSet<String> {
        let mut said = BTreeSet::new();
        self.settings.retain(|setting| {
            let whose = || setting.role.as_ref().map_or_else(|| "all roles".to_owned(), |role| format!("role {role}"));
            is_kept(setting, whose, &mut said)
        });
        self.parameter_grants.retain(|grant| {
            let Some(why) = why_withheld(&grant.parameter.0) else { return true };
            let privilege = match grant.privilege {
                ParameterPrivilege::Set => "SET",
                ParameterPrivilege::AlterSystem => "ALTER SYSTEM",
            };
            let whose = grant.grantee.as_ref().map_or_else(|| "everybody".to_owned(), |role| format!("role {role}"));
            let name = &grant.parameter.0;
            said.insert(format!("The right {privilege} of {whose} to the setting {name} was not restored: {why}."));
            false
        });
        for facts in &mut self.databases {
            said.append(&mut facts.withhold());
        }
        said
    }
}

impl DatabaseFacts {
    /// As [`Globals::withhold`].
    pub fn withhold(&mut self) -> BTreeSet<String> {
        let (name, mut said) = (&self.name, BTreeSet::new());
        self.settings.retain(|setting| {
            let whose = || match &setting.role {
                Some(role) => format!("role {role} in database {name}"),
                None => format!("database {name}"),
            };
            is_kept(setting, whose, &mut said)
        });
        said
    }
}

fn is_kept(setting: &Setting, whose: impl Fn() -> String, said: &mut BTreeSet<String>) -> bool {
    let Some(why) = why_withheld(&setting.name) else { return true };
    said.insert(format!("The setting {} of {} was not restored: {why}.", setting.name, whose()));
    false
}
