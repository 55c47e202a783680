//! Streams of hostile servers: generated and damaged ones from the fuzzing generators, and hand-written families, each
//! of which tries one way to write, run or read something that a backup must not.

use serde_json::{Value, json};

use crate::fuzz::Rng;
use crate::fuzz::mutate::damage;
use crate::fuzz::{databases, tar};

const BLOCK: usize = 512;

/// The kind of backup that a stream claims to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Files,
    Postgres,
    PostgresServer,
    Mysql,
    MysqlServer,
}

impl Kind {
    pub const ALL: [Self; 5] = [Self::Files, Self::Postgres, Self::PostgresServer, Self::Mysql, Self::MysqlServer];
}

/// What the program does after the last byte of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tail {
    #[default]
    End,
    Fail,
    Killed,
    Silent,
    /// Sends a byte a second.
    Drip,
    /// Sends nothing more to standard output, and endless text to standard error.
    Shout,
    /// Repeats `Stream::again` until it is stopped.
    Endless,
}

impl Tail {
    pub fn word(self) -> &'static str {
        match self {
            Self::End => "end",
            Self::Fail => "fail",
            Self::Killed => "killed",
            Self::Silent => "silent",
            Self::Drip => "drip",
            Self::Shout => "shout",
            Self::Endless => "endless",
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Stream {
    pub bytes: Vec<u8>,
    pub tail: Tail,
    /// What an endless stream repeats.
    pub again: Vec<u8>,
    /// The database client's answer to every query; if `None`, the real client is called where there is one.
    pub answer: Option<Vec<u8>>,
    /// Printed at every login.
    pub greeting: Vec<u8>,
}

impl Stream {
    fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }
}

/// The targets of payloads, and a genuine dump to hide them in.
#[derive(Debug, Clone, Default)]
pub struct Aim {
    /// A folder whose content must not change.
    pub world: String,
    /// A world-writable folder in which nothing must appear.
    pub markers: String,
    /// The output of `pg_dump` for a small database that contains [`FILLER`].
    pub pg_dump: Vec<u8>,
}

pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    /// How often it is chosen, relative to the other families.
    weight: usize,
    make: fn(&mut Rng, &Aim) -> Stream,
}

const fn family(name: &'static str, kind: Kind, weight: usize, make: fn(&mut Rng, &Aim) -> Stream) -> Family {
    Family { name, kind, weight, make }
}

pub const FAMILIES: &[Family] = &[
    family("tar made up", Kind::Files, 150, |rng, _| Stream::of(tar::make(rng))),
    family("tar plausible", Kind::Files, 150, |rng, _| Stream::of(tar::archive(rng, 10, true))),
    family("tar paths", Kind::Files, 60, paths),
    family("tar links", Kind::Files, 150, links),
    family("tar hard links", Kind::Files, 60, hard_links),
    family("tar headers", Kind::Files, 60, headers),
    family("tar devices, modes", Kind::Files, 40, devices),
    family("tar sizes, holes", Kind::Files, 40, sizes),
    family("tar names", Kind::Files, 60, names),
    family("tar noise", Kind::Files, 40, noise),
    family("tar cut", Kind::Files, 40, cut),
    family("tar ends", Kind::Files, 10, ends),
    family("tar endless", Kind::Files, 5, endless),
    family("pg made up", Kind::Postgres, 40, |rng, _| Stream::of(databases::make_dump(rng))),
    family("pg damaged", Kind::Postgres, 30, pg_damaged),
    family("pg statements", Kind::Postgres, 30, pg_statements),
    family("pg facts", Kind::Postgres, 20, pg_facts),
    family("pg server", Kind::PostgresServer, 40, pg_server),
    family("pg endless", Kind::Postgres, 2, |_, aim| endless_dump(&aim.pg_dump, b"\0\0\0\0\0")),
    family("my statements", Kind::Mysql, 60, |rng, aim| Stream::of(mysql(rng, aim))),
    family("my damaged", Kind::Mysql, 30, mysql_damaged),
    family("my server", Kind::MysqlServer, 20, |rng, aim| Stream::of(mysql(rng, aim))),
    family("my ends", Kind::Mysql, 5, mysql_ends),
    family("my endless", Kind::Mysql, 2, |_, _| endless_dump(MYSQL_HEAD.as_bytes(), b"INSERT INTO t VALUES ('x');\n")),
];

