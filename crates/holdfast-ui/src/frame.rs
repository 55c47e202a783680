//! The frame of every page: the navigation, the activity counters in its corner, and the confirmation message.

use crate::cookies::Theme;
use crate::translator::Translator;

/// The part of the console that a page belongs to, for the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Section {
    #[default]
    Elsewhere,
    Overview,
    Tasks,
    Backups,
    Servers,
    Destinations,
    Notifications,
    Account,
    Administration,
}

#[derive(Clone, Default)]
pub(crate) struct Frame {
    pub t: Translator,
    pub csrf: String,
    pub theme: Theme,
    pub place: Section,
    pub name: String,
    pub is_signed_in: bool,
    pub is_admin: bool,
    pub running: i64,
    pub undelivered: i64,
    /// Changes whenever something that pages show live changes. Empty on the response to a form, which the script
    /// cannot reload.
    pub sign: String,
    /// The confirmation message for the action before.
    pub said: Option<String>,
    /// The address of this page, or of the overview on the response to a form.
    pub address: String,
}

/// One link of the navigation.
pub(crate) struct Way {
    pub address: &'static str,
    pub label: String,
    pub is_here: bool,
}

impl Frame {
    /// The frame for a visitor who is not signed in.
    pub(crate) fn visitor(t: Translator, theme: Theme, csrf: String) -> Self {
        Self { t, theme, csrf, ..Self::default() }
    }

    pub(crate) fn ways(&self) -> Vec<Way> {
        let way =
            |place: Section, address: &'static str, label: String| Way { address, label, is_here: self.place == place };
        let t = self.t;
        vec![
            way(Section::Overview, "/", t.say("nav-overview")),
            way(Section::Tasks, "/tasks", t.say("nav-tasks")),
            way(Section::Backups, "/backups", t.say("nav-backups")),
            way(Section::Servers, "/servers", t.say("nav-servers")),
            way(Section::Destinations, "/destinations", t.say("nav-destinations")),
            way(Section::Notifications, "/notifications", t.say("nav-notifications")),
        ]
    }

    /// For a page that must not reload itself.
    pub(crate) fn still(self) -> Self {
        Self { sign: String::new(), ..self }
    }

    pub(crate) fn is_at_account(&self) -> bool {
        self.place == Section::Account
    }

    pub(crate) fn is_at_administration(&self) -> bool {
        self.place == Section::Administration
    }

    /// The initials of the user's first and last name.
    pub(crate) fn initials(&self) -> String {
        let (first, last) = holdfast_core::user::first_and_last_name(&self.name);
        [first, last].iter().filter_map(|word| word.chars().next()).flat_map(char::to_uppercase).collect()
    }

    /// The themes that the user can switch to.
    pub(crate) fn other_themes(&self) -> Vec<(&'static str, String)> {
        let label = |theme: Theme| match theme {
            Theme::System => self.t.say("theme-system"),
            Theme::Light => self.t.say("theme-light"),
            Theme::Dark => self.t.say("theme-dark"),
        };
        Theme::ALL
            .into_iter()
            .filter(|theme| *theme != self.theme)
            .map(|theme| (theme.as_str(), label(theme)))
            .collect()
    }

    pub(crate) fn style(&self) -> &'static str {
        crate::assets::style()
    }

    pub(crate) fn script(&self) -> &'static str {
        crate::assets::script()
    }

    pub(crate) fn icon(&self) -> &'static str {
        crate::assets::icon()
    }
}
