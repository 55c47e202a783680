//! Secrets at rest: XChaCha20-Poly1305 with a data key, bound to the place they are stored in.
//!
//! Data keys live in the database, wrapped by the master key. A sealed value contains the id of its data key, so values
//! sealed before and after a rotation can coexist while the service runs.

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use holdfast_core::ids::UserId;
use holdfast_core::secret::SecretChange;
use holdfast_core::{Secret, Timestamp, random};
use zeroize::Zeroizing;

use crate::error::{StartError, StoreError};
use crate::master_key::{Key, MasterKeySource};
use crate::tx::Tx;
use crate::{Result, migrate};

const VERSION: u8 = 1;
const NONCE_BYTES: usize = 24;
/// The version and the id of the data key.
const HEADER_BYTES: usize = 9;
/// The context that a wrapped data key is bound to.
pub(crate) const WRAP_CONTEXT: &[u8] = b"holdfast data key";

/// Where a sealed value belongs. Copied into another row, column or account, it cannot be opened.
#[derive(Debug, Clone, Copy)]
pub struct SealContext {
    pub table: &'static str,
    pub column: &'static str,
    pub row: i64,
    pub user: UserId,
}

impl SealContext {
    fn context(&self) -> Vec<u8> {
        format!("{}\0{}\0{}\0{}", self.table, self.column, self.row, self.user).into_bytes()
    }
}

named_row! {
    pub(crate) struct DataKeyRow {
        pub id: i64,
        pub(crate) wrapped: Vec<u8>,
    }
}

impl Tx {
    /// Seals a value for its place, with the current data key.
    pub async fn seal(&mut self, place: SealContext, secret: &Secret) -> Result<Vec<u8>> {
        let id = current_data_key(self).await?;
        let key = data_key(self, id).await?;
        let mut sealed = header(id).to_vec();
        sealed.extend(encrypt(&key, secret.reveal().as_bytes(), &place.context())?);
        Ok(sealed)
    }

    /// Opens a value that was sealed for this place.
    pub async fn open(&mut self, place: SealContext, sealed: &[u8]) -> Result<Secret> {
        let (id, body) = split(sealed).ok_or_else(|| damaged(place))?;
        let key = data_key(self, id).await?;
        let plain = decrypt(&key, body, &place.context()).ok_or_else(|| damaged(place))?;
        String::from_utf8(plain.to_vec()).map(Secret::new).map_err(|_| damaged(place))
    }

    /// What to write into a column: `None` for nothing, `Some(None)` for NULL, or a sealed value.
    pub(crate) async fn seal_change(
        &mut self,
        place: SealContext,
        change: &SecretChange,
    ) -> Result<Option<Option<Vec<u8>>>> {
        match change {
            SecretChange::Keep => Ok(None),
            SecretChange::Clear => Ok(Some(None)),
            SecretChange::Set(secret) => Ok(Some(Some(self.seal(place, secret).await?))),
        }
    }
}

/// The first bytes of every sealed file.
const FILE_SIGN: &[u8] = b"holdfast sealed file 1\n";
/// The context that a file's contents and its wrapped key are bound to.
const FILE_CONTEXT: &[u8] = b"holdfast file key";
const WRAPPED_BYTES: usize = NONCE_BYTES + 32 + 16;

impl Tx {
    /// Seals a file for whoever has the master key: a fresh key wrapped by it, then the contents sealed with that key.
    pub fn seal_file(&self, plain: &[u8]) -> Result<Vec<u8>> {
        let masters = load_masters(&self.sealer.source)?;
        let newest = masters.first().ok_or_else(|| StoreError::Broken("there is no master key".to_owned()))?;
        let key = Key::new(random::bytes());
        let wrapped = encrypt(newest, &*key, FILE_CONTEXT)?;
        Ok([FILE_SIGN, &wrapped, &encrypt(&key, plain, FILE_CONTEXT)?].concat())
    }
}

