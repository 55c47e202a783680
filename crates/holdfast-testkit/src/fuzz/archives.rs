//! Stored objects: archives with an index, encrypted archives, and the documents of catalogues and exports.

use std::io::Write as _;

use holdfast_app::transfer::Document;
use holdfast_core::Secret;
use holdfast_engine::{FRAME_BYTES, fuzzing, sealed_document};
use serde_json::{Value, json};

use super::mutate::damage;
use super::rng::Rng;

const PASSWORD: &str = "correct horse battery staple";

pub fn make_archive(rng: &mut Rng) -> Vec<u8> {
    let mut object = object(rng);
    if rng.one_in(3) {
        damage(rng, &mut object, &[b"HFINDEX1", b"\x28\xb5\x2f\xfd", b"\x5e\x2a\x4d\x18"]);
    }
    object
}

pub fn run_archive(input: &[u8]) -> bool {
    let _expanded = sealed_document::expand(input);
    fuzzing::archive(input, None)
}

/// A small tar archive as one frame, and an index whose lines may be wrong.
fn object(rng: &mut Rng) -> Vec<u8> {
    let plain = if rng.one_in(4) { super::tar::make(rng) } else { files(rng.below(4)) };
    let mut object = zstd::encode_all(plain.as_slice(), 1).expect("memory takes everything");
    let frame = object.len();
    let mut lines = lines(rng, &plain, frame).into_bytes();
    if rng.one_in(3) {
        damage(rng, &mut lines, &[b"\"unlisted\"\n", b"{\"entry\":", b"18446744073709551615", b"null", b"\n"]);
    }
    let index = zstd::encode_all(lines.as_slice(), 1).expect("memory takes everything");
    let length = if rng.one_in(10) { rng.extreme() } else { index.len() as u64 };
    object.extend(0x184D_2A5E_u32.to_le_bytes());
    object.extend(u32::try_from(index.len() + 16).unwrap_or(u32::MAX).to_le_bytes());
    object.extend(&index);
    object.extend(length.to_le_bytes());
    object.extend(b"HFINDEX1");
    object
}

fn lines(rng: &mut Rng, plain: &[u8], frame: usize) -> String {
    let manifest = json!({ "manifest": {
        "holdfast": 1, "content": "files", "created_at": "2025-01-01T00:00:00Z", "label": "l", "source": "/srv",
        "frame_bytes": FRAME_BYTES,
    } });
    let mut lines = vec![manifest];
    for number in 0..rng.below(4) {
        lines.push(entry(rng, number as u64));
    }
    if rng.one_in(4) {
        lines.push(json!("unlisted"));
    }
    let frames: Vec<u64> =
        if rng.one_in(6) { vec![rng.extreme() & 0xffff_ffff; rng.below(4)] } else { vec![frame as u64] };
    let ending = json!({ "entries": 1, "plain_bytes": plain.len(), "plain_sha256": "00", "frames": frames });
    lines.push(json!({ "end": ending }));
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    lines.join("\n") + "\n"
}

fn entry(rng: &mut Rng, number: u64) -> Value {
    let place = |rng: &mut Rng, usual: u64| if rng.one_in(6) { rng.extreme() } else { usual };
    let kind = rng.pick(&["file", "directory", "symlink", "hardlink", "other"]);
    let path = rng.pick(&["a", "b/c", "", "../x", "/etc", "a\\xff"]);
    json!({ "entry": {
        "p": path, "t": kind, "s": rng.extreme(), "m": rng.number().cast_signed(), "l": rng.pick(&["a", "../x"]),
        "o": place(rng, number * 1024), "e": place(rng, number * 1024 + 1024),
    } })
}

