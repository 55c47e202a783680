//! A folder with everything that is hard to back up, and a comparison of folders.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{File, Metadata, Permissions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

/// Apparent size of the sparse file.
pub const SPARSE_BYTES: u64 = 64 * 1024 * 1024;

pub struct SampleTree {
    root: PathBuf,
}

impl SampleTree {
    /// Creates the tree in `root`, which may exist. It is the same every time.
    pub fn create(root: &Path) -> Self {
        std::fs::create_dir_all(root).expect("a place for the tree");
        let tree = Self { root: root.to_owned() };
        tree.contents();
        tree.links();
        tree.modes_and_owners();
        tree.names();
        tree.times();
        tree
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    fn contents(&self) {
        self.folder("empty folder");
        self.file("empty file", b"");
        self.file("one byte", b"x");
        for number in 0..20 {
            let text = format!("small file {number}\n").repeat(number * 37);
            self.file(format!("small/{number:02}.txt"), text.as_bytes());
        }
        self.file("exactly 512", &random(1, 512));
        self.file("random 3 MiB", &random(2, 3 * 1024 * 1024));
        // Data at the start, in the middle, and at the end of a file that is otherwise holes.
        let mut sparse = File::create(self.root.join("sparse 64 MiB")).expect("a file");
        for offset in [0, SPARSE_BYTES / 2, SPARSE_BYTES - 4096] {
            sparse.seek(SeekFrom::Start(offset)).expect("files can be sought");
            sparse.write_all(&random(3, 4096)).expect("space for the tree");
        }
        // Only a hole, and a hole at the end: formats that list only data lose the size.
        File::create(self.root.join("hole alone")).expect("a file").set_len(1024 * 1024).expect("a hole");
        let mut tail = File::create(self.root.join("hole at the end")).expect("a file");
        tail.write_all(b"start").expect("space for the tree");
        tail.set_len(1024 * 1024).expect("a hole");
    }

    fn links(&self) {
        self.file("links/original", b"one file, three names\n");
        for name in ["links/second name", "links/deeper/third name"] {
            let path = self.path(name);
            std::fs::hard_link(self.root.join("links/original"), path).expect("a hard link");
        }
        for (name, target) in [
            ("links/relative", "original"),
            ("links/upwards", "../small/01.txt"),
            ("links/dangling", "/nonexistent/holdfast/target"),
            ("links/folder", "../small"),
            ("links/itself", "itself"),
        ] {
            symlink(target, self.path(name)).expect("a symbolic link");
        }
        // Longer than the 100 bytes that a plain tar header has for it.
        symlink("long/".repeat(60), self.path("links/long target")).expect("a symbolic link");
        self.command("mkfifo", &["--mode=0640"], "fifo");
    }

    fn modes_and_owners(&self) {
        let root = std::fs::metadata("/proc/self").expect("Linux").uid() == 0;
        for (name, mode) in [("0600", 0o600), ("0755", 0o755), ("0400", 0o400), ("0000", 0o000), ("04755", 0o4755)] {
            // Only root can read it.
            if mode == 0 && !root {
                continue;
            }
            self.file(format!("modes/{name}"), name.as_bytes());
            self.mode(&format!("modes/{name}"), mode);
        }
        for (name, mode) in
            [("folder 0700", 0o700), ("folder 0555", 0o555), ("folder 01777", 0o1777), ("folder 02750", 0o2750)]
        {
            // Only root can remove it and its content, as is done with temporary folders.
            if mode == 0o555 && !root {
                continue;
            }
            self.file(format!("modes/{name}/inside"), b"");
            self.mode(&format!("modes/{name}"), mode);
        }
        if root {
            for name in ["owned/file", "owned/setuid", "owned/folder/inside"] {
                self.file(name, b"not root's\n");
            }
            symlink("file", self.path("owned/link")).expect("a symbolic link");
            for name in ["owned/file", "owned/setuid", "owned/folder/inside", "owned/folder", "owned/link"] {
                std::os::unix::fs::lchown(self.root.join(name), Some(1234), Some(5678)).expect("root gives files away");
            }
            // More than the seven octal digits of a plain tar header.
            self.file("owned/large numbers", b"");
            let large = Some(3_000_000_000);
            std::os::unix::fs::lchown(self.root.join("owned/large numbers"), large, large)
                .expect("root gives files away");
            // After the owner: changing the owner clears the bit.
            self.mode("owned/setuid", 0o4755);
        }
    }

    fn names(&self) {
        for name in [
            &b"$(id) ' \""[..],
            b"-rf",
            b"--exclude=x",
            b"--checkpoint-action=exec=sh",
            b"a\nb",
            b"a\rb\tc",
            b"not \xff\xfe UTF-8 \x80",
            b" leading",
            b"trailing ",
            b" ",
            b"...",
            b"back\\slash\\n",
            b"*?[a-z]{x,y}",
            b"#;&|<>!`~",
            b"@",
            "Grüße 你好 🗄️ e\u{301}".as_bytes(),
        ] {
            let mut path = b"names/".to_vec();
            path.extend(name);
            self.file(OsString::from_vec(path), name);
        }
        self.file(format!("names/{}", "n".repeat(255)), b"255 bytes\n");
        let deep = vec!["a folder deep down"; 20].join("/");
        self.file(format!("deep/{deep}/at the bottom"), b"more than 300 bytes\n");
    }

    fn times(&self) {
        for (name, seconds) in [
            ("before 1970", "-1.75"),
            ("at 1970", "0"),
            ("in 2001", "1000000000.123456789"),
            ("in 2100", "4102444800.000000001"),
            ("in 2300", "10413792000.5"),
        ] {
            self.file(format!("times/{name}"), name.as_bytes());
            self.touch(&self.root.join("times").join(name), seconds);
        }
        // Everything else gets a distinct time; folders after their content.
        let mut paths = Vec::new();
        walk(&self.root, &mut paths);
        paths.sort();
        for (index, path) in paths.iter().enumerate().rev() {
            if path.parent().is_none_or(|parent| !parent.ends_with("times")) {
                self.touch(path, &format!("{}.{:09}", 1_600_000_000 + index * 86_400, 999_999_999 - index * 1_234_567));
            }
        }
    }

    fn touch(&self, path: &Path, seconds: &str) {
        // With `touch`: the standard library cannot set the time of a symbolic link, or of a pipe without opening it.
        let mut touch = Command::new("touch");
        touch.args(["--no-dereference", "--date", &format!("@{seconds}"), "--"]).arg(path);
        let done = touch.output().expect("coreutils are installed");
        assert!(done.status.success(), "touch: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn command(&self, program: &str, options: &[&str], name: &str) {
        let done = Command::new(program).args(options).arg("--").arg(self.path(name)).output();
        let done = done.expect("coreutils are installed");
        assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// The full path of a name; creates its folder.
    fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        let path = self.root.join(name.as_ref());
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        path
    }

    fn folder(&self, name: &str) {
        std::fs::create_dir_all(self.root.join(name)).expect("a folder");
    }

    fn file(&self, name: impl AsRef<OsStr>, content: &[u8]) {
        std::fs::write(self.path(name), content).expect("space for the tree");
    }

    fn mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.root.join(name), Permissions::from_mode(mode)).expect("our own file");
    }
}

