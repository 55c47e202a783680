//! Translations of the page texts. A language consists of a file in `messages/` and an entry in `FILES`.

use std::sync::LazyLock;

use axum::http::{HeaderMap, header};
use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::{FluentArgs, FluentResource, FluentValue};
use holdfast_app::{AppError, OutageCause};
use holdfast_core::refusal::{Argument, Refusal, Rule};

struct Language {
    code: &'static str,
    /// The name of the language in that language.
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
    // User-provided names are in separate HTML elements, which isolate them. Isolation marks would end up in titles.
    bundle.set_use_isolating(false);
    // Use the valid messages of a file that has errors; a test ensures that there are none.
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

/// A value that can be inserted into a message.
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
    /// The language with this code, otherwise the first one.
    pub(crate) fn of(code: &str) -> Self {
        LANGUAGES.iter().find(|language| language.code == code).map_or_else(Self::default, Self)
    }

    /// The browser's preferred language.
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

    /// A message with one argument.
    pub(crate) fn with(self, key: &str, name: &str, value: impl Arg) -> String {
        self.format(key, Some(&FluentArgs::from_iter([(name, value.arg())])))
    }

    /// A message with two arguments.
    pub(crate) fn with2(self, key: &str, first: &str, a: impl Arg, second: &str, b: impl Arg) -> String {
        self.format(key, Some(&FluentArgs::from_iter([(first, a.arg()), (second, b.arg())])))
    }

    /// A message that may be missing, for keys built from values of other crates, such as failure codes.
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

    /// The error message of a field.
    pub(crate) fn rule(self, rule: &Rule) -> String {
        self.refusal("rule", rule)
    }

    /// Why a use case refused a request.
    pub(crate) fn refused(self, error: &AppError) -> String {
        match error {
            AppError::Conflict(conflict) => self.refusal("conflict", conflict),
            AppError::Missing(missing) => self.refusal("missing", missing),
            AppError::Invalid(errors) => {
                let texts: Vec<String> =
                    errors.iter().flat_map(|(_, rules)| rules).map(|rule| self.rule(rule)).collect();
                texts.join(" ")
            }
            AppError::NotFound(_) => self.say("refused-not-found"),
            AppError::Forbidden(_) | AppError::MissingScope(_) => self.say("refused-forbidden"),
            AppError::TooManyRequests { retry_after_secs, .. } => {
                self.with("refused-too-many", "seconds", i64::try_from(*retry_after_secs).unwrap_or(i64::MAX))
            }
            AppError::DestinationAway(_) => self.say("refused-destination-away"),
            AppError::Unavailable(outage) => self.say(match outage.cause {
                OutageCause::Busy => "problem-unavailable-text",
                OutageCause::DiskFull => "problem-disk-full-text",
                OutageCause::ReadOnly => "problem-read-only-text",
                OutageCause::Damaged => "problem-damaged-text",
                OutageCause::Unreadable => "problem-unreadable-text",
                OutageCause::NoKey => "problem-no-key-text",
            }),
            AppError::Internal(_) => self.say("problem-internal-text"),
            AppError::Unauthenticated => self.say("problem-forbidden"),
        }
    }

    fn refusal(self, family: &str, refusal: &impl Refusal) -> String {
        let value = |argument| match argument {
            Argument::Number(number) => FluentValue::from(number),
            Argument::Text(text) => FluentValue::from(text),
        };
        let arguments = refusal.arguments().into_iter().map(|(name, argument)| (name, value(argument)));
        self.format(&format!("{family}-{}", refusal.code()), Some(&FluentArgs::from_iter(arguments)))
    }
}

/// The key of the message for an action in the audit log.
pub(crate) fn action_key(action: &str) -> String {
    format!("action-{}", action.replace(['.', '_'], "-"))
}

#[cfg(test)]
mod tests {
    use holdfast_core::audit::AuditAction;
    use holdfast_core::destination::{self, DestinationKind};
    use holdfast_core::run::RunKind;
    use holdfast_core::stream;
    use std::collections::BTreeSet;
    use std::path::Path;

    use holdfast_app::refusal::{Conflict, Missing};
    use holdfast_core::refusal::Count;

    use crate::fields::message_of;

    use super::*;

    /// Every text between `marker` and the next quote, in all of the crate's files with this ending.
    fn uses(folder: &Path, ending: &str, markers: &[&str], found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                uses(&path, ending, markers, found);
            } else if path.to_string_lossy().ends_with(ending) {
                // The formatter may put the key on a separate line.
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
    fn every_language_has_all_messages_and_none_is_unused() {
        let english = keys("en");
        for (code, ..) in FILES {
            let own = keys(code);
            assert_eq!(english.difference(&own).collect::<Vec<_>>(), Vec::<&String>::new(), "missing in {code}");
            // English advice on failures comes from the failure codes themselves.
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
        let codes = [
            ("rule", Rule::CODES),
            ("conflict", Conflict::CODES),
            ("missing", Missing::CODES),
            ("destination-type", DestinationKind::WORDS),
            ("kind", RunKind::WORDS),
        ];
        let action_keys = AuditAction::WORDS.iter().map(|word| action_key(word));
        let streams = stream::fields().filter(|field| field.only_if.is_some() || field.name.starts_with(stream::FLAGS));
        used.extend(action_keys.chain(destination::type_fields().chain(streams).map(message_of)));
        for (family, codes) in codes {
            used.extend(codes.iter().map(|code| format!("{family}-{code}")));
        }
        used.retain(|key| key.contains('-') && !key.contains([' ', '{']));
        assert_eq!(used.difference(&english).collect::<Vec<_>>(), Vec::<&String>::new(), "used, but not defined");
        // Keys that are built from a value of the domain.
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
            "notice-",
            "unit-",
            "scope-",
            "deleted-",
            "said-",
            "act-",
            "sign-",
            "problem-",
            "field-",
        ];
        let in_family = |key: &&String| families.iter().any(|family| key.starts_with(family));
        let vain: Vec<_> = english.difference(&used).filter(|key| !in_family(key)).collect();
        assert_eq!(vain, Vec::<&String>::new(), "never used");
    }

    #[test]
    fn languages_are_negotiated_and_refusals_are_translated() {
        let headers = |text: &str| HeaderMap::from_iter([(header::ACCEPT_LANGUAGE, text.parse().unwrap())]);
        assert_eq!(Translator::of_browser(&headers("fr-CH, de;q=0.9, en;q=0.8")).code(), "de");
        assert_eq!(Translator::of_browser(&headers("fr")).code(), "en");
        assert_eq!(Translator::of("xx").code(), "en");
        let rule = Rule::MaxChars { max: 255 };
        assert_eq!(Translator::of("en").rule(&rule), "Enter at most 255 characters.");
        assert_eq!(Translator::of("de").rule(&rule), "Geben Sie höchstens 255 Zeichen ein.");
        let in_use = |number| {
            let conflict = Conflict::ServerInUse { tasks: Count { number, noun: "backup task" } };
            Translator::of("en").refused(&AppError::Conflict(conflict))
        };
        assert_eq!(in_use(1), "One task still uses this server. Change or delete it first.");
        assert_eq!(in_use(3), "3 tasks still use this server. Change or delete them first.");
    }
}
