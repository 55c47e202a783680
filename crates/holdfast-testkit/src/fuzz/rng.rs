//! A deterministic random number generator.

/// SplitMix64: small, fast and good enough to choose inputs.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64, number: u64) -> Self {
        let mut rng = Self(seed.rotate_left(32) ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        rng.number();
        rng
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 when `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        if end == 0 { 0 } else { usize::try_from(self.number() % end as u64).unwrap_or_default() }
    }

    pub fn byte(&mut self) -> u8 {
        self.number().to_le_bytes()[0]
    }

    /// True with a probability of 1 in `times`.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn pick<'a, T: ?Sized>(&mut self, choices: &[&'a T]) -> &'a T {
        choices[self.below(choices.len())]
    }

    pub fn bytes(&mut self, longest: usize) -> Vec<u8> {
        let length = self.below(longest + 1);
        (0..length).map(|_| self.byte()).collect()
    }

    /// A number at or next to a boundary of some type or field, or a small one.
    pub fn extreme(&mut self) -> u64 {
        const BORDERS: &[u64] = &[
            0,
            1,
            2,
            7,
            8,
            63,
            64,
            99,
            100,
            127,
            128,
            255,
            256,
            511,
            512,
            513,
            1024,
            4096,
            65_535,
            65_536,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            0x1_0000_0000,
            0o77_777_777_777,
            0o100_000_000_000,
            0x7fff_ffff_ffff_ffff,
            0x8000_0000_0000_0000,
            0xffff_ffff_ffff_fe00,
            0xffff_ffff_ffff_ffff,
        ];
        let border = BORDERS[self.below(BORDERS.len())];
        match self.below(4) {
            0 => border.wrapping_add(1),
            1 => border.wrapping_sub(1),
            _ => border,
        }
    }
}
