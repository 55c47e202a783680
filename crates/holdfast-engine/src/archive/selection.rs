//! Decides which members of an archive a restore writes, and under which name. The decisions depend only on names and
//! on what exists in the target, so that a dry run and a restore have the same result.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;

use holdfast_core::backup::{EntryKind, name_text};
use holdfast_core::failure::FailureCode;

use super::index::{Entry, tidy_path};
use super::tar::{Member, MemberKind};
use crate::error::EngineError;

/// The maximum number of links, more than any legitimate tree has. They are remembered so that nothing is written
/// through one.
const MAX_LINKS: usize = 2_000_000;

/// Which entries of a backup were requested.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    /// Paths as in the index; empty means everything.
    wanted: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chosen {
    /// It was requested, or is below something that was.
    Yes,
    /// A parent folder of something that was requested.
    Above,
    No,
}

impl Choice {
    pub(crate) fn new(entries: &[String]) -> Self {
        Self { wanted: entries.iter().map(|path| path.trim_matches('/').to_owned()).collect() }
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The requested paths that are this entry or contain it.
    pub(crate) fn covering<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a str> {
        self.wanted.iter().filter(move |wanted| covers(wanted, path)).map(String::as_str)
    }

    pub(crate) fn first_missing(&self, found: &HashSet<String>) -> Option<&str> {
        self.wanted.iter().find(|wanted| !found.contains(*wanted)).map(String::as_str)
    }

    /// Whether an entry was requested, is below something that was, or above it.
    pub(crate) fn has(&self, path: &str, is_dir: bool) -> bool {
        match self.of(path, is_dir) {
            Chosen::Yes | Chosen::Above => true,
            Chosen::No => false,
        }
    }

    fn of(&self, path: &str, is_dir: bool) -> Chosen {
        if self.is_everything() || self.covering(path).next().is_some() {
            Chosen::Yes
        } else if is_dir && self.wanted.iter().any(|wanted| covers(path, wanted)) {
            Chosen::Above
        } else {
            Chosen::No
        }
    }
}

/// Whether `other` is `path` itself or below it.
fn covers(path: &str, other: &str) -> bool {
    path.is_empty() || other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What exists at a path in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExistingKind {
    Nothing,
    Directory,
    Symlink,
    /// A file, or anything else that is not a folder or link.
    File,
}

/// Keyed hashes instead of paths: those of a million files take 16 MB, however long the paths are, and nobody can cause
/// collisions on purpose.
#[derive(Debug, Default)]
pub(crate) struct PathKeys(RandomState);

impl PathKeys {
    pub(crate) fn key(&self, path: &str) -> u64 {
        self.with_ancestors(path).last().unwrap_or_default()
    }

    /// The keys of the folders above a path, the topmost first, and then its own. Each byte is hashed once.
    fn with_ancestors<'a>(&self, path: &'a str) -> impl Iterator<Item = u64> + 'a {
        let mut hasher = self.0.build_hasher();
        path.split('/').map(move |name| {
            hasher.write(name.as_bytes());
            hasher.write_u8(b'/');
            hasher.finish()
        })
    }

    /// The keys of the folders above a path, without its own.
    fn of_ancestors<'a>(&self, path: &'a str) -> impl Iterator<Item = u64> + 'a {
        self.with_ancestors(path).take(path.bytes().filter(|byte| *byte == b'/').count())
    }
}

/// What exists in a target at the paths that a restore will touch.
#[derive(Debug, Default)]
pub(crate) struct Existing {
    keys: PathKeys,
    existing_kinds: HashMap<u64, ExistingKind>,
}

impl Existing {
    pub(crate) fn key(&self, path: &str) -> u64 {
        self.keys.key(path)
    }

    pub(crate) fn set(&mut self, key: u64, kind: ExistingKind) {
        self.existing_kinds.insert(key, kind);
    }

    fn at(&self, key: u64) -> Option<ExistingKind> {
        self.existing_kinds.get(&key).copied()
    }
}

/// The folders above a path, the topmost first.
pub(crate) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// Whether a path is so deep that the paths of all its folders together would be far longer than the path itself. Such
/// paths do not occur in practice; a hostile archive could use them to keep a restore busy.
pub(crate) fn is_too_deep(path: &str) -> bool {
    const MOST_BYTES: usize = 4 * 1024 * 1024;
    path.len() * path.bytes().filter(|byte| *byte == b'/').count() / 2 > MOST_BYTES
}

