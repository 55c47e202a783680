//! Finds dependency cycles between source files: files in a cycle cannot be understood, moved or tested one at a time.
//!
//! The dependencies of a file are read from the text of its `use` lines and of the paths in its code. A re-export is
//! not a dependency in itself, unless the file also uses the name: a name imported through one counts as a dependency on
//! the file that defines it. If a type has methods in several files, a call of one of them through `self`, or through
//! a variable that is named like the type, is a dependency on its file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The path of a module within its crate; empty for the root.
type Module = Vec<String>;

/// The cycles of one crate, as one line for each file in a cycle that lists which of the others it needs.
pub fn of_crate(source: &Path) -> Vec<String> {
    let mut files = BTreeMap::new();
    read(source, source, &mut files);
    let modules = Modules::new(&files);
    let mut lines = Vec::new();
    for cycle in cycles(&modules) {
        for module in modules.used.keys().filter(|module| cycle.contains(&shown(module))) {
            let needs =
                modules.needs(module).iter().map(shown).filter(|other| cycle.contains(other)).collect::<Vec<_>>();
            lines.push(format!("{} needs {}", shown(module), needs.join(", ")));
        }
    }
    lines
}

fn read(folder: &Path, root: &Path, files: &mut BTreeMap<Module, String>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path: PathBuf = entry.unwrap().path();
        if path.is_dir() {
            read(&path, root, files);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("tests.rs") {
            let name = path.strip_prefix(root).unwrap().with_extension("");
            let mut module: Module = name.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if matches!(&module[..], [only] if only == "lib" || only == "main") {
                module.clear();
            }
            files.insert(module, std::fs::read_to_string(&path).unwrap());
        }
    }
}

struct Modules {
    /// The paths that the code of each module uses.
    used: BTreeMap<Module, Vec<Vec<String>>>,
    /// The names that each module imports or re-exports, with their full paths.
    passed_on: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
    /// The modules whose methods each module calls.
    called: BTreeMap<Module, BTreeSet<Module>>,
}

impl Modules {
    fn new(files: &BTreeMap<Module, String>) -> Self {
        let (mut used, mut passed_on) = (BTreeMap::new(), BTreeMap::new());
        for (module, text) in files {
            let code = code(text);
            let (mut paths, mut names) = (Vec::new(), BTreeMap::new());
            let own = without_public_imports(&code);
            let words = own.lines().filter(|line| !line.contains("mod ")).flat_map(words).collect::<BTreeSet<_>>();
            for (is_public, path) in imports(&code) {
                let is_used = path.last().is_some_and(|last| words.contains(last.as_str()));
                if let Some(last) = path.last() {
                    names.insert(last.clone(), path.clone());
                }
                if !is_public || is_used {
                    paths.push(path);
                }
            }
            let is_child = |name: &String| files.contains_key(&child(module, name));
            paths.extend(paths_in(&own).into_iter().filter(|path| is_relative(&path[0]) || is_child(&path[0])));
            used.insert(module.clone(), paths);
            passed_on.insert(module.clone(), names);
        }
        Self { used, passed_on, called: called(files) }
    }

    /// The module that defines the item a path used in `from` refers to, if it belongs to this crate.
    fn resolve(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let mut module = from.clone();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => (module, rest) = (Module::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|part| part == "super") {
                    module.pop();
                    rest = &rest[1..];
                }
            }
            name if self.used.contains_key(&child(&module, name)) => {}
            _ => return None,
        }
        while let Some((first, others)) = rest.split_first() {
            let below = child(&module, first);
            if !self.used.contains_key(&below) {
                break;
            }
            (module, rest) = (below, others);
        }
        const LONGEST_CHAIN: usize = 8;
        let passed_on = rest.first().and_then(|name| self.passed_on.get(&module)?.get(name));
        match passed_on {
            Some(path) if depth < LONGEST_CHAIN => self.resolve(&module, path, depth + 1),
            Some(_) | None => self.used.contains_key(&module).then_some(module),
        }
    }

    fn needs(&self, module: &Module) -> BTreeSet<Module> {
        let found = self.used[module].iter().filter_map(|path| self.resolve(module, path, 0));
        found.chain(self.called[module].iter().cloned()).filter(|other| other != module).collect()
    }
}

