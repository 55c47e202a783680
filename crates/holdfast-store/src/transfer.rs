//! Exports everything that belongs to a user, or to a whole installation, as rows, and imports such rows. Secrets are
//! exported in plain text; the import seals them again.

mod checks;
mod consistency;
mod older;
mod tables;

use std::collections::{BTreeMap, HashMap};

use holdfast_core::destination::DestinationSpec;
use holdfast_core::ids::UserId;
use holdfast_core::{Secret, Timestamp, clock, random};
use serde_json::{Map, Value};
use sqlx::{QueryBuilder, Row as _};

use self::checks::{MAX_ID, MAX_TOTAL_BYTES};
use self::tables::{ColumnKind, TABLES, Table};
use crate::sealing::SealContext;
use crate::statement::{Statement as _, decode_one};
use crate::{DbTime, Result, StoreError, Tx, backups, spec, totals};

pub use older::upgrade;
pub use tables::{Contents, LEFT};

/// Every table and column that is exported or left out on purpose; a test compares them with the schema.
pub fn columns() -> Vec<(&'static str, Vec<&'static str>)> {
    let of = |table: &Table| {
        let id = table.has_id.then_some("id");
        let carried = table.columns.iter().map(|(name, _)| *name);
        (table.name, id.into_iter().chain(carried).chain(table.left.iter().copied()).collect())
    };
    TABLES.iter().map(of).collect()
}

/// Every table and column that is exported, and so is part of the catalogue; a test compares them with what triggers
/// watch.
pub fn carried_columns() -> Vec<(&'static str, Vec<&'static str>)> {
    TABLES.iter().map(|table| (table.name, table.columns.iter().map(|(name, _)| *name).collect())).collect()
}

/// Reads a destination's specification from a document.
pub fn read_destination(value: &Value) -> Option<DestinationSpec> {
    spec::destination(&value.to_string())
}

/// How many rows are read at a time.
const PIECE: i64 = 5000;

