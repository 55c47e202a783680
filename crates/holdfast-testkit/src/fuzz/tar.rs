//! Tar archives with extreme values in any header field, but valid checksums, so that readers do not stop there.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use holdfast_engine::fuzzing::{self, Asked};
use serde::{Deserialize, Serialize};

use super::mutate::damage;
use super::rng::Rng;

const BLOCK: usize = 512;
/// Few names, so that members collide.
const PATHS: &[&str] = &[
    "a",
    "b",
    "a/b",
    "./a/",
    "./a/c",
    "a/b/c",
    "b/c",
    ".",
    "./",
    "/",
    "/etc/x",
    "..",
    "../x",
    "a/../b",
    "a/./b",
    "a//b",
    "c",
    "./c",
    "c/d",
    "\u{e4}",
    "a\\x2fb",
    "a\\",
    "",
    "GNUSparseFile.0/a",
];
const KEYS: &[&str] = &[
    "path",
    "linkpath",
    "size",
    "uid",
    "gid",
    "uname",
    "gname",
    "mtime",
    "atime",
    "comment",
    "hdrcharset",
    "SCHILY.xattr.user.a",
    "SCHILY.acl.access",
    "LIBARCHIVE.xattr.a",
    "GNU.sparse.major",
    "GNU.sparse.minor",
    "GNU.sparse.name",
    "GNU.sparse.realsize",
    "GNU.sparse.size",
    "GNU.sparse.numblocks",
    "GNU.sparse.offset",
    "GNU.sparse.numbytes",
    "GNU.sparse.map",
    "SCHILY.realsize",
    "VENDOR.x",
    "unknown",
];
const WORDS: &[&[u8]] = &[b"ustar\x0000", b"ustar  \0", b"12 path=a/b\n", b"30 mtime=-1.5\n", &[0; BLOCK]];

pub fn run(input: &[u8]) -> bool {
    fuzzing::tar(input)
}

pub fn make(rng: &mut Rng) -> Vec<u8> {
    let real = samples();
    if !real.is_empty() && rng.one_in(4) {
        let mut archive = real[rng.below(real.len())].clone();
        if rng.one_in(2) {
            damage_blocks(rng, &mut archive);
        } else {
            damage(rng, &mut archive, WORDS);
        }
        return archive;
    }
    let mut archive = archive(rng, 6, false);
    match rng.below(4) {
        0 => damage_blocks(rng, &mut archive),
        1 => damage(rng, &mut archive, WORDS),
        _ => {}
    }
    archive
}

