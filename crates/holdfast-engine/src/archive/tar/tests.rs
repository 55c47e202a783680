//! Archives of other programs are read as intended; ours are read in the same way by all programs; ambiguous ones are
//! refused.

use std::io::{self, Read as _};
use std::path::Path;
use std::process::Command;

use super::header::{self, put_checksum, put_number};
use super::pax::{put_record, time_text};
use super::*;

fn read_all(archive: &[u8]) -> io::Result<Vec<(Member, Vec<u8>)>> {
    let mut reader = Reader::new(archive);
    let mut members = Vec::new();
    while let Some((member, _)) = reader.next()? {
        let mut content = Vec::new();
        match member.parts.clone() {
            Some(parts) => Expanded::new(&mut reader, parts, member.size).read_to_end(&mut content)?,
            None => reader.read_to_end(&mut content)?,
        };
        members.push((member, content));
    }
    Ok(members)
}

fn raw_header(kind: u8, name: &[u8], size: u64) -> Vec<u8> {
    let mut block = [0; BLOCK];
    block[..name.len()].copy_from_slice(name);
    for field in [header::MODE, header::UID, header::GID, header::MTIME] {
        put_number(&mut block[field], 0);
    }
    put_number(&mut block[header::SIZE], i64::try_from(size).unwrap());
    block[header::TYPE] = kind;
    block[header::MAGIC].copy_from_slice(header::POSIX_MAGIC);
    put_checksum(&mut block);
    block.to_vec()
}

fn padded(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
    bytes
}

fn extended(records: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (key, value) in records {
        put_record(&mut body, key, value);
    }
    [raw_header(b'x', b"x", body.len() as u64), padded(&body)].concat()
}

fn ended(parts: &[Vec<u8>]) -> Vec<u8> {
    [parts.concat(), vec![0; 2 * BLOCK]].concat()
}

fn file(name: &[u8], content: &[u8]) -> Vec<u8> {
    [raw_header(b'0', name, content.len() as u64), padded(content)].concat()
}

#[test]
fn names_and_values_may_hold_any_byte() {
    let name = b"./\xc3\xbc\nx=1\n12 path=evil\n\xff";
    let archive =
        ended(&[extended(&[(b"path", name), (b"SCHILY.xattr.user.a", b"\0\n7 b=c\n")]), file(b"short", b"abc")]);
    let members = read_all(&archive).unwrap();
    let (member, content) = &members[0];
    assert_eq!(member.path, name);
    assert_eq!(member.attributes, [(b"SCHILY.xattr.user.a".to_vec(), b"\0\n7 b=c\n".to_vec())]);
    assert_eq!(content, b"abc");
}

#[test]
fn what_could_be_read_in_two_ways_is_refused() {
    let long = |kind, name: &[u8]| [raw_header(kind, b"././@LongLink", name.len() as u64), padded(name)].concat();
    let global = |body: &[(&[u8], &[u8])]| {
        let mut header = extended(body);
        header[header::TYPE] = b'g';
        let block: &mut [u8; BLOCK] = (&mut header[..BLOCK]).try_into().unwrap();
        put_checksum(block);
        header
    };
    let plain = || file(b"a", b"abc");
    let refused: Vec<(&str, Vec<u8>)> = vec![
        ("two paths", [extended(&[(b"path", b"a"), (b"path", b"b")]), plain()].concat()),
        ("two sizes", [extended(&[(b"size", b"3"), (b"size", b"0")]), plain()].concat()),
        ("two extended headers", [extended(&[(b"path", b"a")]), extended(&[(b"path", b"b")]), plain()].concat()),
        ("path and long name", [extended(&[(b"path", b"a")]), long(b'L', b"b\0"), plain()].concat()),
        ("two long names", [long(b'L', b"a\0"), long(b'L', b"b\0"), plain()].concat()),
        ("a name with a zero", [extended(&[(b"path", b"a\0b")]), plain()].concat()),
        ("an empty name", [extended(&[(b"path", b"")]), plain()].concat()),
        ("something after a long name", [long(b'L', b"a\0b"), plain()].concat()),
        ("a path for all", [global(&[(b"path", b"a")]), plain()].concat()),
        ("a size for all", [global(&[(b"size", b"0")]), plain()].concat()),
        ("an unknown plain key", [extended(&[(b"newkey", b"a")]), plain()].concat()),
        ("an unknown key of GNU's", [extended(&[(b"GNU.dumpdir", b"a")]), plain()].concat()),
        ("a negative size", [extended(&[(b"size", b"-3")]), plain()].concat()),
        ("a size with a sign", [extended(&[(b"size", b"+3")]), plain()].concat()),
        ("a folder with content", [raw_header(b'5', b"d/", 3), padded(b"abc")].concat()),
        ("a hard link with content", [raw_header(b'1', b"h", 3), padded(b"abc")].concat()),
        ("an unknown type", [raw_header(b'Q', b"q", 3), padded(b"abc")].concat()),
        ("a volume label", raw_header(b'V', b"v", 0)),
        ("a symbolic link to nowhere", raw_header(b'2', b"l", 0)),
        ("a file that is a folder to some", [raw_header(b'0', b"d/", 3), padded(b"abc")].concat()),
        ("half a map", [extended(&[(b"GNU.sparse.name", b"a")]), plain()].concat()),
        ("a header that announces nothing", extended(&[(b"path", b"a")])),
    ];
    for (what, members) in refused {
        assert!(read_all(&ended(&[members])).is_err(), "{what}");
    }
    assert_eq!(read_all(&ended(&[global(&[(b"comment", b"abc")]), plain()])).unwrap().len(), 1);
}

