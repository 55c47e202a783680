//! Short untrusted texts: listings of `find`, cron expressions, and the headers that proxies add.

use std::net::IpAddr;

use holdfast_api::ContextSettings;
use holdfast_core::schedule::{Cron, CronError, Frequency, Schedule};
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;

use super::mutate::damage;
use super::rng::Rng;

const PATTERNS: &[&str] = &["*.log", "cache", "a/*", "[a-c]", "[!a]*", "**", "a*b*c*d*e", "?", "[", "\\*", "/srv/tmp"];

/// The first line has the patterns, separated by spaces; the rest is the listing.
pub fn make_listing(rng: &mut Rng) -> Vec<u8> {
    const NAMES: &[&str] =
        &["a", "b.log", "cache", "a/b", "cache/c", "aaaaaaaaaaaaaaaaaaaaaaaaaaaa", "x y", "\u{e4}", "[", ""];
    let patterns: Vec<&str> = (0..rng.below(4)).map(|_| rng.pick(PATTERNS)).collect();
    let mut listing = Vec::new();
    for _ in 0..rng.below(12) {
        let size = if rng.one_in(4) { rng.extreme() } else { rng.below(10_000) as u64 };
        listing.extend(format!("{size} {}", rng.pick(NAMES)).as_bytes());
        if rng.one_in(40) {
            listing.extend(vec![b'n'; 8 * 1024 - 16 + rng.below(32)]);
        }
        listing.push(0);
    }
    if rng.one_in(3) {
        damage(rng, &mut listing, &[b"\0", b" ", b"-1 ", b"sh: find: not found\n", b"/"]);
    }
    [patterns.join(" ").as_bytes(), b"\n", &listing].concat()
}

pub fn run_listing(input: &[u8]) -> bool {
    let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return false };
    let patterns = String::from_utf8_lossy(&input[..end]);
    let patterns: Vec<String> = patterns.split_whitespace().map(str::to_owned).collect();
    holdfast_engine::fuzzing::listing(&patterns, &input[end + 1..], 1 + input.len() % 97)
}

pub fn make_cron(rng: &mut Rng) -> Vec<u8> {
    /// Valid values of each field.
    const FIELDS: [&[&str]; 5] = [
        &["*", "*/5", "0", "59", "1-10/3", "0-59/59", "1,2,3"],
        &["*", "0", "23", "*/6", "1-5"],
        &["*", "1", "29", "30", "31", "L", "15W", "LW", "1W", "1,15", "?"],
        &["*", "2", "12", "JAN-MAR", "*/3", "4,6"],
        &["*", "0", "7", "MON", "mon#2", "FRI#L", "5L", "1#5", "1-5", "?"],
    ];
    const ODD: &[&str] = &["60", "*/0", "5-1", "H", "@daily", "+1", "W", "1W,15W", "99", "", "0-0/0", "L-3"];
    let count = if rng.one_in(20) { rng.below(8) } else { 5 };
    let fields: Vec<&str> =
        (0..count).map(|at| if rng.one_in(20) { rng.pick(ODD) } else { rng.pick(FIELDS[at % 5]) }).collect();
    let mut text = fields.join(rng.pick(&[" ", " ", "  ", "\t"])).into_bytes();
    if rng.one_in(3) {
        damage(rng, &mut text, &[b"*", b"/", b"-", b",", b"#", b"L", b"W", b" ", b"\xc3\xa4", b"@yearly"]);
    }
    text
}

pub fn run_cron(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let now = Timestamp::from_second(1_709_164_800).expect("29 February 2024");
    let cron = match Cron::parse(text, now) {
        Ok(cron) => cron,
        Err(CronError::NeverDue | CronError::Malformed) => return false,
    };
    assert_eq!(Cron::read(cron.as_str()).as_ref(), Some(&cron), "a stored expression is read differently");
    let _said = cron.describe();
    let schedule = Schedule {
        frequency: Frequency::Custom,
        time: None,
        day_of_week: 0,
        day_of_month: 1,
        cron: Some(cron),
        zone: None,
        spread: None,
        window: None,
    };
    let mut last = now;
    for _ in 0..3 {
        let Some(next) = schedule.next_after(last) else { break };
        assert!(next > last, "a slot is not later than the one before");
        let between = Timestamp::from_microsecond((last.as_microsecond() + next.as_microsecond()) / 2);
        let between = between.expect("between two times").max(last);
        assert_eq!(schedule.next_after(between), Some(next), "the next slot depends on the time of the query");
        last = next;
    }
    true
}

