//! Lists: only the owner's rows, searched by label, one page at a time.

use holdfast_core::Timestamp;
use holdfast_core::clock;
use holdfast_core::ids::UserId;
use holdfast_core::page::{Page, PageRequest, Position, Sort, SortKey};
use holdfast_core::rules;
use sqlx::Error;

use crate::DbTime;
use crate::row::{AnyRow, FromAnyRow, FromValue as _};

/// Which rows a list shows. There is no list without an owner.
#[derive(Debug, Clone)]
pub struct Listing {
    pub owner: UserId,
    pub search: Option<String>,
    pub page: PageRequest,
    /// The API lists rows by ascending id unless asked otherwise; pages show histories newest first.
    pub sort: Sort,
    /// Only rows behind this position, and without the total of the list.
    pub after: Option<Position>,
    pub created_after: Option<Timestamp>,
    pub updated_after: Option<Timestamp>,
}

impl Listing {
    /// All rows of an owner by ascending id, one page of them.
    pub fn new(owner: UserId, page: PageRequest) -> Self {
        Self { owner, search: None, page, sort: Sort::Id, after: None, created_after: None, updated_after: None }
    }

    /// The text that must occur in a label, in the same normalised form as the column `search_label`.
    pub(crate) fn needle(&self) -> Option<String> {
        self.search.as_deref().map(rules::search_form)
    }

    pub(crate) fn offset(&self) -> i64 {
        if self.after.is_some() { 0 } else { self.page.offset() }
    }

    /// How many rows are read. Behind a position it is one more, which tells whether the list continues.
    pub(crate) fn limit(&self) -> i64 {
        self.page.per_page + i64::from(self.after.is_some())
    }

    /// Whether only rows since some time are listed.
    pub(crate) fn is_since(&self) -> bool {
        self.created_after.is_some() || self.updated_after.is_some()
    }

    pub(crate) fn after_id(&self) -> Option<i64> {
        self.after.as_ref().map(|position| position.id)
    }

    pub(crate) fn after_time(&self) -> Option<DbTime> {
        self.after.as_ref().and_then(|position| match position.key {
            SortKey::Created(at) => Some(DbTime(at)),
            SortKey::Id | SortKey::Label(_) => None,
        })
    }

    pub(crate) fn after_label(&self) -> Option<&str> {
        self.after.as_ref().and_then(|position| match &position.key {
            SortKey::Label(label) => Some(label.as_str()),
            SortKey::Id | SortKey::Created(_) => None,
        })
    }
}

/// A condition that a column has one of the words of an enumeration. The word is part of the text: PostgreSQL plans a
/// statement once for all values that are bound to it, and few rows or millions may have this one.
pub(crate) fn equals(column: &str, word: Option<&'static str>) -> String {
    word.map_or_else(String::new, |word| format!(" AND {column} = '{word}'"))
}

/// What is listed, in SQL.
pub(crate) struct Listed<'a> {
    pub columns: &'static str,
    pub table: &'static str,
    pub alias: &'static str,
    /// Adds columns, but neither adds nor removes rows, so that a count leaves it out.
    pub join: &'static str,
    pub created: &'static str,
    /// When a row last changed.
    pub updated: &'static str,
    /// The totals that triggers keep of exactly these rows, as a condition on the table `totals`.
    pub kept: Option<&'a str>,
    /// A further condition. Its own values are bound from `$5` on.
    pub condition: &'a str,
    pub values: usize,
}