#[test]
fn records_that_lie_about_their_length_are_refused() {
    for body in
        [&b"3 a"[..], b"99 path=a\n", b"5 =a\n", b"7 patha\n", b" path=a\n", b"0 path=a\n", b"10 path=a b", b"-8 p=a\n"]
    {
        let archive = ended(&[[raw_header(b'x', b"x", body.len() as u64), padded(body)].concat(), file(b"a", b"")]);
        assert!(read_all(&archive).is_err(), "{:?}", String::from_utf8_lossy(body));
    }
}

#[test]
fn an_archive_cut_anywhere_or_followed_by_anything_is_found() {
    let whole = ended(&[file(b"a", &[7; 700]), file(b"b", b"")]);
    assert_eq!(read_all(&whole).unwrap().len(), 2);
    for length in (0..whole.len()).step_by(64) {
        assert!(read_all(&whole[..length]).is_err(), "cut at {length}");
    }
    assert!(read_all(&[whole.clone(), vec![0; 10_000]].concat()).is_ok());
    assert!(read_all(&[whole, b"x".to_vec()].concat()).is_err());
}

#[test]
fn a_header_that_claims_much_takes_no_memory() {
    let archive = ended(&[raw_header(b'x', b"x", 1 << 32)]);
    assert!(read_all(&archive).unwrap_err().to_string().contains("too long"));
}

#[test]
fn times_keep_their_nanoseconds() {
    for text in ["0", "-1", "12.000000001", "-1.5", "-0.25", "1700000000.123456789", "99999999999999"] {
        let time = pax::parse_time(text.as_bytes()).unwrap();
        assert_eq!(time_text(time), text);
    }
    assert_eq!(pax::parse_time(b"-1.5"), Some(Time { seconds: -2, nanos: 500_000_000 }));
    for text in ["", ".", "1.x", "+1", "1e3", "99999999999999999999"] {
        assert_eq!(pax::parse_time(text.as_bytes()), None, "{text}");
    }
    assert_eq!(Time { seconds: i64::MAX, nanos: 0 }.micros(), i64::MAX);
}

#[test]
fn numbers_of_every_size_read_back() {
    for value in [0, 1, 0o777_7777, 1 << 40, i64::MAX >> 1, -1, -1_000_000_000_000] {
        let mut field = [0; 12];
        put_number(&mut field, value);
        assert_eq!(header::number(&field).unwrap(), value);
    }
    assert_eq!(header::number(b"  755 \0\0").unwrap(), 0o755);
    assert!(header::number(b"75x\0").is_err());
}