/// The longest path below a target, and the longest name in it, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathLimits {
    pub path: usize,
    pub name: usize,
}

impl PathLimits {
    /// The longest path that Linux accepts after `./`, and the longest name that nearly every file system accepts.
    pub(crate) const USUAL: Self = Self { path: 4093, name: 255 };

    pub(crate) fn is_exceeded(self, path: &[u8]) -> bool {
        path.len() > self.path || path.split(|byte| *byte == b'/').any(|name| name.len() > self.name)
    }
}

impl Default for PathLimits {
    fn default() -> Self {
        Self { path: usize::MAX, name: usize::MAX }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// Replace what exists; otherwise it is kept.
    pub overwrite: bool,
    pub restore_devices: bool,
    /// Whether owners are restored. Without them, setuid and setgid bits are dropped, since they would grant the rights
    /// of the wrong user.
    pub with_owners: bool,
    /// Whether the target was created for this restore, so that it gets mode and owner of the source folder.
    pub with_root: bool,
    /// Whether pipes and devices cannot be created at all.
    pub without_special: bool,
    pub longest: PathLimits,
}

/// Why a requested member is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SkipReason {
    /// Something already exists there and is to be kept.
    Kept,
    ThroughLink,
    BelowFile,
    LinkInTheWay,
    FileInTheWay,
    FolderInTheWay,
    Device,
    Special,
    TooLong,
}

impl SkipReason {
    /// Whether the options of the restore ask for it; everything else is a warning.
    pub(crate) fn is_as_requested(self) -> bool {
        match self {
            Self::Kept => true,
            Self::ThroughLink
            | Self::BelowFile
            | Self::LinkInTheWay
            | Self::FileInTheWay
            | Self::FolderInTheWay
            | Self::Device
            | Self::Special
            | Self::TooLong => false,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Kept => "exists already and was kept",
            Self::ThroughLink => "skipped: a folder on its path is a link in the target",
            Self::BelowFile => "skipped: a folder on its path is a file in the target",
            Self::LinkInTheWay => "skipped: the target has a link where the backup has a folder",
            Self::FileInTheWay => "skipped: the target has a file where the backup has a folder",
            Self::FolderInTheWay => "skipped: the target has a folder where the backup has a file",
            Self::Device => "skipped: device nodes are only restored on request and by root",
            Self::Special => "skipped: pipes and devices cannot be restored in this way",
            Self::TooLong => {
                "skipped: its path, or that of the file it is a hard link to, is longer than the target accepts"
            }
        }
    }
}

/// The kind of a member, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nature {
    Directory,
    Pipe,
    Device,
    Other,
}

impl Nature {
    fn of(kind: MemberKind) -> Self {
        match kind {
            MemberKind::Directory => Self::Directory,
            MemberKind::Fifo => Self::Pipe,
            MemberKind::CharDevice { .. } | MemberKind::BlockDevice { .. } => Self::Device,
            MemberKind::File | MemberKind::Symlink | MemberKind::Hardlink => Self::Other,
        }
    }

    fn of_entry(entry: &Entry) -> Self {
        match (entry.kind, entry.is_device) {
            (EntryKind::Directory, _) => Self::Directory,
            (EntryKind::Other, Some(true)) => Self::Device,
            (EntryKind::Other, _) => Self::Pipe,
            (EntryKind::File | EntryKind::Symlink | EntryKind::Hardlink, _) => Self::Other,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Unchosen,
    Write,
    Skip(SkipReason),
}

/// How many of the requested members were restored, kept and skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    /// Written or, in a dry run, to be written.
    pub restored: u64,
    pub kept: u64,
    pub skipped: u64,
}

/// A file that requested hard links refer to.
#[derive(Debug, Default)]
struct Links {
    wanted: Vec<String>,
    /// The path that its content was written to.
    written: Option<String>,
}

/// Called for every requested member that is not written.
type OnSkipped = Box<dyn FnMut(&str, SkipReason) + Send>;

pub(crate) struct Selection {
    choice: Choice,
    options: Options,
    /// `None` when the target was empty.
    existing: Option<Existing>,
    links: HashMap<String, Links>,
    promoted: HashSet<String>,
    keys: PathKeys,
    symlinks: HashSet<u64>,
    /// Members that are not restored, whatever exists in the target; hard links to them are not restored either.
    skipped: HashMap<u64, SkipReason>,
    counted: Counted,
    on_skipped: OnSkipped,
}

impl Selection {
    pub(crate) fn new(
        choice: Choice,
        options: Options,
        existing: Option<Existing>,
        on_skipped: impl FnMut(&str, SkipReason) + Send + 'static,
    ) -> Self {
        Self {
            choice,
            options,
            existing,
            links: HashMap::new(),
            promoted: HashSet::new(),
            keys: PathKeys::default(),
            symlinks: HashSet::new(),
            skipped: HashMap::new(),
            counted: Counted::default(),
            on_skipped: Box::new(on_skipped),
        }
    }

