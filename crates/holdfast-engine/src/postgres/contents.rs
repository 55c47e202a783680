//! What people created in a database: anything that a new database on that server does not have. Objects of an
//! extension do not count, and neither does the extension itself: where only an administrator can create it, people do
//! so before they restore.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// The first object id (oid) that a server assigns after its setup; built-in objects have lower ones.
const FIRST_MADE: u32 = 16_384;
/// The first version with publications and subscriptions.
pub(crate) const LOGICAL_REPLICATION: u32 = 100_000;
/// How many objects are compared with those of the template. More do not fit into an answer.
const COMPARED: usize = 50_000;

/// A catalogue of a database, the kind of objects in it, and which of its rows count.
struct Catalogue {
    name: &'static str,
    kind: &'static str,
    condition: &'static str,
    since: u32,
}

const fn catalogue(name: &'static str, kind: &'static str, condition: &'static str) -> Catalogue {
    Catalogue { name, kind, condition, since: 0 }
}

/// Excludes temporary schemas, which end with their session.
const NOT_TEMPORARY: &str = "NOT EXISTS (SELECT FROM pg_catalog.pg_namespace n WHERE n.nspname ~ '^pg_(toast_)?temp_' AND \
    n.oid = ";

const CATALOGUES: &[Catalogue] = &[
    catalogue("pg_class", "tables, views and sequences", "o.relkind NOT IN ('i', 'I', 't')"),
    catalogue("pg_proc", "functions", ""),
    catalogue("pg_type", "types", ""),
    catalogue("pg_namespace", "schemas", "o.nspname !~ '^pg_' AND o.nspname NOT IN ('public', 'information_schema')"),
    catalogue("pg_operator", "operators", ""),
    catalogue("pg_opclass", "operator classes", ""),
    catalogue("pg_opfamily", "operator families", ""),
    catalogue("pg_collation", "collations", ""),
    catalogue("pg_conversion", "conversions", ""),
    catalogue("pg_cast", "casts", ""),
    catalogue("pg_transform", "transforms", ""),
    catalogue("pg_language", "languages", ""),
    catalogue("pg_am", "access methods", ""),
    catalogue("pg_event_trigger", "event triggers", ""),
    catalogue("pg_foreign_data_wrapper", "foreign-data wrappers", ""),
    catalogue("pg_foreign_server", "foreign servers", ""),
    catalogue("pg_ts_config", "text search configurations", ""),
    catalogue("pg_ts_dict", "text search dictionaries", ""),
    catalogue("pg_ts_parser", "text search parsers", ""),
    catalogue("pg_ts_template", "text search templates", ""),
    catalogue(DEFAULT_PRIVILEGES, "default privileges", ""),
    catalogue("pg_largeobject_metadata", "large objects", ""),
    Catalogue { name: "pg_publication", kind: "publications", condition: "", since: LOGICAL_REPLICATION },
    Catalogue { name: SUBSCRIPTIONS, kind: "subscriptions", condition: "", since: LOGICAL_REPLICATION },
];

const DEFAULT_PRIVILEGES: &str = "pg_default_acl";

/// The subscriptions of all databases are in one catalogue, whose oids not everybody may read.
const SUBSCRIPTIONS: &str = "pg_subscription";

/// Asks a database for what [`Contents`] reads. `server_version` is that of its server.
pub fn contents_query(server_version: u32) -> String {
    let known = CATALOGUES.iter().enumerate().filter(|(_, catalogue)| catalogue.since <= server_version);
    let all: Vec<String> = known.map(|(index, catalogue)| made_query(index, catalogue)).collect();
    format!(
        "SELECT pg_catalog.json_build_object('count', pg_catalog.count(*), 'kinds', (SELECT \
         coalesce(pg_catalog.json_object_agg(k.kind, k.count), '{{}}') FROM (SELECT a.kind, pg_catalog.count(*) FROM made \
         a GROUP BY a.kind) k), 'first', (SELECT coalesce(pg_catalog.json_agg(pg_catalog.json_build_array(f.kind, \
         f.oid::pg_catalog.int8)), '[]') FROM (SELECT a.kind, a.oid FROM made a ORDER BY a.oid LIMIT {COMPARED}) f)) FROM \
         made"
    )
    .replacen("SELECT", &format!("WITH made AS ({}) SELECT", all.join(" UNION ALL ")), 1)
}