/// The stream with this number: always the same, except for the names of folders.
pub fn make(seed: u64, number: u64, aim: &Aim) -> (&'static Family, Stream) {
    let mut rng = Rng::new(seed ^ 0x686f_7374_696c_6531, number);
    let mut chosen = rng.below(FAMILIES.iter().map(|family| family.weight).sum());
    let mut families = FAMILIES.iter();
    let family = families.find(|family| {
        let is_here = chosen < family.weight;
        chosen = chosen.saturating_sub(family.weight);
        is_here
    });
    let family = family.unwrap_or(&FAMILIES[0]);
    (family, (family.make)(&mut rng, aim))
}

/// A builder for tar archives.
struct Tar(Vec<u8>);

impl Tar {
    fn new() -> Self {
        let mut tar = Self(Vec::new());
        tar.folder("./");
        tar
    }

    fn member(&mut self, kind: u8, path: &[u8], link: &[u8], mode: u64, data: &[u8]) {
        for (kind, text) in [(b'L', path), (b'K', link)] {
            if text.len() > 100 {
                tar::put_extension(&mut self.0, kind, &[text, b"\0"].concat());
            }
        }
        let mut header = tar::Header::new(kind, path);
        header.put(157..257, link);
        header.number(100..108, mode);
        // Owned by whoever restores, so that everybody can.
        header.number(108..116, 0);
        header.number(116..124, 0);
        header.number(124..136, data.len() as u64);
        header.number(136..148, 1_000_000_000);
        self.0.extend(header.sealed());
        tar::put_padded(&mut self.0, data);
    }

    fn folder(&mut self, path: &str) {
        self.member(b'5', path.as_bytes(), b"", 0o755, b"");
    }

    fn file(&mut self, path: &str, data: &str) {
        self.member(b'0', path.as_bytes(), b"", 0o644, data.as_bytes());
    }

    fn link(&mut self, path: &str, to: &str) {
        self.member(b'2', path.as_bytes(), to.as_bytes(), 0o777, b"");
    }

    fn hard_link(&mut self, path: &str, to: &str) {
        self.member(b'1', path.as_bytes(), to.as_bytes(), 0o644, b"");
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK, 0);
        self.0
    }
}

/// The beginning of a valid archive.
fn honest(rng: &mut Rng) -> Tar {
    let mut tar = Tar::new();
    tar.folder("./d/");
    for number in 0..=rng.below(3) {
        tar.file(&format!("./d/f{number}"), &"content ".repeat(rng.below(200)));
    }
    tar.link("./l", "d/f0");
    tar
}

/// A path outside the target that an attacker would like to write to.
fn outside(rng: &mut Rng, aim: &Aim) -> String {
    let world = &aim.world;
    let chosen = [
        format!("{world}/outside/evil"),
        format!("{world}/outside/canary"),
        format!("{world}/home/.ssh/authorized_keys"),
        format!("{world}/home/.bashrc"),
        "../evil".to_owned(),
        "../../evil".to_owned(),
        "../../world/outside/canary".to_owned(),
        "./d/../../evil".to_owned(),
        "./../evil".to_owned(),
        "d/../../../world/home/.ssh/evil".to_owned(),
    ];
    chosen[rng.below(chosen.len())].clone()
}

fn paths(rng: &mut Rng, aim: &Aim) -> Stream {
    let mut tar = honest(rng);
    for _ in 0..=rng.below(2) {
        let path = outside(rng, aim);
        match rng.below(4) {
            0 => tar.folder(&format!("{path}/")),
            1 => tar.link(&path, "x"),
            _ => tar.file(&path, "evil\n"),
        }
    }
    Stream::of(tar.end())
}

