//! Writes the files of a server into an archive of our own, member by member, as they come. Files that a tar took for
//! one big hole are asked for again: GNU tar believes a file system that reports no blocks, and some do so for files
//! that hold data.

use std::collections::HashSet;
use std::io::{self, Read, Write};

use holdfast_core::backup::name_text;

use super::index::Entry;
use super::inspect::Inspected;
use super::selection::relative;
use super::tar::{Kind, Member, Place, Reader, Writer};

/// Files to read again; more than this and the list itself would be a burden.
const MAX_AGAIN: usize = 1_000_000;

/// Where the members come from: one archive, and another one of the files that are read again.
pub(super) trait Readings: Read {
    /// After the end of the first archive: asks for these files and gives those among them that really are all hole;
    /// `None` when nothing can be read again.
    fn again(&mut self, files: &[Member]) -> io::Result<Option<Vec<usize>>>;

    /// A file of the first archive has been read.
    fn passed(&mut self, file: &Member);
}

/// Counts what is written, which tells where each member lies.
struct Counted<W> {
    out: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

struct Repacking<'a, W: Write> {
    writer: Writer<Counted<W>>,
    inspected: Inspected,
    on_entry: &'a mut dyn FnMut(&Entry) -> io::Result<()>,
}

impl<W: Write> Repacking<'_, W> {
    fn add(&mut self, member: &Member, data: &mut dyn Read) -> io::Result<()> {
        // No tar that reads a folder writes such names; what cannot be restored must not count as backed up.
        let leads_out = |path: &[u8]| relative(path).is_none();
        if leads_out(&member.path) || (member.kind == Kind::Hardlink && leads_out(&member.link)) {
            return Err(io::Error::other(format!("{} leads out of the source", name_text(&member.path))));
        }
        let start = self.writer.get_mut().bytes;
        self.writer.append(member, data)?;
        let place = Place { start, end: self.writer.get_mut().bytes };
        self.inspected.entries += 1;
        (self.on_entry)(&Entry::of(member, place))
    }
}

/// Reads all of `source` and writes it to `out`.
pub(super) fn repack<W: Write>(
    source: &mut impl Readings,
    out: W,
    on_entry: &mut dyn FnMut(&Entry) -> io::Result<()>,
) -> io::Result<Inspected> {
    let writer = Writer::new(Counted { out, bytes: 0 });
    let mut repacking = Repacking { writer, inspected: Inspected::default(), on_entry };
    let (mut again, mut links, mut names) = (Vec::new(), Vec::new(), HashSet::new());
    let mut reader = Reader::new(&mut *source);
    while let Some((member, _)) = reader.next()? {
        if is_all_hole(&member) {
            names.insert(member.path.clone());
            again.push(member);
            if again.len() > MAX_AGAIN {
                return Err(io::Error::other("too many files that seem to be nothing but holes"));
            }
        } else if member.kind == Kind::Hardlink && names.contains(&member.link) {
            links.push(member);
        } else {
            repacking.add(&member, &mut reader)?;
            if member.kind == Kind::File && member.size > 0 {
                reader.get_mut().passed(&member);
            }
        }
    }
    // A source that cannot be asked again is believed.
    let holes = source.again(&again)?.unwrap_or_else(|| (0..again.len()).collect());
    for index in holes {
        let hole = again.get(index).ok_or_else(|| io::Error::other("a hole that was not asked for"))?;
        names.remove(&hole.path);
        repacking.add(hole, &mut io::empty())?;
    }
    if !names.is_empty() {
        let mut reader = Reader::new(&mut *source);
        while let Some((member, _)) = reader.next()? {
            if !names.remove(&member.path) {
                return Err(io::Error::other(format!("{} was not asked for", name_text(&member.path))));
            }
            repacking.add(&member, &mut reader)?;
        }
    }
    // What went away in between has no further names either.
    for link in links.iter().filter(|link| !names.contains(&link.link)) {
        repacking.add(link, &mut io::empty())?;
    }
    let gone = names.iter().map(|path| format!("{}: File removed before we read it", name_text(path)));
    repacking.inspected.warnings.extend(gone);
    repacking.writer.finish()?;
    Ok(repacking.inspected)
}

fn is_all_hole(member: &Member) -> bool {
    member.kind == Kind::File && member.size > 0 && member.parts.is_some() && member.data_bytes() == 0
}
