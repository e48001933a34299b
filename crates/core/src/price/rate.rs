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
    /// A write that lasts an hour; `None` where there is no price of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<u64>,
    /// Output that was thought and not said; `None` where it costs like any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
}

/// How long what a call writes to the cache may stay there. An hour costs more than the usual few minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheWrites {
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
    /// A write that lasts an hour; `None` where there is no price of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_long: Option<u64>,
    /// Output that was thought and not said; `None` where it costs like any other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// The rates of a call whose whole prompt is long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_200k: Option<Rates>,
    /// What is long, where that is not 200 000 tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_after: Option<u64>,
}

impl Price {
    /// The price of what costs nothing by nature. Never use it for a price that is merely unknown.
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

    /// Makes a price from dollars per million tokens; classes without a price of their own cost as much as input.
    pub fn per_mtok_usd(input: f64, output: f64, cached_input: Option<f64>) -> Self {
        let [input, output] = [input, output].map(|usd| Micros::from_usd(usd).0);
        let cached_input = cached_input.map_or(input, |usd| Micros::from_usd(usd).0);
        Self { input, output, cached_input, cache_write: input, ..Self::FREE }
    }

    /// Returns what one call cost, rounded up to the next micro-dollar.
    ///
    /// A sum of several calls gives at least what they cost apart, because a long prompt is then assumed.
    pub fn cost(&self, usage: &Usage) -> Micros {
        let rates = self.rates(usage.prompt());
        let thought = usage.reasoning.min(usage.output);
        let parts = [
            (usage.input, rates.input),
            (usage.cached_input, rates.cached_input),
            (usage.cache_write, rates.cache_write),
            (usage.cache_write_long, rates.long_write()),
            (usage.output - thought, rates.output),
            (thought, rates.thinking()),
        ];
        round_up(&parts)
    }

    /// Returns the most one call can cost: no token comes from a cache, the answer is as long as it may be, and all of it
    /// is of the dearer kind.
    pub fn worst_case(&self, input_tokens: u64, max_output: u64, writes: CacheWrites) -> Micros {
        let rates = self.rates(input_tokens);
        round_up(&[(input_tokens, rates.dearest_input(writes)), (max_output, rates.dearest_output())])
    }

    /// Returns the most output tokens that `left` pays for after the prompt; `None` when it does not pay for the prompt.
    pub fn affordable_output(&self, input_tokens: u64, left: Micros, writes: CacheWrites) -> Option<u64> {
        let prompt = self.worst_case(input_tokens, 0, writes);
        let rest = u128::from(left.0.checked_sub(prompt.0)?) * MILLION;
        let rate = self.rates(input_tokens).dearest_output();
        Some(rest.checked_div(u128::from(rate)).map_or(u64::MAX, |tokens| u64::try_from(tokens).unwrap_or(u64::MAX)))
    }

    /// Returns the dearest rate of a prompt token and of an answer's, for a prompt of at most so many tokens.
    pub fn dearest(&self, input_tokens: u64, writes: CacheWrites) -> (u64, u64) {
        let rates = self.rates(input_tokens);
        (rates.dearest_input(writes), rates.dearest_output())
    }

    fn rates(&self, prompt: u64) -> Rates {
        let base = Rates {
            input: self.input,
            output: self.output,
            cached_input: self.cached_input,
            cache_write: self.cache_write,
            cache_write_long: self.cache_write_long,
            reasoning: self.reasoning,
        };
        match self.above_200k {
            // The dearer of both, so that more tokens never cost less.
            Some(long) if prompt > self.long_after.unwrap_or(LONG_PROMPT) => Rates {
                input: long.input.max(base.input),
                output: long.output.max(base.output),
                cached_input: long.cached_input.max(base.cached_input),
                cache_write: long.cache_write.max(base.cache_write),
                cache_write_long: Some(long.long_write().max(base.long_write())),
                reasoning: Some(long.thinking().max(base.thinking())),
            },
            _ => base,
        }
    }
}

impl Rates {
    /// Where writing costs more than reading anew, an hour is sold at twice the input; elsewhere like any other write.
    fn long_write(&self) -> u64 {
        let sold = self.cache_write > self.input;
        self.cache_write_long.unwrap_or(if sold { self.input.saturating_mul(2) } else { 0 }).max(self.cache_write)
    }

    fn thinking(&self) -> u64 {
        self.reasoning.unwrap_or(self.output)
    }

    fn dearest_output(&self) -> u64 {
        self.output.max(self.thinking())
    }

