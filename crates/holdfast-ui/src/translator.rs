//! What pages say, in the reader's language. A language is a file in `messages/`, and a line below.

use std::sync::LazyLock;

use axum::http::{HeaderMap, header};
use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentArgs, FluentResource, FluentValue};

struct Language {
    code: &'static str,
    /// As its speakers call it.
    name: &'static str,
    bundle: FluentBundle<FluentResource>,
}

const FILES: &[(&str, &str, &str)] =
    &[("en", "English", include_str!("../messages/en.ftl")), ("de", "Deutsch", include_str!("../messages/de.ftl"))];

static LANGUAGES: LazyLock<Vec<Language>> = LazyLock::new(|| {
    let language =
        |(code, name, text): &(&'static str, &'static str, &str)| Language { code, name, bundle: read(code, text) };
    FILES.iter().map(language).collect()
});

fn read(code: &str, text: &str) -> FluentBundle<FluentResource> {
    let mut bundle = FluentBundle::new_concurrent(vec![code.parse().unwrap_or_default()]);
    // Names of people stand in elements of their own, which isolate them; marks within texts would end up in titles.
    bundle.set_use_isolating(false);
    // A file with a mistake still says what it can; a test does not let it come to that.
    let (Ok(resource) | Err((resource, _))) = FluentResource::try_new(text.to_owned());
    bundle.add_resource_overriding(resource);
    bundle
}

/// One language. Cheap to copy.
#[derive(Clone, Copy)]
pub(crate) struct Translator(&'static Language);

impl Default for Translator {
    fn default() -> Self {
        Self(&LANGUAGES[0])
    }
}

/// What can stand in a message.
pub(crate) trait Arg {
    fn arg(&self) -> FluentValue<'static>;
}

impl Arg for str {
    fn arg(&self) -> FluentValue<'static> {
        FluentValue::from(self.to_owned())
    }
}

impl Arg for String {
    fn arg(&self) -> FluentValue<'static> {
        self.as_str().arg()
    }
}

impl Arg for i64 {
    fn arg(&self) -> FluentValue<'static> {
        FluentValue::from(*self)
    }
}

impl Arg for usize {
    fn arg(&self) -> FluentValue<'static> {
        FluentValue::from(*self)
    }
}

impl<T: Arg + ?Sized> Arg for &T {
    fn arg(&self) -> FluentValue<'static> {
        (**self).arg()
    }
}

impl Translator {
    /// The language of this code, else the first one.
    pub(crate) fn of(code: &str) -> Self {
        LANGUAGES.iter().find(|language| language.code == code).map_or_else(Self::default, Self)
    }

    /// What a browser asks for.
    pub(crate) fn of_browser(headers: &HeaderMap) -> Self {
        let wanted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let codes = wanted.split(',').filter_map(|part| part.trim().split(['-', ';']).next());
        let known = codes.filter_map(|code| LANGUAGES.iter().find(|language| language.code == code));
        known.map(Self).next().unwrap_or_default()
    }

    /// Codes and names of all languages.
    pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
        LANGUAGES.iter().map(|language| (language.code, language.name))
    }

    pub(crate) fn code(self) -> &'static str {
        self.0.code
    }

    pub(crate) fn say(self, key: &str) -> String {
        self.format(key, None)
    }

    /// A message with one value in it.
    pub(crate) fn with(self, key: &str, name: &str, value: impl Arg) -> String {
        self.format(key, Some(&FluentArgs::from_iter([(name, value.arg())])))
    }

    /// A message with two values in it.
    pub(crate) fn with2(self, key: &str, first: &str, a: impl Arg, second: &str, b: impl Arg) -> String {
        self.format(key, Some(&FluentArgs::from_iter([(first, a.arg()), (second, b.arg())])))
    }

    /// A message that may be missing, for words that others make up, such as codes of failures.
    pub(crate) fn find(self, key: &str) -> Option<String> {
        let has = self.0.bundle.has_message(key);
        has.then(|| self.say(key))
    }

    fn format(self, key: &str, args: Option<&FluentArgs<'_>>) -> String {
        let languages = [self.0, &LANGUAGES[0]];
        for language in languages {
            let Some(pattern) = language.bundle.get_message(key).and_then(|message| message.value()) else { continue };
            return language.bundle.format_pattern(pattern, args, &mut Vec::new()).into_owned();
        }
        key.to_owned()
    }

    /// What a rule said, which it says in the API's English, in this language.
    pub(crate) fn rule(self, text: &str) -> String {
        if self.0.code == LANGUAGES[0].code {
            return text.to_owned();
        }
        for (pattern, key) in RULES {
            if let Some(values) = fit(pattern, text) {
                let mut last = values.into_iter().rev();
                let (value, least) = (last.next().unwrap_or_default(), last.next().unwrap_or_default());
                return self.with2(key, "least", least, "value", value);
            }
        }
        text.to_owned()
    }
}