#[test]
fn holes_are_where_the_map_says() {
    let parts = vec![Part { offset: 2, length: 3 }, Part { offset: 8, length: 0 }];
    let member = Member { size: 8, parts: Some(parts), ..Member::new(b"./h", MemberKind::File) };
    let mut writer = Writer::new(Vec::new());
    writer.append(&member, &mut &b"abc"[..]).unwrap();
    let archive = writer.finish().unwrap();
    assert_eq!(read_all(&archive).unwrap(), [(member, b"\0\0abc\0\0\0".to_vec())]);
    for map in ["1\n9\n1\n", "2\n4\n1\n0\n1\n", "1\n0\n5\n", "99999999999\n", "1\n0\n-1\n", "x\n"] {
        let data = [padded(map.as_bytes()), b"x".to_vec()].concat();
        let sparse: &[(&[u8], &[u8])] =
            &[(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.realsize", b"8")];
        assert!(read_all(&ended(&[extended(sparse), file(b"h", &data)])).is_err(), "{map:?}");
    }
}

/// Creates a tree with everything that a tar archive can contain and an ordinary account can create.
fn make_tree(folder: &Path) {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    let long = "n".repeat(120);
    let deep = folder.join("a".repeat(90)).join("b".repeat(90)).join("c".repeat(90));
    std::fs::create_dir_all(&deep).unwrap();
    for (name, content) in [("plain", "one"), ("with blank", ""), ("ünï", "three"), (long.as_str(), "long")] {
        std::fs::write(folder.join(name), content).unwrap();
    }
    std::fs::write(deep.join("file"), vec![b'x'; 100_000]).unwrap();
    std::fs::write(folder.join(std::ffi::OsStr::from_bytes(b"new\nline \xff\xfe")), "odd").unwrap();
    symlink("plain", folder.join("link")).unwrap();
    symlink(format!("/{}", "t".repeat(200)), folder.join("long link")).unwrap();
    std::fs::hard_link(folder.join("plain"), folder.join("second")).unwrap();
    let sparse = std::fs::File::create(folder.join("holes")).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"data", 3 << 20).unwrap();
    sparse.set_len(4 << 20).unwrap();
}

fn run(folder: &Path, program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Everything in an archive that all programs agree on: path, kind, content and target. Hard links to the same file are
/// treated alike, whichever came first.
fn told(archive: &[u8]) -> Vec<(Vec<u8>, String)> {
    let members = read_all(archive).unwrap();
    let content_of = |path: &[u8]| {
        let tidy = |path: &[u8]| path.strip_prefix(b"./").unwrap_or(path).to_vec();
        members.iter().find(|(member, _)| tidy(&member.path) == tidy(path)).unwrap().1.clone()
    };
    let mut told: Vec<(Vec<u8>, String)> = members
        .iter()
        .map(|(member, content)| {
            let path = member.path.strip_prefix(b"./").unwrap_or(&member.path).to_vec();
            let path = if path == b"." { Vec::new() } else { path };
            let content = match member.kind {
                MemberKind::Hardlink => content_of(&member.link),
                _ => content.clone(),
            };
            let kind = if member.kind == MemberKind::Hardlink { MemberKind::File } else { member.kind };
            let link = if kind == MemberKind::Symlink { member.link.clone() } else { Vec::new() };
            let digest = content.iter().fold(content.len() as u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
            (path, format!("{kind:?} {digest} {:?} {:o}", String::from_utf8_lossy(&link), member.mode))
        })
        .filter(|(path, _)| !path.is_empty())
        .collect();
    told.sort();
    told
}

const PYTHON_WRITE: &str = "import sys, tarfile\nt = tarfile.open(fileobj=sys.stdout.buffer, mode='w|', format=getattr(tarfile, sys.argv[1]))\nt.add('.')\nt.close()";

#[test]
fn archives_of_other_programs_are_read_as_they_are_meant() {
    let folder = tempfile::tempdir().unwrap();
    make_tree(folder.path());
    let expected = told(&run(folder.path(), "tar", &["--create", "--file=-", "--format=posix", "--sparse", "."]));
    assert_eq!(expected.len(), 13);
    let writers: [(&str, &[&str]); 10] = [
        ("tar", &["--create", "--file=-", "--format=gnu", "--sparse", "."]),
        ("tar", &["--create", "--file=-", "--format=posix", "."]),
        ("tar", &["--create", "--file=-", "--format=posix", "--sparse", "--sparse-version=0.0", "."]),
        ("tar", &["--create", "--file=-", "--format=posix", "--sparse", "--sparse-version=0.1", "."]),
        ("bsdtar", &["-c", "-f", "-", "--format", "pax", "."]),
        ("bsdtar", &["-c", "-f", "-", "--format", "gnutar", "."]),
        ("busybox", &["tar", "-c", "-f", "-", "."]),
        ("python3", &["-c", PYTHON_WRITE, "PAX_FORMAT"]),
        ("python3", &["-c", PYTHON_WRITE, "GNU_FORMAT"]),
        ("tar", &["--create", "--file=-", "--format=posix", "--acls", "--xattrs", "--sparse", "."]),
    ];
    for (program, arguments) in writers {
        assert_eq!(told(&run(folder.path(), program, arguments)), expected, "{program} {arguments:?}");
    }
}

/// The tree in our own format.
fn rewritten(folder: &Path) -> Vec<u8> {
    let archive = run(folder, "tar", &["--create", "--file=-", "--format=posix", "--sparse", "."]);
    let mut writer = Writer::new(Vec::new());
    let mut reader = Reader::new(archive.as_slice());
    while let Some((member, _)) = reader.next().unwrap() {
        writer.append(&member, &mut reader).unwrap();
    }
    writer.finish().unwrap()
}

#[test]
fn every_program_reads_alike_what_we_write() {
    let folder = tempfile::tempdir().unwrap();
    make_tree(folder.path());
    let archive = rewritten(folder.path());
    let path = folder.path().with_extension("tar");
    std::fs::write(&path, &archive).unwrap();
    let expected = told(&archive);
    let extracted_by = |program: &str, arguments: &[&str]| {
        let target = tempfile::tempdir().unwrap();
        let arguments: Vec<&str> = arguments.iter().copied().chain([path.to_str().unwrap()]).collect();
        run(target.path(), program, &arguments);
        told(&run(target.path(), "tar", &["--create", "--file=-", "--format=posix", "--sparse", "."]))
    };
    let python = "import sys, tarfile\ntarfile.open(sys.argv[1]).extractall('.')";
    let readers: [(&str, &[&str]); 3] = [
        ("tar", &["--extract", "--preserve-permissions", "--file"]),
        ("bsdtar", &["-x", "-p", "-f"]),
        ("python3", &["-c", python]),
    ];
    for (program, arguments) in readers {
        assert_eq!(extracted_by(program, arguments), expected, "{program}");
    }
    // BusyBox does not support holes; everything else is as it was.
    let without_holes = |told: Vec<(Vec<u8>, String)>| -> Vec<_> {
        told.into_iter().filter(|(path, _)| path != b"holes" && !path.starts_with(b"GNUSparseFile")).collect()
    };
    let busybox = extracted_by("busybox", &["tar", "-x", "-f"]);
    assert_eq!(without_holes(busybox), without_holes(expected.clone()));
    std::fs::remove_file(path).unwrap();
}

const GO: &str = r#"
package main

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
)

func main() {
	if len(os.Args) > 1 {
		w := tar.NewWriter(os.Stdout)
		for _, name := range []string{"plain", "n\u00fc\nx", string(make([]byte, 0)) + "d/" + os.Args[1]} {
			body := "body of " + name
			if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0600, Size: int64(len(body))}); err != nil {
				panic(err)
			}
			w.Write([]byte(body))
		}
		w.Close()
		return
	}
	r := tar.NewReader(os.Stdin)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			panic(err)
		}
		n, err := io.Copy(io.Discard, r)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%q %c %d %q %d\n", h.Name, h.Typeflag, n, h.Linkname, h.ModTime.UnixNano())
	}
}
"#;

