//! Passes on the files of a server, member by member, as they arrive. Files that the server's tar took for one big hole
//! are requested again: GNU tar trusts a file system that reports no blocks, and some do so for files that contain data.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read};

use holdfast_core::backup::name_text;

use super::index::Entry;
use super::inspected::Inspected;
use super::selection::{PathLimits, relative};
use super::shown::shown_short;
use super::tar::{Member, MemberKind, MemberRange, Reader};

/// The maximum number of files to read again, including hard links to them; more would take too much memory.
const MAX_AGAIN: usize = 1_000_000;
/// The maximum size of their names and attributes.
const MAX_AGAIN_BYTES: usize = 128 * 1024 * 1024;

/// The number of members that are named in warnings; further ones are only counted.
const NAMED: u64 = 20;

/// The source of the members: one archive, followed by another with the files that are read again.
pub(crate) trait Readings: Read {
    /// After the end of the first archive, requests these files again and returns the indexes of those that really
    /// consist only of holes; `None` if nothing can be read again.
    fn again(&mut self, files: &[Member]) -> io::Result<Option<Vec<usize>>>;

    /// Called when a file of the first archive has been read.
    fn passed(&mut self, file: &Member);
}

/// Stores members.
pub(crate) trait MemberSink {
    /// Stores a member with its content, and returns where that is in the plain stream, if there is one. Of a file with
    /// holes, `data` has only the parts between them.
    fn put(&mut self, member: &Member, data: &mut dyn Read) -> io::Result<MemberRange>;
}

/// A Bloom filter of the names that have arrived, of 4 MiB however many there are. A name that arrived is always
/// recognised; of the others, one in six thousand is mistaken for known after a million names. The hash is keyed, so
/// nobody can choose which.
struct BloomFilter {
    hasher: RandomState,
    bits: Vec<u64>,
}

impl Default for BloomFilter {
    fn default() -> Self {
        Self { hasher: RandomState::new(), bits: vec![0; Self::BITS / 64] }
    }
}

impl BloomFilter {
    const BITS: usize = 1 << 25;

    fn places(&self, path: &[u8]) -> [usize; 4] {
        let hash = self.hasher.hash_one(path);
        let (first, step) = (hash & 0xffff_ffff, hash >> 32 | 1);
        [0, 1, 2, 3].map(|turn| usize::try_from((first + turn * step) % Self::BITS as u64).unwrap_or_default())
    }

    fn note(&mut self, path: &[u8]) {
        for place in self.places(path) {
            self.bits[place / 64] |= 1 << (place % 64);
        }
    }

    fn has(&self, path: &[u8]) -> bool {
        self.places(path).iter().all(|place| self.bits[place / 64] >> (place % 64) & 1 == 1)
    }
}

struct Repacking<'a, S> {
    sink: &'a mut S,
    inspected: Inspected,
    /// The number of members with a path or name that most systems do not accept.
    long_names: u64,
    seen: BloomFilter,
    on_entry: &'a mut dyn FnMut(&Entry) -> io::Result<()>,
}

impl<S: MemberSink> Repacking<'_, S> {
    fn add(&mut self, member: &Member, data: &mut dyn Read) -> io::Result<()> {
        // No tar that reads a folder writes such names. What cannot be restored must not count as backed up.
        let leads_out = || io::Error::other(format!("{} leads out of the source", name_text(&member.path)));
        let path = relative(&member.path).ok_or_else(leads_out)?;
        if path.is_empty() && member.kind != MemberKind::Directory {
            return Err(io::Error::other("the source itself is not a folder"));
        }
        if member.kind == MemberKind::Hardlink {
            let target = relative(&member.link).ok_or_else(leads_out)?;
            if !self.seen.has(&target) {
                let (name, target) = (name_text(&member.path), name_text(&member.link));
                let message = format!("{name} is a hard link to {target}, which did not come before it");
                return Err(io::Error::other(message));
            }
        }
        if member.kind != MemberKind::Directory {
            self.seen.note(&path);
        }
        if PathLimits::USUAL.is_exceeded(&path) {
            self.note_long_name(&path);
        }
        let place = self.sink.put(member, data)?;
        self.inspected.entries += 1;
        (self.on_entry)(&Entry::of(member, place))
    }

    /// Warns about a long path. Folders can be entered one by one and nested without limit, but most programs cannot
    /// use a path of that length.
    fn note_long_name(&mut self, path: &[u8]) {
        self.long_names += 1;
        if self.long_names > NAMED {
            return;
        }
        let PathLimits { path: longest, name } = PathLimits::USUAL;
        self.inspected.warnings.push(format!(
            "{}: a path of {} bytes. Paths of more than {longest} bytes, or with a name of more than {name}, are \
             backed up, but most servers cannot restore them: only bsdtar writes longer paths, and few file systems \
             accept longer names",
            shown_short(&name_text(path)),
            path.len()
        ));
    }
}

