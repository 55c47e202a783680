//! What roles may do on a server now, and how a restore changes that: the user should see who becomes a superuser
//! there, and whose password changes.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::query::VALID_UNTIL;
use super::{DatabaseFacts, Globals, Name, Role, Setting};
use crate::postgres::quoting;

/// Among what a role gains: its password may be valid again, or for longer.
pub const VALIDITY: &str = "a new VALID UNTIL";

/// A role on the target server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoleThere {
    name: String,
    is_superuser: bool,
    creates_roles: bool,
    creates_databases: bool,
    replicates: bool,
    bypasses_row_security: bool,
    can_login: bool,
    /// Until when its password is valid, in the form of [`super::Expiry`].
    valid_until: Option<String>,
    member_of: BTreeSet<String>,
    /// The roles among `member_of` that it may grant to others.
    admin_of: BTreeSet<String>,
    /// As the server stores it; also `None` if this login may not read it.
    password: Option<String>,
}

impl RoleThere {
    /// Whether the role has the attribute that this keyword of `ALTER ROLE` sets.
    pub fn may(&self, attribute: &str) -> bool {
        match attribute {
            "SUPERUSER" => self.is_superuser,
            "REPLICATION" => self.replicates,
            "CREATEROLE" => self.creates_roles,
            "CREATEDB" => self.creates_databases,
            "BYPASSRLS" => self.bypasses_row_security,
            "LOGIN" => self.can_login,
            _ => false,
        }
    }
}

/// The message about what a role gains.
pub fn gain(name: &str, gained: &[&str], is_new: bool, is_dry: bool) -> Option<String> {
    let (which, will) = (if is_new { "new role" } else { "role" }, if is_dry { "would" } else { "will" });
    let name = quoting::shown(name.as_bytes());
    (!gained.is_empty()).then(|| format!("The {which} {name} {will} gain {}.", gained.join(", ")))
}

/// The message that a role gets another password.
pub fn new_password(name: &str, is_dry: bool) -> String {
    let will = if is_dry { "would" } else { "will" };
    format!("The password of the role {} {will} be the one of the backup.", quoting::shown(name.as_bytes()))
}

/// The roles of a server by name.
pub fn by_name(there: &[RoleThere]) -> BTreeMap<&str, &RoleThere> {
    there.iter().map(|role| (role.name.as_str(), role)).collect()
}

/// Selects the roles that role `r` is a member of.
fn memberships(which: &str) -> String {
    format!(
        "(SELECT coalesce(pg_catalog.json_agg(g.rolname), '[]') FROM pg_catalog.pg_auth_members m JOIN \
         pg_catalog.pg_roles g ON g.oid = m.roleid WHERE m.member = r.oid AND {which})"
    )
}

/// Asks for what [`RoleThere`] reads. Without `with_passwords`, every role may run it.
pub fn roles_query(with_passwords: bool) -> String {
    let (table, password) = match with_passwords {
        true => ("pg_authid", "r.rolpassword"),
        false => ("pg_roles", "NULL"),
    };
    format!(
        "SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_object('name', r.rolname, 'is_superuser', r.rolsuper, \
         'creates_roles', r.rolcreaterole, 'creates_databases', r.rolcreatedb, 'replicates', r.rolreplication, \
         'bypasses_row_security', r.rolbypassrls, 'can_login', r.rolcanlogin, 'valid_until', {VALID_UNTIL}, \
         'password', {password}, 'member_of', {}, 'admin_of', {})), '[]') FROM pg_catalog.{table} r",
        memberships("TRUE"),
        memberships("m.admin_option")
    )
}

impl Globals {
    /// What roles gain from the restore, and whose password changes, as messages.
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
        let memberships = self.memberships.iter().map(|one| (one.role.as_str(), one.member.as_str(), one.is_admin));
        said.extend(new_memberships(&there, memberships, is_dry));
        let will = if is_dry { "would" } else { "will" };
        let grants = self.parameter_grants.iter().map(|grant| {
            let whom = grant.grantee.as_ref().map_or_else(|| "Everybody".to_owned(), |role| the_role(role.as_str()));
            let (privilege, option) =
                (grant.privilege.as_str(), if grant.can_grant { ", and to grant it to others" } else { "" });
            let parameter = quoting::shown(grant.parameter.0.as_bytes());
            format!("{whom} {will} get the right {privilege} to the setting {parameter}{option}.")
        });
        said.extend(bounded(grants, "rights to settings"));
        said.extend(changed_settings(&there, self.settings.iter(), None, is_dry));
        let databases = self.databases.iter();
        said.extend(
            databases.flat_map(|facts| changed_settings(&there, facts.settings.iter(), Some(&facts.name), is_dry)),
        );
        said
    }
}

