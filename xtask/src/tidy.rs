//! Checks the architecture and conventions: which crate may depend on which, and what every file must look like.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::commands::{cargo, output, root};
use crate::cycles;

/// Libraries that only some crates may use. The test support may use anything.
const ALLOWED_LIBRARIES: &[(&str, &[&str])] = &[
    ("sqlx", &["holdfast-store"]),
    ("axum", &["holdfast-api", "holdfast-ui", "holdfast"]),
    ("russh", &["holdfast-engine"]),
    ("object_store", &["holdfast-engine"]),
    ("lettre", &["holdfast-notify"]),
];

/// Libraries that the pure domain must not use.
const NOT_IN_CORE: &[&str] = &["serde", "serde_json", "tokio"];

const TESTKIT: &str = "holdfast-testkit";

/// The dependencies of each crate, without its dev-dependencies.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let metadata = output(&mut cargo(&["metadata", "--format-version", "1", "--no-deps"])).unwrap();
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let name = |value: &Value| value["name"].as_str().unwrap().to_owned();
    let of = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|dependency| dependency["kind"] != "dev").map(name).collect()
    };
    packages.iter().map(|package| (name(package), of(package))).collect()
}

/// The table of crates in ARCHITECTURE.md: each crate, and the workspace crates that it may use; `None` for all.
fn allowed() -> BTreeMap<String, Option<Vec<String>>> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |"));
    let crates = rows.filter_map(|row| row.split_once('`').filter(|(name, _)| !name.contains('/')));
    let used = |cell: &str| match cell.trim() {
        "all" | "anything" => None,
        "–" => Some(Vec::new()),
        names => Some(names.split(", ").map(|name| format!("holdfast-{name}")).collect()),
    };
    let row = |(name, rest): (&str, &str)| {
        rest.rsplit_once('|')
            .filter(|_| name == "xtask" || name.starts_with("holdfast"))
            .map(|(_, cell)| (name.to_owned(), used(cell)))
    };
    crates.filter_map(row).collect()
}

#[test]
fn crates_depend_on_each_other_as_planned() {
    let (found, allowed) = (dependencies(), allowed());
    assert_eq!(found.keys().collect::<Vec<_>>(), allowed.keys().collect::<Vec<_>>(), "the table lists every crate");
    for (name, dependencies) in &found {
        let Some(allowed) = &allowed[name] else { continue };
        for ours in dependencies.iter().filter(|dependency| dependency.starts_with("holdfast")) {
            assert!(allowed.contains(ours), "{name} must not use {ours}");
        }
    }
}

#[test]
fn libraries_are_used_only_by_the_crates_that_may_use_them() {
    for (name, dependencies) in dependencies().iter().filter(|(name, _)| *name != TESTKIT) {
        for (library, users) in ALLOWED_LIBRARIES {
            let is_used = dependencies.iter().any(|dependency| dependency == library);
            assert!(!is_used || users.contains(&name.as_str()), "{name} must not use {library}");
        }
    }
    let core = &dependencies()["holdfast-core"];
    assert!(!core.iter().any(|dependency| NOT_IN_CORE.contains(&dependency.as_str())), "{core:?}");
}

fn source_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            source_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_source_file_opens_with_its_purpose() {
    let mut files = Vec::new();
    for folder in ["crates", "xtask"] {
        source_files(&root().join(folder), &mut files);
    }
    assert!(files.len() > 50);
    for path in files {
        assert!(path.file_name().unwrap() != "mod.rs", "{}: name it after its module", path.display());
        let is_part_of_tests =
            path.components().any(|part| part.as_os_str() == "tests") && path.file_name().unwrap() != "main.rs";
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(is_part_of_tests || text.starts_with("//! "), "{} does not start with a `//!` line", path.display());
    }
}

