//! A message before it is formatted for a channel. It is stored with the notice, so that it is the same at every
//! attempt.

use serde::{Deserialize, Serialize};

use crate::summary::Summary;

/// The content of a notice.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeContent {
    Message(Message),
    Summary(Box<Summary>),
    Ping(Ping),
}

impl NoticeContent {
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("plain data can be serialised")
    }

    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    Good,
    Bad,
    Warning,
    Note,
}

impl Tone {
    /// As `0xRRGGBB`.
    pub(crate) fn colour(self) -> u32 {
        match self {
            Self::Good => 0x1f_8a_4c,
            Self::Bad => 0xc0_36_2c,
            Self::Warning => 0xb7_79_1f,
            Self::Note => 0x3b_6e_a5,
        }
    }

    pub(crate) fn sign(self) -> &'static str {
        match self {
            Self::Good => "✓",
            Self::Bad => "✗",
            Self::Warning => "!",
            Self::Note => "·",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The same in every copy of the message and at every attempt, so that a reader can recognise duplicates.
    pub event: String,
    pub kind: String,
    pub tone: Tone,
    pub title: String,
    /// What happened and why, in plain words.
    pub text: String,
    pub facts: Vec<Fact>,
    /// Where to find out more.
    pub link: Option<String>,
    /// When it happened, in the reader's time zone.
    pub at: String,
    pub at_micros: i64,
    /// The notices that a digest lists.
    #[serde(default)]
    pub items: Vec<Item>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    pub name: String,
    pub value: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// The id of the event it reports; empty for a remark.
    pub event: String,
    pub tone: Tone,
    pub title: String,
    pub text: String,
    pub at: String,
}

/// A ping for a heartbeat URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// What is appended to the path: `start`, `fail`, or nothing for a success.
    pub suffix: Option<String>,
    pub text: String,
}
