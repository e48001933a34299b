//! A price as whole micro-dollars per million tokens, and what a usage costs at it.

use serde::{Deserialize, Serialize};

use super::usage::Usage;
use crate::money::Micros;

const MILLION: u128 = 1_000_000;

/// Prompts longer than this cost more at some providers.
const LONG_PROMPT: u64 = 200_000;

/// Micro-dollars per million tokens, by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rates {
    pub input: u64,
    pub output: u64,
    pub cached_input: u64,
    pub cache_write: u64,
}

/// What a model costs, in micro-dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    pub input: u64,
    pub output: u64,
    pub cached_input: u64,
    pub cache_write: u64,
    /// The rates of a call whose whole prompt is longer than 200 000 tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_200k: Option<Rates>,
}

impl Price {
    /// The price of what costs nothing by nature. Never use it for a price that is merely unknown.
    pub const FREE: Self = Self { input: 0, output: 0, cached_input: 0, cache_write: 0, above_200k: None };

    /// Makes a price from dollars per million tokens; classes without a price of their own cost as much as input.
    pub fn per_mtok_usd(input: f64, output: f64, cached_input: Option<f64>) -> Self {
        let [input, output] = [input, output].map(|usd| Micros::from_usd(usd).0);
        let cached_input = cached_input.map_or(input, |usd| Micros::from_usd(usd).0);
        Self { input, output, cached_input, cache_write: input, above_200k: None }
    }

    /// Returns what one call cost, rounded up to the next micro-dollar.
    ///
    /// A sum of several calls gives at least what they cost apart, because a long prompt is then assumed.
    pub fn cost(&self, usage: &Usage) -> Micros {
        let prompt = usage.input.saturating_add(usage.cached_input).saturating_add(usage.cache_write);
        let rates = self.rates(prompt);
        let parts = [
            (usage.input, rates.input),
            (usage.cached_input, rates.cached_input),
            (usage.cache_write, rates.cache_write),
            (usage.output, rates.output),
        ];
        round_up(&parts)
    }

    /// Returns the most one call can cost: no token comes from a cache, and the answer is as long as it may be.
    pub fn worst_case(&self, input_tokens: u64, max_output: u64) -> Micros {
        let rates = self.rates(input_tokens);
        let dearest = rates.input.max(rates.cached_input).max(rates.cache_write);
        round_up(&[(input_tokens, dearest), (max_output, rates.output)])
    }

    /// Returns the most output tokens that `left` pays for after the prompt; `None` when it does not pay for the prompt.
    pub fn affordable_output(&self, input_tokens: u64, left: Micros) -> Option<u64> {
        let prompt = self.worst_case(input_tokens, 0);
        let rest = u128::from(left.0.checked_sub(prompt.0)?) * MILLION;
        let rate = self.rates(input_tokens).output;
        Some(rest.checked_div(u128::from(rate)).map_or(u64::MAX, |tokens| u64::try_from(tokens).unwrap_or(u64::MAX)))
    }

    fn rates(&self, prompt: u64) -> Rates {
        let base = Rates {
            input: self.input,
            output: self.output,
            cached_input: self.cached_input,
            cache_write: self.cache_write,
        };
        match self.above_200k {
            // The dearer of both, so that more tokens never cost less.
            Some(long) if prompt > LONG_PROMPT => Rates {
                input: long.input.max(base.input),
                output: long.output.max(base.output),
                cached_input: long.cached_input.max(base.cached_input),
                cache_write: long.cache_write.max(base.cache_write),
            },
            _ => base,
        }
    }
}