/// A valid archive with `count` files.
fn files(count: usize) -> Vec<u8> {
    let mut archive = Vec::new();
    for number in 0..count {
        let name = format!("./file{number}");
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        for (field, text) in
            [(100, "0000644"), (108, "0000000"), (116, "0000000"), (124, "00000000005"), (136, "00000000000")]
        {
            header[field..field + text.len()].copy_from_slice(text.as_bytes());
        }
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        archive.extend(header);
        archive.extend(b"hello");
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// Archives as `make_archive` makes them, encrypted by age with the password above and the smallest work factor:
/// otherwise key derivation would take nearly all of the time. The second is longer than one chunk of age. They are
/// kept as files because age never produces the same output twice.
const SEALED: &[&[u8]] = &[
    include_bytes!("../../fuzz/samples/sealed-0"),
    include_bytes!("../../fuzz/samples/sealed-1"),
    include_bytes!("../../fuzz/samples/sealed-2"),
    include_bytes!("../../fuzz/samples/sealed-3"),
];

pub fn make_sealed(rng: &mut Rng) -> Vec<u8> {
    let mut object = rng.pick(SEALED).to_vec();
    if rng.one_in(2) {
        // The header, which is read before anything is authenticated.
        let end = object.windows(4).position(|window| window == b"\n---").map_or(object.len(), |at| at + 60);
        let mut head: Vec<u8> = object.drain(..end.min(object.len())).collect();
        let words: &[&[u8]] =
            &[b"-> scrypt ", b"-> X25519 ", b"---", b"\n", b" 18", b" 63", b" 64", b"=", b"age-encryption.org/v2"];
        damage(rng, &mut head, words);
        object.splice(0..0, head);
    } else {
        damage(rng, &mut object, &[b"\n"]);
    }
    object
}

pub fn run_sealed(input: &[u8]) -> bool {
    let password = Secret::new(PASSWORD.to_owned());
    let _opened = sealed_document::open(input, &password);
    fuzzing::archive(input, Some(&password))
}

pub fn make_document(rng: &mut Rng) -> Vec<u8> {
    let tables: serde_json::Map<String, Value> = (0..rng.below(5))
        .map(|_| {
            let table = rng.pick(&["users", "backups", "backup_destinations", "tags", "x"]).to_owned();
            let rows: Vec<Value> = (0..rng.below(4)).map(|_| row(rng)).collect();
            (table, Value::Array(rows))
        })
        .collect();
    let version = if rng.one_in(8) { rng.extreme() } else { 1 };
    let document = json!({ "holdfast": version, "made_by": "0.1.0", "made_at": "2025-01-01", "contents": tables });
    let mut bytes = document.to_string().into_bytes();
    if rng.one_in(3) {
        damage(rng, &mut bytes, &[b"null", b"{}", b"[]", b"[[[[[[[[", b"1e999", b"\"id\":", b"\\ud800", b"-"]);
    }
    if rng.one_in(40) {
        let at = bytes.len().min(1);
        bytes.splice(at..at, b"\"x\":".iter().chain(&[b'['; 5000]).copied());
    }
    let mut packer = sealed_document::Packer::new().expect("a packer");
    packer.write_all(&bytes).expect("memory takes everything");
    let mut packed = packer.finish().expect("memory takes everything");
    if rng.one_in(8) {
        damage(rng, &mut packed, &[b"\x28\xb5\x2f\xfd"]);
    }
    packed
}

fn row(rng: &mut Rng) -> Value {
    const COLUMNS: &[&str] = &[
        "id",
        "email",
        "kind",
        "destination_id",
        "locator",
        "remove_after",
        "deleted_at",
        "s3_bucket",
        "spec",
        "marker",
    ];
    let mut row = serde_json::Map::new();
    for _ in 0..rng.below(8) {
        let value = match rng.below(5) {
            0 => Value::Null,
            1 => json!(rng.extreme()),
            2 => json!("local"),
            3 => json!([1]),
            _ => json!(1),
        };
        row.insert(rng.pick(COLUMNS).to_owned(), value);
    }
    Value::Object(row)
}

pub fn run_document(input: &[u8]) -> bool {
    let Ok(plain) = sealed_document::expand(input) else { return false };
    let Ok(document) = Document::of(&plain) else { return false };
    let rows: usize = document.counts().values().sum();
    assert!(document.emails().len() <= rows && document.destinations().len() <= rows, "rows came from nowhere");
    for destination in document.destinations() {
        assert!(document.stored_at(destination.id).len() <= rows, "rows came from nowhere");
    }
    true
}
