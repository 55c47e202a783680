//! Unpacks a tar stream to a target and checks each member first: for folders on this machine, and for servers that
//! have no tar of their own.

use std::io::{self, Read};

use holdfast_core::backup::name_text;
use holdfast_core::failure::FailureCode;

use super::selection::{Selection, relative};
use super::tar::{Member, MemberKind, Part, Reader, Time};
use crate::error::{Result, classify};

/// The metadata of a member that is restored with its content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Facts {
    pub mode: u32,
    pub uid: u64,
    pub gid: u64,
    pub modified: Time,
}

/// The content of a file. Holes are never read: an archive of a few hundred bytes can describe a file of exabytes.
pub(crate) struct FileContent<'a> {
    pub data: &'a mut dyn Read,
    /// Where the data is in a file with holes.
    pub parts: Option<&'a [Part]>,
    /// The size of the file, including holes.
    pub size: u64,
}

/// Where members are written to. Paths are relative, without `.` and `..`.
pub(crate) trait Target {
    fn directory(&mut self, path: &[u8], facts: Facts) -> io::Result<()>;
    fn file(&mut self, path: &[u8], facts: Facts, content: FileContent<'_>) -> io::Result<()>;
    fn symlink(&mut self, path: &[u8], link: &[u8], facts: Facts) -> io::Result<()>;
    /// A hard link to an earlier file.
    fn hardlink(&mut self, path: &[u8], target: &[u8]) -> io::Result<()>;
    /// Any other kind of member, such as a pipe or a device.
    fn other(&mut self, path: &[u8]) -> io::Result<()>;
    /// Called for a member whose access control lists and extended attributes cannot be restored here.
    fn lose_attributes(&mut self, path: &[u8]);
    /// Called after the last member, for what had to wait, such as setting the times of folders.
    fn finish(&mut self) -> io::Result<()>;
}

/// Reads to the end and writes the members that `selection` decides on to `target`. `on_member` is called for each.
pub(crate) fn unpack(
    reader: &mut dyn Read,
    selection: &mut Selection,
    on_member: &mut dyn FnMut(&Member),
    target: &mut dyn Target,
) -> Result<()> {
    let unpacked = unpack_members(reader, selection, on_member, target);
    unpacked.map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))
}

fn unpack_members(
    reader: &mut dyn Read,
    selection: &mut Selection,
    on_member: &mut dyn FnMut(&Member),
    target: &mut dyn Target,
) -> io::Result<()> {
    let mut reader = Reader::new(reader);
    while let Some((member, _)) = reader.next()? {
        if let Some(written) = selection.decide(&member)? {
            on_member(&written);
            place(&written, &mut reader, target).map_err(|error| unwritten(&written, &error))?;
        }
    }
    target.finish().map_err(|error| unplaced("the folders' times and modes", &error))
}

/// A failed write is attributed to the target, unless the error comes from one of our own stages.
fn unwritten(member: &Member, error: &io::Error) -> io::Error {
    unplaced(&name_text(&member.path), error)
}

fn unplaced(what: &str, error: &io::Error) -> io::Error {
    crate::error::carried(error)
        .unwrap_or_else(|| {
            let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
            let code = if is_full { FailureCode::TargetFull } else { FailureCode::TargetUnwritable };
            crate::EngineError::new(code, format!("Cannot write {what}: {error}"))
        })
        .into()
}

fn place<R: Read>(member: &Member, content: &mut Reader<R>, target: &mut dyn Target) -> io::Result<()> {
    if !member.attributes.is_empty() {
        target.lose_attributes(&member.path);
    }
    let facts = Facts { mode: mode_without_list(member), uid: member.uid, gid: member.gid, modified: member.modified };
    let path = relative(&member.path).unwrap_or_default();
    match member.kind {
        MemberKind::Directory => target.directory(&path, facts),
        MemberKind::Symlink => target.symlink(&path, &member.link, facts),
        MemberKind::Hardlink => target.hardlink(&path, &relative(&member.link).unwrap_or_default()),
        MemberKind::File => {
            let content = FileContent { data: content, parts: member.parts.as_deref(), size: member.size };
            target.file(&path, facts, content)
        }
        MemberKind::CharDevice { .. } | MemberKind::BlockDevice { .. } | MemberKind::Fifo => target.other(&path),
    }
}

/// The mode of a member that loses its access control list. With a list, the group bits are the mask, the maximum for
/// everyone in the list; without it, the group itself would get those rights. So the group gets its own rights from the
/// list, limited by the mask.
fn mode_without_list(member: &Member) -> u32 {
    let list = member.attributes.iter().find(|(key, _)| key == b"SCHILY.acl.access");
    let rights = list.and_then(|(_, text)| {
        let entries = text.split(|byte| matches!(byte, b',' | b'\n'));
        entries.into_iter().find_map(|entry| entry.trim_ascii().strip_prefix(b"group::")?.get(..3))
    });
    let Some(rights) = rights else { return member.mode };
    let bits = rights.iter().zip([4, 2, 1]).filter(|(right, _)| **right != b'-').map(|(_, bit)| bit).sum::<u32>();
    member.mode & (!0o070 | bits << 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losing_its_list_gives_nobody_more_rights() {
        for (mode, list, expected) in [
            (0o670, "user::rw-,user:5:rwx,group::r--,mask::rwx,other::---", 0o640),
            (0o660, "user::rw-\ngroup::r-x\nmask::rw-\nother::---", 0o640),
            (0o4675, "user::rw-,group::rwx,mask::rwx,other::r-x", 0o4675),
            (0o640, "user::rw-", 0o640),
        ] {
            let mut member = Member::new(b"a", MemberKind::File);
            member.mode = mode;
            member.attributes = vec![(b"SCHILY.acl.access".to_vec(), list.as_bytes().to_vec())];
            assert_eq!(mode_without_list(&member), expected, "{list}");
        }
    }
}
