//! What a destination is opened with.

use crate::secret::SecretChange;

/// Changes of the two secrets that a destination can have.
#[derive(Debug, Clone)]
pub struct Keys {
    /// Who asks, where that is secret: the access key of a bucket.
    pub access_key: SecretChange,
    /// What proves it: a secret key, a password.
    pub secret_key: SecretChange,
}

impl Keys {
    /// Of a destination that needs none.
    pub const NONE: Self = Self { access_key: SecretChange::Clear, secret_key: SecretChange::Clear };

    pub fn has_new(&self) -> bool {
        self.access_key.set().or(self.secret_key.set()).is_some()
    }
}
