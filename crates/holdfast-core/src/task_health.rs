//! The health of a task in one word, which every page and every count of tasks is based on.

string_enum! {
    /// From best to worst, except for the first three, which are neither.
    TaskHealth {
        Running = "running",
        Paused = "paused",
        /// Has not run yet.
        New = "new",
        Good = "good",
        /// Succeeded, with something to look at.
        Warned = "warned",
        /// No success for too long.
        Overdue = "overdue",
        Failed = "failed",
    }
}

/// What the health is derived from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    pub is_running: bool,
    pub is_paused: bool,
    pub is_overdue: bool,
    /// Whether the last run that ended by itself failed; `None` if there is none.
    pub has_failed: Option<bool>,
    pub has_warnings: bool,
}

impl TaskHealth {
    pub fn of(facts: Facts) -> Self {
        match facts {
            Facts { is_running: true, .. } => Self::Running,
            Facts { is_paused: true, .. } => Self::Paused,
            Facts { has_failed: Some(true), .. } => Self::Failed,
            Facts { is_overdue: true, .. } => Self::Overdue,
            Facts { has_failed: None, .. } => Self::New,
            Facts { has_warnings: true, .. } => Self::Warned,
            Facts { has_failed: Some(false), .. } => Self::Good,
        }
    }

    /// Whether somebody has to do something about it.
    pub fn needs_attention(self) -> bool {
        matches!(self, Self::Overdue | Self::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_fact_determines_the_health() {
        let fine = Facts { has_failed: Some(false), ..Facts::default() };
        assert_eq!(TaskHealth::of(fine), TaskHealth::Good);
        assert_eq!(TaskHealth::of(Facts::default()), TaskHealth::New);
        assert_eq!(TaskHealth::of(Facts { has_warnings: true, ..fine }), TaskHealth::Warned);
        assert_eq!(TaskHealth::of(Facts { is_overdue: true, ..fine }), TaskHealth::Overdue);
        assert_eq!(TaskHealth::of(Facts { is_overdue: true, ..Facts::default() }), TaskHealth::Overdue);
        let failed = Facts { has_failed: Some(true), is_overdue: true, ..Facts::default() };
        assert_eq!(TaskHealth::of(failed), TaskHealth::Failed);
        assert_eq!(TaskHealth::of(Facts { is_paused: true, ..failed }), TaskHealth::Paused);
        assert_eq!(TaskHealth::of(Facts { is_running: true, ..failed }), TaskHealth::Running);
    }
}