    /// Resets the selection to before anything was decided.
    pub(crate) fn again(self, on_skipped: impl FnMut(&str, SkipReason) + Send + 'static) -> Self {
        let mut links = self.links;
        links.values_mut().for_each(|links| links.written = None);
        Self { links, ..Self::new(self.choice, self.options, self.existing, on_skipped) }
    }

    pub(crate) fn overwrites(&self) -> bool {
        self.options.overwrite
    }

    pub(crate) fn counted(&self) -> Counted {
        self.counted
    }

    /// Notes a hard link before anything is written: if the file it refers to is not requested, or exists and has to be
    /// kept, the content is written under the name of the link.
    pub(crate) fn expect(&mut self, entry: &Entry) -> Result<(), EngineError> {
        if entry.kind != EntryKind::Hardlink {
            return Ok(());
        }
        // The index is as untrusted as the archive: it may escape a path in a way that hides where it leads.
        let Some(path) = plain_text(&entry.path) else {
            return Err(hostile("a name that leads out of the target", &entry.path));
        };
        if self.choice.of(&path, false) != Chosen::Yes {
            return Ok(());
        }
        let target = entry.link.as_deref().unwrap_or_default();
        let target = plain_text(target).unwrap_or_else(|| tidy_text(target).to_owned());
        self.links.entry(target).or_default().wanted.push(path);
        if self.links.len() > MAX_LINKS { Err(hostile("too many links", &entry.path)) } else { Ok(()) }
    }

    /// Counts whether an entry would be written, for a dry run.
    pub(crate) fn preview(&mut self, entry: &Entry) {
        let nature = Nature::of_entry(entry);
        let mut verdict = self.verdict(&entry.path, nature);
        self.remember_skipped(&entry.path, nature);
        if entry.kind == EntryKind::Hardlink && verdict == Verdict::Write {
            let target = entry.link.as_deref().and_then(plain_text);
            verdict = self.verdict_of_link(target.as_deref());
        }
        self.count(&entry.path, verdict);
    }

    /// Decides what to write for this member: the member itself, the same content under another name, or nothing.
    pub(crate) fn decide(&mut self, member: &Member) -> io::Result<Option<Member>> {
        let text = name_text(tidy_path(&member.path));
        let nature = Nature::of(member.kind);
        if self.choice.of(&text, nature == Nature::Directory) == Chosen::No {
            self.remember_skipped(&text, nature);
            return self.promote(member, &text);
        }
        let Some(plain) = relative(&member.path) else {
            return Err(hostile("a name that leads out of the target", &text).into());
        };
        let path = name_text(&plain);
        // The content of a symbolic link may already have been written under the name of this hard link to it.
        let is_promoted = member.kind == MemberKind::Hardlink && self.promoted.contains(&path);
        self.check_links(&path, member.kind == MemberKind::Symlink || is_promoted)?;
        if member.kind == MemberKind::Symlink {
            self.remember_symlink(&path)?;
        }
        let mut verdict = self.verdict(&path, nature);
        self.remember_skipped(&path, nature);
        if member.kind == MemberKind::Hardlink && verdict == Verdict::Write {
            let target = relative(&member.link).map(|target| name_text(&target));
            verdict = self.verdict_of_link(target.as_deref());
        }
        self.count(&path, verdict);
        match (verdict, member.kind) {
            (Verdict::Write, MemberKind::Hardlink) => self.link(member, &path, &plain),
            (Verdict::Write, _) => {
                if let Some(links) = self.links.get_mut(&path) {
                    links.written = Some(path);
                }
                Ok(Some(self.named(member, &plain)))
            }
            (Verdict::Skip(_) | Verdict::Unchosen, _) => self.promote(member, &path),
        }
    }