/// The types of a crate that have methods in several files, but not a name of their own: calls of their methods cannot
/// be attributed, so cycles between their files would be missed.
pub fn ambiguous_types(source: &Path) -> Vec<String> {
    let mut files = BTreeMap::new();
    read(source, source, &mut files);
    ambiguous(&files)
}

fn ambiguous(files: &BTreeMap<Module, String>) -> Vec<String> {
    let mut defined: BTreeMap<String, BTreeSet<&Module>> = BTreeMap::new();
    for (module, text) in files {
        types(&code(text)).into_iter().for_each(|name| {
            defined.entry(name).or_default().insert(module);
        });
    }
    let mut found = BTreeSet::new();
    for (module, text) in files {
        for (owner, _) in inherent_blocks(&code(text)) {
            let Some(places) = defined.get(&owner).filter(|places| places.len() > 1) else { continue };
            if !places.contains(module) {
                let places = places.iter().map(|module| shown(module)).collect::<Vec<_>>().join(", ");
                found.insert(format!("{owner} has methods in {}, and is defined in each of {places}", shown(module)));
            }
        }
    }
    found.into_iter().collect()
}

/// The names of the types that a file defines.
fn types(code: &str) -> Vec<String> {
    let name = |line: &str| {
        let line = line.trim_start_matches("pub ").trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
        let name = line.strip_prefix("struct ").or_else(|| line.strip_prefix("enum "))?;
        words(name).next().map(str::to_owned)
    };
    code.lines().filter_map(name).collect()
}

/// The modules whose methods each module calls, for types that have methods in several modules.
fn called(files: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let codes: BTreeMap<&Module, String> = files.iter().map(|(module, text)| (module, code(text))).collect();
    let blocks: BTreeMap<&Module, Vec<(String, String)>> =
        codes.iter().map(|(module, code)| (*module, inherent_blocks(code))).collect();
    let mut definitions: BTreeMap<String, usize> = BTreeMap::new();
    codes.values().flat_map(|code| types(code)).for_each(|name| *definitions.entry(name).or_default() += 1);
    let mut defined: BTreeMap<&str, BTreeMap<&str, &Module>> = BTreeMap::new();
    for (module, blocks) in &blocks {
        // Types of the same name cannot be told apart here.
        for (owner, body) in blocks.iter().filter(|(owner, _)| definitions.get(owner) == Some(&1)) {
            let methods = body.match_indices("fn ").filter_map(|(at, _)| words(&body[at + 3..]).next());
            defined.entry(owner).or_default().extend(methods.map(|method| (method, *module)));
        }
    }
    let mut called = BTreeMap::new();
    for (module, code) in &codes {
        let mut found = BTreeSet::new();
        for (owner, methods) in &defined {
            let own = blocks[module].iter().filter(|(name, _)| name == owner);
            found.extend(own.flat_map(|(_, body)| calls(body, "self", methods)));
            let knows_type = words(code).any(|word| word == *owner);
            for variable in variables(owner).filter(|variable| knows_type || *variable == owner.to_lowercase()) {
                found.extend(calls(code, &variable, methods));
            }
        }
        called.insert((*module).clone(), found);
    }
    called
}

/// What a variable of a type is called: `PostgresSession` is a `postgres_session` or a `session`.
fn variables(owner: &str) -> impl Iterator<Item = String> {
    let mut snake = String::new();
    for letter in owner.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    let last = snake.rsplit('_').next().unwrap_or_default().to_owned();
    BTreeSet::from([snake, last]).into_iter()
}

