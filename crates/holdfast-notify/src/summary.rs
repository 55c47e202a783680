//! The weekly summary, for users who want one.

use serde::{Deserialize, Serialize};

use holdfast_core::figures::size;

use crate::text::{clean, counted, growth};

/// The week of one user, with all times already formatted in their time zone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub event: String,
    pub title: String,
    /// `Monday, 3 March 2025 to Sunday, 9 March 2025`.
    pub week: String,
    pub at_micros: i64,
    pub days: Vec<DayLine>,
    pub tasks: Vec<TaskLine>,
    /// Tasks beyond those listed.
    pub more_tasks: i64,
    /// How many tasks need attention, listed or not.
    pub needing: i64,
    pub stored_bytes: i64,
    pub stored_before: i64,
    pub link: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayLine {
    pub name: String,
    pub succeeded: i64,
    pub failed: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLine {
    pub label: String,
    pub succeeded: i64,
    pub failed: i64,
    pub missed: i64,
    /// Bytes of the newest backup; `None` if there is none.
    pub size: Option<i64>,
    pub size_before: Option<i64>,
    /// The oldest and the newest point that can be restored.
    pub oldest: Option<String>,
    pub newest: Option<String>,
    /// What needs attention, if anything does.
    pub attention: Option<String>,
}

impl Summary {
    /// A copy in which what users typed is made harmless.
    pub(crate) fn cleaned(&self) -> Self {
        let mut cleaned = self.clone();
        for task in &mut cleaned.tasks {
            task.label = clean(&task.label, false);
        }
        cleaned
    }

    pub(crate) fn succeeded(&self) -> i64 {
        self.days.iter().map(|day| day.succeeded).sum()
    }

    pub(crate) fn failed(&self) -> i64 {
        self.days.iter().map(|day| day.failed).sum()
    }

    /// For example `97.5 %`; `None` if nothing ran.
    pub(crate) fn rate(&self) -> Option<String> {
        let all = self.succeeded() + self.failed();
        (all > 0).then(|| format!("{:.1} %", self.succeeded() as f64 * 100.0 / all as f64))
    }

    /// The week in one sentence.
    pub(crate) fn headline(&self) -> String {
        let ran = match self.rate() {
            Some(rate) => format!("{} succeeded, {rate} of all.", counted(self.succeeded(), "run", "runs")),
            None => "Nothing ran.".to_owned(),
        };
        let wrong = match self.needing {
            0 => "Nothing needs your attention.".to_owned(),
            wrong => format!("{} your attention.", counted(wrong, "task needs", "tasks need")),
        };
        format!("{ran} {wrong}")
    }

    pub(crate) fn stored(&self) -> String {
        format!("{} are stored, {} since the week began.", size(self.stored_bytes), self.grown())
    }

    fn grown(&self) -> String {
        growth(self.stored_bytes - self.stored_before)
    }
}

impl TaskLine {
    pub(crate) fn results(&self) -> String {
        let mut parts = vec![format!("{} successful", self.succeeded)];
        if self.failed > 0 {
            parts.push(format!("{} failed", self.failed));
        }
        if self.missed > 0 {
            parts.push(format!("{} missed", self.missed));
        }
        parts.join(", ")
    }

    pub(crate) fn sizes(&self) -> String {
        match (self.size, self.size_before) {
            (Some(now), Some(before)) => format!("{} ({})", size(now), growth(now - before)),
            (Some(now), None) => size(now),
            (None, _) => "–".to_owned(),
        }
    }

    pub(crate) fn restorable(&self) -> String {
        match (&self.oldest, &self.newest) {
            (Some(oldest), Some(newest)) if oldest != newest => format!("{oldest} to {newest}"),
            (Some(only), _) => only.clone(),
            (None, _) => "nothing".to_owned(),
        }
    }
}