/// Passes all rows of a user, or of everybody, to `take`, table by table and in batches, so that they need not all be
/// in memory. If `tx` reads from one snapshot, every row that another refers to is included.
pub async fn read(
    tx: &mut Tx,
    owner: Option<UserId>,
    mut take: impl FnMut(&'static str, Vec<Map<String, Value>>) -> Result<()>,
) -> Result<()> {
    for table in TABLES.iter().filter(|table| owner.is_none() || table.owned.is_some()) {
        let mut after = i64::MIN;
        loop {
            let rows = read_piece(tx, table, owner, after).await?;
            let last = rows.last().and_then(|row| row.get("id")).and_then(Value::as_i64);
            let is_full = rows.len() as i64 == PIECE;
            take(table.name, rows)?;
            match last.filter(|_| is_full) {
                Some(last) => after = last,
                None => break,
            }
        }
    }
    Ok(())
}

/// One batch of the rows after the id `after`; the whole table if its rows have no ids.
async fn read_piece(tx: &mut Tx, table: &Table, owner: Option<UserId>, after: i64) -> Result<Vec<Map<String, Value>>> {
    let names: Vec<&str> =
        table.has_id.then_some("id").into_iter().chain(table.columns.iter().map(|(name, _)| *name)).collect();
    let kinds: Vec<ColumnKind> = table
        .has_id
        .then_some(ColumnKind::Within(1, MAX_ID))
        .into_iter()
        .chain(table.columns.iter().map(|(_, kind)| *kind))
        .collect();
    let select = format!("SELECT {} FROM {} WHERE {}", names.join(", "), table.name, table.carried);
    let rows = with_conn!(tx, conn => {
        let mut query = QueryBuilder::<Db>::new(&select);
        if let (Some(owner), Some(owned)) = (owner, table.owned) {
            query.push(" AND ").push(owned).push_bind(owner.0).push(if owned.contains('(') { ")" } else { "" });
        }
        if table.has_id {
            query.push(" AND id > ").push_bind(after).push(" ORDER BY id LIMIT ").push_bind(PIECE);
        } else {
            query.push(" ORDER BY 1, 2");
        }
        query.build().all(conn).await.and_then(|rows| {
            rows.iter().map(|row| {
                kinds.iter().enumerate().map(|(place, kind)| Ok(match kind {
                    ColumnKind::Word(_) | ColumnKind::Shown(_) | ColumnKind::Spec(_) => row.try_get::<Option<String>, _>(place)?.map(Cell::Text),
                    ColumnKind::Within(..) | ColumnKind::Past | ColumnKind::Time | ColumnKind::Ref(_) | ColumnKind::Own => row.try_get::<Option<i64>, _>(place)?.map(Cell::Int),
                    ColumnKind::Bool => row.try_get::<Option<bool>, _>(place)?.map(Cell::Bool),
                    ColumnKind::Bytes(_) | ColumnKind::Sealed(_) => row.try_get::<Option<Vec<u8>>, _>(place)?.map(Cell::Bytes),
                })).collect()
            }).collect::<std::result::Result<Vec<Vec<Option<Cell>>>, sqlx::Error>>()
        })
    })?;
    let mut found = Vec::with_capacity(rows.len());
    for cells in rows {
        found.push(open_row(tx, table, &names, &kinds, cells).await?);
    }
    Ok(found)
}

enum Cell {
    Text(String),
    Int(i64),
    Bool(bool),
    Bytes(Vec<u8>),
}

async fn open_row(
    tx: &mut Tx,
    table: &Table,
    names: &[&'static str],
    kinds: &[ColumnKind],
    cells: Vec<Option<Cell>>,
) -> Result<Map<String, Value>> {
    let number = |wanted: &str| {
        let place = names.iter().position(|name| *name == wanted)?;
        match cells.get(place) {
            Some(Some(Cell::Int(number))) => Some(*number),
            _ => None,
        }
    };
    let (id, user) = (number("id"), number("user_id"));
    // Rows of the installation have no id, no user and no secrets.
    let place = id.or(user).zip(user.or(id));
    let mut out = Map::new();
    for ((name, kind), cell) in names.iter().zip(kinds).zip(cells) {
        let value = match cell {
            None => Value::Null,
            Some(Cell::Text(text)) if matches!(kind, ColumnKind::Spec(_)) => serde_json::from_str(&text)
                .map_err(|error| StoreError::Broken(format!("a {name} of {} cannot be read: {error}", table.name)))?,
            Some(Cell::Text(text)) => text.into(),
            Some(Cell::Int(number)) => number.into(),
            Some(Cell::Bool(is)) => is.into(),
            Some(Cell::Bytes(bytes)) if matches!(kind, ColumnKind::Sealed(_)) => {
                let homeless = || StoreError::Broken(format!("a secret of {} belongs to nobody", table.name));
                let (row, user) = place.ok_or_else(homeless)?;
                let place = SealContext { table: table.name, column: name, row, user: UserId(user) };
                tx.open(place, &bytes).await?.reveal().into()
            }
            Some(Cell::Bytes(bytes)) => random::hex(&bytes).into(),
        };
        out.insert((*name).to_owned(), value);
    }
    Ok(out)
}

/// What was imported.
#[derive(Debug, Default)]
pub struct Taken {
    /// Rows by table.
    pub rows: BTreeMap<String, usize>,
    /// The ids of user and destination: as they were, and as they are now.
    pub destinations: Vec<((i64, i64), (i64, i64))>,
    pub users: Vec<i64>,
}

/// Whether this installation is still empty: only then can rows keep their ids. An administrator account that nobody
/// has claimed does not count.
pub async fn is_empty(tx: &mut Tx) -> Result<bool> {
    for table in TABLES.iter().filter(|table| table.has_id && table.owned.is_some()) {
        let claimed = if table.name == "users" { " WHERE NOT (is_admin AND password_hash IS NULL)" } else { "" };
        let sql = format!("SELECT EXISTS (SELECT 1 FROM {}{claimed})", table.name);
        let (has_rows,) = with_conn!(tx, conn => {
            QueryBuilder::<Db>::new(&sql).build().first(conn).await.and_then(decode_one::<(bool,), _>)
        })?;
        if has_rows {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Imports rows. With `keep_ids`, which needs an empty installation, they keep their ids; otherwise they get new ones,
/// and references to them are adjusted. With `paused_at`, every imported task is paused.
pub async fn write(
    tx: &mut Tx,
    contents: &Contents,
    keep_ids: bool,
    paused_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Taken> {
    let foreign = contents.keys().find(|name| TABLES.iter().all(|table| table.name != name.as_str()));
    if let Some(name) = foreign {
        return Err(StoreError::Broken(format!("{name} is unknown here: this was written by a newer Holdfast")));
    }
    if consistency::total_bytes(contents) > MAX_TOTAL_BYTES {
        return Err(StoreError::Broken("the backups are larger than any storage".to_owned()));
    }
    if keep_ids {
        execute!(tx, "DELETE FROM users WHERE is_admin AND password_hash IS NULL")?;
    }
    let mut writer = Writer { keep_ids, now, ids: HashMap::new(), owners: HashMap::new(), taken: Taken::default() };
    for table in TABLES {
        // Settings of one installation must not change another that is in use.
        if table.owned.is_none() && !keep_ids {
            continue;
        }
        let Some(rows) = contents.get(table.name) else { continue };
        for row in rows {
            writer.insert(tx, table, row).await?;
        }
        for row in rows {
            writer.link(tx, table, row).await?;
        }
        writer.taken.rows.insert(table.name.to_owned(), rows.len());
    }
    backups::fill_source_server(tx).await?;
    let bare = "SELECT EXISTS (SELECT 1 FROM backups b WHERE NOT EXISTS
                    (SELECT 1 FROM backup_copies c WHERE c.backup_id = b.id AND c.position = 0))";
    if fetch_scalar!(tx, bool, bare)? {
        return Err(StoreError::Broken("a row of backups has no copy".to_owned()));
    }
    let chained = "SELECT EXISTS (SELECT 1 FROM remote_servers s JOIN remote_servers j ON j.id = s.jump_server_id
                       WHERE j.jump_server_id IS NOT NULL)";
    if fetch_scalar!(tx, bool, chained)? {
        return Err(StoreError::Broken("a jump host is itself behind a jump host".to_owned()));
    }
    if let Some(at) = paused_at {
        let users = writer.taken.users.clone();
        for user in users {
            execute!(
                tx,
                "UPDATE backup_tasks SET paused_together = paused_together OR paused_at IS NULL,
                     paused_at = COALESCE(paused_at, $1), next_run_at = NULL, overdue_at = NULL
                 WHERE user_id = $2",
                DbTime(at),
                user
            )?;
        }
    }
    if !tx.is_sqlite() && writer.keep_ids {
        restart_counters(tx).await?;
    }
    // Each row has changed totals.
    totals::fold(tx).await?;
    Ok(writer.taken)
}

struct Writer {
    keep_ids: bool,
    now: Timestamp,
    /// From the table and the id in the document to the id here.
    ids: HashMap<(&'static str, i64), i64>,
    /// From the table and the id in the document to the user here whom the row belongs to.
    owners: HashMap<(&'static str, i64), i64>,
    taken: Taken,
}

fn wrong(table: &Table, what: &str) -> StoreError {
    StoreError::Broken(format!("a row of {} {what}", table.name))
}

impl Writer {
    fn find(&self, table: &'static str, id: i64) -> Option<i64> {
        self.ids.get(&(table, id)).copied()
    }

    async fn insert(&mut self, tx: &mut Tx, table: &Table, row: &Map<String, Value>) -> Result<()> {
        let known = |name: &str| name == "id" || table.columns.iter().any(|(column, _)| *column == name);
        if let Some(name) = row.keys().find(|name| !known(name)) {
            return Err(wrong(
                table,
                &format!("has {name}, which is unknown here: it was written by a newer Holdfast"),
            ));
        }
        if !consistency::is_sound(table.name, row) {
            return Err(wrong(table, "has values that do not fit together"));
        }
        let old = row.get("id").and_then(Value::as_i64).filter(|id| (1..=MAX_ID).contains(id));
        if table.has_id && old.is_none() {
            return Err(wrong(table, "has no id that can be used"));
        }
        if old.is_some_and(|old| self.find(table.name, old).is_some()) {
            return Err(wrong(table, "has the id of another row"));
        }
        let user = self.owner(table, row)?;
        self.check_references(table, row, user)?;
        let mut cells: Vec<(&str, Option<Cell>)> = Vec::new();
        for (name, kind) in table.columns {
            let Some(value) = row.get(*name) else { continue };
            // A user's SSH key is sealed for the user's id, which is known; other secrets need the row's id first.
            let is_late = matches!(kind, ColumnKind::Own) || (matches!(kind, ColumnKind::Sealed(_)) && table.has_id);
            if is_late {
                continue;
            }
            cells.push((name, self.cell(tx, table, (*name, *kind), value, user).await?));
        }
        // What belongs to the installation is added to what it has already.
        if let (Some(old), true) = (old, self.keep_ids && table.owned.is_some()) {
            cells.push(("id", Some(Cell::Int(old))));
        }
        let mut names: Vec<&str> = cells.iter().map(|(name, ..)| *name).collect();
        let into = format!("INSERT INTO {} ({}) VALUES (", table.name, names.join(", "));
        names.clear();
        let end = if table.has_id { ") RETURNING id" } else { ") RETURNING CAST(0 AS BIGINT)" };
        let new = with_conn!(tx, conn => {
            let mut query = QueryBuilder::<Db>::new(&into);
            for (number, (_, cell)) in cells.iter().enumerate() {
                if number > 0 {
                    query.push(", ");
                }
                match cell {
                    Some(Cell::Text(text)) => query.push_bind(text.clone()),
                    Some(Cell::Int(number)) => query.push_bind(*number),
                    Some(Cell::Bool(is)) => query.push_bind(*is),
                    Some(Cell::Bytes(bytes)) => query.push_bind(bytes.clone()),
                    None => query.push("NULL"),
                };
            }
            query.push(end);
            query.build().first(conn).await.and_then(decode_one::<(i64,), _>)
        });
        let (new,) = match new {
            Err(StoreError::Conflict) => return Err(wrong(table, "exists already")),
            Err(StoreError::Broken(_)) => return Err(wrong(table, "is incomplete")),
            new => new?,
        };
        if let Some(old) = old {
            self.ids.insert((table.name, old), new);
            self.owners.extend(user.map(|user| ((table.name, old), user)));
            match table.name {
                "users" => self.taken.users.push(new),
                "backup_destinations" => {
                    let before = row.get("user_id").and_then(Value::as_i64);
                    let (before, user) = before.zip(user).ok_or_else(|| wrong(table, "belongs to nobody"))?;
                    let (before, user) = match row.get("folder_user_id").and_then(Value::as_i64) {
                        Some(kept) => (kept, kept),
                        None => (before, user),
                    };
                    self.taken.destinations.push(((before, old), (user, new)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Converts a value to the form in which it is stored here.
    async fn cell(
        &self,
        tx: &mut Tx,
        table: &Table,
        column: (&'static str, ColumnKind),
        value: &Value,
        owner: Option<i64>,
    ) -> Result<Option<Cell>> {
        let (name, kind) = column;
        let odd = || wrong(table, &format!("has a {name} that makes no sense"));
        if value.is_null() {
            return Ok(None);
        }
        Ok(Some(match kind {
            ColumnKind::Word(is_known) => {
                Cell::Text(value.as_str().filter(|text| is_known(text)).ok_or_else(odd)?.to_owned())
            }
            ColumnKind::Shown(clean) => Cell::Text(value.as_str().and_then(clean).ok_or_else(odd)?),
            ColumnKind::Spec(stored) => Cell::Text(stored(&value.to_string()).ok_or_else(odd)?),
            ColumnKind::Within(first, last) => {
                Cell::Int(value.as_i64().filter(|number| (first..=last).contains(number)).ok_or_else(odd)?)
            }
            ColumnKind::Past => Cell::Int(read_time(value).ok_or_else(odd)?.min(self.now.as_microsecond())),
            ColumnKind::Time => Cell::Int(read_time(value).ok_or_else(odd)?),
            ColumnKind::Bool => Cell::Bool(value.as_bool().ok_or_else(odd)?),
            ColumnKind::Bytes(count) => {
                let bytes = value.as_str().and_then(random::from_hex).filter(|bytes| bytes.len() == count);
                Cell::Bytes(bytes.ok_or_else(odd)?)
            }
            ColumnKind::Sealed(is_known) => {
                let user = owner.ok_or_else(|| wrong(table, "belongs to nobody"))?;
                let place = SealContext { table: table.name, column: name, row: user, user: UserId(user) };
                let secret = Secret::new(value.as_str().filter(|text| is_known(text)).ok_or_else(odd)?.to_owned());
                Cell::Bytes(tx.seal(place, &secret).await?)
            }
            ColumnKind::Ref(other) => {
                let id = value.as_i64().ok_or_else(odd)?;
                Cell::Int(
                    self.find(other, id)
                        .ok_or_else(|| wrong(table, &format!("refers to a row of {other} that is missing")))?,
                )
            }
            ColumnKind::Own => return Err(odd()),
        }))
    }

    /// The new id of the user whom a row belongs to; `None` for a user, or if nobody owns the rows of the table.
    fn owner(&self, table: &Table, row: &Map<String, Value>) -> Result<Option<i64>> {
        if table.owned.is_none() || !table.columns.iter().any(|(name, _)| *name == "user_id") {
            return Ok(None);
        }
        let user = row.get("user_id").and_then(Value::as_i64).and_then(|old| self.find("users", old));
        user.map(Some).ok_or_else(|| wrong(table, "belongs to nobody"))
    }

    /// Everything that a row refers to must belong to the same user.
    fn check_references(&self, table: &Table, row: &Map<String, Value>, owner: Option<i64>) -> Result<()> {
        let owner_of = |(name, kind): &(&'static str, ColumnKind)| {
            let ColumnKind::Ref(other) = kind else { return None };
            self.owners.get(&(*other, row.get(*name)?.as_i64()?)).copied()
        };
        let mut owners = owner.into_iter().chain(table.columns.iter().filter_map(owner_of));
        let first = owners.next();
        if owners.all(|owner| Some(owner) == first) {
            Ok(())
        } else {
            Err(wrong(table, "refers to a row of another user"))
        }
    }

    /// Writes what needs the row to exist: its secrets, and references to other rows of its table.
    async fn link(&self, tx: &mut Tx, table: &Table, row: &Map<String, Value>) -> Result<()> {
        let Some(new) = row.get("id").and_then(Value::as_i64).and_then(|old| self.find(table.name, old)) else {
            return Ok(());
        };
        let owner = match (table.name, self.owner(table, row)?) {
            // The secrets of users are their own.
            ("users", _) => Some(new),
            (_, owner) => owner,
        };
        for (name, kind) in table.columns {
            let value = row.get(*name).filter(|value| !value.is_null());
            let update = format!("UPDATE {} SET {name} = ", table.name);
            match (kind, value) {
                (ColumnKind::Sealed(is_known), Some(value)) => {
                    let text = value.as_str().filter(|text| is_known(text));
                    let text = text.ok_or_else(|| wrong(table, &format!("has a {name} that makes no sense")))?;
                    let user = UserId(owner.ok_or_else(|| wrong(table, "belongs to nobody"))?);
                    let place = SealContext { table: table.name, column: name, row: new, user };
                    let sealed = tx.seal(place, &Secret::new(text.to_owned())).await?;
                    with_conn!(tx, conn => {
                        let mut query = QueryBuilder::<Db>::new(&update);
                        query.push_bind(sealed.clone()).push(" WHERE id = ").push_bind(new);
                        query.build().run(conn).await
                    })?;
                }
                (ColumnKind::Own, Some(value)) => {
                    let old = value.as_i64();
                    let other = old.and_then(|old| self.find(table.name, old));
                    let other = other.ok_or_else(|| wrong(table, "refers to another one that is missing"))?;
                    if old.and_then(|old| self.owners.get(&(table.name, old)).copied()) != owner {
                        return Err(wrong(table, "refers to a row of another user"));
                    }
                    with_conn!(tx, conn => {
                        let mut query = QueryBuilder::<Db>::new(&update);
                        query.push_bind(other).push(" WHERE id = ").push_bind(new);
                        query.build().run(conn).await
                    })?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A time in microseconds since 1970.
fn read_time(value: &Value) -> Option<i64> {
    let is_time = |micros: &i64| *micros >= 0 && clock::from_micros(*micros).as_microsecond() == *micros;
    value.as_i64().filter(is_time)
}

/// Moves PostgreSQL's id sequences past the imported ids.
async fn restart_counters(tx: &mut Tx) -> Result<()> {
    for table in TABLES.iter().filter(|table| table.has_id) {
        let sql = format!(
            "SELECT setval(pg_get_serial_sequence('{0}', 'id'), COALESCE((SELECT MAX(id) FROM {0}), 0) + 1, false)",
            table.name
        );
        with_conn!(tx, conn => {
            QueryBuilder::<Db>::new(&sql).build().first(conn).await.and_then(decode_one::<(i64,), _>)
        })?;
    }
    Ok(())
}