/// Incompressible bytes, the same for the same seed.
pub fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn walk(folder: &Path, paths: &mut Vec<PathBuf>) {
    paths.push(folder.to_owned());
    for entry in std::fs::read_dir(folder).expect("a readable folder") {
        let entry = entry.expect("a readable folder");
        if entry.file_type().expect("a file has a type").is_dir() {
            walk(&entry.path(), paths);
        } else {
            paths.push(entry.path());
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
    Link,
    Fifo,
    Socket,
    Device,
}

/// The properties that must be the same after a restore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Of files only: the size of a folder depends on the file system.
    pub size: u64,
    pub mtime: (i64, i64),
    pub target: Option<Vec<u8>>,
    pub sha256: Option<String>,
    /// The first path with the same inode, when there are several.
    pub hard_link_of: Option<Vec<u8>>,
    /// Blocks of 512 bytes on disk, to detect holes.
    pub blocks: u64,
}

/// What a comparison ignores.
#[derive(Clone, Copy, Default)]
pub struct Ignore {
    pub link_times: bool,
    pub folder_times: bool,
    /// Sub-second parts of all times.
    pub nanoseconds: bool,
    pub owners: bool,
    pub holes: bool,
    pub hard_links: bool,
}

/// The properties of everything in a folder, by relative path; the folder itself has the empty path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint(pub BTreeMap<Vec<u8>, Facts>);

impl Fingerprint {
    pub fn of(root: &Path) -> Self {
        let mut paths = Vec::new();
        walk(root, &mut paths);
        paths.sort();
        let mut first_names: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
        let mut facts = BTreeMap::new();
        for path in paths {
            let name = path.strip_prefix(root).expect("below the root").as_os_str().as_bytes().to_vec();
            let metadata = std::fs::symlink_metadata(&path).expect("the file is still there");
            let kind = kind_of(&metadata);
            let several = kind != Kind::Folder && metadata.nlink() > 1;
            let hard_link_of = several
                .then(|| first_names.entry((metadata.dev(), metadata.ino())).or_insert_with(|| name.clone()).clone());
            let of_file = |value| if kind == Kind::File { value } else { 0 };
            let entry = Facts {
                kind,
                mode: metadata.mode() & 0o7777,
                uid: metadata.uid(),
                gid: metadata.gid(),
                size: of_file(metadata.size()),
                mtime: (metadata.mtime(), metadata.mtime_nsec()),
                target: (kind == Kind::Link)
                    .then(|| std::fs::read_link(&path).expect("a link has a target").into_os_string().into_vec()),
                sha256: (kind == Kind::File).then(|| sha256_of(&path)),
                hard_link_of,
                blocks: of_file(metadata.blocks()),
            };
            facts.insert(name, entry);
        }
        Self(facts)
    }

    /// One line for each difference, empty when there is none.
    pub fn differences(&self, other: &Self, ignore: Ignore) -> Vec<String> {
        let mut lines = Vec::new();
        for (name, facts) in &self.0 {
            match other.0.get(name) {
                None => lines.push(format!("- {} is missing ({:?})", shown(name), facts.kind)),
                Some(found) => {
                    let changes = changes(facts, found, ignore);
                    if !changes.is_empty() {
                        lines.push(format!("~ {}:{changes}", shown(name)));
                    }
                }
            }
        }
        let more = other.0.iter().filter(|(name, _)| !self.0.contains_key(*name));
        lines.extend(more.map(|(name, facts)| format!("+ {} is new ({:?})", shown(name), facts.kind)));
        lines
    }
}

/// Panics with a list of the differences, if there are any.
#[track_caller]
pub fn assert_same(expected: &Fingerprint, found: &Fingerprint) {
    assert_same_but(expected, found, Ignore::default());
}

#[track_caller]
pub fn assert_same_but(expected: &Fingerprint, found: &Fingerprint, ignore: Ignore) {
    let lines = expected.differences(found, ignore);
    assert!(lines.is_empty(), "{} differences:\n{}", lines.len(), lines.join("\n"));
}

fn changes(expected: &Facts, found: &Facts, ignore: Ignore) -> String {
    let mut text = String::new();
    let mut note = |what: &str, expected: &dyn std::fmt::Display, found: &dyn std::fmt::Display| {
        write!(text, " {what} {expected} → {found};").expect("text grows");
    };
    if expected.kind != found.kind {
        note("kind", &format!("{:?}", expected.kind), &format!("{:?}", found.kind));
    }
    if expected.mode != found.mode {
        note("mode", &format!("{:04o}", expected.mode), &format!("{:04o}", found.mode));
    }
    if !ignore.owners && (expected.uid, expected.gid) != (found.uid, found.gid) {
        note("owner", &format!("{}:{}", expected.uid, expected.gid), &format!("{}:{}", found.uid, found.gid));
    }
    if expected.size != found.size {
        note("size", &expected.size, &found.size);
    }
    let time_matters = match expected.kind {
        Kind::Link => !ignore.link_times,
        Kind::Folder => !ignore.folder_times,
        _ => true,
    };
    let time = |(seconds, nanoseconds)| (seconds, if ignore.nanoseconds { 0 } else { nanoseconds });
    if time_matters && time(expected.mtime) != time(found.mtime) {
        let shown = |(seconds, nanoseconds): (i64, i64)| format!("{seconds}s+{nanoseconds}ns");
        note("mtime", &shown(expected.mtime), &shown(found.mtime));
    }
    if expected.target != found.target {
        let target = |facts: &Facts| facts.target.as_deref().map_or("none".to_owned(), shown);
        note("target", &target(expected), &target(found));
    }
    if expected.sha256 != found.sha256 {
        let sum = |facts: &Facts| facts.sha256.as_deref().map_or("none".to_owned(), |sum| sum[..12].to_owned());
        note("content", &sum(expected), &sum(found));
    }
    if !ignore.hard_links && expected.hard_link_of != found.hard_link_of {
        let group = |facts: &Facts| facts.hard_link_of.as_deref().map_or("none".to_owned(), shown);
        note("hard link of", &group(expected), &group(found));
    }
    // Not exactly: file systems allocate different numbers of blocks for the same holes.
    let holes = |facts: &Facts| facts.blocks * 512 < facts.size / 2;
    if !ignore.holes && holes(expected) != holes(found) {
        note("blocks", &expected.blocks, &found.blocks);
    }
    text
}

fn shown(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}

fn kind_of(metadata: &Metadata) -> Kind {
    let kind = metadata.file_type();
    if kind.is_file() {
        Kind::File
    } else if kind.is_dir() {
        Kind::Folder
    } else if kind.is_symlink() {
        Kind::Link
    } else if kind.is_fifo() {
        Kind::Fifo
    } else if kind.is_socket() {
        Kind::Socket
    } else {
        Kind::Device
    }
}

fn sha256_of(path: &Path) -> String {
    let mut file = File::open(path).expect("a readable file");
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer).expect("a readable file") {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    hash.finalize().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("text grows");
        text
    })
}
