//! Names of PostgreSQL objects.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The longest name; 63 in servers with the default build settings.
pub(super) const NAME_BYTES: usize = 255;

/// The name of a role, a database or a tablespace: any text that a server allows there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        if name.is_empty() || name.len() > NAME_BYTES || name.contains('\0') {
            return Err("a name is empty, too long or has a zero byte".to_owned());
        }
        Ok(Self(name))
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&holdfast_core::backup::name_text(self.0.as_bytes()))
    }
}
