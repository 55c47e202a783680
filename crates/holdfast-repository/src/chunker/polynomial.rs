//! Polynomials over GF(2), as bits of an integer.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The irreducible polynomial that determines where the chunks of a repository end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Polynomial(u64);

impl Polynomial {
    pub(super) const DEGREE: u32 = 53;

    /// The polynomial with these bits; `None` if it cannot be used, because it has another degree or is reducible.
    pub fn new(bits: u64) -> Option<Self> {
        (degree(bits) == Some(Self::DEGREE) && is_irreducible(bits)).then_some(Self(bits))
    }

    /// Tries the bits that `random` returns until they are irreducible; about one in 27 is.
    pub fn random(mut random: impl FnMut() -> u64) -> Self {
        loop {
            let bits = random() & ((1 << (Self::DEGREE + 1)) - 1) | 1 << Self::DEGREE | 1;
            if let Some(polynomial) = Self::new(bits) {
                return polynomial;
            }
        }
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Polynomial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:x}", self.0)
    }
}

impl fmt::Debug for Polynomial {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

impl Serialize for Polynomial {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Polynomial {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        let bits = u64::from_str_radix(&text, 16).map_err(D::Error::custom)?;
        Self::new(bits).ok_or_else(|| D::Error::custom("the polynomial is not irreducible of degree 53"))
    }
}

const fn degree(bits: u64) -> Option<u32> {
    bits.checked_ilog2()
}

/// The remainder of a division.
pub(super) fn remainder(mut bits: u64, by: u64) -> u64 {
    let Some(of_divisor) = degree(by) else { return bits };
    while let Some(difference) = degree(bits).and_then(|degree| degree.checked_sub(of_divisor)) {
        bits ^= by << difference;
    }
    bits
}

/// The product of two remainders, as a remainder again.
fn product(first: u64, second: u64, modulus: u64) -> u64 {
    let top = 1 << degree(modulus).unwrap_or_default();
    let (mut product, mut shifted) = (0, first);
    for bit in 0..u64::BITS {
        if second >> bit & 1 == 1 {
            product ^= shifted;
        }
        shifted <<= 1;
        if shifted & top != 0 {
            shifted ^= modulus;
        }
    }
    product
}

fn greatest_common_divisor(mut first: u64, mut second: u64) -> u64 {
    while second != 0 {
        (first, second) = (second, remainder(first, second));
    }
    first
}

/// Ben-Or's test: a reducible polynomial has a factor in common with x^(2^i) - x for some i up to half its degree.
fn is_irreducible(bits: u64) -> bool {
    const X: u64 = 0b10;
    let mut power = X;
    for _ in 0..degree(bits).unwrap_or_default() / 2 {
        power = product(power, power, bits);
        if greatest_common_divisor(bits, power ^ X) != 1 {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_irreducible_polynomials_of_the_right_degree_are_used() {
        // The polynomial of restic's own tests, and one that it calls reducible.
        assert!(Polynomial::new(0x3D_A335_8B4D_C173).is_some());
        assert!(Polynomial::new(0x3D_A335_8B4D_C172).is_none());
        assert!(Polynomial::new(0b111).is_none(), "irreducible, but too short");
        assert!(is_irreducible(0b111) && is_irreducible(0b1011) && !is_irreducible(0b101) && !is_irreducible(0b1111));
    }

    #[test]
    fn random_polynomials_can_be_used_and_survive_their_text() {
        let mut state = 1_u64;
        let polynomial = Polynomial::random(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state
        });
        let text = serde_json::to_string(&polynomial).unwrap();
        assert_eq!(serde_json::from_str::<Polynomial>(&text).unwrap(), polynomial);
        for wrong in ["\"3da3358b4dc172\"", "\"\"", "\"xyz\"", "\"123456789abcdef01\"", "1"] {
            assert!(serde_json::from_str::<Polynomial>(wrong).is_err(), "{wrong}");
        }
    }
}