fn links(rng: &mut Rng, aim: &Aim) -> Stream {
    let world = &aim.world;
    let targets = [
        format!("{world}/outside"),
        format!("{world}/home/.ssh"),
        format!("{world}/outside/canary"),
        "../../world/outside".to_owned(),
        "..".to_owned(),
        ".".to_owned(),
        "/".to_owned(),
        "way".to_owned(),
        "d".to_owned(),
        "d/../../../world/outside".to_owned(),
    ];
    let target = targets[rng.below(targets.len())].clone();
    let name = rng.pick(&["way", "./way", "./d/way", "d//way", "./d/./way", "./way/"]);
    let below = rng.pick(&["evil", "canary", "authorized_keys", ".ssh/authorized_keys", "outside/canary", "a/b/c"]);
    let mut tar = honest(rng);
    let steps = 1 + rng.below(4);
    for _ in 0..steps {
        match rng.below(9) {
            0 | 1 => tar.link(name, &target),
            2 => tar.folder(&format!("{name}/")),
            3 => tar.file(name, "evil\n"),
            4 => tar.hard_link(name, "./l"),
            5 => tar.link("./l", &target),
            6 => tar.link("./second", name),
            7 => tar.file(&format!("./second/{below}"), "evil\n"),
            _ => tar.folder(&format!("{name}/a/")),
        }
    }
    if rng.one_in(2) {
        tar.link(name, &target);
    }
    match rng.below(6) {
        0 => tar.folder(&format!("{name}/{below}/")),
        1 => tar.link(&format!("{name}/{below}"), "x"),
        2 => tar.hard_link(&format!("{name}/{below}"), "./d/f0"),
        // A file with the name of the link, which must not be followed.
        3 => tar.file(name, "evil\n"),
        4 => {}
        _ => tar.file(&format!("{name}/{below}"), "evil\n"),
    }
    Stream::of(tar.end())
}

/// Hard links to files outside the target, which are then written to.
fn hard_links(rng: &mut Rng, aim: &Aim) -> Stream {
    let world = &aim.world;
    let targets = [
        format!("{world}/outside/canary"),
        format!("{}/outside/canary", &world[1..]),
        "../../world/outside/canary".to_owned(),
        "way/canary".to_owned(),
        "./way/canary".to_owned(),
        "./nothing".to_owned(),
        "./h".to_owned(),
        "./d".to_owned(),
        "./d/f0".to_owned(),
    ];
    let target = targets[rng.below(targets.len())].clone();
    let mut tar = honest(rng);
    if rng.one_in(2) {
        tar.link("./way", &format!("{world}/outside"));
    }
    tar.hard_link("./h", &target);
    match rng.below(4) {
        0 => tar.member(b'0', b"./h", b"", 0o4777, b"evil\n"),
        1 => tar.hard_link("./i", "./h"),
        2 => tar.file("./h", "evil\n"),
        _ => {}
    }
    Stream::of(tar.end())
}

/// Extension headers that contradict the member, or apply to all following members.
fn headers(rng: &mut Rng, aim: &Aim) -> Stream {
    let path = outside(rng, aim);
    let mut tar = honest(rng);
    let mut body = Vec::new();
    let keys = ["path", "linkpath", "GNU.sparse.name", "size", "uid", "SCHILY.xattr.user.x", "GNU.volume.filename"];
    for _ in 0..=rng.below(3) {
        let value = if rng.one_in(3) { "./harmless".to_owned() } else { path.clone() };
        let value = if rng.one_in(4) { format!("a\n30 path={value}\n") } else { value };
        tar::put_record(&mut body, rng.pick(&keys), value.as_bytes());
    }
    let kind = *rng.pick(&[&b'x', &b'x', &b'g', &b'X']);
    for _ in 0..=rng.below(2) {
        match rng.below(4) {
            0 => tar::put_extension(&mut tar.0, *rng.pick(&[&b'L', &b'K']), format!("{path}\0").as_bytes()),
            _ => tar::put_extension(&mut tar.0, kind, &body),
        }
    }
    match rng.below(4) {
        0 => tar.link("./harmless", "d"),
        // Obsolete types: the list of an incremental dump, a volume label, a continued file.
        1 => {
            let kind = *rng.pick(&[&b'D', &b'V', &b'M', &b'N', &b'A', &b'Z']);
            tar.member(kind, b"./harmless", b"", 0o644, format!("R../evil\0T{path}\0\0").as_bytes());
        }
        _ => tar.file("./harmless", "evil\n"),
    }
    Stream::of(tar.end())
}

fn devices(rng: &mut Rng, aim: &Aim) -> Stream {
    let mut tar = honest(rng);
    let mode = *rng.pick(&[&0o666, &0o4755, &0o6777, &0o7777, &0o0, &0o177_777, &0o7_777_777]);
    for number in 0..=rng.below(3) {
        let kind = *rng.pick(&[&b'3', &b'4', &b'6', &b'0', &b'0', &b'5']);
        let path = if rng.one_in(4) { outside(rng, aim) } else { format!("./n{number}") };
        tar.member(kind, path.as_bytes(), b"", mode, b"");
    }
    // A file below something that is not a folder.
    if rng.one_in(2) {
        tar.file("./n0/below", "evil\n");
    }
    Stream::of(tar.end())
}