impl Listed<'_> {
    /// The statement of a page. `$1` is the owner, `$2` the needle, `$3` and `$4` are limit and offset; three values of
    /// the listing follow those of the condition.
    pub(crate) fn page(&self, listing: &Listing) -> String {
        let Self { columns, table, alias, join, .. } = self;
        let (key, total) = (self.key(listing.sort), self.total(listing));
        let (condition, behind, order) = (self.rows(listing), self.behind(listing), self.order(listing));
        format!(
            "SELECT {columns}{key}{total} FROM {table} {alias} {join} WHERE {condition}{behind} ORDER BY {order} \
             LIMIT $3 OFFSET $4"
        )
    }

    pub(crate) fn count(&self, listing: &Listing) -> String {
        match self.kept {
            Some(kept) if !listing.is_since() => {
                format!("SELECT CAST(COALESCE(SUM(amount), 0) AS BIGINT) FROM totals WHERE user_id = $1 AND {kept}")
            }
            _ => format!("SELECT COUNT(*) FROM {} {} WHERE {}", self.table, self.alias, self.rows(listing)),
        }
    }

    /// Times are part of the text, so that each statement with one is planned for it: how many rows there are since
    /// then decides which index is best.
    fn rows(&self, listing: &Listing) -> String {
        let Self { alias, created, updated, condition, .. } = self;
        let since = |column: &str, at: Timestamp| format!(" AND {column} > {}", at.as_microsecond());
        let created = listing.created_after.map(|at| since(created, at));
        let updated = listing.updated_after.map(|at| since(updated, at));
        let (created, updated) = (created.unwrap_or_default(), updated.unwrap_or_default());
        format!("{alias}.user_id = $1{condition}{created}{updated}")
    }

    /// The key of the order as a column of its own, unless that is the id.
    fn key(&self, sort: Sort) -> String {
        match sort {
            Sort::Id | Sort::IdDescending => String::new(),
            Sort::Created | Sort::CreatedDescending => format!(", {}", self.created),
            Sort::Label => format!(", {}.search_label", self.alias),
        }
    }

    fn total(&self, listing: &Listing) -> String {
        if listing.after.is_some() { String::new() } else { format!(", ({})", self.count(listing)) }
    }

    fn behind(&self, listing: &Listing) -> String {
        if listing.after.is_none() {
            return String::new();
        }
        let (alias, first) = (self.alias, self.values + 5);
        let sign = if listing.sort.is_descending() { "<" } else { ">" };
        match listing.sort {
            Sort::Id | Sort::IdDescending => format!(" AND {alias}.id {sign} ${first}"),
            Sort::Created | Sort::CreatedDescending => {
                format!(" AND ({}, {alias}.id) {sign} (${}, ${first})", self.created, first + 1)
            }
            Sort::Label => format!(" AND ({alias}.search_label, {alias}.id) {sign} (${}, ${first})", first + 2),
        }
    }

    fn order(&self, listing: &Listing) -> String {
        let (alias, created) = (self.alias, self.created);
        match listing.sort {
            // As an expression, so that the rows since that time are found and sorted. Going through all rows by id
            // until a page is full would read those before that time, too.
            Sort::Id if listing.is_since() && listing.after.is_none() => format!("{alias}.id + 0"),
            Sort::IdDescending if listing.is_since() && listing.after.is_none() => format!("{alias}.id + 0 DESC"),
            Sort::Id => format!("{alias}.id"),
            Sort::IdDescending => format!("{alias}.id DESC"),
            Sort::Created => format!("{created}, {alias}.id"),
            Sort::CreatedDescending => format!("{created} DESC, {alias}.id DESC"),
            Sort::Label => format!("{alias}.search_label, {alias}.id"),
        }
    }
}

/// A page as it was read. The total is missing if there is no row to carry it.
pub(crate) struct Found<T> {
    items: Vec<T>,
    total: Option<i64>,
    last: Option<Position>,
}

/// Reads the rows of a page. Behind the columns of each row are the key of the order, unless that is the id, and the
/// total of the list, unless the page begins behind a position.
pub(crate) fn read_page<T: FromAnyRow, R: AnyRow>(rows: &[R], listing: &Listing) -> Result<Found<T>, Error> {
    let asked = usize::try_from(listing.page.per_page).unwrap_or(usize::MAX);
    let shown = &rows[..rows.len().min(asked)];
    let has_total = listing.after.is_none();
    let total = rows.first().filter(|_| has_total).map(|row| integer(row, row.count() - 1)).transpose()?;
    let last = shown.last().map(|row| position(row, listing.sort, has_total)).transpose()?;
    let is_end = !has_total && rows.len() == shown.len();
    let items = shown.iter().map(|row| T::from_any(row)).collect::<Result<_, _>>()?;
    Ok(Found { items, total, last: last.filter(|_| !is_end) })
}

fn integer(row: &impl AnyRow, index: usize) -> Result<i64, Error> {
    i64::from_value(row.value(index)?).map_err(Error::Decode)
}