/// An archive of random members; `tame` ones vary only in kind and name.
pub fn archive(rng: &mut Rng, longest: usize, tame: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..=rng.below(longest) {
        member(rng, &mut out, tame);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

fn name(rng: &mut Rng) -> Vec<u8> {
    match rng.below(12) {
        0 => [rng.pick(PATHS), "/", &"long".repeat(rng.below(60)), rng.pick(PATHS)].concat().into_bytes(),
        1 => [rng.pick(PATHS).as_bytes(), &rng.bytes(6)].concat(),
        2 => [rng.pick(PATHS), "/", rng.pick(PATHS)].concat().into_bytes(),
        _ => rng.pick(PATHS).as_bytes().to_vec(),
    }
}

/// A name that readers must accept.
fn tame_name(rng: &mut Rng) -> Vec<u8> {
    const PARTS: &[&str] = &["a", "b", "c", "d", "a\\", "\u{e4}"];
    let parts: Vec<&str> = (0..=rng.below(3)).map(|_| rng.pick(PARTS)).collect();
    let start = rng.pick(&["./", "./", "", "././"]);
    [start, &parts.join("/")].concat().into_bytes()
}

fn member(rng: &mut Rng, out: &mut Vec<u8>, tame: bool) {
    let kinds: &[&u8] =
        &[&b'0', &b'0', &b'0', &b'5', &b'2', &b'2', &b'1', &b'1', &b'S', &b'3', &b'6', &b'7', &0, &b'4'];
    let kind = if tame { *rng.pick(&kinds[..8]) } else { *rng.pick(kinds) };
    let path = if tame { tame_name(rng) } else { name(rng) };
    let data = if matches!(kind, b'0' | b'7' | 0 | b'S') { rng.bytes(700) } else { Vec::new() };
    let mut header = Header::new(kind, &path);
    let link = if tame && rng.below(4) > 0 { tame_name(rng) } else { name(rng) };
    if matches!(kind, b'1' | b'2') {
        header.put(157..257, &link);
    }
    header.number(124..136, data.len() as u64);
    let mut data = data;
    if !tame {
        before(rng, out, &mut header, &mut data);
        wild_fields(rng, &mut header, data.len() as u64);
    }
    out.extend(header.sealed());
    if kind == b'S' && header.0[482] != 0 {
        out.extend(sparse_block(rng));
    }
    put_padded(out, &data);
}

/// Extension headers for the next member.
fn before(rng: &mut Rng, out: &mut Vec<u8>, header: &mut Header, data: &mut Vec<u8>) {
    match rng.below(8) {
        0 => {
            let kind = *rng.pick(&[&b'L', &b'K']);
            let mut text = [name(rng), vec![b'n'; rng.below(300)]].concat();
            text.push(0);
            put_extension(out, kind, &text);
        }
        1 | 2 => {
            let mut body = Vec::new();
            for _ in 0..=rng.below(4) {
                let key = rng.pick(KEYS);
                let value = value(rng, key, data.len() as u64);
                put_record(&mut body, key, &value);
            }
            put_extension(out, *rng.pick(&[&b'x', &b'x', &b'x', &b'X', &b'g']), &body);
        }
        3 => sparse(rng, out, header, data),
        _ => {}
    }
}

fn value(rng: &mut Rng, key: &str, length: u64) -> Vec<u8> {
    let number = |rng: &mut Rng| if rng.one_in(3) { length } else { rng.extreme() };
    match key {
        "path" | "linkpath" | "GNU.sparse.name" => name(rng),
        "mtime" | "atime" => {
            let sign = rng.pick(&["", "-", "+"]);
            format!("{sign}{}{}", rng.extreme(), rng.pick(&["", ".", ".5", ".000000001", ".9999999999"])).into_bytes()
        }
        "hdrcharset" => rng.pick(&["BINARY", "ISO-IR 10646 2000 UTF-8", "x"]).as_bytes().to_vec(),
        "GNU.sparse.map" => format!("{},{},{},{}", 0, number(rng), rng.extreme(), 0).into_bytes(),
        "GNU.sparse.major" | "GNU.sparse.minor" => rng.pick(&["0", "1", "2"]).as_bytes().to_vec(),
        "uname" | "gname" => vec![b'u'; rng.below(40)],
        _ if key.contains("attr") || key == "comment" => rng.bytes(40),
        _ => number(rng).to_string().into_bytes(),
    }
}

/// A sparse file in one of the formats of GNU tar, mostly with consistent sizes.
fn sparse(rng: &mut Rng, out: &mut Vec<u8>, header: &mut Header, data: &mut Vec<u8>) {
    let (mut parts, mut end, mut left) = (Vec::new(), 0_u64, data.len() as u64);
    for _ in 0..rng.below(4) {
        let length = if rng.one_in(2) { left } else { left.min(rng.below(200) as u64) };
        let offset = end.saturating_add(if rng.one_in(6) { rng.extreme() } else { 512 });
        parts.push((offset, length));
        (end, left) = (offset.saturating_add(length), left - length);
    }
    // A member that claims to have nearly the largest possible size.
    if rng.one_in(8) {
        let huge = rng.extreme();
        let map = format!("0,{huge}");
        let mut body = Vec::new();
        for (key, value) in [("size", huge.to_string()), ("GNU.sparse.size", huge.to_string()), ("GNU.sparse.map", map)]
        {
            put_record(&mut body, key, value.as_bytes());
        }
        put_extension(out, b'x', &body);
        return;
    }
    let real_size = if rng.one_in(6) { rng.extreme() } else { end.saturating_add(100) }.to_string();
    let mut body = Vec::new();
    let map: Vec<String> = parts.iter().map(|(offset, length)| format!("{offset},{length}")).collect();
    match rng.below(3) {
        0 => {
            put_record(&mut body, "GNU.sparse.size", real_size.as_bytes());
            put_record(&mut body, "GNU.sparse.numblocks", parts.len().to_string().as_bytes());
            for (offset, length) in &parts {
                put_record(&mut body, "GNU.sparse.offset", offset.to_string().as_bytes());
                put_record(&mut body, "GNU.sparse.numbytes", length.to_string().as_bytes());
            }
        }
        1 => {
            put_record(&mut body, "GNU.sparse.size", real_size.as_bytes());
            put_record(&mut body, "GNU.sparse.map", map.join(",").as_bytes());
        }
        _ => {
            put_record(&mut body, "GNU.sparse.major", b"1");
            put_record(&mut body, "GNU.sparse.minor", b"0");
            put_record(&mut body, "GNU.sparse.realsize", real_size.as_bytes());
            put_record(&mut body, "GNU.sparse.name", &name(rng));
            let mut text = format!("{}\n", parts.len());
            parts.iter().for_each(|(offset, length)| text.push_str(&format!("{offset}\n{length}\n")));
            let mut whole = Vec::new();
            put_padded(&mut whole, text.as_bytes());
            whole.append(data);
            *data = whole;
            header.number(124..136, data.len() as u64);
        }
    }
    put_extension(out, b'x', &body);
}

/// The oldest sparse format of GNU tar continues the map in extra blocks.
fn sparse_block(rng: &mut Rng) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    for at in (0..rng.below(21) * 24).step_by(12) {
        block[at..at + 12].copy_from_slice(&number_field(12, rng.extreme()));
    }
    block
}

fn wild_fields(rng: &mut Rng, header: &mut Header, length: u64) {
    const FIELDS: &[std::ops::Range<usize>] =
        &[100..108, 108..116, 116..124, 124..136, 136..148, 329..337, 337..345, 386..398, 398..410, 483..495];
    if header.0[156] == b'S' {
        header.gnu();
        header.number(386..398, 0);
        header.number(398..410, length);
        header.number(483..495, if rng.one_in(3) { rng.extreme() } else { length });
        header.0[482] = u8::from(rng.one_in(4));
    }
    match rng.below(8) {
        0 => {
            let field = FIELDS[rng.below(FIELDS.len())].clone();
            header.number(field, rng.extreme());
        }
        1 => header.put(265..297, &vec![b'u'; rng.below(33)]),
        2 => header.put(345..500, &name(rng)),
        3 => header.gnu(),
        4 => header.0[257..].fill(0),
        5 => {
            let at = rng.below(BLOCK);
            header.0[at] = rng.byte();
        }
        _ => {}
    }
}

pub struct Header(pub [u8; BLOCK]);

impl Header {
    pub fn new(kind: u8, path: &[u8]) -> Self {
        let mut header = Self([0; BLOCK]);
        header.put(0..100, path);
        for field in [100..108, 108..116, 116..124, 124..136, 136..148, 329..337, 337..345] {
            header.number(field, 0o644);
        }
        header.0[156] = kind;
        header.put(257..265, b"ustar\x0000");
        header
    }

    pub fn gnu(&mut self) {
        self.put(257..265, b"ustar  \0");
        self.0[345..500].fill(0);
    }

    pub fn put(&mut self, field: std::ops::Range<usize>, text: &[u8]) {
        let length = text.len().min(field.len());
        self.0[field.clone()].fill(0);
        self.0[field][..length].copy_from_slice(&text[..length]);
    }

    pub fn number(&mut self, field: std::ops::Range<usize>, number: u64) {
        let digits = number_field(field.len(), number);
        self.0[field].copy_from_slice(&digits);
    }

    pub fn sealed(&mut self) -> [u8; BLOCK] {
        self.0[148..156].fill(b' ');
        let sum: u64 = self.0.iter().map(|byte| u64::from(*byte)).sum();
        self.put(148..156, format!("{sum:06o}\0 ").as_bytes());
        self.0
    }
}

/// The number in octal if it fits, else in base 256.
fn number_field(width: usize, number: u64) -> Vec<u8> {
    let octal = format!("{number:0width$o}", width = width - 1);
    if octal.len() < width {
        return [octal.as_bytes(), b"\0"].concat();
    }
    let mut digits = vec![0; width];
    for (place, digit) in digits.iter_mut().rev().zip(number.to_le_bytes()) {
        *place = digit;
    }
    digits[0] |= 0x80;
    digits
}

pub fn put_extension(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    let mut header = Header::new(kind, b"extension");
    header.number(124..136, body.len() as u64);
    out.extend(header.sealed());
    put_padded(out, body);
}

pub fn put_record(body: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let digits = (1..10_usize).find(|digits| (rest + digits).to_string().len() == *digits).unwrap_or(1);
    body.extend(format!("{} {key}=", rest + digits).as_bytes());
    body.extend(value);
    body.push(b'\n');
}

pub fn put_padded(out: &mut Vec<u8>, data: &[u8]) {
    out.extend(data);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
}

/// Removes, duplicates or swaps whole blocks, and changes header bytes with the checksum corrected.
fn damage_blocks(rng: &mut Rng, archive: &mut Vec<u8>) {
    for _ in 0..=rng.below(3) {
        let blocks = archive.len() / BLOCK;
        if blocks < 2 {
            return;
        }
        let (one, other) = (rng.below(blocks) * BLOCK, rng.below(blocks) * BLOCK);
        let block = archive[one..one + BLOCK].to_vec();
        match rng.below(5) {
            0 => drop(archive.drain(one..one + BLOCK)),
            1 => drop(archive.splice(other..other, block)),
            2 => archive[other..other + BLOCK].copy_from_slice(&block),
            _ => {
                let at = one + rng.below(BLOCK);
                archive[at] = if rng.one_in(2) { rng.byte() } else { archive[at].wrapping_add(1) };
                let mut header = Header([0; BLOCK]);
                header.0.copy_from_slice(&archive[one..one + BLOCK]);
                archive[one..one + BLOCK].copy_from_slice(&header.sealed());
            }
        }
    }
}

/// A small tree archived by GNU tar in each of its formats; empty when it is not installed.
fn samples() -> &'static [Vec<u8>] {
    static SAMPLES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    SAMPLES.get_or_init(|| make_samples().unwrap_or_default())
}

