//! One page of a folder of a backup, by name. The index has entries in no order and may be read more than once; what is held
//! in memory is bounded, whatever the folder holds.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Entries that are held at once. Pages further back than this take a further reading for each so many.
pub(crate) const WINDOW: usize = 100_000;

/// A name may be in an archive twice, so it counts with its place.
type Key = (String, u64);

#[derive(Debug)]
struct Keyed<T> {
    key: Key,
    item: T,
}

impl<T> PartialEq for Keyed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<T> Eq for Keyed<T> {}

impl<T> PartialOrd for Keyed<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Keyed<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

/// A page that is looked for. Every reading offers all entries; `next_reading` says whether another one is needed.
#[derive(Debug)]
pub(crate) struct FolderPage<T> {
    skip: usize,
    end: usize,
    window: usize,
    /// How many were passed over or taken in readings before, and the last of them.
    passed: usize,
    after: Option<Key>,
    /// The smallest after that, as many as this reading is about.
    smallest: BinaryHeap<Keyed<T>>,
    offered: u64,
    pub total: u64,
    pub items: Vec<T>,
}

impl<T> FolderPage<T> {
    pub(crate) fn new(skip: usize, count: usize, window: usize) -> Self {
        Self {
            skip,
            end: skip.saturating_add(count),
            window: window.max(1),
            passed: 0,
            after: None,
            smallest: BinaryHeap::new(),
            offered: 0,
            total: 0,
            items: Vec::new(),
        }
    }

    fn wanted(&self) -> usize {
        (self.end - self.passed).min(self.window)
    }

    pub(crate) fn offer(&mut self, name: String, item: impl FnOnce(String) -> T) {
        let number = self.offered;
        self.offered += 1;
        let is_past = |after: &Key| (name.as_str(), number) <= (after.0.as_str(), after.1);
        if self.after.as_ref().is_some_and(is_past) {
            return;
        }
        let is_full = self.smallest.len() >= self.wanted();
        let is_larger = |last: &Keyed<T>| (name.as_str(), number) > (last.key.0.as_str(), last.key.1);
        if is_full && self.smallest.peek().is_none_or(is_larger) {
            return;
        }
        self.smallest.push(Keyed { key: (name.clone(), number), item: item(name) });
        if is_full {
            self.smallest.pop();
        }
    }

    /// Ends a reading. False when the page is complete.
    pub(crate) fn next_reading(&mut self) -> bool {
        self.total = self.offered;
        self.offered = 0;
        let wanted = self.wanted();
        let found = std::mem::take(&mut self.smallest).into_sorted_vec();
        let is_end = found.len() < wanted;
        self.after = found.last().map(|last| last.key.clone());
        for keyed in found {
            if self.passed >= self.skip {
                self.items.push(keyed.item);
            }
            self.passed += 1;
        }
        let is_beyond = u64::try_from(self.skip).is_ok_and(|skip| skip >= self.total);
        !is_end && !is_beyond && self.passed < self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(names: &[String], skip: usize, count: usize, window: usize) -> (Vec<String>, u64, usize) {
        let mut page = FolderPage::new(skip, count, window);
        let mut readings = 0;
        loop {
            readings += 1;
            for name in names {
                page.offer(name.clone(), |name| name);
                assert!(page.smallest.len() <= window, "memory is bounded");
            }
            if !page.next_reading() {
                return (page.items, page.total, readings);
            }
        }
    }

    #[test]
    fn pages_are_in_order_and_counted_however_little_is_held() {
        // In no order, and each seventh twice.
        let names: Vec<String> = (0..200_u64).map(|number| format!("{:03}", number * 77 % 171)).collect();
        let mut sorted = names.clone();
        sorted.sort();
        for window in [1, 7, 50, 199, 200, 1000] {
            for (skip, count) in [(0, 15), (15, 15), (190, 15), (199, 1), (0, 500), (49, 3), (200, 15), (900, 15)] {
                let (items, total, readings) = page(&names, skip, count, window);
                let expected: Vec<String> = sorted.iter().skip(skip).take(count).cloned().collect();
                assert_eq!((items, total), (expected, 200), "{skip} {count} with {window}");
                if skip >= 200 || skip + count <= window {
                    assert_eq!(readings, 1, "{skip} {count} with {window}");
                }
            }
        }
        assert_eq!(page(&[], 0, 15, 7), (Vec::new(), 0, 1));
    }
}
