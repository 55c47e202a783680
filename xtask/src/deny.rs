//! Checks dependencies against deny.toml: licences, banned crates, sources and versions. `cargo deny` reads the same
//! file but is not required here (docs/decisions/0023).

use std::collections::BTreeSet;

use serde_json::Value;

use crate::commands::{cargo, output, root};

fn rules() -> Value {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    basic_toml::from_str(&text).unwrap()
}

fn texts(value: &Value) -> BTreeSet<&str> {
    value.as_array().unwrap().iter().map(|item| item.as_str().unwrap()).collect()
}

/// Every crate that is compiled for one of the targets, with its licence; build and test dependencies included.
fn compiled(rules: &Value) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for target in texts(&rules["graph"]["targets"]) {
        let tree = ["tree", "--workspace", "--locked", "--prefix", "none", "--edges", "normal,build,dev"];
        let printed = output(cargo(&tree).args(["--format", "{p}\t{l}", "--target", target])).unwrap();
        for line in printed.lines().filter(|line| !line.is_empty()) {
            let (package, licence) = line.split_once('\t').unwrap();
            let name = package.split(' ').next().unwrap();
            found.insert((name.to_owned(), licence.trim_end_matches("(*)").trim().to_owned()));
        }
    }
    assert!(found.len() > 100, "only {} crates were found", found.len());
    found
}

/// Whether an SPDX expression can be satisfied with allowed licences alone. Some crates write `/` for `OR`.
fn is_met(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let is_met = either(&mut rest, allowed);
    is_met && rest.is_empty()
}

fn either(words: &mut &[&str], allowed: &BTreeSet<&str>) -> bool {
    let mut is_met = both(words, allowed);
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        is_met |= both(words, allowed);
    }
    is_met
}

fn both(words: &mut &[&str], allowed: &BTreeSet<&str>) -> bool {
    let mut is_met = one(words, allowed);
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        is_met &= one(words, allowed);
    }
    is_met
}

fn one(words: &mut &[&str], allowed: &BTreeSet<&str>) -> bool {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let is_met = either(words, allowed);
            match *words {
                [")", rest @ ..] => *words = rest,
                _ => return false,
            }
            is_met
        }
        [name, "WITH", exception, rest @ ..] => {
            *words = rest;
            allowed.contains(format!("{name} WITH {exception}").as_str())
        }
        [name, rest @ ..] => {
            *words = rest;
            allowed.contains(name)
        }
        [] => false,
    }
}

#[test]
fn expressions_of_licences_are_understood() {
    let allowed = BTreeSet::from(["MIT", "ISC", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]);
    for good in [
        "MIT",
        "GPL-3.0 OR MIT",
        "MIT/GPL-3.0",
        "GPL-3.0 / MIT",
        "MIT AND (ISC OR GPL-3.0)",
        "(GPL-3.0 OR MIT) AND ISC",
        "Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(is_met(good, &allowed), "{good}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "MIT AND (GPL-3.0 OR AGPL-3.0)", "MIT WITH other", "(MIT", "MIT MIT"]
    {
        assert!(!is_met(bad, &allowed), "{bad}");
    }
}

#[test]
fn every_licence_is_allowed() {
    let rules = rules();
    let allowed = texts(&rules["licenses"]["allow"]);
    let refused: Vec<_> = compiled(&rules).into_iter().filter(|(_, licence)| !is_met(licence, &allowed)).collect();
    assert!(refused.is_empty(), "licences that deny.toml does not allow: {refused:?}");
}

#[test]
fn banned_crates_are_not_compiled() {
    let rules = rules();
    let banned: BTreeSet<&str> =
        rules["bans"]["deny"].as_array().unwrap().iter().map(|ban| ban["name"].as_str().unwrap()).collect();
    let found: Vec<_> = compiled(&rules).into_iter().filter(|(name, _)| banned.contains(name.as_str())).collect();
    assert!(found.is_empty(), "banned by deny.toml: {found:?}");
}

#[test]
fn dependencies_come_from_the_registry_and_have_a_version_requirement() {
    let rules = rules();
    assert_eq!(
        (&rules["sources"]["unknown-registry"], &rules["sources"]["unknown-git"]),
        (&"deny".into(), &"deny".into())
    );
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let sources = lock.lines().filter_map(|line| line.strip_prefix("source = "));
    for source in sources {
        assert_eq!(source, "\"registry+https://github.com/rust-lang/crates.io-index\"");
    }
    assert_eq!(rules["bans"]["wildcards"], "deny");
    let metadata = output(&mut cargo(&["metadata", "--format-version", "1", "--no-deps"])).unwrap();
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    for package in metadata["packages"].as_array().unwrap() {
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_any = dependency["req"] == "*" && dependency["path"].is_null();
            assert!(!is_any, "{} in {} accepts any version", dependency["name"], package["name"]);
        }
    }
}

/// An ignored advisory names its crate in the reason, and is removed together with the crate.
#[test]
fn ignored_advisories_are_about_crates_in_the_lock_file() {
    let rules = rules();
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    for advisory in rules["advisories"]["ignore"].as_array().unwrap() {
        let (id, reason) = (advisory["id"].as_str().unwrap(), advisory["reason"].as_str().unwrap());
        let name = reason.split('`').nth(1).unwrap_or_else(|| panic!("{id}: the reason names no crate"));
        assert!(lock.contains(&format!("name = \"{name}\"\n")), "{id}: {name} is gone");
    }
}
