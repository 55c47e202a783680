//! Looks for the ends of chunks. Whether a position is one depends on the 64 bytes before it alone, so four stretches
//! are looked at at the same time: a fingerprint is a chain of dependent steps, of which a processor can take several
//! next to each other.

use super::polynomial::{Polynomial, remainder};

/// The bytes that the fingerprint covers.
const WINDOW: usize = 64;
/// A chunk ends where these bits of the fingerprint are zero, so once in 2^20 positions.
const CUT_MASK: u64 = (1 << 20) - 1;
const SHIFT: u32 = Polynomial::DEGREE - 8;
const LANES: usize = 4;
/// How many positions are looked at before the first of them are asked for an end; if there is one, what was found
/// after it is worth nothing.
const STRETCH: usize = 64 * 1024;

/// The tables of a polynomial. Making them takes a quarter of a millisecond.
pub struct Tables {
    /// What a byte contributes once it is the oldest of the window.
    out: [u64; 256],
    /// What the eight bits above the degree become.
    reduce: [u64; 256],
}

impl Tables {
    pub fn new(polynomial: Polynomial) -> Self {
        let polynomial = polynomial.bits();
        let (mut out, mut reduce) = ([0; 256], [0; 256]);
        for byte in 0..256_usize {
            let mut fingerprint = append(0, byte as u64, polynomial);
            for _ in 1..WINDOW {
                fingerprint = append(fingerprint, 0, polynomial);
            }
            out[byte] = fingerprint;
            let top = (byte as u64) << Polynomial::DEGREE;
            reduce[byte] = remainder(top, polynomial) | top;
        }
        Self { out, reduce }
    }

    /// The shortest length of `bytes`, at least `from`, at which a chunk ends.
    pub(super) fn first_cut(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let mut from = from.max(WINDOW);
        while from <= bytes.len() {
            let until = (from + LANES * STRETCH).min(bytes.len() + 1);
            let found = self.first_within(bytes, from, until);
            if found.is_some() {
                return found;
            }
            from = until;
        }
        None
    }

    fn first_within(&self, bytes: &[u8], from: usize, until: usize) -> Option<usize> {
        let length = (until - from) / LANES;
        if length > 0
            && let Some(found) = self.in_lanes(bytes, from, length)
        {
            return Some(found);
        }
        (from + LANES * length..until).find(|end| self.fingerprint(&bytes[end - WINDOW..*end]) & CUT_MASK == 0)
    }

    /// Looks at four stretches of `length` positions.
    fn in_lanes(&self, bytes: &[u8], from: usize, length: usize) -> Option<usize> {
        let starts: [usize; LANES] = std::array::from_fn(|lane| from + lane * length);
        // The bytes that leave and enter the windows, without a check for each.
        let old: [&[u8]; LANES] = starts.map(|start| &bytes[start - WINDOW..][..length - 1]);
        let new: [&[u8]; LANES] = starts.map(|start| &bytes[start..][..length - 1]);
        let mut prints = starts.map(|start| self.fingerprint(&bytes[start - WINDOW..start]));
        let mut found = [None; LANES];
        let note = |prints: &[u64; LANES], step: usize, found: &mut [Option<usize>; LANES]| {
            for lane in 0..LANES {
                if prints[lane] & CUT_MASK == 0 {
                    found[lane].get_or_insert(starts[lane] + step);
                }
            }
            found[0].is_some()
        };
        let is_cut = |prints: &[u64; LANES]| prints.iter().any(|print| print & CUT_MASK == 0);
        if is_cut(&prints) && note(&prints, 0, &mut found) {
            return found[0];
        }
        let (old0, old1, old2, old3) = (old[0], old[1], old[2], old[3]);
        let (new0, new1, new2, new3) = (new[0], new[1], new[2], new[3]);
        let (old1, old2, old3) = (&old1[..old0.len()], &old2[..old0.len()], &old3[..old0.len()]);
        let (new0, new1) = (&new0[..old0.len()], &new1[..old0.len()]);
        let (new2, new3) = (&new2[..old0.len()], &new3[..old0.len()]);
        for step in 0..old0.len() {
            prints[0] = self.slide(prints[0], old0[step], new0[step]);
            prints[1] = self.slide(prints[1], old1[step], new1[step]);
            prints[2] = self.slide(prints[2], old2[step], new2[step]);
            prints[3] = self.slide(prints[3], old3[step], new3[step]);
            if is_cut(&prints) && note(&prints, step + 1, &mut found) {
                break;
            }
        }
        found.into_iter().flatten().min()
    }

    fn slide(&self, print: u64, old: u8, new: u8) -> u64 {
        self.append(print ^ self.out[usize::from(old)], new)
    }

    fn append(&self, print: u64, byte: u8) -> u64 {
        let top = usize::from((print >> SHIFT) as u8);
        (print << 8 | u64::from(byte)) ^ self.reduce[top]
    }

    fn fingerprint(&self, window: &[u8]) -> u64 {
        window.iter().fold(0, |print, byte| self.append(print, *byte))
    }
}

fn append(fingerprint: u64, byte: u64, polynomial: u64) -> u64 {
    remainder(fingerprint << 8 | byte, polynomial)
}