#[test]
fn go_reads_what_we_write_and_we_read_what_it_writes() {
    use std::io::Write as _;
    use std::process::Stdio;
    let folder = tempfile::tempdir().unwrap();
    make_tree(folder.path());
    let program = tempfile::tempdir().unwrap();
    std::fs::write(program.path().join("main.go"), GO).unwrap();
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.args(arguments).current_dir(program.path());
        command
            .env("GOFLAGS", "-mod=mod")
            .env("GO111MODULE", "off")
            .env("GOCACHE", std::env::temp_dir().join("holdfast-go"));
        command
    };
    assert!(go(&["build", "-o", "tool", "main.go"]).status().unwrap().success());
    let tool = program.path().join("tool");
    let archive = rewritten(folder.path());
    let mut child = Command::new(&tool).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let sending = std::thread::spawn(move || stdin.write_all(&archive).map(|()| archive));
    let output = child.wait_with_output().unwrap();
    let archive = sending.join().unwrap().unwrap();
    assert!(output.status.success());
    let lines = String::from_utf8(output.stdout).unwrap();
    let ours = read_all(&archive).unwrap();
    assert_eq!(lines.lines().count(), ours.len());
    for (line, (member, content)) in lines.lines().zip(&ours) {
        let nanos = i128::from(member.modified.seconds) * 1_000_000_000 + i128::from(member.modified.nanos);
        assert!(line.contains(&format!(" {} ", content.len())) && line.ends_with(&nanos.to_string()), "{line}");
    }
    let long = "z".repeat(300);
    let output = Command::new(&tool).arg(&long).output().unwrap();
    let members = read_all(&output.stdout).unwrap();
    let names: Vec<String> =
        members.iter().map(|(member, _)| String::from_utf8(member.path.clone()).unwrap()).collect();
    assert_eq!(names, ["plain".to_owned(), "nü\nx".to_owned(), format!("d/{long}")]);
    assert_eq!(members[1].1, "body of nü\nx".as_bytes());
}

