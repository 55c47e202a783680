//! One page of a folder of a backup, by name. The index is not sorted and may be read more than once; memory use is
//! bounded, however large the folder is.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// How much is held at once. A page further back takes another reading for every such window.
pub(crate) const WINDOW: Window = Window { entries: 100_000, bytes: 32 * 1024 * 1024 };

/// How many entries are held at once, and how many bytes of their names; always at least one entry.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub entries: usize,
    pub bytes: usize,
}

/// A name and its place in the archive, which may contain the same name twice.
type Key = (String, u64);

#[derive(Debug)]
struct Keyed<T> {
    key: Key,
    bytes: usize,
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

/// A page that is being collected. Every reading offers all entries; `next_reading` says whether another one is needed.
#[derive(Debug)]
pub(crate) struct FolderPage<T> {
    skip: usize,
    end: usize,
    window: Window,
    /// How many entries were skipped or taken in earlier readings, and the last of them.
    passed: usize,
    after: Option<Key>,
    /// The smallest entries after that, as many as this reading collects.
    smallest: BinaryHeap<Keyed<T>>,
    held_bytes: usize,
    /// The first entry that this reading had no room for.
    beyond: Option<Key>,
    offered: u64,
    pub total: u64,
    pub items: Vec<T>,
}

impl<T> FolderPage<T> {
    pub(crate) fn new(skip: usize, count: usize, window: Window) -> Self {
        Self {
            skip,
            end: skip.saturating_add(count),
            window,
            passed: 0,
            after: None,
            smallest: BinaryHeap::new(),
            held_bytes: 0,
            beyond: None,
            offered: 0,
            total: 0,
            items: Vec::new(),
        }
    }

    fn wanted(&self) -> usize {
        (self.end - self.passed).min(self.window.entries.max(1))
    }

    /// `bytes` is what the item takes besides its name.
    pub(crate) fn offer(&mut self, name: String, bytes: usize, item: impl FnOnce(String) -> T) {
        let number = self.offered;
        self.offered += 1;
        let own = (name.as_str(), number);
        let is_past = self.after.as_ref().is_some_and(|after| own <= (after.0.as_str(), after.1));
        if is_past || self.beyond.as_ref().is_some_and(|beyond| own >= (beyond.0.as_str(), beyond.1)) {
            return;
        }
        // The name is held twice.
        let bytes = bytes + 2 * name.len();
        self.held_bytes += bytes;
        self.smallest.push(Keyed { key: (name.clone(), number), bytes, item: item(name) });
        while self.is_too_much() {
            let Some(last) = self.smallest.pop() else { return };
            self.held_bytes -= last.bytes;
            self.beyond = Some(last.key);
        }
    }

    fn is_too_much(&self) -> bool {
        let held = self.smallest.len();
        held > self.wanted() || (held > 1 && self.held_bytes > self.window.bytes)
    }

    /// Ends a reading. Returns false once the page is complete.
    pub(crate) fn next_reading(&mut self) -> bool {
        self.total = self.offered;
        self.offered = 0;
        self.held_bytes = 0;
        let found = std::mem::take(&mut self.smallest).into_sorted_vec();
        let is_end = self.beyond.take().is_none();
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

    fn page(names: &[String], skip: usize, count: usize, window: Window) -> (Vec<String>, u64, usize) {
        let mut page = FolderPage::new(skip, count, window);
        let mut readings = 0;
        loop {
            readings += 1;
            for name in names {
                page.offer(name.clone(), 0, |name| name);
                let held: usize = page.smallest.iter().map(|keyed| keyed.key.0.len() + keyed.item.len()).sum();
                assert!(page.smallest.len() <= window.entries, "memory is bounded");
                assert!(page.smallest.len() <= 1 || held <= window.bytes, "memory is bounded");
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
        for entries in [1, 7, 50, 199, 200, 1000] {
            let window = Window { entries, bytes: usize::MAX };
            for (skip, count) in [(0, 15), (15, 15), (190, 15), (199, 1), (0, 500), (49, 3), (200, 15), (900, 15)] {
                let (items, total, readings) = page(&names, skip, count, window);
                let expected: Vec<String> = sorted.iter().skip(skip).take(count).cloned().collect();
                assert_eq!((items, total), (expected, 200), "{skip} {count} with {entries}");
                if skip >= 200 || skip + count <= entries {
                    assert_eq!(readings, 1, "{skip} {count} with {entries}");
                }
            }
        }
        assert_eq!(page(&[], 0, 15, Window { entries: 7, bytes: 7 }), (Vec::new(), 0, 1));
    }

    #[test]
    fn long_names_take_further_readings_and_not_more_memory() {
        // Long and short ones in no order, some longer than all that may be held.
        let name = |number: u64| format!("{:03}{}", number * 77 % 199, "n".repeat((number * 31 % 97) as usize));
        let names: Vec<String> = (0..199).map(name).collect();
        let mut sorted = names.clone();
        sorted.sort();
        for bytes in [0, 10, 150, 1000, 100_000] {
            for (skip, count) in [(0, 15), (15, 15), (190, 15), (198, 1), (0, 500), (199, 15)] {
                let (items, total, readings) = page(&names, skip, count, Window { entries: 100, bytes });
                let expected: Vec<String> = sorted.iter().skip(skip).take(count).cloned().collect();
                assert_eq!((items, total), (expected, 199), "{skip} {count} with {bytes}");
                assert!(readings == 1 || bytes < 100_000 || skip + count > 100, "{skip} {count} with {bytes}");
            }
        }
    }
}