#[test]
fn no_files_need_each_other() {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join("crates")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let lines = cycles::of_crate(&entry.path().join("src"));
        found.extend(lines.into_iter().map(|line| format!("{name}: {line}")));
        let unclear = cycles::ambiguous_types(&entry.path().join("src"));
        found.extend(unclear.into_iter().map(|line| format!("{name}: {line}; rename one of them")));
    }
    assert!(found.is_empty(), "dependency cycles between files:\n{}", found.join("\n"));
}

#[test]
fn both_databases_have_the_same_migrations() {
    let names = |engine: &str| {
        let folder = root().join("crates/holdfast-store/migrations").join(engine);
        let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names("sqlite"), names("postgres"));
}

/// Links between documents point to existing files, and the manual lists every page.
#[test]
fn links_point_to_existing_files() {
    let mut pages = vec![root().join("README.md"), root().join("ARCHITECTURE.md"), root().join("CONTRIBUTING.md")];
    let manual = std::fs::read_dir(root().join("docs")).unwrap().flatten().map(|entry| entry.path());
    let manual: Vec<PathBuf> = manual.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).unwrap();
    for page in &manual {
        let name = page.file_name().unwrap().to_str().unwrap();
        assert!(name == "SUMMARY.md" || summary.contains(&format!("({name})")), "SUMMARY.md does not list {name}");
    }
    pages.extend(manual);
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.starts_with('#') {
                continue;
            }
            let path = link.split('#').next().unwrap();
            assert!(page.parent().unwrap().join(path).exists(), "{}: {link} does not exist", page.display());
        }
    }
}

/// The manual lists every action of the audit log.
#[test]
fn the_manual_lists_every_action_of_the_audit_log() {
    let actions = std::fs::read_to_string(root().join("crates/holdfast-core/src/audit.rs")).unwrap();
    let page = std::fs::read_to_string(root().join("docs/api.md")).unwrap();
    let actions: Vec<&str> = actions.split('"').skip(1).step_by(2).collect();
    assert!(actions.len() > 50, "{actions:?}");
    for action in actions {
        assert!(page.contains(&format!("`{action}`")), "docs/api.md does not list {action}");
    }
}

/// Tables and code examples may be wider.
#[test]
fn prose_has_at_most_120_columns() {
    let mut pages: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)).into();
    for folder in ["docs", "docs/decisions"] {
        let files = std::fs::read_dir(root().join(folder)).unwrap().flatten().map(|entry| entry.path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        let mut is_example = false;
        for (number, line) in text.lines().enumerate() {
            is_example ^= line.trim_start().starts_with("```");
            let is_prose = !is_example && !line.starts_with('|') && !line.starts_with("    ");
            let columns = line.chars().count();
            assert!(!is_prose || columns <= 120, "{}:{}: {columns} columns", page.display(), number + 1);
        }
    }
}

/// The files that a name in ARCHITECTURE.md can mean: with the name of a crate before it, from the root of a crate's
/// sources, or in another folder of a crate.
fn files_named(name: &str, known: &[String]) -> Vec<String> {
    let (first, rest) = name.split_once('/').unwrap_or_default();
    let is_meant = |path: &&String| {
        [format!("crates/holdfast-{first}/src/{rest}"), format!("crates/{first}/src/{rest}")].contains(path)
            || path.ends_with(&format!("/src/{name}"))
            || **path == name
            || **path == format!("crates/holdfast-{name}")
    };
    known.iter().filter(is_meant).cloned().collect()
}

#[test]
fn each_file_that_the_architecture_names_exists_and_is_the_only_one() {
    let known: Vec<String> = output(std::process::Command::new("git").args(["ls-files", "*.rs"]).current_dir(root()))
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect();
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let names = text.split('`').skip(1).step_by(2).filter(|name| name.ends_with(".rs") && !name.contains(['<', ' ']));
    let names: Vec<&str> = names.filter(|name| *name != "lib.rs").collect();
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        let found = files_named(name, &known);
        assert_eq!(found.len(), 1, "{name} means {found:?}");
    }
}