    fn dearest_input(&self, writes: CacheWrites) -> u64 {
        let dearest = self.input.max(self.cached_input).max(self.cache_write);
        match writes {
            CacheWrites::Short => dearest,
            CacheWrites::Long => dearest.max(self.long_write()),
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
        Price { input: 600_000, output: 2_200_000, cached_input: 110_000, cache_write: 600_000, ..Price::FREE };
    const LONG: Price = Price {
        above_200k: Some(Rates {
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
            Usage { input: million, cached_input: million, cache_write: million, output: million, ..Usage::default() },
            600_000 + 110_000 + 600_000 + 2_200_000,
        );
        check(LONG, Usage { input: 200_000, ..Usage::default() }, 120_000);
        check(LONG, Usage { input: 100_000, cached_input: 100_001, ..Usage::default() }, 142_001);
        check(GLM, Usage { input: u64::MAX, output: u64::MAX, ..Usage::default() }, u64::MAX);
        check(Price::FREE, Usage { input: u64::MAX, ..Usage::default() }, 0);
    }

    #[test]
    fn thoughts() {
        let million = 1_000_000;
        let half = Usage { output: million, reasoning: million / 2, ..Usage::default() };
        let long = Usage { input: million, ..half };
        for (price, usage, want, worst) in [
            (GLM, half, 2_200_000, 2_200_000),
            (Price { reasoning: Some(4_000_000), ..GLM }, half, 3_100_000, 4_000_000),
            (Price { reasoning: Some(1_000_000), ..GLM }, half, 1_600_000, 2_200_000),
            // Some count thoughts beside the answer; there cannot be more of them than there was answer.
            (Price { reasoning: Some(4_000_000), ..GLM }, Usage { reasoning: u64::MAX, ..half }, 4_000_000, 4_000_000),
            // A long prompt: the dearer of both, and what has no rate of its own costs like the rest.
            (LONG, long, 5_600_000, 5_600_000),
            (Price { reasoning: Some(6_000_000), ..LONG }, long, 1_200_000 + 2_200_000 + 3_000_000, 7_200_000),
            (Price { reasoning: Some(1_000_000), ..LONG }, long, 5_600_000, 5_600_000),
        ] {
            check(price, usage, want);
            assert_eq!(price.worst_case(usage.prompt(), usage.output, CacheWrites::Short), Micros(worst), "{price:?}");
            let rates = price.dearest(usage.prompt(), CacheWrites::Short);
            assert_eq!(round_up(&[(usage.prompt(), rates.0), (usage.output, rates.1)]), Micros(worst), "{price:?}");
            assert_eq!(
                price.affordable_output(usage.prompt(), Micros(worst), CacheWrites::Short),
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
    fn what_is_left_pays_for() {
        for (input, left, want) in [
            (0, 2_200_000, Some(1_000_000)),
            (1_000_000, 599_999, None),
            (1_000_000, 600_000, Some(0)),
            (0, 2, Some(0)),
        ] {
            assert_eq!(GLM.affordable_output(input, Micros(left), CacheWrites::Short), want, "{input} {left}");
        }
        assert_eq!(Price::FREE.affordable_output(1, Micros(0), CacheWrites::Long), Some(u64::MAX));
    }

    #[test]
    fn an_hour_in_the_cache() {
        let opus = Price {
            input: 5_000_000,
            output: 25_000_000,
            cached_input: 500_000,
            cache_write: 6_250_000,
            ..Price::FREE
        };
        let million = Usage { cache_write_long: 1_000_000, ..Usage::default() };
        for (price, want) in [
            (opus, 10_000_000),
            (Price { cache_write_long: Some(11_000_000), ..opus }, 11_000_000),
            // A rate below the short one is a mistake.
            (Price { cache_write_long: Some(0), ..opus }, 6_250_000),
            (GLM, 600_000),
            // A million is a long prompt.
            (LONG, 1_200_000),
        ] {
            check(price, million, want);
            assert_eq!(price.worst_case(1_000_000, 0, CacheWrites::Long), Micros(want));
            assert_eq!(price.dearest(u64::MAX, CacheWrites::Long), (want, price.rates(u64::MAX).output));
        }
        assert_eq!(opus.worst_case(1_000_000, 0, CacheWrites::Short), Micros(6_250_000));
        assert_eq!(opus.dearest(u64::MAX, CacheWrites::Short), (6_250_000, 25_000_000));
    }

    #[test]
    fn a_price_written_before_there_was_one_for_an_hour_or_for_thoughts() {
        let old = r#"{"input":600000,"output":2200000,"cached_input":110000,"cache_write":600000}"#;
        assert_eq!(serde_json::from_str::<Price>(old).expect("an old price"), GLM);
        assert_eq!(serde_json::to_string(&GLM).expect("a price"), old);
    }

    fn rates() -> impl Strategy<Value = Rates> {
        let rate = || 0..u64::MAX;
        let optional = || proptest::option::of(rate());
        (rate(), rate(), rate(), rate(), optional(), optional()).prop_map(
            |(input, output, cached_input, cache_write, cache_write_long, reasoning)| Rates {
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
            let usage = Usage { input, cached_input, cache_write, cache_write_long, output, reasoning };
            let mut bigger = usage;
            match class {
                0 => bigger.input += more,
                1 => bigger.cached_input += more,
                2 => bigger.cache_write += more,
                3 => bigger.cache_write_long += more,
                _ => bigger.output = bigger.output.saturating_add(more),
            }
            prop_assert!(price.cost(&usage) <= price.cost(&bigger));
            prop_assert!(price.cost(&usage) <= price.worst_case(usage.prompt(), output, CacheWrites::Long));
            let short = Usage { cache_write_long: 0, ..usage };
            prop_assert!(price.cost(&short) <= price.worst_case(short.prompt(), output, CacheWrites::Short));
        }

        #[test]
        fn what_is_affordable_is_affordable(price in price(), input in 0..1_000_000u64, left in any::<u64>()) {
            for writes in [CacheWrites::Short, CacheWrites::Long] {
                if let Some(output) = price.affordable_output(input, Micros(left), writes) {
                    prop_assert!(price.worst_case(input, output, writes) <= Micros(left));
                }
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