/// Files that claim more data than there is, and impossible sparse maps.
fn sizes(rng: &mut Rng, aim: &Aim) -> Stream {
    let mut tar = honest(rng);
    let size = rng.extreme();
    match rng.below(4) {
        0 => {
            let mut header = tar::Header::new(b'0', b"./huge");
            header.number(124..136, size);
            tar.0.extend(header.sealed());
        }
        1 => {
            let mut body = Vec::new();
            tar::put_record(&mut body, "size", size.to_string().as_bytes());
            tar::put_extension(&mut tar.0, b'x', &body);
            tar.file("./huge", "x");
        }
        2 => {
            let count = rng.below(2000);
            let map: Vec<String> = (0..count).map(|part| format!("{},0", size.wrapping_add(part as u64))).collect();
            let mut body = Vec::new();
            tar::put_record(&mut body, "GNU.sparse.size", size.to_string().as_bytes());
            tar::put_record(&mut body, "GNU.sparse.map", map.join(",").as_bytes());
            tar::put_extension(&mut tar.0, b'x', &body);
            tar.member(b'0', b"./holes", b"", 0o644, b"");
        }
        _ => {
            let mut body = Vec::new();
            let path = outside(rng, aim);
            let texts =
                [("major", "1".to_owned()), ("minor", "0".to_owned()), ("realsize", size.to_string()), ("name", path)];
            for (key, value) in texts {
                tar::put_record(&mut body, &format!("GNU.sparse.{key}"), value.as_bytes());
            }
            tar::put_extension(&mut tar.0, b'x', &body);
            let map = format!("1\n{}\n4\n", rng.extreme());
            let mut data = Vec::new();
            tar::put_padded(&mut data, map.as_bytes());
            data.extend(b"evil");
            tar.member(b'0', b"./GNUSparseFile.0/holes", b"", 0o644, &data);
        }
    }
    Stream::of(tar.end())
}

fn names(rng: &mut Rng, aim: &Aim) -> Stream {
    let marker = format!("{}/name", aim.markers);
    let odd: [Vec<u8>; 12] = [
        b"./a\nb".to_vec(),
        format!("./x\n{}/outside/evil", aim.world).into_bytes(),
        b"./\x1b]0;title\x07\x1b[2J".to_vec(),
        format!("./$(touch {marker})").replace("//", "/").into_bytes(),
        format!("./`touch {marker}`;touch {marker}").into_bytes(),
        b"./--checkpoint-action=exec=sh".to_vec(),
        format!("--checkpoint=1\n--checkpoint-action=exec=touch {marker}").into_bytes(),
        b"./\xff\xfe\x80".to_vec(),
        [b"./".to_vec(), vec![b'n'; 255]].concat(),
        [b"./".to_vec(), vec![b'n'; 256]].concat(),
        b"./deep/".repeat(40).to_vec(),
        b"./-rf\r\n\t\x01\x7f".to_vec(),
    ];
    let mut tar = honest(rng);
    for _ in 0..=rng.below(4) {
        let name = &odd[rng.below(odd.len())];
        let to = &odd[rng.below(odd.len())];
        match rng.below(5) {
            0 => tar.member(b'5', name, b"", 0o755, b""),
            1 => tar.member(b'2', name, to, 0o777, b""),
            2 => tar.member(b'1', name, b"./d/f0", 0o644, b""),
            _ => tar.member(b'0', name, b"", 0o644, b"x"),
        }
    }
    Stream::of(tar.end())
}

/// Junk before and after the archive, and output of login scripts.
fn noise(rng: &mut Rng, aim: &Aim) -> Stream {
    let junk = match rng.below(3) {
        0 => b"Last login: today\nWelcome!\n".to_vec(),
        1 => rng.bytes(2000),
        _ => vec![0; BLOCK * (1 + rng.below(40))],
    };
    let archive = honest(rng).end();
    let mut hidden = Tar::new();
    hidden.file(&outside(rng, aim), "evil\n");
    let bytes = match rng.below(4) {
        0 => [junk.clone(), archive].concat(),
        1 => [archive, junk.clone()].concat(),
        // A second archive after the end of the first.
        2 => [archive, junk.clone(), hidden.end()].concat(),
        _ => archive,
    };
    let greeting = if rng.one_in(2) { junk } else { Vec::new() };
    Stream { bytes, greeting, ..Stream::default() }
}

