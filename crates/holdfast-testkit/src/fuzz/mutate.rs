//! Mutations that know nothing about a format except its keywords: of bits, bytes, ranges and lengths.

use super::rng::Rng;

/// Inputs stay below this size: larger ones would not find more.
const LONGEST: usize = 256 * 1024;

/// Damages an input one to four times, or in one of four cases not at all. `words` are keywords of the format.
pub fn damage(rng: &mut Rng, bytes: &mut Vec<u8>, words: &[&[u8]]) {
    if rng.one_in(4) {
        return;
    }
    for _ in 0..=rng.below(4) {
        one(rng, bytes, words);
        bytes.truncate(LONGEST);
    }
}

fn one(rng: &mut Rng, bytes: &mut Vec<u8>, words: &[&[u8]]) {
    let at = rng.below(bytes.len());
    let (start, end) = stretch(rng, bytes.len());
    match rng.below(12) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << rng.below(8),
        1 if !bytes.is_empty() => bytes[at] = rng.byte(),
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(start..end)),
        // Duplicates a range; the next arm moves it.
        4 => {
            let copy = bytes[start..end].to_vec();
            bytes.splice(at..at, copy);
        }
        5 => {
            let moved: Vec<u8> = bytes.drain(start..end).collect();
            let at = rng.below(bytes.len() + 1);
            bytes.splice(at..at, moved);
        }
        6 => put_number(rng, bytes, at),
        7 => put_decimal(rng, bytes),
        8 => {
            let junk = rng.bytes(16);
            bytes.splice(at..at, junk);
        }
        9 if !bytes.is_empty() => bytes[start..end].fill(rng.pick(&[&0, &b' ', &b'\n', &0xff]).to_owned()),
        _ if !words.is_empty() => {
            let word = rng.pick(words).to_vec();
            let end = if rng.one_in(2) { at } else { (at + word.len()).min(bytes.len()) };
            bytes.splice(at..end, word);
        }
        _ => bytes.extend(rng.bytes(8)),
    }
}

fn stretch(rng: &mut Rng, length: usize) -> (usize, usize) {
    let start = rng.below(length);
    let longest = *rng.pick(&[&4, &32, &512, &4096]);
    (start, (start + rng.below(longest + 1)).min(length))
}

/// Overwrites the bytes at a place with an extreme number, in a common width and byte order.
fn put_number(rng: &mut Rng, bytes: &mut [u8], at: usize) {
    let number = rng.extreme();
    let width = *rng.pick(&[&1, &2, &4, &8]);
    let mut digits = number.to_le_bytes()[..width].to_vec();
    if rng.one_in(2) {
        digits.reverse();
    }
    for (place, digit) in bytes.iter_mut().skip(at).zip(digits) {
        *place = digit;
    }
}

/// Replaces decimal digits with an extreme number, if there are any.
fn put_decimal(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let from = rng.below(bytes.len());
    let Some(start) = bytes.iter().skip(from).position(u8::is_ascii_digit).map(|at| from + at) else { return };
    let end = bytes[start..].iter().position(|byte| !byte.is_ascii_digit()).map_or(bytes.len(), |at| start + at);
    let number = if rng.one_in(4) { "99999999999999999999999".to_owned() } else { rng.extreme().to_string() };
    bytes.splice(start..end, number.into_bytes());
}
