//! The user's SSH key: one per user, created when it is first needed. The private key is never shown.

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD};
use ed25519_dalek::SigningKey;
use holdfast_core::audit::AuditAction;
use holdfast_core::ids::UserId;
use holdfast_core::{Secret, random};
use holdfast_store::{Tx, ssh_keys};
use sha2::{Digest, Sha256};

use crate::{App, AppError, Caller, Result};

const ALGORITHM: &[u8] = b"ssh-ed25519";

/// The public key in the forms that people paste and compare.
#[derive(Debug, Clone)]
pub struct SshKey {
    pub public_key: String,
    pub fingerprint: String,
    pub install_command: String,
}

pub async fn show(app: &App, caller: &Caller) -> Result<SshKey> {
    let known = ssh_keys::find_public(&mut app.store.read().await?, caller.user).await?;
    if let Some(public) = known {
        return Ok(describe(&public));
    }
    let mut tx = app.store.begin().await?;
    let kept = make(app, &mut tx, caller.user).await?;
    app.audit(&mut tx, caller, AuditAction::SshKeyCreated, "").await?;
    tx.commit().await?;
    Ok(describe(&kept))
}

/// The private key, for the engine only; created if there is none yet.
pub async fn private(app: &App, user: UserId) -> Result<Secret> {
    let known = ssh_keys::find_private(&mut app.store.read().await?, user).await?;
    if let Some(known) = known {
        return Ok(known);
    }
    let mut tx = app.store.begin().await?;
    make(app, &mut tx, user).await?;
    let kept = ssh_keys::find_private(&mut tx, user).await?;
    tx.commit().await?;
    kept.ok_or_else(|| AppError::Internal("the new SSH key is gone".to_owned()))
}

/// Creates a key pair and returns the public key that is stored: of two concurrent first requests, only one's is.
async fn make(app: &App, tx: &mut Tx, user: UserId) -> Result<Vec<u8>> {
    let seed = random::bytes::<32>();
    let public = SigningKey::from_bytes(&seed).verifying_key().to_bytes();
    let private = Secret::new(BASE64_STANDARD.encode(seed));
    ssh_keys::insert(tx, user, &public, &private, app.now()).await?;
    let kept = ssh_keys::find_public(tx, user).await?;
    kept.ok_or_else(|| AppError::Internal("the new SSH key is gone".to_owned()))
}

fn describe(public: &[u8]) -> SshKey {
    let blob = [field(ALGORITHM), field(public)].concat();
    let public_key = format!("ssh-ed25519 {} holdfast", BASE64_STANDARD.encode(&blob));
    let fingerprint = format!("SHA256:{}", BASE64_STANDARD_NO_PAD.encode(Sha256::digest(&blob)));
    let install_command = format!(
        "mkdir -p ~/.ssh && chmod 700 ~/.ssh && echo '{public_key}' >> ~/.ssh/authorized_keys && chmod 600 \
         ~/.ssh/authorized_keys"
    );
    SshKey { public_key, fingerprint, install_command }
}

/// A value in the SSH wire format: its length in four bytes, then the value itself.
fn field(bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("a key is shorter than 4 GiB");
    [&length.to_be_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts come from OpenSSL (public half of this seed) and `ssh-keygen -l`.
    #[test]
    fn the_public_key_and_its_fingerprint_are_in_openssh_form() {
        let public = SigningKey::from_bytes(&[7; 32]).verifying_key().to_bytes();
        let key = describe(&public);
        assert_eq!(
            key.public_key,
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOpKbGPinFIKvvVQexMuxfmVR3auvr57kkIe6mkURtIs holdfast"
        );
        assert_eq!(key.fingerprint, "SHA256:z/fSv0Z0RZS+Lccbc6ZoOWwt/fbj1VFJGSBKQbo4icE");
    }
}