/// The modules of the methods that are called through `variable`, or through a field of that name.
fn calls(code: &str, variable: &str, methods: &BTreeMap<&str, &Module>) -> Vec<Module> {
    let joined: String = code.split_whitespace().collect::<Vec<_>>().join(" ").replace(" .", ".");
    let call = format!("{variable}.");
    let is_whole = |at: usize| !joined[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let found = joined.match_indices(&call).filter(|(at, _)| is_whole(*at));
    found
        .filter_map(|(at, _)| {
            let rest = &joined[at + call.len()..];
            let method = words(rest).next()?;
            methods.get(method).filter(|_| rest[method.len()..].starts_with(['(', ':']))
        })
        .map(|module| (*module).clone())
        .collect()
}

/// The blocks `impl Type { … }` of a file: the name of the type, and the text of the block.
fn inherent_blocks(code: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for part in format!("\n{code}").split("\nimpl").skip(1) {
        let Some((head, body)) = part.split_once('{').filter(|(head, _)| !head.contains(" for ")) else { continue };
        let head = head.rsplit("> ").next().unwrap_or(head).trim();
        let Some(owner) = words(head).find(|word| !word.is_empty()) else { continue };
        found.push((owner.to_owned(), body.split("\n}").next().unwrap_or(body).to_owned()));
    }
    found
}

fn child(module: &[String], name: &str) -> Module {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

fn is_relative(word: &str) -> bool {
    matches!(word, "crate" | "self" | "super")
}

/// The source text without comments, string literals and the test module at the end.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    let mut code = String::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        let mut parts = line.replace("\\\"", "").replace("'\"'", "");
        if let Some(at) = parts.find(" // ") {
            parts.truncate(at);
        }
        for (number, part) in parts.split('"').enumerate() {
            code.push_str(if number % 2 == 0 { part } else { "\"\"" });
        }
        code.push('\n');
    }
    code
}

/// The imports of a file, one for each imported name: whether it is public, and its path.
fn imports(code: &str) -> Vec<(bool, Vec<String>)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let line = code[..at].rsplit('\n').next().unwrap_or_default().trim();
        // Not the end of a longer word, such as `cause`.
        let is_start = line.is_empty() || line.starts_with("pub") && code[..at].ends_with(' ');
        let Some(end) = code[at..].find(';').filter(|_| is_start) else { continue };
        let tree: String = code[at + 4..at + end].split_whitespace().collect::<Vec<_>>().join(" ");
        found.extend(branches(&tree).into_iter().map(|path| (line.starts_with("pub"), path)));
    }
    found
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_alphanumeric() || c == '_'))
}

fn without_public_imports(code: &str) -> String {
    let mut rest = code;
    let mut kept = String::new();
    while let Some(at) =
        ["pub use ", "pub(crate) use ", "pub(super) use "].iter().filter_map(|word| rest.find(word)).min()
    {
        kept.push_str(&rest[..at]);
        rest = rest[at..].find(';').map_or("", |end| &rest[at + end..]);
    }
    kept + rest
}

/// `a::{b, c::d}` → `a::b`, `a::c::d`.
fn branches(tree: &str) -> Vec<Vec<String>> {
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or(tree).split("::");
        let path: Vec<String> = path.map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect();
        return if path.is_empty() { Vec::new() } else { vec![path] };
    };
    let (head, body) = (&tree[..open], &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())]);
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in body.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&body[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&body[start..]);
    parts.iter().flat_map(|part| branches(&format!("{head}{}", part.trim()))).filter(|path| path.len() > 1).collect()
}

/// Every path `a::b` in the code, except those that begin with `::`.
fn paths_in(code: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for word in code.split(|c: char| !is_word(c)).filter(|word| word.contains("::") && !word.starts_with(':')) {
        found.push(word.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>());
    }
    found.retain(|path| !path.is_empty());
    found
}

fn cycles(modules: &Modules) -> Vec<BTreeSet<String>> {
    let needs: BTreeMap<&Module, BTreeSet<Module>> =
        modules.used.keys().map(|module| (module, modules.needs(module))).collect();
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        needs.keys().map(|start| (*start, reached(&needs, start))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (module, reached) in &reach {
        let cycle: BTreeSet<String> =
            reached.iter().filter(|other| reach[**other].contains(*module)).map(|other| shown(other)).collect();
        if cycle.len() > 1 && !found.contains(&cycle) {
            found.push(cycle);
        }
    }
    found
}

fn reached<'a>(needs: &'a BTreeMap<&'a Module, BTreeSet<Module>>, start: &Module) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<&Module> = needs[start].iter().collect();
    while let Some(module) = waiting.pop() {
        if found.insert(module) {
            waiting.extend(&needs[module]);
        }
    }
    found
}

