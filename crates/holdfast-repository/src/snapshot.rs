//! Snapshots: a tree, and when, where and of what it was made.

use serde::{Deserialize, Serialize};

use crate::id::Id;
use crate::time::GoTime;
use crate::{RepositoryError, Result};

/// A file below `snapshots/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    pub time: GoTime,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Id>,
    pub tree: Id,
    #[serde(default)]
    pub paths: Vec<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub username: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excludes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The snapshot that this one was made from by changing it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<Id>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program_version: String,
}

impl Snapshot {
    pub fn from_json(json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json)
            .map_err(|error| RepositoryError::damaged(format!("A snapshot of this repository is damaged: {error}.")))
    }
}