fn make_samples() -> std::io::Result<Vec<Vec<u8>>> {
    let folder = tempfile::tempdir()?;
    let root = folder.path();
    std::fs::create_dir(root.join("d"))?;
    std::fs::write(root.join("a"), "content")?;
    std::fs::hard_link(root.join("a"), root.join("b"))?;
    std::os::unix::fs::symlink("a", root.join("c"))?;
    std::fs::write(root.join("d").join("long".repeat(40)), "x")?;
    let holes = std::fs::File::create(root.join("holes"))?;
    std::os::unix::fs::FileExt::write_all_at(&holes, b"data", 1 << 20)?;
    let forms: [&[&str]; 6] = [
        &["--format=v7"],
        &["--format=ustar"],
        &["--format=gnu", "--sparse"],
        &["--format=pax", "--sparse"],
        &["--format=pax", "--sparse", "--sparse-version=0.0"],
        &["--format=pax", "--sparse", "--sparse-version=0.1"],
    ];
    Ok(forms.iter().filter_map(|form| gnu_tar(root, form)).collect())
}

/// Reproducible: the same bytes every time.
fn gnu_tar(root: &Path, form: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("tar");
    command.args(form).args(["--create", "--blocking-factor=2", "--sort=name", "--mtime=@1000000000.5", "--mode=0644"]);
    command.args(["--owner=root:0", "--group=root:0"]);
    if form[0].ends_with("pax") {
        command.arg("--pax-option=delete=atime,delete=ctime,exthdr.name=%d/PaxHeaders/%f");
    }
    let output = command.args(["--file=-", "."]).current_dir(root).output().ok()?;
    // GNU tar skips names that the oldest formats cannot hold, and exits with an error.
    (output.stdout.len() > BLOCK).then_some(output.stdout)
}

