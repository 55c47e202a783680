//! The closed list of what a token may do.

macro_rules! scopes {
    ($($name:ident = $text:literal, $allows:literal;)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Scope { $($name),* }

        impl Scope {
            pub const ALL: &[Scope] = &[$(Scope::$name),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Scope::$name => $text),* }
            }

            /// What the scope is for, in the words of the API document.
            pub fn allows(self) -> &'static str {
                match self { $(Scope::$name => $allows),* }
            }
        }
    };
}

scopes! {
    ManageTags = "manage-tags", "managing tags";
    ViewBackupDestinations = "view-backup-destinations", "viewing backup destinations";
    CreateBackupDestinations = "create-backup-destinations", "creating backup destinations";
    UpdateBackupDestinations = "update-backup-destinations", "updating backup destinations";
    DeleteBackupDestinations = "delete-backup-destinations", "deleting backup destinations";
    ViewRemoteServers = "view-remote-servers", "viewing remote servers";
    CreateRemoteServers = "create-remote-servers", "creating remote servers";
    UpdateRemoteServers = "update-remote-servers", "updating remote servers";
    DeleteRemoteServers = "delete-remote-servers", "deleting remote servers";
    ViewNotificationStreams = "view-notification-streams", "viewing notification streams";
    CreateNotificationStreams = "create-notification-streams", "creating notification streams";
    UpdateNotificationStreams = "update-notification-streams", "updating notification streams";
    DeleteNotificationStreams = "delete-notification-streams", "deleting notification streams";
    ViewBackupTasks = "view-backup-tasks", "viewing backup tasks";
    CreateBackupTasks = "create-backup-tasks", "creating backup tasks";
    UpdateBackupTasks = "update-backup-tasks", "updating backup tasks";
    DeleteBackupTasks = "delete-backup-tasks", "deleting backup tasks";
    RunBackupTasks = "run-backup-tasks", "running backup tasks";
}

impl Scope {
    pub fn parse(text: &str) -> Option<Scope> {
        Self::ALL.iter().copied().find(|scope| scope.as_str() == text)
    }
}

/// A set of scopes, stored as space-separated text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScopeSet(u32);

impl ScopeSet {
    pub fn all() -> Self {
        Scope::ALL.iter().copied().collect()
    }

    pub fn contains(self, scope: Scope) -> bool {
        self.0 & Self::bit(scope) != 0
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.iter().copied().filter(move |scope| self.contains(*scope))
    }

    pub fn to_text(self) -> String {
        self.iter().map(Scope::as_str).collect::<Vec<_>>().join(" ")
    }

    /// Unknown words are ignored: a scope that a later version adds must not grant anything here.
    pub fn from_text(text: &str) -> Self {
        text.split_whitespace().filter_map(Scope::parse).collect()
    }

    fn bit(scope: Scope) -> u32 {
        1 << scope as u32
    }
}

impl FromIterator<Scope> for ScopeSet {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        Self(scopes.into_iter().fold(0, |bits, scope| bits | Self::bit(scope)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_eighteen_and_each_reads_back() {
        assert_eq!(Scope::ALL.len(), 18);
        for scope in Scope::ALL {
            assert_eq!(Scope::parse(scope.as_str()), Some(*scope));
        }
        assert_eq!(ScopeSet::from_text(&ScopeSet::all().to_text()), ScopeSet::all());
    }

    #[test]
    fn a_set_holds_what_was_put_in_and_nothing_else() {
        let set = ScopeSet::from_text("run-backup-tasks manage-tags no-such-scope");
        assert!(set.contains(Scope::RunBackupTasks) && set.contains(Scope::ManageTags));
        assert_eq!(set.iter().count(), 2);
    }
}
