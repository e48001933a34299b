//! Prices in whole micro-dollars per million tokens, and the cost of a usage.

use serde::{Deserialize, Serialize};

use super::usage::TokenUsage;
use crate::money::MicroUsd;

const MILLION: u128 = 1_000_000;

/// Prompts longer than this cost more at some providers.
const LONG_PROMPT: u64 = 200_000;

/// Micro-dollars per million tokens, by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRates {
    pub input: u64,
    pub output: u64,
    pub cached_input: u64,
    pub cache_write: u64,
    /// A cache write that lasts an hour; `None` where there is no separate price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<u64>,
    /// Reasoning output; `None` where it costs the same as other output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
}

/// How long cache writes of a call may stay in the cache. An hour costs more than the usual few minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheLifetime {
    Short,
    Long,
}

/// What a model costs, in micro-dollars per million tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Price {
    pub input: u64,
    pub output: u64,
    pub cached_input: u64,
    pub cache_write: u64,
    /// A cache write that lasts an hour; `None` where there is no separate price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<u64>,
    /// Reasoning output; `None` where it costs the same as other output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// The rates of a call with a long prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_200k: Option<TokenRates>,
    /// The threshold of a long prompt, where it is not 200 000 tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_after: Option<u64>,
}

impl Price {
    /// The price of a model that is inherently free. Never use it for a price that is merely unknown.
    pub const FREE: Self = Self {
        input: 0,
        output: 0,
        cached_input: 0,
        cache_write: 0,
        cache_write_long: None,
        reasoning: None,
        above_200k: None,
        long_after: None,
    };

    /// Builds a price from dollars per million tokens; classes without a separate price cost as much as input.
    pub fn per_mtok_usd(input: f64, output: f64, cached_input: Option<f64>) -> Self {
        let [input, output] = [input, output].map(|usd| MicroUsd::from_usd(usd).0);
        let cached_input = cached_input.map_or(input, |usd| MicroUsd::from_usd(usd).0);
        Self { input, output, cached_input, cache_write: input, ..Self::FREE }
    }

    /// Returns the cost of one call, rounded up to the next micro-dollar.
    ///
    /// For the sum of several calls the result is at least the sum of their costs, because a long prompt is then
    /// assumed.
    pub fn cost(&self, usage: &TokenUsage) -> MicroUsd {
        let rates = self.rates(usage.prompt());
        let thought = usage.reasoning.min(usage.output);
        let parts = [
            (usage.input, rates.input),
            (usage.cached_input, rates.cached_input),
            (usage.cache_write, rates.cache_write),
            (usage.cache_write_long, rates.long_cache_write_rate()),
            (usage.output - thought, rates.output),
            (thought, rates.reasoning_rate()),
        ];
        round_up(&parts)
    }

    /// Returns the worst-case cost of a call: no token comes from a cache, the output has its maximum length, and all
    /// of it is of the more expensive kind.
    pub fn worst_case(&self, input_tokens: u64, max_output: u64, writes: CacheLifetime) -> MicroUsd {
        let rates = self.rates(input_tokens);
        round_up(&[(input_tokens, rates.highest_input_rate(writes)), (max_output, rates.highest_output_rate())])
    }

    /// Returns the most output tokens that `left` pays for after the prompt; `None` when it does not pay for the
    /// prompt.
    pub fn affordable_output(&self, input_tokens: u64, left: MicroUsd, writes: CacheLifetime) -> Option<u64> {
        let prompt = self.worst_case(input_tokens, 0, writes);
        let rest = u128::from(left.0.checked_sub(prompt.0)?) * MILLION;
        let rate = self.rates(input_tokens).highest_output_rate();
        Some(rest.checked_div(u128::from(rate)).map_or(u64::MAX, |tokens| u64::try_from(tokens).unwrap_or(u64::MAX)))
    }

    /// Returns the highest rates of a prompt token and of an output token, for a prompt of at most so many tokens.
    pub fn highest_rates(&self, input_tokens: u64, writes: CacheLifetime) -> (u64, u64) {
        let rates = self.rates(input_tokens);
        (rates.highest_input_rate(writes), rates.highest_output_rate())
    }

    fn rates(&self, prompt: u64) -> TokenRates {
        let base = TokenRates {
            input: self.input,
            output: self.output,
            cached_input: self.cached_input,
            cache_write: self.cache_write,
            cache_write_long: self.cache_write_long,
            reasoning: self.reasoning,
        };
        match self.above_200k {
            // The higher of both rates, so that more tokens never cost less.
            Some(long) if prompt > self.long_after.unwrap_or(LONG_PROMPT) => TokenRates {
                input: long.input.max(base.input),
                output: long.output.max(base.output),
                cached_input: long.cached_input.max(base.cached_input),
                cache_write: long.cache_write.max(base.cache_write),
                cache_write_long: Some(long.long_cache_write_rate().max(base.long_cache_write_rate())),
                reasoning: Some(long.reasoning_rate().max(base.reasoning_rate())),
            },
            _ => base,
        }
    }
}

