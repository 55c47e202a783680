//! What roles may do on a server now, and what a restore makes of that: whoever runs it should see who becomes a
//! superuser there, and whose password changes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{Globals, Role};
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
        let pairs = self.memberships.iter().map(|one| (one.role.as_str(), one.member.as_str()));
        let superusers = self.roles.iter().filter(|role| role.is_superuser).map(|role| role.name.as_str());
        said.extend(gained_by_membership(&there, pairs, superusers, is_dry));
        said
    }
}

/// Who gets what others may do by becoming a member, also of a member, for a person: what superusers may do, and what
/// the roles may that every server has, some of which run programs or read everything. `new` are roles, each with one
/// that becomes a member of it.
pub fn gained_by_membership<'a>(
    there: &BTreeMap<&'a str, &'a RoleThere>,
    new: impl Iterator<Item = (&'a str, &'a str)>,
    superusers: impl Iterator<Item = &'a str>,
    is_dry: bool,
) -> Vec<String> {
    let will = if is_dry { "would" } else { "will" };
    let (mut before, mut after) = (Members::new(), Members::new());
    for (member, role) in there.iter().flat_map(|(name, role)| role.member_of.iter().map(move |of| (*name, of))) {
        before.entry(role).or_default().push(member);
        after.entry(role).or_default().push(member);
    }
    new.for_each(|(role, member)| after.entry(role).or_default().push(member));
    let now: BTreeSet<&str> = there.iter().filter(|(_, role)| role.is_superuser).map(|(name, _)| *name).collect();
    let later: BTreeSet<&str> = superusers.chain(now.iter().copied()).collect();
    let own = there.keys().copied().filter(|name| name.starts_with("pg_"));
    let groups = own.map(|name| (format!("what {} may do", quoting::shown(name.as_bytes())), name));
    let groups = groups.map(|(what, name)| (what, BTreeSet::from([name]), BTreeSet::from([name])));
    let groups = [("what a superuser may do".to_owned(), now, later)].into_iter().chain(groups);
    let said = groups.flat_map(|(what, now, later)| {
        let had = reached(&before, &now);
        let gains = reached(&after, &later).into_iter().filter(|name| !had.contains(name) && !later.contains(name));
        let said =
            |name: &str| format!("The role {} {will} gain {what}, as a member.", quoting::shown(name.as_bytes()));
        gains.map(said).collect::<Vec<_>>()
    });
    said.collect()
}

/// Roles with their members.
type Members<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// These roles, their members, the members of those, and so on.
fn reached<'a>(members: &Members<'a>, from: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
    let mut reached = from.clone();
    let mut waiting: Vec<&str> = from.iter().copied().collect();
    while let Some(role) = waiting.pop() {
        let of_it = members.get(role).into_iter().flatten().copied();
        waiting.extend(of_it.filter(|member| reached.insert(member)));
    }
    reached
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