impl DatabaseFacts {
    /// The settings that sessions of superusers in this database will start with, as messages.
    pub fn settings_of_superusers(&self, there: &[RoleThere], is_dry: bool) -> Vec<String> {
        changed_settings(&by_name(there), self.settings.iter(), Some(&self.name), is_dry)
    }
}

fn changed_settings<'a>(
    there: &BTreeMap<&str, &RoleThere>,
    settings: impl Iterator<Item = &'a Setting>,
    database: Option<&Name>,
    is_dry: bool,
) -> Vec<String> {
    let will = if is_dry { "would" } else { "will" };
    let place = database.map(|name| format!(" in database {}", quoting::shown(name.as_str().as_bytes())));
    let place = place.unwrap_or_default();
    let is_superuser = |role: &str| there.get(role).is_some_and(|role| role.is_superuser);
    let said = settings.filter_map(|setting| {
        let role = setting.role.as_ref().filter(|role| is_superuser(role.as_str()))?;
        let (role, name) = (quoting::shown(role.as_str().as_bytes()), quoting::shown(setting.name.as_bytes()));
        Some(format!("The setting {name} of the superuser {role}{place} {will} be the one of the backup."))
    });
    bounded(said, "settings of superusers")
}

fn the_role(name: &str) -> String {
    format!("The role {}", quoting::shown(name.as_bytes()))
}

/// How many messages of one kind there are at most.
const NAMED: usize = 100;

/// The first messages, and how many more there are.
fn bounded(texts: impl Iterator<Item = String>, what: &str) -> Vec<String> {
    let (mut said, mut more) = (Vec::new(), 0_usize);
    for text in texts {
        if said.len() < NAMED {
            said.push(text);
        } else {
            more += 1;
        }
    }
    if more > 0 {
        said.push(format!("{more} more {what} are in the backup."));
    }
    said
}

/// Messages about who becomes a member of an existing role. `new` are a role, its new member, and whether that may make
/// others members, too. What superusers and predefined roles may do is covered by [`gained_by_membership`].
pub fn new_memberships<'a>(
    there: &BTreeMap<&'a str, &'a RoleThere>,
    new: impl Iterator<Item = (&'a str, &'a str, bool)>,
    is_dry: bool,
) -> Vec<String> {
    let will = if is_dry { "would" } else { "will" };
    let said = new.filter_map(|(role, member, is_admin)| {
        let group = there.get(role)?;
        let before = there.get(member);
        let is_member = before.is_some_and(|before| before.member_of.contains(role));
        let was_admin = before.is_some_and(|before| before.admin_of.contains(role));
        let is_told = role.starts_with("pg_") || group.is_superuser;
        let shown = quoting::shown(role.as_bytes());
        match (is_admin && !was_admin, is_member || is_told) {
            (true, _) => Some(format!("{} {will} be able to make roles members of {shown}.", the_role(member))),
            (false, false) => Some(format!("{} {will} become a member of {shown}.", the_role(member))),
            (false, true) => None,
        }
    });
    bounded(said, "memberships")
}

/// Messages about who gains the rights of others by becoming a member, directly or indirectly: those of superusers, and
/// those of predefined roles, some of which may run programs or read everything. `new` are pairs of a role and its new
/// member.
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

/// The keywords for what `role` may do in the backup, but not on the server now.
fn gained(role: &Role, before: Option<&RoleThere>) -> Vec<&'static str> {
    let until = role.valid_until.as_ref().map(|until| until.0.as_str());
    let is_prolonged = until.is_some() && before.is_some_and(|before| before.valid_until.as_deref() != until);
    let attributes = [
        (role.is_superuser, "SUPERUSER"),
        (role.replicates, "REPLICATION"),
        (role.creates_roles, "CREATEROLE"),
        (role.creates_databases, "CREATEDB"),
        (role.bypasses_row_security, "BYPASSRLS"),
        (role.can_login && before.is_some(), "LOGIN"),
        (is_prolonged, VALIDITY),
    ];
    let had = |attribute: &str| before.is_some_and(|before| before.may(attribute));
    attributes
        .into_iter()
        .filter(|(is_set, attribute)| *is_set && !had(attribute))
        .map(|(_, attribute)| attribute)
        .collect()
}