/// Opens a file that was sealed with one of the master keys in `source`; needs no database. Returns `None` if it was
/// sealed with another key or is damaged.
pub fn open_file(source: &MasterKeySource, sealed: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>> {
    let parts = sealed.strip_prefix(FILE_SIGN).and_then(|rest| rest.split_at_checked(WRAPPED_BYTES));
    let Some((wrapped, body)) = parts else { return Ok(None) };
    let masters = load_masters(source)?;
    let key = masters.iter().find_map(|master| decrypt(master, wrapped, FILE_CONTEXT));
    let key = key.and_then(|key| Some(Key::new(key.as_slice().try_into().ok()?)));
    Ok(key.and_then(|key| decrypt(&key, body, FILE_CONTEXT)))
}

/// Applies a requested change to a sealed column. A secret is bound to its row, so the row must already exist.
macro_rules! write_secret {
    ($tx:expr, $table:literal, $column:literal, $id:expr, $owner:expr, $change:expr) => {{
        let place = $crate::SealContext { table: $table, column: $column, row: $id, user: $owner };
        if let Some(sealed) = $tx.seal_change(place, $change).await? {
            execute!($tx, concat!("UPDATE ", $table, " SET ", $column, " = $1 WHERE id = $2"), sealed, $id)?;
        }
    }};
}

/// Opens the secret of a column, if there is one.
macro_rules! read_secret {
    ($tx:expr, $table:literal, $column:literal, $id:expr, $owner:expr) => {{
        let place = $crate::SealContext { table: $table, column: $column, row: $id, user: $owner };
        let sql = concat!("SELECT ", $column, " FROM ", $table, " WHERE id = $1");
        match fetch_optional!($tx, (Option<Vec<u8>>,), sql, $id)? {
            Some((Some(sealed),)) => $tx.open(place, &sealed).await.map(Some),
            _ => Ok(None),
        }
    }};
}

fn damaged(place: SealContext) -> StoreError {
    StoreError::Sealed(format!("{}.{} of row {}", place.table, place.column, place.row))
}

pub(crate) fn header(key_id: i64) -> [u8; HEADER_BYTES] {
    let mut out = [VERSION; HEADER_BYTES];
    out[1..].copy_from_slice(&key_id.to_be_bytes());
    out
}

fn split(sealed: &[u8]) -> Option<(i64, &[u8])> {
    let (header, body) = sealed.split_at_checked(HEADER_BYTES)?;
    let id = i64::from_be_bytes(header[1..].try_into().ok()?);
    (header[0] == VERSION).then_some((id, body))
}

pub(crate) fn encrypt(key: &Key, plain: &[u8], context: &[u8]) -> Result<Vec<u8>> {
    let nonce: [u8; NONCE_BYTES] = random::bytes();
    let cipher = XChaCha20Poly1305::new((&**key).into());
    let body = cipher
        .encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: context })
        .map_err(|_| StoreError::Broken("sealing failed".to_owned()))?;
    Ok([&nonce[..], &body].concat())
}

fn decrypt(key: &Key, body: &[u8], context: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, body) = body.split_first_chunk::<NONCE_BYTES>()?;
    let cipher = XChaCha20Poly1305::new((&**key).into());
    cipher.decrypt(&XNonce::from(*nonce), Payload { msg: body, aad: context }).ok().map(Zeroizing::new)
}

pub(crate) fn unwrap_key(masters: &[Key], wrapped: &[u8]) -> Option<Key> {
    masters.iter().find_map(|master| {
        let plain = decrypt(master, wrapped, WRAP_CONTEXT)?;
        Some(Key::new(plain.as_slice().try_into().ok()?))
    })
}

pub(crate) async fn current_data_key(tx: &mut Tx) -> Result<i64> {
    fetch_scalar!(tx, i64, "SELECT id FROM data_keys WHERE is_current")
}

