//! Lists: the owner's rows alone, searched by label, one page at a time.

use holdfast_core::ids::UserId;
use holdfast_core::page::PageRequest;
use holdfast_core::rules;

/// Which rows a list shows. There is no list without an owner.
#[derive(Debug, Clone)]
pub struct Listing {
    pub owner: UserId,
    pub search: Option<String>,
    pub page: PageRequest,
}

impl Listing {
    /// The search as a pattern in which only our own `%` are wild.
    pub(crate) fn pattern(&self) -> Option<String> {
        let search = rules::search_form(self.search.as_deref()?);
        let escaped = search.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
        Some(format!("%{escaped}%"))
    }
}

/// A row and how many there are in all, from one statement.
#[derive(sqlx::FromRow)]
pub(crate) struct Counted<T> {
    #[sqlx(flatten)]
    pub row: T,
    pub total: i64,
}

/// One page of `$table` for a listing: rows that belong to `$1`, match the pattern `$2` and the further condition,
/// whose values are `$3` and on. A page past the end has no row to carry the count, so it is asked for again.
macro_rules! list_page {
    ($tx:expr, $listing:expr, $row:ty, $table:literal as $alias:literal, $columns:expr, $where:expr $(, $bind:expr)* $(,)?) => {{
        let listing = $listing;
        let (owner, pattern, page) = (listing.owner.0, listing.pattern(), listing.page);
        // $1 to $4 are ours; `$where` names its own from $5.
        let rows = fetch_all!(
            $tx,
            $crate::listing::Counted<$row>,
            concat!(
                "SELECT ", $columns, ", (SELECT COUNT(*) FROM ", $table, " ", $alias, " WHERE ", $alias,
                ".user_id = $1", $where, ") AS total FROM ", $table, " ", $alias, " WHERE ", $alias, ".user_id = $1",
                $where, " ORDER BY ", $alias, ".id LIMIT $3 OFFSET $4"
            ),
            owner, pattern.clone(), page.per_page, page.offset() $(, $bind)*
        )?;
        let total = match rows.first() {
            Some(first) => first.total,
            None if page.page == 1 => 0,
            None => fetch_scalar!(
                $tx,
                i64,
                concat!(
                    "SELECT COUNT(*) FROM ", $table, " ", $alias, " WHERE ", $alias, ".user_id = $1", $where,
                    " AND ($3 = $3 OR $4 = $4)"
                ),
                owner, pattern, page.per_page, page.offset() $(, $bind)*
            )?,
        };
        let items = rows.into_iter().map(|counted| counted.row).collect();
        Ok(holdfast_core::page::Page { items, total, request: page })
    }};
}

/// The condition on labels that every searchable list shares.
macro_rules! label_matches {
    ($alias:literal) => {
        concat!(" AND ($2 IS NULL OR ", $alias, ".search_label LIKE $2 ESCAPE '\\')")
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_that_are_wild_in_sql_are_searched_for_as_they_are() {
        let page = PageRequest { page: 1, per_page: 15 };
        let listing = Listing { owner: UserId(1), search: Some("100%_\\Ä".into()), page };
        assert_eq!(listing.pattern().unwrap(), "%100\\%\\_\\\\ä%");
    }
}