fn cut(rng: &mut Rng, _: &Aim) -> Stream {
    let mut bytes = honest(rng).end();
    bytes.truncate(rng.below(bytes.len()));
    Stream::of(bytes)
}

fn ends(rng: &mut Rng, _: &Aim) -> Stream {
    let bytes = honest(rng).end();
    with_tail(rng, bytes)
}

fn with_tail(rng: &mut Rng, mut bytes: Vec<u8>) -> Stream {
    const TAILS: &[&Tail] = &[&Tail::Fail, &Tail::Killed, &Tail::Silent, &Tail::Drip, &Tail::Shout];
    let tail = *rng.pick(TAILS);
    if rng.one_in(2) {
        bytes.truncate(rng.below(bytes.len()));
    }
    Stream { bytes, tail, ..Stream::default() }
}

/// The size of the repeated piece of an endless stream: large enough that starting `cat` again does not slow it down.
const PIECE: usize = 4 * 1024 * 1024;

fn endless(rng: &mut Rng, _: &Aim) -> Stream {
    let mut bytes = honest(rng).0;
    let mut header = tar::Header::new(b'0', b"./huge");
    let again = match rng.below(6) {
        // Endless members; names repeat with every piece.
        0 => {
            let mut tar = Tar(Vec::new());
            (0..PIECE / 1024).for_each(|number| tar.file(&format!("./m{number}"), "x"));
            tar.0
        }
        1 => vec![0; PIECE],
        // Endless names, records and sparse maps.
        2 => {
            header = tar::Header::new(b'L', b"././@LongLink");
            vec![b'n'; PIECE]
        }
        3 => {
            header = tar::Header::new(b'x', b"records");
            let mut records = Vec::new();
            (0..PIECE / 40).for_each(|number| {
                tar::put_record(&mut records, &format!("SCHILY.xattr.user.x{number}"), b"0123456789");
            });
            records
        }
        4 => {
            // The same folder again and again.
            let mut tar = Tar(Vec::new());
            (0..PIECE / BLOCK).for_each(|_| tar.folder("./d/"));
            tar.0
        }
        _ => vec![b'x'; PIECE],
    };
    if rng.one_in(2) || header.0[156] != b'0' {
        header.number(124..136, 1 << 62);
        bytes.extend(header.sealed());
    }
    Stream { bytes, tail: Tail::Endless, again, ..Stream::default() }
}

fn endless_dump(head: &[u8], piece: &[u8]) -> Stream {
    let again = piece.repeat(PIECE / piece.len());
    Stream { bytes: head.to_vec(), tail: Tail::Endless, again, ..Stream::default() }
}

/// The beginning of a statement in the dump that can be replaced by any text of the same length.
pub const FILLER: &str = "COMMENT ON TABLE public.t IS '";
pub const FILLER_LENGTH: usize = 700;

fn pg_damaged(rng: &mut Rng, aim: &Aim) -> Stream {
    let mut dump = aim.pg_dump.clone();
    damage(rng, &mut dump, &[b"PGDMP", b"\0\xff\xff\xff\x7f", b"\x01\x01\0\0\0", b"\0\0\0\0\0", b"TABLE DATA", b";"]);
    Stream::of(dump)
}