impl TokenRates {
    /// Where a cache write costs more than fresh input, an hour costs twice the input rate; elsewhere the same as any
    /// write.
    fn long_cache_write_rate(&self) -> u64 {
        let has_write_price = self.cache_write > self.input;
        self.cache_write_long
            .unwrap_or(if has_write_price { self.input.saturating_mul(2) } else { 0 })
            .max(self.cache_write)
    }

    fn reasoning_rate(&self) -> u64 {
        self.reasoning.unwrap_or(self.output)
    }

    fn highest_output_rate(&self) -> u64 {
        self.output.max(self.reasoning_rate())
    }

    fn highest_input_rate(&self, writes: CacheLifetime) -> u64 {
        let dearest = self.input.max(self.cached_input).max(self.cache_write);
        match writes {
            CacheLifetime::Short => dearest,
            CacheLifetime::Long => dearest.max(self.long_cache_write_rate()),
        }
    }
}

fn round_up(parts: &[(u64, u64)]) -> MicroUsd {
    let sum = parts
        .iter()
        .fold(0u128, |sum, (tokens, rate)| sum.saturating_add(u128::from(*tokens).saturating_mul(u128::from(*rate))));
    MicroUsd(u64::try_from(sum.div_ceil(MILLION)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GLM: Price =
        Price { input: 600_000, output: 2_200_000, cached_input: 110_000, cache_write: 600_000, ..Price::FREE };
    const LONG: Price = Price {
        above_200k: Some(TokenRates {
            input: 1_200_000,
            output: 4_400_000,
            cached_input: 220_000,
            cache_write: 1_200_000,
            cache_write_long: None,
            reasoning: None,
        }),
        ..GLM
    };

    #[track_caller]
    fn check(price: Price, usage: TokenUsage, want: u64) {
        assert_eq!(price.cost(&usage), MicroUsd(want), "{usage:?}");
    }

    #[test]
    fn costs() {
        let million = 1_000_000;
        check(GLM, TokenUsage::default(), 0);
        check(GLM, TokenUsage { input: 1, ..TokenUsage::default() }, 1);
        check(GLM, TokenUsage { output: million, reasoning: million, ..TokenUsage::default() }, 2_200_000);
        check(
            GLM,
            TokenUsage {
                input: million,
                cached_input: million,
                cache_write: million,
                output: million,
                ..TokenUsage::default()
            },
            600_000 + 110_000 + 600_000 + 2_200_000,
        );
        check(LONG, TokenUsage { input: 200_000, ..TokenUsage::default() }, 120_000);
        check(LONG, TokenUsage { input: 100_000, cached_input: 100_001, ..TokenUsage::default() }, 142_001);
        check(GLM, TokenUsage { input: u64::MAX, output: u64::MAX, ..TokenUsage::default() }, u64::MAX);
        check(Price::FREE, TokenUsage { input: u64::MAX, ..TokenUsage::default() }, 0);
    }

    #[test]
    fn reasoning_tokens() {
        let million = 1_000_000;
        let half = TokenUsage { output: million, reasoning: million / 2, ..TokenUsage::default() };
        let long = TokenUsage { input: million, ..half };
        for (price, usage, want, worst) in [
            (GLM, half, 2_200_000, 2_200_000),
            (Price { reasoning: Some(4_000_000), ..GLM }, half, 3_100_000, 4_000_000),
            (Price { reasoning: Some(1_000_000), ..GLM }, half, 1_600_000, 2_200_000),
            // Some providers count reasoning beside the output; there cannot be more of it than there was output.
            (
                Price { reasoning: Some(4_000_000), ..GLM },
                TokenUsage { reasoning: u64::MAX, ..half },
                4_000_000,
                4_000_000,
            ),
            // A long prompt: the higher rate of both, and a class without a rate of its own costs like the others.
            (LONG, long, 5_600_000, 5_600_000),
            (Price { reasoning: Some(6_000_000), ..LONG }, long, 1_200_000 + 2_200_000 + 3_000_000, 7_200_000),
            (Price { reasoning: Some(1_000_000), ..LONG }, long, 5_600_000, 5_600_000),
        ] {
            check(price, usage, want);
            assert_eq!(
                price.worst_case(usage.prompt(), usage.output, CacheLifetime::Short),
                MicroUsd(worst),
                "{price:?}"
            );
            let rates = price.highest_rates(usage.prompt(), CacheLifetime::Short);
            assert_eq!(round_up(&[(usage.prompt(), rates.0), (usage.output, rates.1)]), MicroUsd(worst), "{price:?}");
            assert_eq!(
                price.affordable_output(usage.prompt(), MicroUsd(worst), CacheLifetime::Short),
                Some(million),
                "{price:?}"
            );
        }
    }

    #[test]
    fn dollars_per_million() {
        assert_eq!(Price::per_mtok_usd(0.6, 2.2, Some(0.11)), GLM);
        assert_eq!(Price::per_mtok_usd(0.6, 2.2, None), Price { cached_input: 600_000, ..GLM });
    }

    #[test]
    fn affordable_output_tokens() {
        for (input, left, want) in [
            (0, 2_200_000, Some(1_000_000)),
            (1_000_000, 599_999, None),
            (1_000_000, 600_000, Some(0)),
            (0, 2, Some(0)),
        ] {
            assert_eq!(GLM.affordable_output(input, MicroUsd(left), CacheLifetime::Short), want, "{input} {left}");
        }
        assert_eq!(Price::FREE.affordable_output(1, MicroUsd(0), CacheLifetime::Long), Some(u64::MAX));
    }

    #[test]
    fn hour_long_cache_writes() {
        let opus = Price {
            input: 5_000_000,
            output: 25_000_000,
            cached_input: 500_000,
            cache_write: 6_250_000,
            ..Price::FREE
        };
        let million = TokenUsage { cache_write_long: 1_000_000, ..TokenUsage::default() };
        for (price, want) in [
            (opus, 10_000_000),
            (Price { cache_write_long: Some(11_000_000), ..opus }, 11_000_000),
            // A rate below the short-lived one is a mistake.
            (Price { cache_write_long: Some(0), ..opus }, 6_250_000),
            (GLM, 600_000),
            // A million tokens is a long prompt.
            (LONG, 1_200_000),
        ] {
            check(price, million, want);
            assert_eq!(price.worst_case(1_000_000, 0, CacheLifetime::Long), MicroUsd(want));
            assert_eq!(price.highest_rates(u64::MAX, CacheLifetime::Long), (want, price.rates(u64::MAX).output));
        }
        assert_eq!(opus.worst_case(1_000_000, 0, CacheLifetime::Short), MicroUsd(6_250_000));
        assert_eq!(opus.highest_rates(u64::MAX, CacheLifetime::Short), (6_250_000, 25_000_000));
    }

    #[test]
    fn older_prices_still_parse() {
        let old = r#"{"input":600000,"output":2200000,"cached_input":110000,"cache_write":600000}"#;
        assert_eq!(serde_json::from_str::<Price>(old).expect("an old price"), GLM);
        assert_eq!(serde_json::to_string(&GLM).expect("a price"), old);
    }

    fn rates() -> impl Strategy<Value = TokenRates> {
        let rate = || 0..u64::MAX;
        let optional = || proptest::option::of(rate());
        (rate(), rate(), rate(), rate(), optional(), optional()).prop_map(
            |(input, output, cached_input, cache_write, cache_write_long, reasoning)| TokenRates {
                input,
                output,
                cached_input,
                cache_write,
                cache_write_long,
                reasoning,
            },
        )
    }

    fn price() -> impl Strategy<Value = Price> {
        (rates(), proptest::option::of(rates())).prop_map(|(base, above_200k)| Price {
            input: base.input,
            output: base.output,
            cached_input: base.cached_input,
            cache_write: base.cache_write,
            cache_write_long: base.cache_write_long,
            reasoning: base.reasoning,
            above_200k,
            long_after: None,
        })
    }

    proptest! {
        #[test]
        fn more_tokens_never_cost_less(
            price in price(),
            (input, cached_input, output) in (0..400_000u64, 0..400_000u64, any::<u64>()),
            (cache_write, cache_write_long) in (0..400_000u64, 0..400_000u64),
            reasoning in any::<u64>(),
            more in 0..400_000u64,
            class in 0..5,
        ) {
            let usage = TokenUsage { input, cached_input, cache_write, cache_write_long, output, reasoning };
            let mut bigger = usage;
            match class {
                0 => bigger.input += more,
                1 => bigger.cached_input += more,
                2 => bigger.cache_write += more,
                3 => bigger.cache_write_long += more,
                _ => bigger.output = bigger.output.saturating_add(more),
            }
            prop_assert!(price.cost(&usage) <= price.cost(&bigger));
            prop_assert!(price.cost(&usage) <= price.worst_case(usage.prompt(), output, CacheLifetime::Long));
            let short = TokenUsage { cache_write_long: 0, ..usage };
            prop_assert!(price.cost(&short) <= price.worst_case(short.prompt(), output, CacheLifetime::Short));
        }

        #[test]
        fn affordable_output_stays_within_the_budget(price in price(), input in 0..1_000_000u64, left in any::<u64>()) {
            for writes in [CacheLifetime::Short, CacheLifetime::Long] {
                if let Some(output) = price.affordable_output(input, MicroUsd(left), writes) {
                    prop_assert!(price.worst_case(input, output, writes) <= MicroUsd(left));
                }
            }
        }

        #[test]
        fn a_priced_token_is_never_free(rate in 1..u64::MAX, tokens in 1..u64::MAX) {
            let price = Price { input: rate, ..Price::FREE };
            let cost = price.cost(&TokenUsage { input: tokens, ..TokenUsage::default() });
            prop_assert!(cost > MicroUsd::ZERO);
        }
    }
}