pub(crate) async fn data_key_rows(tx: &mut Tx) -> Result<Vec<DataKeyRow>> {
    fetch_all!(tx, DataKeyRow, "SELECT id, wrapped FROM data_keys ORDER BY id")
}

/// A data key from memory, else from the database; then the master key is read again, because it may have been rotated.
pub(crate) async fn data_key(tx: &mut Tx, id: i64) -> Result<Key> {
    if let Some(key) = tx.sealer.cached(id) {
        return Ok(key);
    }
    let row = fetch_optional!(tx, DataKeyRow, "SELECT id, wrapped FROM data_keys WHERE id = $1", id)?;
    let row = row.ok_or_else(|| StoreError::Sealed(format!("data key {id} is missing")))?;
    let masters = load_masters(&tx.sealer.source)?;
    let key = unwrap_key(&masters, &row.wrapped).ok_or_else(|| {
        StoreError::NoKey(format!("the master key in {} does not open data key {id}", tx.sealer.source.describe()))
    })?;
    tx.sealer.remember(id, key.clone());
    Ok(key)
}

pub(crate) fn load_masters(source: &MasterKeySource) -> Result<Vec<Key>> {
    let loaded = source.load().map_err(|error| StoreError::NoKey(error.to_string()))?;
    loaded.ok_or_else(|| StoreError::NoKey(format!("{} is missing; put the key back", source.describe())))
}

/// Checks that the master key is available and opens the data key that new secrets are sealed with.
pub(crate) async fn check_current(tx: &mut Tx) -> Result<()> {
    let id = current_data_key(tx).await?;
    let masters = load_masters(&tx.sealer.source)?;
    let rows = data_key_rows(tx).await?;
    let opens = rows.iter().any(|row| row.id == id && unwrap_key(&masters, &row.wrapped).is_some());
    let closed =
        || StoreError::NoKey(format!("the master key in {} does not open data key {id}", tx.sealer.source.describe()));
    if opens { Ok(()) } else { Err(closed()) }
}

/// Refuses a database whose secrets this master key cannot open. Changes nothing.
pub(crate) async fn check_master_key(tx: &mut Tx, source: &MasterKeySource) -> std::result::Result<(), StartError> {
    let masters = source.load()?;
    if !migrate::has_schema(tx).await? {
        return Ok(());
    }
    let rows = data_key_rows(tx).await?;
    if rows.is_empty() {
        return Ok(());
    }
    let origin = source.describe();
    let Some(masters) = masters else {
        return Err(StartError::MasterKey(format!(
            "the master key {origin} is missing, but the database holds secrets sealed with it; put the key back (a \
             new one cannot open them)"
        )));
    };
    if rows.iter().any(|row| unwrap_key(&masters, &row.wrapped).is_none()) {
        return Err(StartError::MasterKey(format!(
            "the master key in {origin} is not the one this database was sealed with; nothing was changed"
        )));
    }
    Ok(())
}

/// Creates the first data key if there is none, and the master key if that is missing too.
pub(crate) async fn ensure_data_key(tx: &mut Tx, now: Timestamp) -> std::result::Result<(), StartError> {
    if !data_key_rows(tx).await?.is_empty() {
        return Ok(());
    }
    let source = tx.sealer.source.clone();
    let masters = match source.load()? {
        Some(masters) => masters,
        None => source.create()?,
    };
    insert_data_key(tx, &masters[0], now).await?;
    Ok(())
}

pub(crate) async fn insert_data_key(tx: &mut Tx, master: &Key, now: Timestamp) -> Result<i64> {
    let wrapped = encrypt(master, &*Key::new(random::bytes()), WRAP_CONTEXT)?;
    fetch_scalar!(
        tx,
        i64,
        "INSERT INTO data_keys (wrapped, is_current, created_at) VALUES ($1, TRUE, $2) RETURNING id",
        wrapped,
        now.as_microsecond()
    )
}