fn shown(module: &Module) -> String {
    if module.is_empty() { "the root".to_owned() } else { module.join("/") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycles_of(files: &[(&str, &str)]) -> Vec<BTreeSet<String>> {
        let module = |name: &str| name.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let files = files.iter().map(|(name, text)| (module(name), (*text).to_owned())).collect();
        cycles(&Modules::new(&files))
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn cycles_are_found_through_imports_paths_and_reexports() {
        let found = cycles_of(&[
            ("", "mod a; mod b; mod c;\npub use a::A;\n"),
            ("a", "use crate::b::{self, B};\npub struct A;\n"),
            ("b", "// use crate::c::C;\nuse crate::A;\npub struct B;\n"),
            ("c", "fn c() { crate::b::b(); }\n"),
        ]);
        assert_eq!(found, [set(&["a", "b"])], "through the re-export of the root, and not through a comment");
    }

    #[test]
    fn a_parent_that_only_reexports_does_not_depend_on_its_children() {
        let found = cycles_of(&[
            ("", "mod a;\n"),
            ("a", "mod x;\nmod y;\npub use x::X;\n"),
            ("a/x", "use super::y::Y;\npub struct X;\n"),
            ("a/y", "pub struct Y;\n#[cfg(test)]\nmod tests {\n    use super::super::X;\n}\n"),
        ]);
        assert!(found.is_empty(), "{found:?}");
        let found = cycles_of(&[
            ("", "mod a;\n"),
            ("a", "mod x;\nuse x::X;\npub struct Own(X);\n"),
            ("a/x", "pub struct X(Box<super::Own>);\n"),
        ]);
        assert_eq!(found, [set(&["a", "a/x"])]);
        let found = cycles_of(&[
            ("", "mod a;\n"),
            ("a", "mod x;\npub use x::X;\npub struct Own(X);\n"),
            ("a/x", "pub struct X(Box<super::Own>);\n"),
        ]);
        assert_eq!(found, [set(&["a", "a/x"])], "it uses what it re-exports");
    }

    #[test]
    fn cycles_are_found_through_the_methods_of_a_shared_type() {
        let files = |in_a: &str| {
            cycles_of(&[
                ("", "mod a; mod b; mod engine;\n"),
                ("engine", "pub struct Engine;\n"),
                ("a", &format!("use crate::engine::Engine;\nimpl Engine {{\n    fn one(&self) {{ {in_a} }}\n}}\n")),
                ("b", "use crate::engine::Engine;\nimpl Engine {\n    fn two(&self) { self\n        .one(); }\n}\n"),
            ])
        };
        assert!(files("other.two();").is_empty());
        assert_eq!(files("self.two();"), [set(&["a", "b"])]);
        assert_eq!(files("let engine = self; engine.two();"), [set(&["a", "b"])]);
        assert_eq!(files("plan.engine.two();"), [set(&["a", "b"])], "through a field");
    }

    #[test]
    fn a_variable_may_bear_the_last_word_of_its_type() {
        let found = cycles_of(&[
            ("", "mod a; mod b; mod session;\n"),
            ("session", "pub struct OwnSession;\n"),
            (
                "a",
                "use crate::session::OwnSession;\nimpl OwnSession {\n    fn one(&self) {}\n}\n\
                 fn f(session: &OwnSession) { session.two(); }\n",
            ),
            ("b", "use crate::session::OwnSession;\nimpl OwnSession {\n    fn two(&self) { self.one(); }\n}\n"),
        ]);
        assert_eq!(found, [set(&["a", "b"])]);
    }

    #[test]
    fn a_type_with_methods_in_several_files_needs_a_name_of_its_own() {
        let files = |other: &str| {
            let files =
                [("a", "pub struct Session;\n"), ("b", "impl Session {\n    fn one(&self) {}\n}\n"), ("c", other)];
            files.map(|(name, text)| (vec![name.to_owned()], text.to_owned())).into_iter().collect()
        };
        assert!(ambiguous(&files("pub struct Other;\n")).is_empty());
        assert_eq!(
            ambiguous(&files("struct Session;\nimpl Session {\n    fn two(&self) {}\n}\n")),
            ["Session has methods in b, and is defined in each of a, c"]
        );
    }
}
