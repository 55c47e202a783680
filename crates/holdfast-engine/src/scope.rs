//! Which entries of a backup are of interest. A format that can leave out the others does so.

use crate::archive::Choice;

/// Which entries are read; everything by default.
#[derive(Debug, Clone, Default)]
pub struct Scope(Part);

#[derive(Debug, Clone, Default)]
enum Part {
    #[default]
    Everything,
    /// What was chosen, everything below it, and the folders above.
    Chosen(Choice),
    /// A folder, what is in it, and the folders above, by its path.
    Folder(String),
}

impl Scope {
    pub(crate) fn of(choice: &Choice) -> Self {
        Self(if choice.is_everything() { Part::Everything } else { Part::Chosen(choice.clone()) })
    }

    /// What a list of the folder at this path shows.
    pub fn of_folder(path: &str) -> Self {
        Self(Part::Folder(path.to_owned()))
    }

    pub(crate) fn is_everything(&self) -> bool {
        matches!(self.0, Part::Everything)
    }

    /// Whether the entry at this path is of interest.
    pub(crate) fn has(&self, path: &str, is_folder: bool) -> bool {
        match &self.0 {
            Part::Everything => true,
            Part::Chosen(choice) => choice.has(path, is_folder),
            Part::Folder(folder) => {
                let above = path.rsplit_once('/').map_or("", |(above, _)| above);
                path == folder || !path.is_empty() && above == folder || is_folder && is_at_or_above(path, folder)
            }
        }
    }

    /// Whether something in the folder at this path may be of interest.
    pub(crate) fn leads_into(&self, path: &str) -> bool {
        match &self.0 {
            Part::Everything => true,
            Part::Chosen(choice) => choice.has(path, true),
            Part::Folder(folder) => is_at_or_above(path, folder),
        }
    }
}

fn is_at_or_above(path: &str, other: &str) -> bool {
    path.is_empty() || other.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_is_in_scope() {
        let paths =
            [("", true), ("a", true), ("a/b", true), ("a/b/c", false), ("a/bc", false), ("d", true), ("e", false)];
        let found = |scope: &Scope| {
            let paths = paths.iter().filter(|(path, is_folder)| scope.has(path, *is_folder));
            paths.map(|(path, _)| *path).collect::<Vec<_>>()
        };
        let entered = |scope: &Scope| {
            let folders = paths.iter().filter(|(path, is_folder)| *is_folder && scope.leads_into(path));
            folders.map(|(path, _)| *path).collect::<Vec<_>>()
        };
        assert_eq!(found(&Scope::default()).len(), paths.len());
        let below = Scope::of(&Choice::new(&["a/b".to_owned(), "/e/".to_owned()]));
        assert_eq!((found(&below), entered(&below)), (vec!["", "a", "a/b", "a/b/c", "e"], vec!["", "a", "a/b"]));
        let folder = Scope::of_folder("a");
        assert_eq!((found(&folder), entered(&folder)), (vec!["", "a", "a/b", "a/bc"], vec!["", "a"]));
        let root = Scope::of_folder("");
        assert_eq!((found(&root), entered(&root)), (vec!["", "a", "d", "e"], vec![""]));
    }
}
