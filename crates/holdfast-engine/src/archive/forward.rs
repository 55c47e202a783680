//! Hands the chosen members of a tar stream on, byte for byte, after looking at each: nothing that would lead a
//! restore out of its target gets through.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::rc::Rc;

use holdfast_core::backup::name_text;
use holdfast_core::run::FailureCode;

use super::index::Entry;
use super::inspect::{HeaderLimit, describe, effective_path};
use crate::error::{EngineError, Result, classify};

/// More links than any honest tree; they are remembered to keep anything from being written through one.
const MAX_SYMLINKS: usize = 2_000_000;

/// Reads `reader` to its end and writes the chosen members to `out`, with a proper end. `chosen` also sees what passes.
pub(crate) fn forward(
    reader: &mut dyn Read,
    chosen: &mut dyn FnMut(&Entry) -> bool,
    out: &mut dyn Write,
) -> Result<u64> {
    forward_members(reader, chosen, out)
        .map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))
}

fn forward_members(
    reader: &mut dyn Read,
    chosen: &mut dyn FnMut(&Entry) -> bool,
    out: &mut dyn Write,
) -> io::Result<u64> {
    let state = Rc::new(RefCell::new(State { held: Vec::new(), mode: Mode::Hold, out }));
    let limit = HeaderLimit::default();
    let mut recorder = limit.bound(Recorder { reader, state: state.clone() });
    let mut archive = tar::Archive::new(&mut recorder);
    let (mut start, mut passed, mut is_open) = (0, 0, false);
    let mut guard = Guard::default();
    let mut entries = archive.entries()?;
    while let Some(entry) = limit.next(&mut entries) {
        let mut entry = entry?;
        let headers_end = entry.raw_file_position();
        let end = headers_end + entry.size().next_multiple_of(512);
        // Held are the padding of the member before and this one's headers.
        let mut held = std::mem::take(&mut state.borrow_mut().held);
        let headers = held.split_off(held.len() - usize::try_from(headers_end - start).unwrap_or(0).min(held.len()));
        if is_open {
            state.borrow_mut().out.write_all(&held)?;
        }
        let described = describe(&mut entry, start, end)?;
        guard.check(&mut entry)?;
        is_open = described.is_some_and(|described| chosen(&described));
        if is_open {
            passed += 1;
            state.borrow_mut().out.write_all(&headers)?;
        }
        state.borrow_mut().mode = if is_open { Mode::Pass } else { Mode::Drop };
        io::copy(&mut entry, &mut io::sink())?;
        state.borrow_mut().mode = Mode::Hold;
        start = end;
    }
    let mut state = state.borrow_mut();
    // The last member's padding came together with the first of the zeros that end the archive.
    let padding = state.held.len().saturating_sub(512);
    let held = std::mem::take(&mut state.held);
    if is_open {
        state.out.write_all(&held[..padding])?;
    }
    state.out.write_all(&[0; 1024])?;
    drop(state);
    io::copy(recorder.into_inner().reader, &mut io::sink())?;
    Ok(passed)
}

enum Mode {
    Hold,
    Pass,
    Drop,
}

struct State<'a> {
    held: Vec<u8>,
    mode: Mode,
    out: &'a mut dyn Write,
}

struct Recorder<'a, 'b> {
    reader: &'a mut dyn Read,
    state: Rc<RefCell<State<'b>>>,
}

impl Read for Recorder<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        let state = &mut *self.state.borrow_mut();
        match state.mode {
            Mode::Hold => state.held.extend_from_slice(&buffer[..read]),
            Mode::Pass => state.out.write_all(&buffer[..read])?,
            Mode::Drop => {}
        }
        Ok(read)
    }
}

/// Refuses names that leave the target, devices, hard links out of it, and anything that would be written through a
/// link. Links themselves are data: wherever they point, they are put back as they were.
#[derive(Default)]
pub(super) struct Guard {
    symlinks: HashSet<Vec<u8>>,
}

impl Guard {
    /// The member's path, made plain.
    pub(super) fn check<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>) -> io::Result<Vec<u8>> {
        let path = effective_path(entry)?;
        let refuse = |what: &str| {
            let message = format!("The archive holds {what}: {}", name_text(&path));
            Err(EngineError::new(FailureCode::HostileArchive, message).into())
        };
        let Some(plain) = relative(&path) else { return refuse("a name that leads out of the target") };
        let kind = entry.header().entry_type();
        if kind.is_block_special() || kind.is_character_special() {
            return refuse("a device");
        }
        if self.leads_through(&plain, kind.is_symlink()) {
            return refuse("a name that leads through a link");
        }
        if kind.is_hard_link() {
            let link = entry.link_name_bytes().unwrap_or_default();
            let Some(target) = relative(&link) else { return refuse("a link that leads out of the target") };
            if self.leads_through(&target, true) {
                return refuse("a link that leads through a link");
            }
        }
        if kind.is_symlink() && self.symlinks.insert(plain.clone()) && self.symlinks.len() > MAX_SYMLINKS {
            return refuse("too many links");
        }
        Ok(plain)
    }

    /// A parent is a link, or the path itself is one that may not be replaced.
    fn leads_through(&self, path: &[u8], may_be_link: bool) -> bool {
        if self.symlinks.is_empty() {
            return false;
        }
        let is_link = |end: usize| self.symlinks.contains(&path[..end]);
        let mut slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        slashes.any(is_link) || (!may_be_link && is_link(path.len()))
    }
}