    /// Writes a file that is not written itself under the name of the first of its hard links that is.
    fn promote(&mut self, member: &Member, path: &str) -> io::Result<Option<Member>> {
        let Some(links) = self.links.get(path) else { return Ok(None) };
        let can_be_linked = !matches!(member.kind, MemberKind::Directory | MemberKind::Hardlink);
        if !can_be_linked || links.written.is_some() || self.skip_special(Nature::of(member.kind)).is_some() {
            return Ok(None);
        }
        let first = links.wanted.iter().find(|wanted| self.verdict(wanted, Nature::Other) == Verdict::Write).cloned();
        let Some(first) = first else { return Ok(None) };
        let bytes = holdfast_core::backup::name_bytes(&first);
        let Some(plain) = relative(&bytes) else {
            return Err(hostile("a name that leads out of the target", &first).into());
        };
        self.check_links(&first, member.kind == MemberKind::Symlink)?;
        if let Some(links) = self.links.get_mut(path) {
            links.written = Some(first.clone());
        }
        if member.kind == MemberKind::Symlink {
            self.remember_symlink(&first)?;
        }
        self.promoted.insert(first);
        Ok(Some(self.named(member, &plain)))
    }

    fn link(&mut self, member: &Member, path: &str, plain: &[u8]) -> io::Result<Option<Member>> {
        if self.promoted.contains(path) {
            return Ok(None);
        }
        let Some(target) = relative(&member.link) else {
            return Err(hostile("a link that leads out of the target", path).into());
        };
        let target = name_text(&target);
        // There can be hard links to a symbolic link too.
        self.check_links(&target, true)?;
        let written = match (self.links.get(&target), &self.existing) {
            (Some(links), _) => links.written.clone(),
            // Everything is restored to an empty folder, so the file was written under its own name.
            (None, None) if self.choice.is_everything() => Some(target),
            (None, _) => None,
        };
        let Some(written) = written else {
            return Err(hostile("a link to a file that is not in it", path).into());
        };
        self.check_links(&written, true)?;
        if self.symlinks.contains(&self.keys.key(&written)) {
            self.remember_symlink(path)?;
        }
        let mut linked = self.named(member, plain);
        linked.link = [b"./".as_slice(), &holdfast_core::backup::name_bytes(&written)].concat();
        Ok(Some(linked))
    }

    /// Remembers a path at which the archive puts a symbolic link, or a hard link to one.
    fn remember_symlink(&mut self, path: &str) -> io::Result<()> {
        if self.symlinks.insert(self.keys.key(path)) && self.symlinks.len() > MAX_LINKS {
            return Err(hostile("too many links", path).into());
        }
        Ok(())
    }

    /// Why something that is not a file, folder or link is not restored.
    fn skip_special(&self, nature: Nature) -> Option<SkipReason> {
        match nature {
            Nature::Pipe | Nature::Device if self.options.without_special => Some(SkipReason::Special),
            Nature::Device if !self.options.restore_devices => Some(SkipReason::Device),
            Nature::Directory | Nature::Pipe | Nature::Device | Nature::Other => None,
        }
    }

    fn is_too_long(&self, path: &str) -> bool {
        // The escaped text is never shorter than the path itself.
        let longest = self.options.longest;
        let is_exceeded =
            || longest.is_exceeded(path.as_bytes()) && longest.is_exceeded(&holdfast_core::backup::name_bytes(path));
        is_too_deep(path) || is_exceeded()
    }

    /// Remembers a member that is not restored. At most `MAX_LINKS` are remembered; hard links to others are then
    /// refused as links to a missing file.
    fn remember_skipped(&mut self, path: &str, nature: Nature) {
        // The content of a file whose hard links were noted is written under the name of the first one.
        let is_too_long = || self.is_too_long(path) && !self.links.contains_key(path);
        let reason = self.skip_special(nature).or_else(|| is_too_long().then_some(SkipReason::TooLong));
        if let Some(reason) = reason.filter(|_| self.skipped.len() < MAX_LINKS) {
            self.skipped.insert(self.keys.key(path), reason);
        }
    }

    /// A hard link to something that is not restored is not restored either.
    fn verdict_of_link(&self, target: Option<&str>) -> Verdict {
        target
            .and_then(|target| self.skipped.get(&self.keys.key(target)))
            .map_or(Verdict::Write, |reason| Verdict::Skip(*reason))
    }

