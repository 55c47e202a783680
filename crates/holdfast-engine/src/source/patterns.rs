//! Which files a task copies: a folder, and the patterns of what is excluded from it.

use holdfast_core::source::FilesSource;

/// Folders below `/` whose files the kernel makes up; nobody wants those restored.
const VIRTUAL: &[&str] = &["proc", "sys", "dev", "run"];

/// A pattern without a slash is a name at any level; one with a slash is a path, relative to the source or absolute.
pub(crate) fn patterns(source: &FilesSource) -> Vec<Pattern> {
    // Tars differ in how they treat redundant slashes and dots.
    let elements = |text: &str| -> Vec<String> {
        text.split('/').filter(|element| !matches!(*element, "" | ".")).map(str::to_owned).collect()
    };
    let root = elements(&source.path);
    let mut patterns: Vec<Pattern> = source
        .excluded
        .iter()
        .flat_map(|text| {
            let all = elements(text);
            let below = all.strip_prefix(root.as_slice()).filter(|rest| text.starts_with('/') && !rest.is_empty());
            match text.trim_end_matches('/') {
                name if !name.contains('/') => without_source(name).into_iter().map(Pattern::Name).collect(),
                _ => vec![Pattern::Path(below.unwrap_or(&all).join("/"))],
            }
        })
        .collect();
    let literal: Vec<Pattern> = patterns.iter().filter_map(Pattern::literal).collect();
    patterns.extend(literal);
    if root.is_empty() {
        patterns.extend(VIRTUAL.iter().map(|name| Pattern::Path((*name).to_owned())));
    }
    patterns.retain(|pattern| !pattern.text().is_empty());
    patterns
}

/// Rewrites a name pattern as one or more that match the same names except `.`, which is the source itself to tar.
fn without_source(pattern: &str) -> Vec<String> {
    let (mut single, mut stars, mut rest) = (Vec::new(), (false, false), pattern);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            // A `]` right after the `[` is one of the characters of the set.
            '[' => rest.char_indices().skip(2).find(|(_, c)| *c == ']').map_or(1, |(at, _)| at + 1),
            _ => first.len_utf8(),
        };
        let (element, later) = rest.split_at(length);
        rest = later;
        match element {
            "*" if single.is_empty() => stars.0 = true,
            "*" => stars.1 = true,
            _ => single.push(element),
        }
    }
    let others = |class: &str| match class {
        "?" => Some("[!.]".to_owned()),
        "." | "\\." => None,
        _ => class.strip_prefix("[!").or_else(|| class.strip_prefix("[^")).map(|rest| format!("[!.{rest}")),
    };
    let is_source = |element: &str| {
        let negated = element.strip_prefix("[!").or_else(|| element.strip_prefix("[^"));
        let is_class = element.starts_with('[') && element.len() > 1;
        matches!(element, "?" | "." | "\\.")
            || negated.map_or_else(|| is_class && element.contains('.'), |inner| !inner.contains('.'))
    };
    let star = |is_there: bool| if is_there { "*" } else { "" };
    match single[..] {
        [] if stars.0 => vec!["[!.]*".to_owned(), ".?*".to_owned()],
        [element] if is_source(element) => {
            let longer_after = stars.1.then(|| format!("{}{element}?*", star(stars.0)));
            let longer_before = stars.0.then(|| format!("?*{element}{}", star(stars.1)));
            others(element).into_iter().chain(longer_after).chain(longer_before).collect()
        }
        _ => vec![pattern.to_owned()],
    }
}

/// What is excluded of a listing in which each folder comes right before everything below it.
#[derive(Default)]
pub(crate) struct Exclusion {
    patterns: Vec<Pattern>,
    /// The last excluded folder; everything below it is excluded too.
    left_out: Option<Vec<u8>>,
}

impl Exclusion {
    pub(crate) fn of(source: &FilesSource) -> Self {
        Self::new(patterns(source))
    }

    pub(crate) fn new(patterns: Vec<Pattern>) -> Self {
        Self { patterns, left_out: None }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.patterns.is_empty()
    }

    pub(crate) fn covers(&mut self, path: &[u8]) -> bool {
        let is_below = |folder: &Vec<u8>| path.strip_prefix(&folder[..]).is_some_and(|rest| rest.starts_with(b"/"));
        if self.left_out.as_ref().is_some_and(is_below) {
            return true;
        }
        let is_excluded = !path.is_empty() && is_excluded(&self.patterns, path);
        if is_excluded {
            self.left_out = Some(path.to_owned());
        }
        is_excluded
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pattern {
    Name(String),
    Path(String),
}

impl Pattern {
    /// A name such as `[cache]` is a pattern for other names, but may be meant literally: the same pattern with its
    /// brackets escaped.
    fn literal(&self) -> Option<Self> {
        let text = self.text();
        if !text.contains('[') || text.contains('\\') {
            return None;
        }
        let escaped: String = text
            .chars()
            .flat_map(|c| match c {
                '[' | ']' => vec!['\\', c],
                _ => vec![c],
            })
            .collect();
        Some(match self {
            Self::Name(_) => Self::Name(escaped),
            Self::Path(_) => Self::Path(escaped),
        })
    }

    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Name(text) | Self::Path(text) => text,
        }
    }
}

/// Follows the same rules as for tar: a name at any level, or a path relative to the source.
pub(crate) fn is_excluded(patterns: &[Pattern], path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    patterns.iter().any(|pattern| match pattern {
        Pattern::Name(text) => matches(text.as_bytes(), name),
        Pattern::Path(text) => matches(text.as_bytes(), path),
    })
}

/// Matches shell patterns: `*` and `?` match anything but a slash, `[…]` one of a set. Backtracks to the last star
/// only, which is sufficient and keeps every pattern fast.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        if let Some(width) = match_one(&pattern[p.min(pattern.len())..], text[t]) {
            (p, t) = (p + width, t + 1);
            continue;
        }
        match star {
            Some((after, from)) if text[from] != b'/' => {
                star = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
            _ => return false,
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// The length of the first element of the pattern, if it matches this byte.
fn match_one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => (byte != b'/').then_some(1),
        [b'[', rest @ ..] => match rest.iter().skip(1).position(|end| *end == b']') {
            Some(end) => in_set(&rest[..=end], byte).then_some(end + 3),
            None => (byte == b'[').then_some(1),
        },
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [wanted, ..] => (*wanted == byte).then_some(1),
        [] => None,
    }
}

fn in_set(set: &[u8], byte: u8) -> bool {
    let (is_negated, set) = match set {
        [b'!' | b'^', rest @ ..] => (true, rest),
        set => (false, set),
    };
    let mut at = 0;
    let mut found = false;
    while at < set.len() {
        if at + 2 < set.len() && set[at + 1] == b'-' {
            found |= (set[at]..=set[at + 2]).contains(&byte);
            at += 3;
        } else {
            found |= set[at] == byte;
            at += 1;
        }
    }
    found != is_negated && byte != b'/'
}
