//! Lists: only the owner's rows, searched by label, one page at a time.

use holdfast_core::ids::UserId;
use holdfast_core::page::PageRequest;
use holdfast_core::rules;

/// Which rows a list shows. There is no list without an owner.
#[derive(Debug, Clone)]
pub struct Listing {
    pub owner: UserId,
    pub search: Option<String>,
    pub page: PageRequest,
    /// The API lists rows by ascending id; pages show histories newest first.
    pub newest_first: bool,
}

impl Listing {
    /// The text that must occur in a label, in the same normalised form as the column `search_label`.
    pub(crate) fn needle(&self) -> Option<String> {
        self.search.as_deref().map(rules::search_form)
    }
}

/// One page of `$table` for a listing: rows that belong to `$1`, contain `$2` and meet the further condition,
/// whose values are bound from `$5` on. Each row carries the total of the list.
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
        list_page!($tx, $listing, $table as $alias with "", $where $(, $bind)*)
    };
    // A join adds columns but neither adds nor removes rows, so the count leaves it out.
    ($tx:expr, $listing:expr, $table:literal as $alias:literal with $join:expr, $where:expr $(, $bind:expr)* $(,)?) => {
        if $listing.newest_first {
            list_page!(@ordered $tx, $listing, " DESC", $table as $alias with $join, $where $(, $bind)*)
        } else {
            list_page!(@ordered $tx, $listing, "", $table as $alias with $join, $where $(, $bind)*)
        }
    };
    (@ordered $tx:expr, $listing:expr, $order:literal, $table:literal as $alias:literal with $join:expr, $where:expr
        $(, $bind:expr)*) => {{
        let listing = $listing;
        let found: Vec<$crate::row::Counted<_>> = with_conn!($tx, conn => $crate::statement::Statement::all(
            sqlx::query::<Db>(concat!(
                "SELECT ", columns!(), ", (SELECT COUNT(*) FROM ", $table, " ", $alias, " WHERE ", $alias, ".user_id = $1",
                $where, ") FROM ", $table, " ", $alias, " ", $join, " WHERE ", $alias, ".user_id = $1", $where, " ORDER BY ",
                $alias, ".id", $order, " LIMIT $3 OFFSET $4"
            ))
            .bind(listing.owner.0)
            .bind(listing.needle())
            .bind(listing.page.per_page)
            .bind(listing.page.offset())
            $(.bind($bind))*, conn)
        .await
        .and_then($crate::statement::decode_all))?;
        let total = match found.first() {
            Some(counted) => counted.total,
            None if listing.page.offset() == 0 => 0,
            // A page past the end.
            None => fetch_scalar!(
                $tx,
                i64,
                concat!("SELECT COUNT(*) FROM ", $table, " ", $alias, " WHERE ", $alias, ".user_id = $1", $where),
                listing.owner.0, listing.needle(), listing.page.per_page, listing.page.offset() $(, $bind)*
            )?,
        };
        let items = found.into_iter().map(|counted| counted.row).collect();
        Ok(holdfast_core::page::Page { items, total, request: listing.page })
    }};
}

/// The condition on labels that every searchable list shares: removing the search text changes a label that contains
/// it. Both databases support this, no character is special, and unlike LIKE it does not make SQLite re-plan the
/// statement.
macro_rules! label_matches {
    ($alias:literal) => {
        concat!(" AND ($2 IS NULL OR replace(", $alias, ".search_label, $2, '') <> ", $alias, ".search_label)")
    };
}
