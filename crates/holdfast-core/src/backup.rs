//! Stored backups: their keys, what is known about them, and what a restore may request.

use jiff::Timestamp;

use crate::changes::quoted;
use crate::content::{Content, Coverage};
use crate::ids::{ServerId, TaskId};
use crate::input::{Errors, Field};
use crate::refusal::Rule;
use crate::source::TaskKind;
use crate::{limits, random, rules};

string_enum! {
    /// What the last full read of a backup found.
    Verification {
        Unverified = "unverified",
        Verified = "verified",
        Corrupt = "corrupt",
        Missing = "missing",
    }
}

impl Verification {
    /// Whether it cannot be restored, as far as is known.
    pub fn is_damaged(self) -> bool {
        match self {
            Self::Corrupt | Self::Missing => true,
            Self::Unverified | Self::Verified => false,
        }
    }

    /// The state of a backup, derived from those of its copies in order: as good as the best copy or, if every copy is
    /// lost, that of the first.
    pub fn of_copies(copies: &[Self]) -> Self {
        let best = [Self::Verified, Self::Unverified].into_iter().find(|good| copies.contains(good));
        best.or(copies.first().copied()).unwrap_or(Self::Missing)
    }
}

string_enum! {
    /// The type of an entry in a backup of files.
    EntryKind {
        File = "file",
        Directory = "directory",
        Symlink = "symlink",
        /// Another name of a file that came before.
        Hardlink = "hardlink",
        /// Device, fifo and the like.
        Other = "other",
    }
}

string_enum! {
    /// Why a backup was deleted.
    DeletedReason { Retention = "retention", User = "user", TaskDeleted = "task_deleted" }
}

/// Identifies the source of a backup: the server's address, the kind of content, and the path or database. Backups with
/// the same key replace each other in retention; what a task excludes is not part of the key. `source` is the text that
/// is recorded with the backup.
pub fn source_key(server: &str, content: Content, source: &str) -> String {
    // A trailing slash does not make it another folder.
    let is_folder = content.kind() == TaskKind::Files && source.len() > 1;
    let source = if is_folder { source.trim_end_matches('/') } else { source };
    format!("{server}\n{}\n{source}", content.source_word())
}

/// How a server is written in a source key. The user is part of it, because paths may be relative to a home directory
/// and an SFTP account may be confined to a folder. So is the jump host, behind which the same address is another
/// machine.
pub fn server_address(target: (&str, &str, u16), jump: Option<(&str, &str, u16)>) -> String {
    let text = |(user, host, port): (&str, &str, u16)| format!("{user}@{host}:{port}");
    match jump {
        Some(jump) => format!("{} via {}", text(target), text(jump)),
        None => text(target),
    }
}

/// The key of a new object: `[folders/][appended_]<label>_<UTC>_<ulid>.<ext>.zst[.age]`. It is unique.
pub fn object_key(
    store_path: &str,
    appended: Option<&str>,
    label: &str,
    content: Content,
    is_encrypted: bool,
    now: Timestamp,
) -> String {
    let mut key = String::new();
    for folder in store_path.split('/').filter(|part| !part.is_empty()) {
        key.push_str(folder);
        key.push('/');
    }
    if let Some(appended) = appended {
        key.push_str(appended);
        key.push('_');
    }
    let stamp = now.strftime("%Y%m%dT%H%M%SZ");
    key.push_str(&format!("{}_{stamp}_{}.{}.zst", slug(label), ulid(now), content.extension()));
    if is_encrypted {
        key.push_str(".age");
    }
    key
}

/// The folder of a task's repository, below the folder that the task names.
pub fn repository_folder(store_path: &str, label: &str, task: TaskId) -> String {
    let own = format!("{}-{task}", slug(label));
    let parts = store_path.split('/').filter(|part| !part.is_empty());
    parts.chain([own.as_str()]).collect::<Vec<_>>().join("/")
}

/// The name of a backup in a repository, when it is downloaded as one file.
pub fn plain_file_name(label: &str, content: Content, made_at: Timestamp) -> String {
    format!("{}_{}.{}", slug(label), made_at.strftime("%Y%m%dT%H%M%SZ"), content.extension())
}

/// Whether a text is a valid object key: plain names, none of which leads out of the destination.
pub fn is_object_key(key: &str) -> bool {
    key.split('/').all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains('\0'))
}