/// Hostile statements in an otherwise genuine dump.
fn pg_statements(rng: &mut Rng, aim: &Aim) -> Stream {
    let Aim { world, markers, .. } = aim;
    let statements = [
        format!("COPY public.t FROM PROGRAM 'touch {markers}/program';"),
        format!("\\! touch {markers}/shell\n"),
        format!("COMMENT ON TABLE public.t IS 'x';\n\\! touch {markers}/shell\n"),
        "\\connect postgres\nCREATE TABLE evil (a int);".to_owned(),
        format!("DO $$ BEGIN EXECUTE 'COPY public.t FROM PROGRAM ''touch {markers}/do'''; END $$;"),
        format!("COPY public.t TO '{markers}/copied';"),
        format!("SELECT lo_export(lo_from_bytea(0, 'evil'), '{markers}/object');"),
        format!("CREATE TABLE loot AS SELECT pg_read_file('{world}/home/.ssh/secret');"),
        "ALTER SYSTEM SET archive_command = 'touch /nowhere';".to_owned(),
        "CREATE ROLE evil SUPERUSER LOGIN;".to_owned(),
        "DROP DATABASE postgres;".to_owned(),
        format!("CREATE EXTENSION plpython3u; DO LANGUAGE plpython3u 'open(\"{markers}/python\", \"w\")';"),
        "SET SESSION AUTHORIZATION holdfast; CREATE ROLE evil SUPERUSER;".to_owned(),
        "RESET ROLE; ALTER ROLE tenant SUPERUSER;".to_owned(),
    ];
    Stream::of(with_statement(&aim.pg_dump, &statements[rng.below(statements.len())]))
}

fn with_statement(dump: &[u8], statement: &str) -> Vec<u8> {
    let mut dump = dump.to_vec();
    let at = dump.windows(FILLER.len()).position(|window| window == FILLER.as_bytes());
    let at = at.expect("the dump has its filler");
    let text = format!("{statement:<FILLER_LENGTH$}");
    assert_eq!(text.len(), FILLER_LENGTH, "the statement is short enough");
    dump[at..at + FILLER_LENGTH].copy_from_slice(text.as_bytes());
    dump
}

/// A genuine dump with hostile answers of the database client.
fn pg_facts(rng: &mut Rng, aim: &Aim) -> Stream {
    let answer = match rng.below(4) {
        0 => rng.bytes(3000),
        1 => vec![b'['; 100_000],
        _ => {
            let made = serde_json::from_slice::<Value>(&databases::make_globals(rng)).unwrap_or_default();
            let database = made["databases"].get(0).cloned();
            database.unwrap_or_else(|| facts(&injection(rng, aim))).to_string().into_bytes()
        }
    };
    Stream { bytes: aim.pg_dump.clone(), answer: Some(answer), ..Stream::default() }
}

/// A name that would run SQL if it were not quoted properly.
fn injection(rng: &mut Rng, aim: &Aim) -> String {
    let run = format!("COPY pg_class TO PROGRAM 'touch {}/quoted'", aim.markers);
    let choices = [
        format!("x\"; {run}; --"),
        format!("x'; {run}; --"),
        format!("\\'; {run}; --"),
        format!("x\n\\! touch {}/line\n", aim.markers),
        format!("$holdfast$; {run}; --"),
        format!("x' dbname='postgres' options='-c x={}", aim.markers),
        format!("$(touch {})", aim.markers),
        "../../evil".to_owned(),
        "x\u{0}y".to_owned(),
    ];
    choices[rng.below(choices.len())].clone()
}

fn facts(name: &str) -> Value {
    json!({
        "name": name, "owner": "holdfast", "encoding": "UTF8", "collate": "C", "ctype": "C", "provider": "c",
        "locale": null, "icu_rules": null, "is_template": false, "allows_connections": true, "connection_limit": -1,
        "tablespace": "pg_default", "comment": name, "acl": null, "settings": [], "roles": [],
    })
}

/// A whole server: a document with roles and databases, and the same dump for each database.
fn pg_server(rng: &mut Rng, aim: &Aim) -> Stream {
    let answer = if rng.one_in(2) {
        databases::make_globals(rng)
    } else {
        let (name, other) = (injection(rng, aim), injection(rng, aim));
        let role = json!({
            "name": other, "is_superuser": false, "inherits": true, "creates_roles": false,
            "creates_databases": false, "can_login": true, "replicates": false, "bypasses_row_security": false,
            "connection_limit": -1, "password": null, "valid_until": null, "comment": name,
        });
        let setting = json!({ "role": other, "name": "work_mem", "value": name });
        let document = json!({
            "server_version": 150_000, "has_passwords": true, "roles": [role], "memberships": [],
            "settings": if rng.one_in(2) { json!([setting]) } else { json!([]) },
            "databases": [facts(&name)], "tablespaces": [],
        });
        document.to_string().into_bytes()
    };
    let mut bytes = aim.pg_dump.clone();
    if rng.one_in(4) {
        damage(rng, &mut bytes, &[b"PGDMP", b"\0\0\0\0\0"]);
    }
    Stream { bytes, answer: Some(answer), ..Stream::default() }
}

