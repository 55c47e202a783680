//! Queries for servers of PostgreSQL 9.6 to 18. Each returns one JSON document, in the client's encoding, which must be
//! UTF-8 (`PGCLIENTENCODING`). Columns that only some versions have are read from the row as a document.

use super::Name;
use crate::postgres::quoting;

/// Whether [`globals_query`] may ask for passwords: `t` or `f`.
pub const CAN_READ_PASSWORDS: &str = "SELECT pg_catalog.has_table_privilege('pg_catalog.pg_authid', 'SELECT')";

/// Until when the password of the role `r` is valid.
pub(super) const VALID_UNTIL: &str = "CASE WHEN r.rolvaliduntil = 'infinity' THEN 'infinity' \
    WHEN r.rolvaliduntil = '-infinity' THEN '-infinity' \
    ELSE pg_catalog.to_char(r.rolvaliduntil AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') || '+00' END";

/// Asks for everything that `parse` reads. Without `with_passwords`, every role may run it.
pub fn globals_query(with_passwords: bool) -> String {
    let table = if with_passwords { "pg_authid" } else { "pg_roles" };
    let password = if with_passwords { "r.rolpassword" } else { "NULL::pg_catalog.text" };
    let (database, parameter_grants) = (database_document(), parameter_grants_document());
    format!(
        "SELECT pg_catalog.jsonb_build_object(\
         'server_version', pg_catalog.current_setting('server_version_num')::pg_catalog.int4, \
         'has_passwords', {with_passwords}, \
         'roles', (SELECT coalesce(pg_catalog.jsonb_agg(pg_catalog.jsonb_build_object(\
           'name', r.rolname, 'is_superuser', r.rolsuper, 'inherits', r.rolinherit, \
           'creates_roles', r.rolcreaterole, 'creates_databases', r.rolcreatedb, 'can_login', r.rolcanlogin, \
           'replicates', r.rolreplication, 'bypasses_row_security', r.rolbypassrls, \
           'connection_limit', r.rolconnlimit, 'password', {password}, \
           'valid_until', {VALID_UNTIL}, \
           'comment', pg_catalog.shobj_description(r.oid, 'pg_authid')) ORDER BY r.rolname), '[]') \
           FROM pg_catalog.{table} r WHERE r.rolname !~ '^pg_'), \
         'memberships', (SELECT coalesce(pg_catalog.jsonb_agg(DISTINCT pg_catalog.jsonb_build_object(\
           'role', g.rolname, 'member', u.rolname, 'is_admin', m.admin_option, \
           'inherits', pg_catalog.to_jsonb(m) -> 'inherit_option', \
           'can_set', pg_catalog.to_jsonb(m) -> 'set_option')), '[]') \
           FROM pg_catalog.pg_auth_members m JOIN pg_catalog.pg_roles g ON g.oid = m.roleid \
           JOIN pg_catalog.pg_roles u ON u.oid = m.member WHERE u.rolname !~ '^pg_'), \
         'settings', (SELECT coalesce(pg_catalog.jsonb_agg({SETTING}), '[]') FROM {SETTINGS} \
           WHERE s.setdatabase = 0), \
         'databases', (SELECT coalesce(pg_catalog.jsonb_agg({database} ORDER BY d.datname), '[]') \
           FROM {DATABASES} WHERE {IS_VALID} AND d.datname <> 'template0'), \
         'tablespaces', (SELECT coalesce(pg_catalog.jsonb_agg(t.spcname ORDER BY t.spcname), '[]') \
           FROM pg_catalog.pg_tablespace t WHERE t.spcname !~ '^pg_'), \
         'parameter_grants', {parameter_grants})"
    )
}