fn position(row: &impl AnyRow, sort: Sort, has_total: bool) -> Result<Position, Error> {
    let index = row.count() - 1 - usize::from(has_total);
    let key = match sort {
        Sort::Id | Sort::IdDescending => SortKey::Id,
        Sort::Created | Sort::CreatedDescending => SortKey::Created(clock::from_micros(integer(row, index)?)),
        Sort::Label => SortKey::Label(String::from_value(row.value(index)?).map_err(Error::Decode)?),
    };
    Ok(Position { key, id: integer(row, 0)? })
}

impl<T> Found<T> {
    /// Whether the total has to be asked for: a page past the end has no row to carry it.
    pub(crate) fn needs_total(&self, listing: &Listing) -> bool {
        self.total.is_none() && listing.after.is_none() && listing.page.offset() > 0
    }

    pub(crate) fn page(self, listing: &Listing, counted: Option<i64>) -> Page<T> {
        let total = self.total.or(counted).unwrap_or_default();
        let is_end = listing.after.is_none() && listing.page.offset() + self.items.len() as i64 >= total;
        let end = self.last.filter(|_| !is_end);
        Page { items: self.items, total, request: listing.page, end }
    }
}

/// One page of `$table` for a listing. The values of a further condition are bound from `$5` on.
macro_rules! list_page {
    ($tx:expr, $listing:expr, $table:literal as $alias:literal) => {
        // Most lists are not searched, and counting straight from the index is worth a separate statement.
        if $listing.search.is_none() {
            list_page!($tx, $listing, $table as $alias, "")
        } else {
            list_page!($tx, $listing, $table as $alias, label_matches!($alias))
        }
    };
    ($tx:expr, $listing:expr, $table:literal as $alias:literal, $where:expr $(, $bind:expr)* $(,)?) => {
        list_page!(
            $tx, $listing, $table as $alias with "", created concat!($alias, ".created_at"),
            changed concat!($alias, ".updated_at"), total None, $where $(, $bind)*
        )
    };
    ($tx:expr, $listing:expr, $table:literal as $alias:literal with $join:expr, created $created:expr,
        changed $updated:expr, total $kept:expr, $where:expr $(, $bind:expr)* $(,)?) => {{
        let listing = $listing;
        let listed = $crate::listing::Listed {
            columns: columns!(),
            table: $table,
            alias: $alias,
            join: $join,
            created: $created,
            updated: $updated,
            kept: $kept,
            condition: $where,
            values: <[&str]>::len(&[$(stringify!($bind)),*]),
        };
        let found: $crate::listing::Found<_> = with_conn!($tx, conn => {
            let query = sqlx::query::<Db>(sqlx::AssertSqlSafe(listed.page(listing))).persistent(!listing.is_since());
            let rows = $crate::statement::Statement::all(bind_listing!(query, listing $(, $bind)*), conn).await;
            rows.and_then(|rows| $crate::listing::read_page(&rows, listing))
        })?;
        let mut counted = None;
        if found.needs_total(listing) {
            counted = Some(with_conn!($tx, conn => {
                let query =
                    sqlx::query::<Db>(sqlx::AssertSqlSafe(listed.count(listing))).persistent(!listing.is_since());
                $crate::statement::Statement::first(bind_listing!(query, listing $(, $bind)*), conn)
                    .await
                    .and_then($crate::statement::decode_one::<(i64,), _>)
            })?.0);
        }
        Ok(found.page(listing, counted))
    }};
}

/// The values of a listing around those of its further condition, as [`Listed::page`] counts them.
macro_rules! bind_listing {
    ($query:expr, $listing:expr $(, $bind:expr)*) => {
        $query
            .bind($listing.owner.0)
            .bind($listing.needle())
            .bind($listing.limit())
            .bind($listing.offset())
            $(.bind($bind))*
            .bind($listing.after_id())
            .bind($listing.after_time())
            .bind($listing.after_label())
    };
}

/// The condition on labels that every searchable list shares: removing the search text changes a label that contains
/// it. Both databases support this, no character is special, and unlike LIKE it does not make SQLite re-plan the
/// statement.
macro_rules! label_matches {
    ($alias:literal) => {
        concat!(" AND ($2 IS NULL OR replace(", $alias, ".search_label, $2, '') <> ", $alias, ".search_label)")
    };
}

/// Lists of rows without a label find nothing by a search text.
macro_rules! unsearched {
    () => {
        " AND ($2 IS NULL OR $2 = '')"
    };
}
