//! A message before it has a form. It is kept with the notice, so that it says the same at every try.

use serde::{Deserialize, Serialize};

use crate::summary::Summary;

/// What a notice carries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeContent {
    Message(Message),
    Summary(Box<Summary>),
    Ping(Ping),
}

impl NoticeContent {
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("plain data has a text")
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
    /// Red, green, blue.
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
    /// The same in every copy of the message and at every try, so that a reader can tell copies from news.
    pub event: String,
    pub kind: String,
    pub tone: Tone,
    pub title: String,
    /// The reason, in a person's words.
    pub text: String,
    pub facts: Vec<Fact>,
    /// Where to look further.
    pub link: Option<String>,
    /// When it happened, as its reader's clock showed it.
    pub at: String,
    pub at_micros: i64,
    /// What else happened meanwhile.
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
    /// Of what it tells; empty for a remark.
    pub event: String,
    pub tone: Tone,
    pub title: String,
    pub text: String,
    pub at: String,
}

/// A sign of life to the outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// What is added to the path: `start`, `fail`, or nothing for a success.
    pub suffix: Option<String>,
    pub text: String,
}