/// A label as part of a file name: lower-case ASCII letters and digits; anything else becomes a single hyphen.
fn slug(label: &str) -> String {
    const CHARS: usize = 60;
    let mut slug = String::new();
    for c in label.chars().flat_map(char::to_lowercase) {
        match c {
            'a'..='z' | '0'..='9' => slug.push(c),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
        if slug.len() == CHARS {
            break;
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { "backup".to_owned() } else { slug.to_owned() }
}

/// The key of a user's sealed catalogue in `folder`; later keys sort after earlier ones.
pub fn catalogue_key(folder: &str, now: Timestamp) -> String {
    format!("{folder}/{}.sealed", ulid(now))
}

/// A ULID: 48 bits of time and 80 random bits, in Crockford's base 32. It sorts by time and never collides in practice.
fn ulid(now: Timestamp) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let millis = u128::from(now.as_millisecond().unsigned_abs()) & ((1 << 48) - 1);
    let mut random = [0; 16];
    random[6..].copy_from_slice(&random::bytes::<10>());
    let value = (millis << 80) | u128::from_be_bytes(random);
    (0..26).rev().map(|place| char::from(DIGITS[(value >> (place * 5)) as usize & 31])).collect()
}

/// A file name as text, without loss: bytes that are not UTF-8, control characters and the backslash itself become
/// `\xHH`.
pub fn name_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let escape = |text: &mut String, byte: u8| text.push_str(&format!("\\x{byte:02x}"));
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || c == '\\' {
                c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| escape(&mut text, byte));
            } else {
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| escape(&mut text, *byte));
    }
    text
}

/// The bytes that `name_text` encoded. A backslash that does not begin a `\xHH` is taken literally.
pub fn name_bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = rest.strip_prefix(b"\\x").and_then(|rest| rest.get(..2));
        let escaped = escaped.and_then(random::hex_byte);
        match escaped {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// The fields of a restore request.
#[derive(Debug, Default)]
pub struct RestoreInput {
    pub remote_server_id: Field<i64>,
    pub path: Field<String>,
    pub entries: Field<Vec<String>>,
    pub overwrite: Field<bool>,
    pub database_name: Field<String>,
    pub no_owner: Field<bool>,
    pub numeric_owner: Field<bool>,
    pub restore_devices: Field<bool>,
    pub dry_run: Field<bool>,
}

/// Optional settings of a restore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RestoreOptions {
    /// Do not restore owners, nor privileges of a database: everything belongs to the user who restores.
    pub no_owner: bool,
    /// Restore owners by numeric id instead of by name.
    pub numeric_owner: bool,
    pub restore_devices: bool,
    /// Report what would be done, without doing it.
    pub dry_run: bool,
}

/// A checked restore request. Whether the server belongs to the user is checked against the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreDraft {
    pub server: ServerId,
    /// Replace what exists; otherwise it is kept and the log lists it.
    pub overwrite: bool,
    pub options: RestoreOptions,
    pub target: RestoreTarget,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestoreTarget {
    /// A folder; empty `entries` means everything.
    Path { path: String, entries: Vec<String> },
    /// A database; `None` restores the dump of a whole server.
    Database { name: Option<String> },
}

impl RestoreDraft {
    /// Its server, target and options, for the audit log.
    pub fn describe(&self) -> String {
        let mut parts = vec![self.server.to_string()];
        match &self.target {
            RestoreTarget::Path { path, entries } => {
                parts.push(format!("path {}", quoted(path)));
                parts.extend((!entries.is_empty()).then(|| format!("entries {}", entries.len())));
            }
            RestoreTarget::Database { name: Some(name) } => parts.push(format!("database {}", quoted(name))),
            RestoreTarget::Database { name: None } => parts.push("all databases".to_owned()),
        }
        let RestoreOptions { no_owner, numeric_owner, restore_devices, dry_run } = self.options;
        let switches = [
            (self.overwrite, "overwrite"),
            (no_owner, "no_owner"),
            (numeric_owner, "numeric_owner"),
            (restore_devices, "restore_devices"),
            (dry_run, "dry_run"),
        ];
        parts.extend(switches.iter().filter(|(is_on, _)| *is_on).map(|(_, name)| (*name).to_owned()));
        parts.join(", ")
    }