/// What rules say, with `*` for what differs, and the message that says the same. The last star is its
/// `value`, the one before it the `least`.
const RULES: &[(&str, &str)] = &[
    ("The * field is required.", "rule-required"),
    ("The * field must not be greater than * characters.", "rule-too-long"),
    ("The * field must be at least * characters.", "rule-too-short"),
    ("The * field must be a valid email address.", "rule-email"),
    ("The * field must be a valid URL.", "rule-url"),
    ("The * field must be a valid timezone.", "rule-timezone"),
    ("The * field must be an integer.", "rule-integer"),
    ("The * field must be between * and *.", "rule-between"),
    ("The * field must match the format HH:MM.", "rule-time"),
    ("The * field must be a time like 22:00.", "rule-time"),
    ("The * field must have at least 1 items.", "rule-choose-one"),
    ("The * field format is invalid.", "rule-invalid"),
    ("The selected * is invalid.", "rule-choice"),
    ("The * field must be a valid cron expression of five fields.", "rule-cron"),
    ("The * field must name a time that comes.", "rule-cron-never"),
    ("The quiet hours must not end when they begin.", "rule-quiet-hours"),
    ("The * field must be a valid Pushover user key.", "rule-pushover"),
    ("The provided credentials are incorrect.", "rule-credentials"),
    ("The otp field is incorrect.", "rule-otp"),
    ("The code field is incorrect.", "rule-otp"),
    ("The password is incorrect.", "rule-password"),
    ("The email has already been taken.", "rule-email-taken"),
    ("The email field must be your own address.", "rule-own-email"),
    ("This is not its name.", "rule-name"),
    ("This link has expired or was used before.", "rule-link"),
    ("There is no such page.", "rule-no-page"),
    ("You are not authorized to access this *", "rule-not-yours"),
    ("* not found", "rule-not-there"),
    ("This backup task is already running.", "rule-running"),
    ("This backup task is paused. Resume it first.", "rule-paused"),
    ("This backup task is not running; there is nothing to cancel.", "rule-not-running"),
    ("The removal of old backups is not on hold for this backup task; there is nothing to release.", "rule-not-held"),
    ("This is the only administrator. Make somebody else an administrator first.", "rule-only-admin"),
    ("There must be one administrator at least.", "rule-one-admin"),
    ("This * is still used by * backup tasks. Change or delete them first.", "rule-in-use"),
    ("This * is still used by * backup task. Change or delete them first.", "rule-in-use"),
    (
        "No account here is linked to this one. Sign in with your password, then link it on your account page.",
        "rule-not-linked",
    ),
    ("This sign-in was not begun here, or was open for too long. Try again.", "rule-not-begun"),
    ("The other service did not confirm who you are. Try again.", "rule-not-confirmed"),
    ("The * field must be a valid IP address or host name.", "rule-host"),
    ("The * field must be an absolute path without ...", "rule-absolute"),
    ("The * field must not contain control characters.", "rule-control"),
    ("The * field must not have more than * items.", "rule-too-many"),
    ("This backup destination still holds *. *", "rule-holds"),
    ("This backup task is running. Cancel the run or wait for its end first.", "rule-task-runs"),
    ("This backup is being restored or verified. Cancel that or wait for its end first.", "rule-backup-in-use"),
    ("This backup has been deleted.", "rule-backup-gone"),
    ("This backup is a dump of a database; it has no files to list.", "rule-is-dump"),
    ("There is no such entry in this backup.", "rule-no-entry"),
    ("This page is too far into a folder with that many entries or with names that long. *", "rule-too-far"),
    ("Looking through this backup takes too long. *", "rule-too-long-a-look"),
    ("The destination does not answer, or not as it should. *", "rule-destination-away"),
    ("This run has ended; there is nothing to cancel.", "rule-run-ended"),
    ("Something is running for this account. Cancel it or wait for its end.", "rule-account-busy"),
    ("This account is linked to somebody else here.", "rule-linked-elsewhere"),
    ("Two-factor sign-in is on already. Turn it off first.", "rule-two-factor-on"),
    ("The server has shown another host key since. Look at it again.", "rule-other-key"),
    ("Holdfast is still looking at a server for you. Try again in a moment.", "rule-looking"),
    ("Delete your own account on your account page.", "rule-delete-own"),
    ("Other remote servers are reached through this one. Change them first.", "rule-jump"),
    ("A backup is being restored to this remote server. Wait for its end first.", "rule-restoring"),
    ("Too many requests. Try again in * seconds.", "rule-wait"),
];

