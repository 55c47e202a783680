//! How a task stands, in one word: what every page and every count about tasks goes by.

words! {
    /// From the best to the worst, but for the first three, which say nothing about that.
    Standing {
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

/// What the standing follows from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts {
    pub is_running: bool,
    pub is_paused: bool,
    pub is_overdue: bool,
    /// The last run that came to an end by itself failed, or did not.
    pub has_failed: Option<bool>,
    pub has_warnings: bool,
}

impl Standing {
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

    /// Somebody has to do something about it.
    pub fn needs_somebody(self) -> bool {
        matches!(self, Self::Overdue | Self::Failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_that_is_true_is_what_counts() {
        let fine = Facts { has_failed: Some(false), ..Facts::default() };
        assert_eq!(Standing::of(fine), Standing::Good);
        assert_eq!(Standing::of(Facts::default()), Standing::New);
        assert_eq!(Standing::of(Facts { has_warnings: true, ..fine }), Standing::Warned);
        assert_eq!(Standing::of(Facts { is_overdue: true, ..fine }), Standing::Overdue);
        assert_eq!(Standing::of(Facts { is_overdue: true, ..Facts::default() }), Standing::Overdue);
        let failed = Facts { has_failed: Some(true), is_overdue: true, ..Facts::default() };
        assert_eq!(Standing::of(failed), Standing::Failed);
        assert_eq!(Standing::of(Facts { is_paused: true, ..failed }), Standing::Paused);
        assert_eq!(Standing::of(Facts { is_running: true, ..failed }), Standing::Running);
    }
}
