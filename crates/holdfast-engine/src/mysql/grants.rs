//! The rights of an account as servers report them: the lines of `SHOW GRANTS`, including those of roles and of
//! `PUBLIC`.

use std::collections::BTreeMap;

use super::quotes::outside_quotes;
use super::{name_length, unescaped};

/// How many grants to databases are examined: the lines come from the server, and each is compared with each name. An
/// account with more is treated as if it had fewer rights.
const MOST: usize = 1000;

/// One line of `SHOW GRANTS`.
pub(crate) struct Grant {
    line: Vec<u8>,
    /// Where the rights end, where the place begins and ends.
    ends: (usize, usize, usize),
}

impl Grant {
    /// `None` for the grant of a role, and for anything that is not a grant.
    pub fn parse(line: &[u8]) -> Option<Self> {
        const GRANT: &[u8] = b"GRANT ";
        const ON: &[u8] = b" ON ";
        let line = unescaped(line);
        let rest = line.strip_prefix(GRANT)?;
        let on = GRANT.len() + outside_quotes(rest, |rest| rest.starts_with(ON))?;
        let place = on + ON.len();
        let end = place + outside_quotes(&line[place..], |rest| rest.starts_with(b" TO "))?;
        Some(Self { line, ends: (on, place, end) })
    }

    pub fn place(&self) -> &[u8] {
        &self.line[self.ends.1..self.ends.2]
    }

    /// A role, `PUBLIC`, or the name of the account itself.
    fn to(&self) -> &[u8] {
        let to = &self.line[self.ends.2 + b" TO ".len()..];
        &to[..name_length(to).unwrap_or(to.len())]
    }

    /// Whether this is about a table, and not about a database, a routine or everything.
    pub fn is_of_table(&self) -> bool {
        let place = self.place();
        !place.ends_with(b".*") && outside_quotes(place, |rest| rest.starts_with(b" ")).is_none()
    }

    /// The rights, some of them with columns in brackets.
    pub fn rights(&self) -> Vec<&[u8]> {
        let mut what = &self.line[b"GRANT ".len()..self.ends.0];
        let mut rights = Vec::new();
        loop {
            let bracket = outside_quotes(what, |rest| rest.starts_with(b" ("));
            let comma = outside_quotes(what, |rest| rest.starts_with(b", "));
            let end = match (bracket, comma) {
                (Some(open), Some(comma)) if open < comma => {
                    let close = outside_quotes(&what[open..], |rest| rest.starts_with(b")"));
                    close.map(|close| open + close + 1).filter(|end| *end < what.len())
                }
                (_, comma) => comma,
            };
            let Some(end) = end else {
                rights.push(what);
                return rights;
            };
            rights.push(&what[..end]);
            what = what[end..].strip_prefix(b", ").unwrap_or_default();
        }
    }

    fn has(&self, wanted: &[&str]) -> bool {
        let is_wanted = |right: &&[u8]| wanted.iter().any(|wanted| wanted.as_bytes() == *right);
        self.rights().iter().any(|right| *right == b"ALL PRIVILEGES" || is_wanted(right))
    }

    /// The databases that this is about.
    fn pattern(&self) -> Option<Pattern> {
        let name = self.place().strip_suffix(b".*")?;
        let inner = std::str::from_utf8(name.strip_prefix(b"`")?.strip_suffix(b"`")?).ok()?;
        Some(Pattern::parse(&inner.replace("``", "`")))
    }
}

/// A part of the name of a database.
#[derive(PartialEq)]
enum Part {
    Character(char),
    AnyCharacter,
    Anything,
}

/// The name of a database in which `_` matches any character, `%` any number of them, and a backslash escapes the
/// character that follows.
struct Pattern(Vec<Part>);

impl Pattern {
    fn parse(text: &str) -> Self {
        let (mut characters, mut parts) = (text.chars(), Vec::new());
        while let Some(character) = characters.next() {
            parts.push(match character {
                '_' => Part::AnyCharacter,
                '%' => Part::Anything,
                '\\' => Part::Character(characters.next().unwrap_or('\\')),
                _ => Part::Character(character),
            });
        }
        Self(parts)
    }

    fn is_like(&self, name: &str) -> bool {
        // `ends[n]` tells whether the parts so far can match the first n characters of the name.
        let name: Vec<char> = name.chars().collect();
        let mut ends = vec![false; name.len() + 1];
        ends[0] = true;
        for part in &self.0 {
            if *part == Part::Anything {
                let first = ends.iter().position(|is_end| *is_end).unwrap_or(ends.len());
                ends[first..].fill(true);
                continue;
            }
            for length in (0..name.len()).rev() {
                let is_same = *part == Part::AnyCharacter || *part == Part::Character(name[length]);
                ends[length + 1] = ends[length] && is_same;
            }
            ends[0] = false;
        }
        ends[name.len()]
    }

    /// The position of the first wildcard. Of several matching patterns, a server uses the one in which it comes last.
    fn exact(&self) -> usize {
        self.0.iter().position(|part| !matches!(part, Part::Character(_))).unwrap_or(usize::MAX)
    }
}

/// Of the hosts of accounts with the same name, the one that a server uses for a user from this host.
pub(crate) fn closest_host<'a>(hosts: &'a [String], host: &str) -> Option<&'a str> {
    let host = host.to_lowercase();
    let patterns = hosts.iter().map(|known| (known.as_str(), Pattern::parse(&known.to_lowercase())));
    patterns
        .filter(|(_, pattern)| pattern.is_like(&host))
        .max_by_key(|(_, pattern)| pattern.exact())
        .map(|(known, _)| known)
}