    pub fn check(errors: &mut Errors, input: &RestoreInput, content: Content) -> Option<Self> {
        let e = errors;
        let server = match &input.remote_server_id {
            Field::Value(id) => Some(ServerId(*id)),
            Field::WrongType => {
                e.add("remote_server_id", Rule::Integer);
                None
            }
            Field::Absent | Field::Null => {
                rules::required(e, "remote_server_id");
                None
            }
        };
        let overwrite = rules::boolean(e, "overwrite", &input.overwrite, false);
        let options = RestoreOptions {
            no_owner: rules::boolean(e, "no_owner", &input.no_owner, false),
            numeric_owner: rules::boolean(e, "numeric_owner", &input.numeric_owner, false),
            restore_devices: rules::boolean(e, "restore_devices", &input.restore_devices, false),
            dry_run: rules::boolean(e, "dry_run", &input.dry_run, false),
        };
        if content != Content::Files {
            for (name, is_set) in
                [("numeric_owner", options.numeric_owner), ("restore_devices", options.restore_devices)]
            {
                if is_set {
                    e.add(name, Rule::FilesOnly);
                }
            }
        }
        if content == Content::PostgresServerSql && options.no_owner {
            e.add("no_owner", Rule::OwnersInDump);
        }
        let target = if content.goes_to_path() {
            let path = rules::required_line(e, "path", &input.path, limits::PATH_CHARS, None);
            if path.as_deref().is_some_and(|path| !is_target_path(path)) {
                e.add("path", Rule::AbsolutePath);
            }
            let entries = if content.kind() == TaskKind::Files {
                check_entries(e, &input.entries)
            } else {
                refuse_entries(e, input);
                Vec::new()
            };
            path.map(|path| RestoreTarget::Path { path, entries })
        } else {
            check_database(e, input, content, overwrite)
        };
        let draft = RestoreDraft { server: server?, overwrite, options, target: target? };
        e.is_empty().then_some(draft)
    }
}

/// Only backups of files can be restored entry by entry.
fn refuse_entries(e: &mut Errors, input: &RestoreInput) {
    if input.entries.value().is_some_and(|entries| !entries.is_empty()) {
        e.add("entries", Rule::FilesOnly);
    }
}

fn check_database(e: &mut Errors, input: &RestoreInput, content: Content, overwrite: bool) -> Option<RestoreTarget> {
    refuse_entries(e, input);
    let is_named = input.database_name.value().is_some_and(|name| !name.is_empty());
    // A single database of a server can be restored under its own name if each database has its own dump.
    let has_parts = matches!(content.coverage(), Coverage::Server(_));
    if content.is_whole_server() && !(is_named && has_parts) {
        if is_named {
            e.add("database_name", Rule::WholeServer);
        }
        if !overwrite {
            e.add("overwrite", Rule::OverwriteServer);
        }
        return Some(RestoreTarget::Database { name: None });
    }
    let name = rules::required_line(e, "database_name", &input.database_name, limits::TEXT_CHARS, None)?;
    if name.starts_with('-') {
        e.add("database_name", Rule::Format);
    }
    Some(RestoreTarget::Database { name: Some(name) })
}

fn check_entries(e: &mut Errors, input: &Field<Vec<String>>) -> Vec<String> {
    const NAME: &str = "entries";
    match input {
        Field::Absent | Field::Null => Vec::new(),
        Field::WrongType => {
            e.add(NAME, Rule::Texts);
            Vec::new()
        }
        Field::Value(paths) if paths.len() > limits::RESTORE_ENTRIES => {
            e.add(NAME, Rule::MaxItems { max: limits::RESTORE_ENTRIES });
            Vec::new()
        }
        Field::Value(paths) => {
            paths.iter().filter_map(|path| rules::exact_line(e, NAME, path, limits::PATH_CHARS)).collect()
        }
    }
}

