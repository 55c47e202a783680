//! Plaintext secrets: wiped when dropped, never printed.

use zeroize::Zeroize;

/// A password, key or token in the clear. `Debug` shows nothing of it and there is no `Display`.
#[derive(Clone, Default)]
pub struct Secret(String);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The only way to read the text; search for callers to see where plaintext goes.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[secret]")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// What a request does to a stored secret. Requests that omit it keep it.
#[derive(Debug, Clone, Default)]
pub enum SecretChange {
    #[default]
    Keep,
    Clear,
    Set(Secret),
}

impl SecretChange {
    pub fn set(&self) -> Option<&Secret> {
        match self {
            Self::Set(secret) => Some(secret),
            Self::Keep | Self::Clear => None,
        }
    }

    /// Whether there is a secret after it, if there was one before or not.
    pub fn leaves_one(&self, had_one: bool) -> bool {
        match self {
            Self::Keep => had_one,
            Self::Clear => false,
            Self::Set(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_text() {
        let shown = format!("{:?} {:?}", Secret::new("hunter2"), SecretChange::Set(Secret::new("hunter2")));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
