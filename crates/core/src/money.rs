//! Represents money as whole micro-dollars, so that sums never drift.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// An amount of US dollars in millionths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroUsd(pub u64);

impl MicroUsd {
    pub const ZERO: Self = Self(0);

    /// Converts an amount in dollars; a value out of range becomes the nearest amount that can be represented.
    pub fn from_usd(usd: f64) -> Self {
        if usd.is_nan() || usd <= 0.0 {
            return Self::ZERO;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "float casts saturate and the sign was checked"
        )]
        Self((usd * 1e6).round() as u64)
    }

    pub fn as_usd(self) -> f64 {
        self.0 as f64 / 1e6
    }

    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for MicroUsd {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for MicroUsd {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for MicroUsd {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::ZERO, Add::add)
    }
}

/// Shows cents, and more digits only where cents would show nothing.
impl fmt::Display for MicroUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 || self.0 >= 10_000 {
            write!(f, "${:.2}", self.as_usd())
        } else {
            write!(f, "${:.6}", self.as_usd())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_displayed_in_dollars() {
        for (micros, want) in [(0, "$0.00"), (1_840_000, "$1.84"), (12, "$0.000012"), (10_000_000, "$10.00")] {
            assert_eq!(MicroUsd(micros).to_string(), want);
        }
    }

    #[test]
    fn dollars_are_converted() {
        for (usd, want) in [(1.25, 1_250_000), (-3.0, 0), (f64::NAN, 0), (f64::INFINITY, u64::MAX)] {
            assert_eq!(MicroUsd::from_usd(usd), MicroUsd(want), "{usd}");
        }
    }
}