/// Reads all of `source` and passes it to `sink`.
pub(crate) fn repack<S: MemberSink>(
    source: &mut impl Readings,
    sink: &mut S,
    on_entry: &mut dyn FnMut(&Entry) -> io::Result<()>,
) -> io::Result<Inspected> {
    let mut repacking =
        Repacking { sink, inspected: Inspected::default(), long_names: 0, seen: BloomFilter::default(), on_entry };
    let (mut again, mut links, mut names, mut held) = (Vec::new(), Vec::new(), HashSet::new(), 0);
    let mut reader = Reader::new(&mut *source);
    while let Some((member, _)) = reader.next()? {
        let is_link = member.kind == MemberKind::Hardlink && names.contains(&member.link);
        if is_link || is_all_hole(&member) {
            held += held_bytes(&member);
            if again.len() + links.len() >= MAX_AGAIN || held > MAX_AGAIN_BYTES {
                return Err(io::Error::other("too many files that seem to be nothing but holes"));
            }
        }
        if is_link {
            links.push(member);
        } else if is_all_hole(&member) {
            names.insert(member.path.clone());
            again.push(member);
        } else {
            repacking.add(&member, &mut reader)?;
            if matches!(member.kind, MemberKind::File | MemberKind::Directory | MemberKind::Symlink) {
                reader.get_mut().passed(&member);
            }
        }
    }
    // If nothing can be read again, the first reading is trusted.
    let holes = source.again(&again)?.unwrap_or_else(|| (0..again.len()).collect());
    for index in holes {
        let hole = again.get(index).ok_or_else(|| io::Error::other("a hole that was not requested"))?;
        names.remove(&hole.path);
        repacking.add(hole, &mut io::empty())?;
    }
    if !names.is_empty() {
        let mut reader = Reader::new(&mut *source);
        while let Some((member, _)) = reader.next()? {
            if !names.remove(&member.path) {
                return Err(io::Error::other(format!("{} was not requested", name_text(&member.path))));
            }
            repacking.add(&member, &mut reader)?;
        }
    }
    // Hard links to files that have disappeared in the meantime are left out too.
    for link in links.iter().filter(|link| !names.contains(&link.link)) {
        repacking.add(link, &mut io::empty())?;
    }
    let gone = names.iter().map(|path| format!("{}: File removed before we read it", name_text(path)));
    repacking.inspected.warnings.extend(gone);
    if repacking.long_names > NAMED {
        let more = repacking.long_names - NAMED;
        repacking.inspected.warnings.push(format!("{more} more paths or names are as long"));
    }
    Ok(repacking.inspected)
}

fn held_bytes(member: &Member) -> usize {
    let attributes = member.attributes.iter().map(|(name, value)| name.len() + value.len());
    let parts = member.parts.as_ref().map_or(0, |parts| size_of_val(parts.as_slice()));
    [&member.path, &member.link, &member.user, &member.group].map(Vec::len).into_iter().chain(attributes).sum::<usize>()
        + parts
}

fn is_all_hole(member: &Member) -> bool {
    member.kind == MemberKind::File && member.size > 0 && member.parts.is_some() && member.data_bytes() == 0
}

#[cfg(test)]
mod tests;