/// All rights of an account.
pub(crate) struct Grants {
    all: Vec<Grant>,
    /// The grants to databases, by their index in `all`.
    databases: Vec<(usize, Pattern)>,
}

impl Grants {
    pub fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let all: Vec<Grant> = lines.filter_map(Grant::parse).collect();
        let patterns = all.iter().enumerate().filter_map(|(at, grant)| Some((at, grant.pattern()?)));
        let databases = patterns.take(MOST).collect();
        Self { all, databases }
    }

    /// Whether the account has one of these rights to everything.
    pub fn are_everywhere(&self, wanted: &[&str]) -> bool {
        self.all.iter().any(|grant| grant.place() == b"*.*" && grant.has(wanted))
    }

    /// Whether the account has one of these rights to a whole database. If the account, or one role, has grants to it
    /// under several patterns, only the closest pattern counts.
    pub fn are_within(&self, database: &str, wanted: &[&str]) -> bool {
        let mut closest: BTreeMap<&[u8], (usize, &Grant)> = BTreeMap::new();
        for (at, pattern) in self.databases.iter().filter(|(_, pattern)| pattern.is_like(database)) {
            let (grant, exact) = (&self.all[*at], pattern.exact());
            let found = closest.entry(grant.to()).or_insert((exact, grant));
            if exact > found.0 {
                *found = (exact, grant);
            }
        }
        self.are_everywhere(wanted) || closest.values().any(|(_, grant)| grant.has(wanted))
    }

    /// Whether the account has one of these rights to a table, or to its whole database.
    pub fn are_of_table(&self, database: &str, table: &str, wanted: &[&str]) -> bool {
        let place = format!("{}.{}", super::quoted(database), super::quoted(table));
        let is_there = |grant: &Grant| grant.place() == place.as_bytes() && grant.has(wanted);
        self.are_within(database, wanted) || self.all.iter().any(is_there)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(lines: &[&str]) -> Grants {
        Grants::parse(lines.iter().map(|line| line.as_bytes()))
    }

    #[test]
    fn rights_count_where_they_were_given() {
        let found = grants(&[
            "GRANT USAGE ON *.* TO `u`@`%` IDENTIFIED BY PASSWORD '*1 ON x'",
            "GRANT SELECT, TRIGGER ON `shop`.* TO `u`@`%`",
            "GRANT SELECT (`TRIGGER, EXECUTE`) ON `other`.`t` TO `u`@`%`",
            "GRANT SELECT ON `mysql`.`proc` TO `r`",
            "GRANT `r` TO `u`@`%`",
        ]);
        assert!(found.are_within("shop", &["TRIGGER"]));
        assert!(!found.are_within("shopping", &["TRIGGER"]));
        assert!(!found.are_within("shop", &["EXECUTE"]));
        assert!(!found.are_within("other", &["TRIGGER", "EXECUTE", "SELECT"]));
        assert!(!found.are_everywhere(&["SELECT"]));
        assert!(found.are_of_table("mysql", "proc", &["SELECT"]));
        assert!(!found.are_of_table("mysql", "event", &["SELECT"]));
        assert!(grants(&["GRANT ALL PRIVILEGES ON *.* TO `r`"]).are_within("a", &["TRIGGER"]));
    }

    #[test]
    fn patterns_of_names_are_read_as_the_server_reads_them() {
        // The client doubles backslashes.
        for (pattern, name, is_like) in [
            ("a\\\\_b", "a_b", true),
            ("a\\\\_b", "axb", false),
            ("a_b", "axb", true),
            ("a%", "abc", true),
            ("a%c%", "abcd", true),
            ("a%c", "abcd", false),
            ("x``y", "x`y", true),
            ("A", "a", false),
            ("ü_", "üö", true),
        ] {
            let found = grants(&[&format!("GRANT SELECT ON `{pattern}`.* TO `u`@`%`")]);
            assert_eq!(found.are_within(name, &["SELECT"]), is_like, "{pattern} {name}");
        }
    }

    #[test]
    fn an_account_is_found_by_the_host_that_fits_best() {
        let hosts = ["%", "10.1.%", "LOCALHOST", "10.1.2._"].map(str::to_owned);
        for (host, found) in
            [("localhost", "LOCALHOST"), ("10.1.2.3", "10.1.2._"), ("10.1.9.9", "10.1.%"), ("web.example.org", "%")]
        {
            assert_eq!(closest_host(&hosts, host), Some(found), "{host}");
        }
        assert_eq!(closest_host(&hosts[1..], "web.example.org"), None);
    }

    #[test]
    fn the_closest_pattern_counts_alone() {
        let found = grants(&["GRANT TRIGGER ON `a%`.* TO `u`@`%`", "GRANT SELECT ON `ab`.* TO `u`@`%`"]);
        assert!(!found.are_within("ab", &["TRIGGER"]));
        assert!(found.are_within("ac", &["TRIGGER"]));
        let by_role = grants(&["GRANT TRIGGER ON `a%`.* TO `r`", "GRANT SELECT ON `ab`.* TO `u`@`%`"]);
        assert!(by_role.are_within("ab", &["TRIGGER"]));
    }
}
