//! Pagination of lists.

use crate::clock::Instant as Timestamp;
use crate::input::Errors;
use crate::limits;
use crate::refusal::Rule;

string_enum! {
    /// The order of a list. Rows with the same time or label are in the order of their ids.
    Sort {
        Id = "id",
        IdDescending = "-id",
        Created = "created_at",
        CreatedDescending = "-created_at",
        Label = "label",
    }
}

impl Sort {
    pub fn is_descending(self) -> bool {
        match self {
            Self::IdDescending | Self::CreatedDescending => true,
            Self::Id | Self::Created | Self::Label => false,
        }
    }
}

/// What a list is sorted by, besides the id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SortKey {
    Id,
    Created(Timestamp),
    /// In the form that search uses.
    Label(String),
}

/// A place in a sorted list: right after the row with this key and id, whether or not it still exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub key: SortKey,
    pub id: i64,
}

impl Position {
    pub fn fits(&self, sort: Sort) -> bool {
        match sort {
            Sort::Id | Sort::IdDescending => self.key == SortKey::Id,
            Sort::Created | Sort::CreatedDescending => matches!(self.key, SortKey::Created(_)),
            Sort::Label => matches!(self.key, SortKey::Label(_)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRequest {
    pub page: i64,
    pub per_page: i64,
}

impl PageRequest {
    /// Reads the two query parameters. Values above the maximum are reduced to it rather than refused.
    pub fn parse(page: Option<&str>, per_page: Option<&str>) -> Result<Self, Errors> {
        let mut errors = Errors::default();
        let page = positive(&mut errors, "page", page, 1);
        let per_page = positive(&mut errors, "per_page", per_page, limits::PER_PAGE_DEFAULT);
        if errors.is_empty() {
            Ok(Self { page: page.min(limits::PAGE_MAX), per_page: per_page.min(limits::PER_PAGE_MAX) })
        } else {
            Err(errors)
        }
    }

    pub fn offset(self) -> i64 {
        (self.page - 1) * self.per_page
    }
}

/// A whole number of at least one from a query parameter; numbers beyond 64 bits become the largest one.
pub fn positive(errors: &mut Errors, field: &str, text: Option<&str>, default: i64) -> i64 {
    let Some(text) = text else { return default };
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        errors.add(field, Rule::Integer);
        return default;
    }
    let value = text.parse().unwrap_or(i64::MAX);
    if value < 1 {
        errors.add(field, Rule::AtLeast { min: 1 });
    }
    value
}

/// One page of a list, and the number of items in all.
#[derive(Debug, Clone)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub total: i64,
    pub request: PageRequest,
    /// The end of the page, if the list continues there.
    pub end: Option<Position>,
}

impl<T> Page<T> {
    pub fn last_page(&self) -> i64 {
        ((self.total + self.request.per_page - 1) / self.request.per_page).max(1)
    }

    pub fn map<U>(self, shape: impl FnMut(T) -> U) -> Page<U> {
        Page {
            items: self.items.into_iter().map(shape).collect(),
            total: self.total,
            request: self.request,
            end: self.end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_clamps_and_refusals() {
        let parse = PageRequest::parse;
        assert_eq!(parse(None, None).unwrap(), PageRequest { page: 1, per_page: 15 });
        assert_eq!(parse(Some("3"), Some("500")).unwrap(), PageRequest { page: 3, per_page: 100 });
        let far = parse(Some("99999999999999999999999"), Some("100")).unwrap();
        assert!(far.offset() > 0);
        for bad in ["0", "-1", "1.5", "ten", "", " 1"] {
            assert!(parse(Some(bad), None).unwrap_err().has("page"), "{bad}");
            assert!(parse(None, Some(bad)).unwrap_err().has("per_page"), "{bad}");
        }
    }
}