const TRUSTED: &[&str] = &["127.0.0.0/8", "10.0.0.0/8", "::1"];

/// The first line is the peer's address, the others are headers: `f` X-Forwarded-For, `p` X-Forwarded-Proto, `h` Host.
pub fn make_forwarded(rng: &mut Rng) -> Vec<u8> {
    const ADDRESSES: &[&str] = &[
        "203.0.113.9",
        "198.51.100.1",
        "10.1.2.3",
        "127.0.0.1",
        "::1",
        "2001:db8::1",
        "::ffff:203.0.113.9",
        "::ffff:10.0.0.1",
        "x",
        "",
        "1.2.3.4:80",
        "[::1]",
        "\u{e4}",
        "unknown",
    ];
    let mut text = format!("{}\n", rng.pick(&ADDRESSES[..8])).into_bytes();
    for _ in 0..rng.below(4) {
        let line = match rng.below(6) {
            0 => format!("p{}\n", rng.pick(&["https", "http", "HTTPS", ""])),
            1 => format!("h{}\n", rng.pick(&["a.example", "a.example:80", "a\"b", "[::1]:1", "a/b"])),
            _ => {
                let chain: Vec<&str> = (0..=rng.below(4)).map(|_| rng.pick(ADDRESSES)).collect();
                format!("f{}\n", chain.join(rng.pick(&[",", ", ", " , "])))
            }
        };
        text.extend(line.as_bytes());
    }
    if rng.one_in(3) {
        damage(rng, &mut text, &[b",", b" ", b"\xff", b"127.0.0.1", b"::"]);
    }
    text
}

/// Only trusted proxies are believed; the chain of addresses is read from the right.
pub fn run_forwarded(input: &[u8]) -> bool {
    let mut lines = input.split(|byte| *byte == b'\n');
    let peer = lines.next().and_then(|line| std::str::from_utf8(line).ok());
    let Some(peer) = peer.and_then(|line| line.parse::<IpAddr>().ok()) else { return false };
    let mut headers = HeaderMap::new();
    let mut chain = Vec::new();
    for line in lines {
        let Some((kind, value)) = line.split_first() else { continue };
        let Ok(header) = HeaderValue::from_bytes(value) else { continue };
        match kind {
            b'f' => {
                chain.extend(value.split(|byte| *byte == b','));
                headers.append("x-forwarded-for", header);
            }
            b'p' => drop(headers.append("x-forwarded-proto", header)),
            _ => drop(headers.append("host", header)),
        }
    }
    let trusted_proxies = TRUSTED.iter().map(|text| text.parse().expect("a network")).collect();
    let settings = ContextSettings { base_url: None, trusted_proxies };
    let is_trusted = |address: IpAddr| settings.trusted_proxies.iter().any(|network| network.contains(address));
    let peer = peer.to_canonical();
    let mut expected = peer;
    let chain = chain.iter().rev().map(|part| std::str::from_utf8(part.trim_ascii()).ok()?.parse::<IpAddr>().ok());
    for address in chain {
        match address.map(|address| address.to_canonical()) {
            Some(address) if is_trusted(expected) => expected = address,
            // No trusted proxy writes an invalid address, so neither it nor anything to its left counts.
            None if is_trusted(expected) => {
                expected = peer;
                break;
            }
            _ => break,
        }
    }
    let (address, origin) = holdfast_api::fuzzing::address_and_origin(&settings, peer, headers);
    assert_eq!(address, Some(expected), "the client's address is read differently");
    let host = origin.strip_prefix("https://").filter(|_| is_trusted(peer)).or_else(|| origin.strip_prefix("http://"));
    let is_clean = |host: &str| host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-_[]".contains(&byte));
    assert!(host.is_some_and(is_clean), "{origin} is not an origin");
    expected != peer
}