    /// Refuses a path that leads through a symbolic link from the archive itself.
    fn check_links(&self, path: &str, may_be_link: bool) -> io::Result<()> {
        if self.symlinks.is_empty() {
            return Ok(());
        }
        let is_link = |key: u64| self.symlinks.contains(&key);
        if self.keys.of_ancestors(path).any(is_link) || (!may_be_link && is_link(self.keys.key(path))) {
            return Err(hostile("a name that leads through a link", path).into());
        }
        Ok(())
    }

    fn named(&self, member: &Member, plain: &[u8]) -> Member {
        const SPECIAL: u32 = 0o6000;
        let path = if plain.is_empty() { b".".to_vec() } else { [b"./".as_slice(), plain].concat() };
        let is_plain = self.options.with_owners || member.kind == MemberKind::Directory;
        let mode = if is_plain { member.mode } else { member.mode & !SPECIAL };
        Member { path, mode, ..member.clone() }
    }

    fn verdict(&self, path: &str, nature: Nature) -> Verdict {
        let is_dir = nature == Nature::Directory;
        let chosen = self.choice.of(path, is_dir);
        if chosen == Chosen::No || (path.is_empty() && !self.options.with_root) {
            return Verdict::Unchosen;
        }
        if let Some(reason) = self.skip_special(nature) {
            return Verdict::Skip(reason);
        }
        if self.is_too_long(path) {
            return Verdict::Skip(SkipReason::TooLong);
        }
        let Some(existing) = &self.existing else { return Verdict::Write };
        let blocked = existing.keys.of_ancestors(path).find_map(|above| match existing.at(above)? {
            ExistingKind::Symlink => Some(SkipReason::ThroughLink),
            ExistingKind::File => Some(SkipReason::BelowFile),
            ExistingKind::Directory | ExistingKind::Nothing => None,
        });
        if let Some(reason) = blocked {
            return Verdict::Skip(reason);
        }
        match (existing.at(existing.key(path)), is_dir) {
            (Some(ExistingKind::Nothing), _) => Verdict::Write,
            // A folder that only contains what was requested is left as it is.
            (Some(ExistingKind::Directory), true) if chosen == Chosen::Above => Verdict::Unchosen,
            (Some(ExistingKind::Directory), true) if self.options.overwrite => Verdict::Write,
            (Some(ExistingKind::Directory), true) => Verdict::Skip(SkipReason::Kept),
            (Some(ExistingKind::Directory), false) => Verdict::Skip(SkipReason::FolderInTheWay),
            (Some(ExistingKind::Symlink), true) => Verdict::Skip(SkipReason::LinkInTheWay),
            (Some(ExistingKind::File), true) => Verdict::Skip(SkipReason::FileInTheWay),
            (Some(ExistingKind::Symlink | ExistingKind::File), false) if self.options.overwrite => Verdict::Write,
            (Some(ExistingKind::Symlink | ExistingKind::File), false) => Verdict::Skip(SkipReason::Kept),
            // It is not known what exists there, so nothing is written.
            (None, _) => Verdict::Skip(SkipReason::Kept),
        }
    }

    fn count(&mut self, path: &str, verdict: Verdict) {
        match verdict {
            Verdict::Unchosen => {}
            Verdict::Write => self.counted.restored += 1,
            Verdict::Skip(reason) if reason.is_as_requested() => self.counted.kept += 1,
            Verdict::Skip(_) => self.counted.skipped += 1,
        }
        if let Verdict::Skip(reason) = verdict {
            (self.on_skipped)(path, reason);
        }
    }
}

fn hostile(what: &str, path: &str) -> EngineError {
    EngineError::new(FailureCode::HostileArchive, format!("The archive holds {what}: {path}"))
}

fn tidy_text(mut path: &str) -> &str {
    while let Some(rest) = path.strip_prefix("./") {
        path = rest;
    }
    path.trim_end_matches('/')
}

/// Normalises the escaped text of a path; `None` if the path is absolute or contains `..`.
fn plain_text(text: &str) -> Option<String> {
    relative(&holdfast_core::backup::name_bytes(text)).map(|plain| name_text(&plain))
}

/// A relative path without `.` and empty parts; `None` if it is absolute or contains `..` or a NUL byte.
pub(crate) fn relative(path: &[u8]) -> Option<Vec<u8>> {
    if path.starts_with(b"/") || path.contains(&0) {
        return None;
    }
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let parts: Vec<&[u8]> = parts.collect();
    (!parts.contains(&b"..".as_slice())).then(|| parts.join(&b'/'))
}

#[cfg(test)]
mod tests;