fn is_target_path(path: &str) -> bool {
    path.starts_with('/') && path.split('/').all(|part| part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_as_good_as_its_best_copy() {
        use Verification::{Corrupt, Missing, Unverified, Verified};
        for (copies, expected) in [
            (&[Verified][..], Verified),
            (&[Corrupt], Corrupt),
            (&[Corrupt, Unverified, Verified], Verified),
            (&[Missing, Unverified], Unverified),
            (&[Missing, Corrupt], Missing),
            (&[], Missing),
        ] {
            assert_eq!(Verification::of_copies(copies), expected, "{copies:?}");
        }
    }

    #[test]
    fn keys_are_safe_and_unique() {
        let now: Timestamp = "2025-03-03T10:00:05Z".parse().unwrap();
        let key = |path, label| object_key(path, Some("web"), label, Content::Files, true, now);
        let first = key("/nightly//sites/", "Web: Ünï/../$(id)\u{202e}");
        assert!(first.starts_with("nightly/sites/web_web-n-id_20250303T100005Z_"), "{first}");
        assert!(first.ends_with(".tar.zst.age"));
        assert_ne!(first, key("/nightly//sites/", "Web: Ünï/../$(id)\u{202e}"));
        assert!(object_key("/", None, "日本", Content::PostgresDatabase, false, now).starts_with("backup_2025"));
    }

    #[test]
    fn sources_differ_by_server_kind_and_name() {
        let web = server_address(("root", "web.example.org", 22), None);
        let files = |server: &str, path: &str| source_key(server, Content::Files, path);
        assert_eq!(files(&web, "/srv/data"), files(&web, "/srv/data/"));
        assert_ne!(files(&web, "/"), files(&web, ""));
        let others = [
            files(&web, "/srv"),
            files(&server_address(("root", "web.example.org", 2222), None), "/srv/data"),
            files(&server_address(("backup", "web.example.org", 22), None), "/srv/data"),
            files(&server_address(("root", "web.example.org", 22), Some(("root", "gate", 22))), "/srv/data"),
            source_key(&web, Content::MysqlDatabase, "/srv/data"),
        ];
        assert!(others.iter().all(|other| *other != files(&web, "/srv/data")));
        let named = source_key(&web, Content::MysqlDatabase, "all databases");
        assert_ne!(named, source_key(&web, Content::MysqlServer, "all databases"));
    }

    #[test]
    fn ulids_sort_by_time() {
        let at = |second| ulid(Timestamp::from_second(second).unwrap());
        assert!(at(1_700_000_000) < at(1_700_000_001));
        assert_eq!(at(0).len(), 26);
    }

    #[test]
    fn odd_names_are_shown_without_loss() {
        assert_eq!(name_text("ünï $(id)".as_bytes()), "ünï $(id)");
        assert_eq!(name_text(b"a\nb\\c\xff"), "a\\x0ab\\x5cc\\xff");
        for bytes in [b"a\nb\\c\xff".as_slice(), "ünï".as_bytes(), b"\\x41", b"", b"\\"] {
            assert_eq!(name_bytes(&name_text(bytes)), bytes);
        }
        assert_eq!(name_bytes("\\x+f\\x 1"), b"\\x+f\\x 1", "a sign is not a digit");
    }

    #[test]
    fn a_restore_needs_a_target() {
        let text = |value: &str| Field::Value(value.to_owned());
        let files = |path: &str| RestoreInput {
            remote_server_id: Field::Value(1),
            path: text(path),
            ..RestoreInput::default()
        };
        let check = |input: &RestoreInput, content| {
            let mut errors = Errors::default();
            RestoreDraft::check(&mut errors, input, content).ok_or(errors)
        };
        assert!(check(&files("/srv/back"), Content::Files).is_ok());
        for bad in ["srv", "/srv/../etc", ""] {
            assert!(check(&files(bad), Content::Files).unwrap_err().has("path"), "{bad}");
        }
        assert!(check(&files("/x"), Content::MysqlDatabase).unwrap_err().has("database_name"));
        let all = RestoreInput { remote_server_id: Field::Value(1), ..RestoreInput::default() };
        assert!(check(&all, Content::PostgresServerSql).unwrap_err().has("overwrite"));
        let all = RestoreInput { overwrite: Field::Value(true), ..all };
        assert!(check(&all, Content::PostgresServerSql).is_ok());
        let all = RestoreInput { no_owner: Field::Value(true), ..all };
        assert!(check(&all, Content::PostgresServerSql).unwrap_err().has("no_owner"));
        assert!(check(&all, Content::PostgresServer).is_ok());
        let one =
            RestoreInput { remote_server_id: Field::Value(1), database_name: text("shop"), ..RestoreInput::default() };
        let target = RestoreTarget::Database { name: Some("shop".to_owned()) };
        assert_eq!(check(&one, Content::MysqlServer).unwrap().target, target);
        assert!(check(&one, Content::PostgresServerSql).unwrap_err().has("database_name"));
    }
}
