//! The credentials of a destination.

use crate::secret::SecretChange;

/// Changes to the two secrets that a destination can have.
#[derive(Debug, Clone)]
pub struct Keys {
    /// The secret part of the identity: the access key of a bucket.
    pub access_key: SecretChange,
    /// The proof of identity: a secret key or a password.
    pub secret_key: SecretChange,
}

impl Keys {
    /// For a destination that needs none.
    pub const NONE: Self = Self { access_key: SecretChange::Clear, secret_key: SecretChange::Clear };

    pub fn has_new(&self) -> bool {
        self.access_key.set().or(self.secret_key.set()).is_some()
    }
}
