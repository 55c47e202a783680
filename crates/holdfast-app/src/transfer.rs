//! Export and import: everything a user or an installation has, as one document that another installation can import.

use std::collections::BTreeMap;
use std::io::Write;

use holdfast_core::audit::AuditAction;
use holdfast_core::characters::stored_line;
use holdfast_core::destination::DestinationSpec;
use holdfast_core::ids::UserId;
use holdfast_core::limits;
use holdfast_store::transfer::{self, Contents, Taken};
use holdfast_store::{StoreError, ssh_keys, users};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::refusal::Conflict;
use crate::{App, AppError, Origin, Result, ssh_key};

/// The format version that this program writes, and the newest that it reads.
const FORMAT: u32 = 3;
/// The folder for catalogues at every destination.
pub const FOLDER: &str = "holdfast-catalogue";

/// Rows with their secrets in plaintext: only ever stored or sent sealed. Read as a whole, written row by row.
#[derive(Deserialize)]
pub struct Document {
    pub made_by: String,
    pub made_at: String,
    contents: Contents,
}

impl Document {
    /// Refuses documents from newer programs, and anything that is not a Holdfast document.
    pub fn of(bytes: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            holdfast: u32,
        }
        let version: Version = serde_json::from_slice(bytes).map_err(|_| AppError::Conflict(Conflict::NotADocument))?;
        if version.holdfast > FORMAT {
            return Err(AppError::Conflict(Conflict::NewerDocument));
        }
        let damaged = |error: serde_json::Error| Conflict::DamagedDocument { reason: error.to_string() };
        let document = serde_json::from_slice(bytes).map_err(|error| AppError::Conflict(damaged(error)));
        let mut document: Self = document?;
        transfer::upgrade(&mut document.contents);
        for told in [&mut document.made_by, &mut document.made_at] {
            *told = stored_line(told).chars().take(limits::TEXT_CHARS).collect();
        }
        Ok(document)
    }

    pub fn emails(&self) -> Vec<String> {
        let users = self.contents.get("users").into_iter().flatten();
        users.filter_map(|user| user.get("email")?.as_str()).map(str::to_owned).collect()
    }

    /// The email addresses of the administrators.
    pub fn administrators(&self) -> Vec<String> {
        let users = self.contents.get("users").into_iter().flatten();
        let administrators = users.filter(|user| user.get("is_admin").and_then(Value::as_bool) == Some(true));
        administrators.filter_map(|user| user.get("email")?.as_str()).map(str::to_owned).collect()
    }

    pub fn counts(&self) -> BTreeMap<&str, usize> {
        self.contents.iter().map(|(table, rows)| (table.as_str(), rows.len())).collect()
    }

    /// The keys of objects stored at a destination, given its id in the document.
    pub fn stored_at(&self, destination: i64) -> Vec<&str> {
        let copies = self.contents.get("backup_copies").into_iter().flatten();
        let own = copies.filter(|copy| copy.get("destination_id").and_then(Value::as_i64) == Some(destination));
        own.filter(|copy| copy.get("remove_after").is_none_or(Value::is_null))
            .filter_map(|copy| copy.get("locator")?.as_str())
            .collect()
    }

    pub fn destinations(&self) -> Vec<Destination> {
        let rows = self.contents.get("backup_destinations").into_iter().flatten();
        let read = |row: &Map<String, Value>| {
            let marker = row.get("marker").and_then(Value::as_str).map(str::to_owned);
            let spec = transfer::read_destination(row.get("spec")?)?;
            Some(Destination { id: row.get("id")?.as_i64()?, spec, marker })
        };
        rows.filter_map(read).collect()
    }
}

/// A destination in a document, with what identifies it.
pub struct Destination {
    /// Its id in the document.
    pub id: i64,
    pub spec: DestinationSpec,
    pub marker: Option<String>,
}

/// The number of rows by table.
pub type Counts = BTreeMap<&'static str, usize>;

/// Writes a consistent snapshot of everything that a user, or everybody, has, row by row.
pub async fn export(app: &App, owner: Option<UserId>, out: &mut (impl Write + Send)) -> Result<Counts> {
    let unwritten = |error: std::io::Error| AppError::Internal(format!("the document cannot be written: {error}"));
    let (made_by, made_at) = (env!("CARGO_PKG_VERSION"), app.now());
    let head = format!("{{\"holdfast\":{FORMAT},\"made_by\":\"{made_by}\",\"made_at\":\"{made_at}\",\"contents\":{{");
    out.write_all(head.as_bytes()).map_err(unwritten)?;
    let mut counts = Counts::new();
    let mut tx = app.store.read_snapshot().await?;
    let mut failed = None;
    let read = transfer::read(&mut tx, owner, |table, rows| {
        let written = write_rows(out, &mut counts, table, &rows);
        written.map_err(|error| {
            failed = Some(unwritten(error));
            StoreError::Broken("the document cannot be written".to_owned())
        })
    });
    if let Err(error) = read.await {
        return Err(failed.unwrap_or_else(|| error.into()));
    }
    let end = if counts.is_empty() { "}}" } else { "]}}" };
    out.write_all(end.as_bytes()).map_err(unwritten)?;
    Ok(counts)
}

/// Writes the next rows of the current table, or the first of the next table.
fn write_rows(
    out: &mut impl Write,
    counts: &mut Counts,
    table: &'static str,
    rows: &[Map<String, Value>],
) -> std::io::Result<()> {
    if !counts.contains_key(table) {
        write!(out, "{}\"{table}\":[", if counts.is_empty() { "" } else { "]," })?;
    }
    let count = counts.entry(table).or_default();
    for row in rows {
        if *count > 0 {
            out.write_all(b",")?;
        }
        serde_json::to_writer(&mut *out, row)?;
        *count += 1;
    }
    Ok(())
}

/// Whether the installation is empty, so that imported rows can keep their ids.
pub async fn is_empty(app: &App) -> Result<bool> {
    Ok(transfer::is_empty(&mut app.store.read().await?).await?)
}

/// How a document is imported.
#[derive(Debug, Clone, Copy)]
pub struct ImportOptions {
    pub keep_ids: bool,
    pub is_paused: bool,
}

/// Imports everything or nothing. Existing accounts are not touched.
pub async fn import(app: &App, origin: &Origin, document: &Document, manner: ImportOptions) -> Result<Taken> {
    let mut tx = app.store.begin().await?;
    for email in document.emails() {
        let known = users::find_by_email(&mut tx, &email).await?;
        if known.is_some_and(|known| !manner.keep_ids || known.password_hash.is_some()) {
            return Err(AppError::Conflict(Conflict::AccountExists { email }));
        }
    }
    let paused_at = manner.is_paused.then(|| app.now());
    let taken = transfer::write(&mut tx, &document.contents, manner.keep_ids, paused_at, app.now()).await?;
    let detail = format!("{} accounts, written {} by {}", taken.users.len(), document.made_at, document.made_by);
    app.audit_as(&mut tx, None, origin, AuditAction::InstallationImported, &detail).await?;
    tx.commit().await?;
    Ok(taken)
}

/// The folder of a user's catalogues. It stays the same when they move to another installation, and reveals nothing
/// about them.
pub async fn folder(app: &App, owner: UserId) -> Result<String> {
    ssh_key::private(app, owner).await?;
    let public = ssh_keys::find_public(&mut app.store.read().await?, owner).await?;
    // Without the key, everybody would share one folder.
    let public = public.ok_or_else(|| AppError::Internal("the SSH key is gone".to_owned()))?;
    let digest = Sha256::digest(&public);
    let tag: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{FOLDER}/{tag}"))
}