/// `Asked` as the first line of an input for the `selection` target; the archive follows.
#[derive(Serialize, Deserialize)]
struct Line {
    choice: Vec<String>,
    links: Vec<(String, String)>,
    overwrite: bool,
    devices: bool,
    root: bool,
    existing: Option<Vec<String>>,
}

pub fn make_selection(rng: &mut Rng) -> Vec<u8> {
    let tame = rng.below(8) > 0;
    let texts = |rng: &mut Rng, most: usize| -> Vec<String> { (0..rng.below(most + 1)).map(|_| text(rng)).collect() };
    let line = Line {
        choice: texts(rng, 2),
        links: (0..rng.below(3)).map(|_| (text(rng), text(rng))).collect(),
        overwrite: rng.one_in(2),
        devices: rng.one_in(2),
        root: rng.one_in(2),
        existing: rng.one_in(2).then(|| texts(rng, 4)),
    };
    let mut input = serde_json::to_vec(&line).expect("texts and flags");
    input.push(b'\n');
    input.extend(archive(rng, 10, tame));
    input
}

/// A path as in an index; sometimes an odd one.
fn text(rng: &mut Rng) -> String {
    let path = if rng.one_in(8) { name(rng) } else { tame_name(rng) };
    let path = holdfast_core::backup::name_text(&path);
    let path = path.trim_start_matches("./").to_owned();
    if rng.one_in(8) { path.replace('/', "\\x2f") } else { path }
}

pub fn run_selection(input: &[u8]) -> bool {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return false };
    let Ok(line) = serde_json::from_slice::<Line>(&input[..end]) else { return false };
    let Line { choice, links, overwrite, devices, root, existing } = line;
    let asked = Asked { choice, links, overwrite, restore_devices: devices, with_root: root, existing };
    fuzzing::selection(&asked, &input[end + 1..])
}