#[test]
fn a_member_that_cannot_be_counted_is_not_written() {
    // With its map, the size overflows: a header with the truncated size would let data pass for members.
    let huge = u64::MAX - 511;
    let parts = Some(vec![Part { offset: 0, length: huge }]);
    let member = Member { size: huge, parts, ..Member::new(b"a", MemberKind::File) };
    let mut writer = Writer::new(Vec::new());
    assert!(writer.begin(&member).is_err());
    assert!(writer.finish().unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn a_file_with_holes_is_not_named_as_a_folder() {
    let map = padded(b"1\n0\n0\n");
    for (name, is_good) in [(b"a".as_slice(), true), (b"/", false), (b"a/", false)] {
        let records: [(&[u8], &[u8]); 4] = [
            (b"GNU.sparse.major", b"1"),
            (b"GNU.sparse.minor", b"0"),
            (b"GNU.sparse.name", name),
            (b"GNU.sparse.realsize", b"0"),
        ];
        let member = [raw_header(b'0', b"x", BLOCK as u64), map.clone(), vec![0; 2 * BLOCK]].concat();
        let read = read_all(&[extended(&records), member].concat());
        assert_eq!(read.is_ok(), is_good, "{name:?}: {read:?}");
    }
}

/// bsdtar writes each attribute twice, with more of its name encoded than GNU tar decodes.
#[test]
fn an_attribute_that_is_written_in_two_ways_is_one() {
    let read = |records: &[(&[u8], &[u8])]| {
        let member = [extended(records), raw_header(b'0', b"a", 0), vec![0; 2 * BLOCK]].concat();
        read_all(&member).map(|members| members[0].0.attributes.clone())
    };
    let pair = |key: &str, value: &[u8]| (key.as_bytes().to_vec(), value.to_vec());
    let read_bsd = read(&[
        (b"LIBARCHIVE.xattr.user.a%3Db", b"djIK/z0"),
        (b"SCHILY.xattr.user.a%3Db", b"v2\n\xff="),
        (b"LIBARCHIVE.xattr.user.%FF%20x", b"djQ"),
        (b"SCHILY.xattr.user.%FF%20x", b"v4"),
        (b"LIBARCHIVE.xattr.user.p%253Dq", b"djM="),
        (b"SCHILY.xattr.user.p%253Dq", b"v3"),
        (b"SCHILY.acl.access", b"user::rw-"),
    ]);
    let odd = ([&b"SCHILY.xattr.user.\xff x"[..]].concat(), b"v4".to_vec());
    let expected = [
        pair("SCHILY.acl.access", b"user::rw-"),
        pair("SCHILY.xattr.user.a%3Db", b"v2\n\xff="),
        odd.clone(),
        pair("SCHILY.xattr.user.p%253Dq", b"v3"),
    ];
    assert_eq!(read_bsd.unwrap(), expected);
    // For bsdtar, names that it would read differently are written in its own format.
    let for_itself = [
        expected[0].clone(),
        pair("LIBARCHIVE.xattr.user.a%3Db", b"djIK/z0"),
        odd,
        pair("LIBARCHIVE.xattr.user.p%253Dq", b"djM"),
    ];
    assert_eq!(for_bsd(&expected), for_itself);
    // A name that was not encoded, and one that is present only in libarchive's format.
    let cut = read(&[(b"SCHILY.xattr.user.a", b"b=v"), (b"LIBARCHIVE.xattr.user.a%3Db", b"dg")]);
    assert_eq!(cut.unwrap(), [pair("SCHILY.xattr.user.a%3Db", b"v")]);
    assert_eq!(read(&[(b"LIBARCHIVE.xattr.n", b"djQ")]).unwrap(), [pair("SCHILY.xattr.n", b"v4")]);
    assert_eq!(read(&[(b"LIBARCHIVE.xattr.n%4", b"djQ")]).unwrap(), [pair("LIBARCHIVE.xattr.n%4", b"djQ")]);
    // Two values for one name are refused.
    assert!(read(&[(b"SCHILY.xattr.n", b"one"), (b"LIBARCHIVE.xattr.n", b"djQ")]).is_err());
}

/// Two bits of the eight bytes of such a field are reserved: the mark of a binary number, and the sign.
#[test]
fn owners_of_every_size_read_back() {
    for id in [0, 65534, u64::from(u32::MAX), 1 << 32, (1 << 62) - 1, 1 << 62, 1 << 63, u64::MAX] {
        let member = Member { uid: id, gid: id, ..Member::new(b"a", MemberKind::File) };
        let mut writer = Writer::new(Vec::new());
        writer.append(&member, &mut io::empty()).unwrap();
        assert_eq!(read_all(&writer.finish().unwrap()).unwrap(), [(member, Vec::new())], "{id}");
    }
}

/// A million identical bytes take almost no space in a compressed archive, but a lot in every list of its entries.
#[test]
fn names_that_are_too_long_are_refused_and_shown_shortened() {
    let link = |target: &[u8]| [extended(&[(b"linkpath", target)]), raw_header(b'2', b"l", 0)].concat();
    let path = |path: &[u8]| [extended(&[(b"path", path)]), file(b"a", b"abc")].concat();
    let long = |name: &[u8]| [raw_header(b'L', b"x", name.len() as u64), padded(name), file(b"a", b"")].concat();
    let holes = |name: &[u8]| {
        let records: [(&[u8], &[u8]); 3] =
            [(b"GNU.sparse.name", name), (b"GNU.sparse.size", b"3"), (b"GNU.sparse.map", b"0,3")];
        [extended(&records), file(b"a", b"abc")].concat()
    };
    for (length, is_good) in [(64 * 1024, true), (64 * 1024 + 1, false), (1_000_000, false)] {
        let name = vec![b'n'; length];
        for member in [link(&name), path(&name), long(&name), holes(&name)] {
            match read_all(&ended(&[member])) {
                Ok(members) => assert!(is_good && members.len() == 1, "{length}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(!is_good && text.contains("nnn…nnn") && text.len() < 500, "{length}: {text}");
                }
            }
        }
    }
}

#[test]
fn endless_zeros_are_not_an_end() {
    let members = file(b"a", b"abc");
    let tail = |bytes: u64| Reader::new(members.as_slice().chain(io::repeat(0).take(bytes)));
    let last = |mut reader: Reader<_>| {
        assert!(reader.next().unwrap().is_some());
        reader.next()
    };
    assert!(last(tail(16 * 1024 * 1024)).unwrap().is_none());
    let error = last(tail(u64::MAX)).unwrap_err();
    assert!(error.to_string().contains("too much follows"), "{error}");
}