/// Servers before 15 do not have this table and refuse statements that mention it, so it only occurs in a string that
/// later servers run. The result of such a string is only available as XML; in hexadecimal digits it passes through
/// unchanged. The rights of the initial superuser are left out: it may do everything.
fn parameter_grants_document() -> String {
    const ASK: &str = "SELECT pg_catalog.encode(pg_catalog.convert_to(coalesce(pg_catalog.jsonb_agg(DISTINCT \
        pg_catalog.jsonb_build_object('parameter', p.parname, 'grantee', CASE WHEN a.grantee <> 0 THEN \
        pg_catalog.pg_get_userbyid(a.grantee) END, 'privilege', a.privilege_type, 'can_grant', a.is_grantable)), \
        '[]')::pg_catalog.text, pg_catalog.getdatabaseencoding()), 'hex') AS digits FROM pg_catalog.pg_parameter_acl p \
        CROSS JOIN LATERAL pg_catalog.aclexplode(p.paracl) a WHERE a.grantee <> 10";
    format!(
        "CASE WHEN pg_catalog.to_regclass('pg_catalog.pg_parameter_acl') IS NULL THEN '[]'::pg_catalog.jsonb ELSE \
         pg_catalog.convert_from(pg_catalog.decode(pg_catalog.substring(pg_catalog.query_to_xml({}, false, true, \
         '')::pg_catalog.text, '<digits>([0-9a-f]*)</digits>'), 'hex'), \
         pg_catalog.getdatabaseencoding())::pg_catalog.jsonb END",
        quoting::text(ASK)
    )
}

/// Asks for what `parse_database` reads; no row when there is no such database.
pub fn database_query(name: &Name) -> String {
    let (document, name) = (database_document(), quoting::text(name.as_str()));
    format!("SELECT {document} FROM {DATABASES} WHERE {IS_VALID} AND d.datname = {name}")
}

const SETTING: &str = "pg_catalog.jsonb_build_object('role', w.rolname, \
    'name', pg_catalog.left(c.item, pg_catalog.strpos(c.item, '=') - 1), \
    'value', pg_catalog.substr(c.item, pg_catalog.strpos(c.item, '=') + 1))";
const SETTINGS: &str = "pg_catalog.pg_db_role_setting s LEFT JOIN pg_catalog.pg_roles w ON w.oid = s.setrole \
    CROSS JOIN LATERAL pg_catalog.unnest(s.setconfig) c (item)";
const DATABASES: &str = "pg_catalog.pg_database d";
/// Servers use this limit to mark a database that they could not drop completely.
const IS_VALID: &str = "d.datconnlimit <> -2";

fn database_document() -> String {
    format!(
        "pg_catalog.jsonb_build_object(\
         'name', d.datname, 'owner', pg_catalog.pg_get_userbyid(d.datdba), \
         'encoding', pg_catalog.pg_encoding_to_char(d.encoding), 'collate', d.datcollate, 'ctype', d.datctype, \
         'provider', pg_catalog.to_jsonb(d) -> 'datlocprovider', \
         'locale', coalesce(pg_catalog.to_jsonb(d) ->> 'datlocale', pg_catalog.to_jsonb(d) ->> 'daticulocale'), \
         'icu_rules', pg_catalog.to_jsonb(d) -> 'daticurules', \
         'is_template', d.datistemplate, 'allows_connections', d.datallowconn, \
         'connection_limit', d.datconnlimit, \
         'tablespace', (SELECT t.spcname FROM pg_catalog.pg_tablespace t WHERE t.oid = d.dattablespace), \
         'comment', pg_catalog.shobj_description(d.oid, 'pg_database'), \
         'acl', CASE WHEN d.datacl IS NOT NULL THEN (SELECT coalesce(pg_catalog.jsonb_agg(DISTINCT \
           pg_catalog.jsonb_build_object('grantee', CASE WHEN a.grantee <> 0 THEN \
           pg_catalog.pg_get_userbyid(a.grantee) END, 'privilege', a.privilege_type, \
           'can_grant', a.is_grantable)), '[]') FROM pg_catalog.aclexplode(d.datacl) a) END, \
         'settings', (SELECT coalesce(pg_catalog.jsonb_agg({SETTING}), '[]') FROM {SETTINGS} \
           WHERE s.setdatabase = d.oid), \
         'roles', (SELECT coalesce(pg_catalog.jsonb_agg(DISTINCT w.rolname), '[]') FROM pg_catalog.pg_shdepend p \
           JOIN pg_catalog.pg_roles w ON w.oid = p.refobjid \
           WHERE p.dbid = d.oid AND p.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass))"
    )
}