/// Rows that an extension's script made, or that were made together with another row, do not count.
fn made_query(index: usize, catalogue: &Catalogue) -> String {
    let Catalogue { name, condition, .. } = catalogue;
    if *name == SUBSCRIPTIONS {
        return format!(
            "SELECT {index} AS kind, o.subdbid FROM pg_catalog.{name} o JOIN pg_catalog.pg_database d ON d.oid = \
             o.subdbid WHERE d.datname = pg_catalog.current_database()"
        );
    }
    // Anybody may choose the oid of a large object.
    let first = if *name == "pg_largeobject_metadata" { 1 } else { FIRST_MADE };
    let theirs = owner(name).map_or_else(String::new, |owner| {
        format!(" AND EXISTS (SELECT FROM pg_catalog.pg_roles r WHERE r.oid = o.{owner} AND r.rolsuper)")
    });
    let mut sql = format!(
        "SELECT {index} AS kind, o.oid FROM pg_catalog.{name} o WHERE o.oid >= {first} AND NOT EXISTS (SELECT FROM \
         pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.{name}'::pg_catalog.regclass AND d.objid = o.oid AND \
         d.objsubid = 0 AND (d.deptype = 'i' OR d.deptype = 'e'{theirs}))"
    );
    let schema = match *name {
        "pg_class" => Some("o.relnamespace"),
        "pg_proc" => Some("o.pronamespace"),
        "pg_type" => Some("o.typnamespace"),
        _ => None,
    };
    if let Some(schema) = schema {
        sql.push_str(&format!(" AND {NOT_TEMPORARY}{schema})"));
    }
    if !condition.is_empty() {
        sql.push_str(&format!(" AND {condition}"));
    }
    sql
}

/// The column with the owner of objects that can run, or cause something to run, for others. The owner of an extension
/// can add their own objects to it; those from its script belong to an administrator. The owner of a table of an
/// extension can have its defaults and checks run something when rows are loaded.
fn owner(catalogue: &str) -> Option<&'static str> {
    Some(match catalogue {
        "pg_class" => "relowner",
        "pg_proc" => "proowner",
        "pg_type" => "typowner",
        "pg_namespace" => "nspowner",
        "pg_operator" => "oprowner",
        "pg_opclass" => "opcowner",
        "pg_opfamily" => "opfowner",
        "pg_collation" => "collowner",
        "pg_conversion" => "conowner",
        "pg_language" => "lanowner",
        "pg_event_trigger" => "evtowner",
        "pg_foreign_data_wrapper" => "fdwowner",
        "pg_foreign_server" => "srvowner",
        "pg_ts_config" => "cfgowner",
        "pg_ts_dict" => "dictowner",
        _ => return None,
    })
}

/// The answer to [`contents_query`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contents {
    count: u64,
    /// The number of objects of each kind, by its index in the list.
    kinds: BTreeMap<usize, u64>,
    /// Kinds and oids of the objects that are compared.
    first: BTreeSet<(usize, u32)>,
}

impl Contents {
    /// Removes what came from the template: a database created from it has the same objects with the same oids. Default
    /// privileges count nevertheless: they would change the rights of whatever is restored.
    pub fn without(mut self, template: &Self) -> Self {
        let counts = |kind: usize| CATALOGUES.get(kind).is_some_and(|catalogue| catalogue.name == DEFAULT_PRIVILEGES);
        for (kind, _) in self.first.intersection(&template.first).filter(|(kind, _)| !counts(*kind)) {
            self.count = self.count.saturating_sub(1);
            if let Some(count) = self.kinds.get_mut(kind) {
                *count = count.saturating_sub(1);
            }
        }
        self.kinds.retain(|_, count| *count > 0);
        self
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// What there is, for messages.
    pub fn described(&self) -> String {
        let kind = |index: usize| CATALOGUES.get(index).map_or("others", |catalogue| catalogue.kind);
        let kinds: Vec<String> =
            self.kinds.iter().map(|(index, count)| format!("{} ({count})", kind(*index))).collect();
        kinds.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_from_the_template_do_not_count() {
        let read = |text: &str| serde_json::from_str::<Contents>(text).unwrap();
        let database =
            r#"{"count": 4, "kinds": {"0": 3, "2": 1}, "first": [[0, 16384], [0, 16390], [2, 16400], [0, 20000]]}"#;
        let template = r#"{"count": 3, "kinds": {"0": 1, "2": 2}, "first": [[0, 16384], [2, 16400], [2, 16390]]}"#;
        let own = read(database).without(&read(template));
        assert_eq!((own.count(), own.described().as_str()), (2, "tables, views and sequences (2)"));
        assert_eq!(read(database).without(&read(database)).count(), 0);
        let privileges = CATALOGUES.iter().position(|catalogue| catalogue.name == DEFAULT_PRIVILEGES).unwrap();
        let privileges =
            read(&format!(r#"{{"count": 1, "kinds": {{"{privileges}": 1}}, "first": [[{privileges}, 16384]]}}"#));
        assert_eq!(privileges.clone().without(&privileges).described(), "default privileges (1)");
        assert!(
            !contents_query(90_600).contains("pg_publication") && contents_query(150_000).contains("pg_publication")
        );
    }
}
