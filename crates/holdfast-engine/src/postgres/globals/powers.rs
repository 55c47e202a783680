//! What roles may do on a server now, and what a restore makes of that: whoever runs it should see who becomes a
//! superuser there, and whose password changes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{Globals, Name, Role};
use crate::postgres::quoting;

/// A role of the server that is restored to.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleThere {
    name: String,
    is_superuser: bool,
    creates_roles: bool,
    creates_databases: bool,
    replicates: bool,
    bypasses_row_security: bool,
    member_of: BTreeSet<String>,
    /// As the server keeps it; `None` also when this login may not read it.
    password: Option<String>,
}

impl RoleThere {
    /// Whether it has what this word of `ALTER ROLE` gives.
    pub fn may(&self, power: &str) -> bool {
        match power {
            "SUPERUSER" => self.is_superuser,
            "REPLICATION" => self.replicates,
            "CREATEROLE" => self.creates_roles,
            "CREATEDB" => self.creates_databases,
            "BYPASSRLS" => self.bypasses_row_security,
            _ => false,
        }
    }
}

/// What a role gains, for a person.
pub fn gain(name: &str, gained: &[&str], is_new: bool, is_dry: bool) -> Option<String> {
    let (which, will) = (if is_new { "new role" } else { "role" }, if is_dry { "would" } else { "will" });
    let name = quoting::shown(name.as_bytes());
    (!gained.is_empty()).then(|| format!("The {which} {name} {will} gain {}.", gained.join(", ")))
}

/// That a role gets another password, for a person.
pub fn new_password(name: &str, is_dry: bool) -> String {
    let will = if is_dry { "would" } else { "will" };
    format!("The password of the role {} {will} be the one of the backup.", quoting::shown(name.as_bytes()))
}

/// What a server lets its roles do.
pub fn by_name(there: &[RoleThere]) -> BTreeMap<&str, &RoleThere> {
    there.iter().map(|role| (role.name.as_str(), role)).collect()
}

/// Asks for what [`RoleThere`] reads. Without `with_passwords`, everybody may ask.
pub fn roles_query(with_passwords: bool) -> String {
    let (table, password) = match with_passwords {
        true => ("pg_authid", "r.rolpassword"),
        false => ("pg_roles", "NULL"),
    };
    format!(
        "SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('name', r.rolname, 'is_superuser', r.rolsuper, \
         'creates_roles', r.rolcreaterole, 'creates_databases', r.rolcreatedb, 'replicates', r.rolreplication, \
         'bypasses_row_security', r.rolbypassrls, 'password', {password}, 'member_of', (SELECT \
         coalesce(pg_catalog.json_agg(g.rolname), '[]') FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles g ON \
         g.oid = m.roleid WHERE m.member = r.oid))), '[]') FROM pg_catalog.{table} r"
    )
}

impl Globals {
    /// What roles gain by being restored, and whose password changes, for a person.
    pub fn gains(&self, there: &[RoleThere], is_dry: bool) -> Vec<String> {
        let there = by_name(there);
        let will = if is_dry { "would" } else { "will" };
        let mut said = Vec::new();
        for role in &self.roles {
            let (name, before) = (role.name.as_str(), there.get(role.name.as_str()).copied());
            said.extend(gain(name, &gained(role, before), before.is_none(), is_dry));
            if let (Some(before), Some(hash)) = (before, role.password.as_ref().and_then(|password| password.hash()))
                && before.password.as_deref() != Some(hash)
            {
                said.push(new_password(name, is_dry));
            }
        }
        said.extend(self.memberships.iter().filter_map(|one| {
            let has = |before: &&RoleThere| before.member_of.contains(one.role.as_str());
            let is_new = !there.get(one.member.as_str()).is_some_and(has);
            let member = quoting::shown(one.member.as_str().as_bytes());
            (is_new && self.is_mighty(&one.role)).then(|| {
                format!("The role {member} {will} gain what {} may do.", quoting::shown(one.role.as_str().as_bytes()))
            })
        }));
        said
    }

    /// Roles of every server that may read and write everything, or run programs, and superusers.
    fn is_mighty(&self, name: &Name) -> bool {
        let is_superuser = |role: &Role| role.name == *name && role.is_superuser;
        name.as_str().starts_with("pg_") || self.roles.iter().any(is_superuser)
    }
}

/// The words for what `role` may do and may not now.
fn gained(role: &Role, before: Option<&RoleThere>) -> Vec<&'static str> {
    let powers = [
        (role.is_superuser, "SUPERUSER"),
        (role.replicates, "REPLICATION"),
        (role.creates_roles, "CREATEROLE"),
        (role.creates_databases, "CREATEDB"),
        (role.bypasses_row_security, "BYPASSRLS"),
    ];
    let had = |power: &str| before.is_some_and(|before| before.may(power));
    powers.into_iter().filter(|(is_set, power)| *is_set && !had(power)).map(|(_, power)| power).collect()
}