const MYSQL_HEAD: &str = "-- MariaDB dump 10.19  Distrib 10.11.6-MariaDB, for debian-linux-gnu (x86_64)\n--\n\
    CREATE TABLE IF NOT EXISTS `t` (`a` text);\nINSERT INTO `t` VALUES ('x');\n";
const MYSQL_FOOT: &str = "-- Dump completed on 2025-03-03 10:00:00\n";

/// A dump with client commands, and statements that access files.
fn mysql(rng: &mut Rng, aim: &Aim) -> Vec<u8> {
    let Aim { world, markers, .. } = aim;
    let statements = [
        format!("\\! touch {markers}/shell\n"),
        format!("system touch {markers}/system\n"),
        format!("SELECT 1; \\! touch {markers}/inline\n"),
        format!("SELECT 1 \\! touch {markers}/inline\n"),
        format!("DELIMITER ;;\nsystem touch {markers}/delimiter ;;\n\\! touch {markers}/delimiter\n;;\nDELIMITER ;\n"),
        format!("tee {markers}/tee\nSELECT 1;\nnotee\n"),
        format!("\\T {markers}/tee\n"),
        format!("pager touch {markers}/pager\nSELECT 1;\n"),
        format!("\\P touch {markers}/pager\nSELECT 1;\n"),
        format!("source {world}/outside/evil.sql\n"),
        format!("\\. {world}/outside/evil.sql\n"),
        "edit\n".to_owned(),
        format!("CREATE TABLE loot (a text); LOAD DATA LOCAL INFILE '{world}/home/.ssh/secret' INTO TABLE loot;\n"),
        format!("LOAD DATA INFILE '{world}/home/.ssh/secret' INTO TABLE t;\n"),
        format!("CREATE TABLE loot AS SELECT LOAD_FILE('{world}/home/.ssh/secret') a;\n"),
        format!("SELECT 'evil' INTO OUTFILE '{markers}/outfile';\n"),
        format!("SELECT 'evil' INTO DUMPFILE '{markers}/dumpfile';\n"),
        format!("SET GLOBAL general_log_file = '{markers}/log', GLOBAL general_log = 1;\n"),
        "INSTALL SONAME 'ha_connect';\n".to_owned(),
        "GRANT ALL ON *.* TO tenant@'%' WITH GRANT OPTION;\n".to_owned(),
        "USE mysql; DROP TABLE global_priv;\n".to_owned(),
        "DROP DATABASE shop;\n".to_owned(),
        format!("/*!50003 \\! touch {markers}/comment */\n/*M!100000 system touch {markers}/comment */;\n"),
        format!("-- \r\\! touch {markers}/return\r\nsystem touch {markers}/return\r\n"),
        format!("INSERT INTO t VALUES ('a\n\\! touch {markers}/value\n');\n"),
        format!("\0\\! touch {markers}/zero\n"),
        "CREATE DEFINER=`root`@`localhost` FUNCTION f() RETURNS INT RETURN 1;\n".to_owned(),
        "/*!50001 VIEW `v` AS SELECT 1 */;\n".to_owned(),
        "INSERT INTO t VALUES ('y');\n".to_owned(),
    ];
    let mut dump = MYSQL_HEAD.as_bytes().to_vec();
    for _ in 0..=rng.below(3) {
        dump.extend(statements[rng.below(statements.len())].as_bytes());
    }
    dump.extend(MYSQL_FOOT.as_bytes());
    dump
}

fn mysql_ends(rng: &mut Rng, aim: &Aim) -> Stream {
    let dump = mysql(rng, aim);
    with_tail(rng, dump)
}

fn mysql_damaged(rng: &mut Rng, aim: &Aim) -> Stream {
    let mut dump = mysql(rng, aim);
    damage(rng, &mut dump, &[b"\\!", b"DELIMITER ", b";\n", b"'", b"`", b"/*!", b"*/", b"\0", b"\n-- ", b"\r\n"]);
    if rng.one_in(2) {
        // Damage only in the middle: the beginning and the end are valid.
        dump = [MYSQL_HEAD.as_bytes(), &dump, b"\n", MYSQL_FOOT.as_bytes()].concat();
    }
    let answer = rng.one_in(3).then(|| rng.bytes(300));
    Stream { bytes: dump, answer, ..Stream::default() }
}