/// A relative path without `.` and empty parts; `None` when it is absolute or climbs.
pub(super) fn relative(path: &[u8]) -> Option<Vec<u8>> {
    if path.starts_with(b"/") || path.contains(&0) {
        return None;
    }
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let parts: Vec<&[u8]> = parts.collect();
    (!parts.contains(&b"..".as_slice())).then(|| parts.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::super::index::EntryKind;
    use super::*;

    fn member(builder: &mut tar::Builder<Vec<u8>>, kind: tar::EntryType, name: &str, link: &str, text: &str) {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        // Straight into the field: the library would refuse the names that this is about.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(1);
        header.set_cksum();
        builder.append(&header, text.as_bytes()).unwrap();
    }

    fn archive(members: &[(tar::EntryType, &str, &str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (kind, name, link, text) in members {
            member(&mut builder, *kind, name, link, text);
        }
        builder.into_inner().unwrap()
    }

    const FILE: tar::EntryType = tar::EntryType::Regular;
    const LINK: tar::EntryType = tar::EntryType::Symlink;
    const HARD: tar::EntryType = tar::EntryType::Link;

    #[test]
    fn everything_passes_byte_for_byte_and_parts_are_whole() {
        let long = "x".repeat(700);
        let whole = archive(&[
            (FILE, "./a", "", "one"),
            (FILE, "./b", "", &long),
            (LINK, "./c", "/etc/passwd", ""),
            (HARD, "./d", "./a", ""),
            (FILE, "./e", "", "five"),
        ]);
        let mut all = Vec::new();
        assert_eq!(forward(&mut whole.as_slice(), &mut |_| true, &mut all).unwrap(), 5);
        assert_eq!(all, whole);
        for chosen in ["a", "b", "e"] {
            let mut part = Vec::new();
            let passed = forward(&mut whole.as_slice(), &mut |entry| entry.path == chosen, &mut part).unwrap();
            assert_eq!(passed, 1);
            assert_eq!(part.len() % 512, 0);
            let mut names = Vec::new();
            let mut reader = part.as_slice();
            let mut found = tar::Archive::new(&mut reader);
            for entry in found.entries().unwrap() {
                let mut entry = entry.unwrap();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                names.push((entry.path().unwrap().display().to_string(), text));
            }
            let text = match chosen {
                "a" => "one",
                "b" => &long,
                _ => "five",
            };
            assert_eq!(names, [(format!("./{chosen}"), text.to_owned())]);
        }
        let mut seen = Vec::new();
        forward(
            &mut whole.as_slice(),
            &mut |entry| {
                seen.push(entry.kind);
                false
            },
            &mut Vec::new(),
        )
        .unwrap();
        assert_eq!(seen[2..4], [EntryKind::Symlink, EntryKind::Hardlink]);
    }

    #[test]
    fn hostile_members_are_refused_before_they_pass() {
        let hostile: [&[(tar::EntryType, &str, &str, &str)]; 8] = [
            &[(FILE, "../evil", "", "x")],
            &[(FILE, "/etc/evil", "", "x")],
            &[(FILE, "a/../../evil", "", "x")],
            &[(LINK, "a", "/etc", ""), (FILE, "a/evil", "", "x")],
            &[(LINK, "./a", "/etc/passwd", ""), (FILE, "a", "", "x")],
            &[(HARD, "a", "../../etc/shadow", "")],
            &[(HARD, "a", "/etc/shadow", "")],
            &[(tar::EntryType::Char, "null", "", "")],
        ];
        for members in hostile {
            let mut out = Vec::new();
            let error = forward(&mut archive(members).as_slice(), &mut |_| true, &mut out).unwrap_err();
            assert_eq!(error.code, FailureCode::HostileArchive, "{members:?}");
            assert!(out.len() <= 512 * (members.len() - 1), "the last member must not have passed");
        }
        let fine = archive(&[(LINK, "a", "/etc", ""), (FILE, "ab", "", "x")]);
        assert!(forward(&mut fine.as_slice(), &mut |_| true, &mut Vec::new()).is_ok());
    }
}