fn round_up(parts: &[(u64, u64)]) -> Micros {
    let sum = parts
        .iter()
        .fold(0u128, |sum, (tokens, rate)| sum.saturating_add(u128::from(*tokens).saturating_mul(u128::from(*rate))));
    Micros(u64::try_from(sum.div_ceil(MILLION)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GLM: Price =
        Price { input: 600_000, output: 2_200_000, cached_input: 110_000, cache_write: 600_000, above_200k: None };
    const LONG: Price = Price {
        above_200k: Some(Rates { input: 1_200_000, output: 4_400_000, cached_input: 220_000, cache_write: 1_200_000 }),
        ..GLM
    };

    #[track_caller]
    fn check(price: Price, usage: Usage, want: u64) {
        assert_eq!(price.cost(&usage), Micros(want), "{usage:?}");
    }

    #[test]
    fn costs() {
        let million = 1_000_000;
        check(GLM, Usage::default(), 0);
        check(GLM, Usage { input: 1, ..Usage::default() }, 1);
        check(GLM, Usage { output: million, reasoning: million, ..Usage::default() }, 2_200_000);
        check(
            GLM,
            Usage { input: million, cached_input: million, cache_write: million, output: million, reasoning: 0 },
            600_000 + 110_000 + 600_000 + 2_200_000,
        );
        check(LONG, Usage { input: 200_000, ..Usage::default() }, 120_000);
        check(LONG, Usage { input: 100_000, cached_input: 100_001, ..Usage::default() }, 142_001);
        check(GLM, Usage { input: u64::MAX, output: u64::MAX, ..Usage::default() }, u64::MAX);
        check(Price::FREE, Usage { input: u64::MAX, ..Usage::default() }, 0);
    }

    #[test]
    fn dollars_per_million() {
        assert_eq!(Price::per_mtok_usd(0.6, 2.2, Some(0.11)), GLM);
        assert_eq!(Price::per_mtok_usd(0.6, 2.2, None), Price { cached_input: 600_000, ..GLM });
    }

    #[test]
    fn what_is_left_pays_for() {
        for (input, left, want) in [
            (0, 2_200_000, Some(1_000_000)),
            (1_000_000, 599_999, None),
            (1_000_000, 600_000, Some(0)),
            (0, 2, Some(0)),
        ] {
            assert_eq!(GLM.affordable_output(input, Micros(left)), want, "{input} {left}");
        }
        assert_eq!(Price::FREE.affordable_output(1, Micros(0)), Some(u64::MAX));
    }

    fn price() -> impl Strategy<Value = Price> {
        let rates = || (0..u64::MAX, 0..u64::MAX, 0..u64::MAX, 0..u64::MAX);
        (rates(), proptest::option::of(rates())).prop_map(|((input, output, cached_input, cache_write), long)| Price {
            input,
            output,
            cached_input,
            cache_write,
            above_200k: long.map(|(input, output, cached_input, cache_write)| Rates {
                input,
                output,
                cached_input,
                cache_write,
            }),
        })
    }

    proptest! {
        #[test]
        fn more_tokens_never_cost_less(
            price in price(),
            (input, cached_input, cache_write, output) in (0..400_000u64, 0..400_000u64, 0..400_000u64, any::<u64>()),
            more in 0..400_000u64,
            class in 0..4,
        ) {
            let usage = Usage { input, cached_input, cache_write, output, reasoning: 0 };
            let mut bigger = usage;
            match class {
                0 => bigger.input += more,
                1 => bigger.cached_input += more,
                2 => bigger.cache_write += more,
                _ => bigger.output = bigger.output.saturating_add(more),
            }
            prop_assert!(price.cost(&usage) <= price.cost(&bigger));
            prop_assert!(price.cost(&usage) <= price.worst_case(input + cached_input + cache_write, output));
        }

        #[test]
        fn what_is_affordable_is_affordable(price in price(), input in 0..1_000_000u64, left in any::<u64>()) {
            if let Some(output) = price.affordable_output(input, Micros(left)) {
                prop_assert!(price.worst_case(input, output) <= Micros(left));
            }
        }

        #[test]
        fn a_priced_token_is_never_free(rate in 1..u64::MAX, tokens in 1..u64::MAX) {
            let price = Price { input: rate, ..Price::FREE };
            let cost = price.cost(&Usage { input: tokens, ..Usage::default() });
            prop_assert!(cost > Micros::ZERO);
        }
    }
}