/// The parts of `text` at the stars of `pattern`, when it fits.
fn fit<'a>(pattern: &str, text: &'a str) -> Option<Vec<&'a str>> {
    let mut parts = pattern.split('*');
    let mut rest = text.strip_prefix(parts.next()?)?;
    let mut values = Vec::new();
    for part in parts {
        let at = if part.is_empty() { rest.len() } else { rest.find(part)? };
        values.push(&rest[..at]);
        rest = &rest[at + part.len()..];
    }
    rest.is_empty().then_some(values)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Every text between `marker` and the next quote, in all of the crate's files with this ending.
    fn uses(folder: &Path, ending: &str, markers: &[&str], found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                uses(&path, ending, markers, found);
            } else if path.to_string_lossy().ends_with(ending) {
                // The formatter may put the key on a line of its own.
                let text = std::fs::read_to_string(&path).unwrap().lines().map(str::trim).collect::<String>();
                for marker in markers {
                    for part in text.split(marker).skip(1) {
                        found.insert(part.split('"').next().unwrap().to_owned());
                    }
                }
            }
        }
    }

    fn keys(code: &str) -> BTreeSet<String> {
        let (_, _, text) = FILES.iter().find(|(known, ..)| *known == code).unwrap();
        FluentResource::try_new((*text).to_owned()).unwrap_or_else(|(_, errors)| panic!("{code}: {errors:?}"));
        let is_key = |line: &&str| line.starts_with(|c: char| c.is_ascii_lowercase());
        text.lines().filter(is_key).map(|line| line.split(" =").next().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_language_says_everything_and_nothing_is_said_in_vain() {
        let english = keys("en");
        for (code, ..) in FILES {
            let own = keys(code);
            assert_eq!(english.difference(&own).collect::<Vec<_>>(), Vec::<&String>::new(), "missing in {code}");
            // What to do about a failure is English by itself.
            let extra = own.difference(&english).filter(|key| !key.starts_with("failure-"));
            assert_eq!(extra.collect::<Vec<_>>(), Vec::<&String>::new(), "only in {code}");
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut used = BTreeSet::new();
        let markers = [".say(\"", ".with(\"", ".with2(\""];
        uses(&root.join("templates"), ".html", &markers, &mut used);
        uses(&root.join("src"), ".rs", &markers, &mut used);
        let constants =
            [" LIST: &'static str = \"", " ADD: &'static str = \"", "_MEANS: Option<&'static str> = Some(\""];
        uses(&root.join("src"), ".rs", &constants, &mut used);
        used.extend(RULES.iter().map(|(_, key)| (*key).to_owned()));
        used.retain(|key| key.contains('-') && !key.contains([' ', '{']));
        assert_eq!(used.difference(&english).collect::<Vec<_>>(), Vec::<&String>::new(), "asked for, but not there");
        // Those that are put together from a word of the domain.
        let families = [
            "health-",
            "run-",
            "kind-",
            "failure-",
            "month-",
            "weekday-",
            "trigger-",
            "proof-",
            "connectivity-",
            "reach-",
            "content-",
            "stream-",
            "action-",
            "notice-",
            "unit-",
            "scope-",
            "deleted-",
            "said-",
            "sign-",
            "problem-",
        ];
        let in_family = |key: &&String| families.iter().any(|family| key.starts_with(family));
        let vain: Vec<_> = english.difference(&used).filter(|key| !in_family(key)).collect();
        assert_eq!(vain, Vec::<&String>::new(), "never said");
    }

    #[test]
    fn languages_are_found_and_rules_are_told_in_them() {
        let headers = |text: &str| HeaderMap::from_iter([(header::ACCEPT_LANGUAGE, text.parse().unwrap())]);
        assert_eq!(Translator::of_browser(&headers("fr-CH, de;q=0.9, en;q=0.8")).code(), "de");
        assert_eq!(Translator::of_browser(&headers("fr")).code(), "en");
        assert_eq!(Translator::of("xx").code(), "en");
        let english = "The label field must not be greater than 255 characters.";
        assert_eq!(Translator::of("en").rule(english), english);
        assert!(Translator::of("de").rule(english).contains("255"), "{}", Translator::of("de").rule(english));
        assert_eq!(fit("a * c *.", "a b c d."), Some(vec!["b", "d"]));
        assert_eq!(fit("a *.", "b."), None);
    }
}
