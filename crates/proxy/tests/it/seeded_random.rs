//! Pseudo-random numbers that are the same in every run.

/// A seeded random number generator.
#[derive(Debug, Clone)]
pub(crate) struct ProxyTestRng(u64);

impl ProxyTestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// Returns true once in `times` calls, on average.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.next().is_multiple_of(times)
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let at = self.between(0, from.len() as u64 - 1);
        &from[usize::try_from(at).unwrap()]
    }
}
