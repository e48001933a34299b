//! Keeps the ledger of one run: what its calls may still cost, so that parallel calls cannot exceed the cap.
//!
//! The worst case of a call is reserved before it is dialled and replaced by its actual cost afterwards. Settled and
//! reserved amounts together never exceed a cap. Only a provider that charges more than the worst case can push the
//! settled amount above it; that is recorded in full, and from then on every call is refused.
//!
//! A reservation ends in one of three ways: [`Reservation::settle`] with what was used, [`Reservation::release`] when
//! the call was never dialled, or by being dropped, which charges all of it: a call whose end was not observed may
//! have cost that much.
//!
//! The ledger lives in memory. It starts from the spend that the run's events add up to. Reading usage from a stream
//! and writing events is done elsewhere.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ralph_core::money::MicroUsd;
use ralph_core::price::{CacheLifetime, Price};

/// The most a run may spend; `None` is no cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LedgerCaps {
    pub cost: Option<MicroUsd>,
    pub tokens: Option<u64>,
}

/// What is neither settled nor reserved; `None` where there is no cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LedgerBalance {
    pub cost: Option<MicroUsd>,
    pub tokens: Option<u64>,
}

/// An amount of money and of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LedgerAmount {
    pub cost: MicroUsd,
    pub tokens: u64,
}

impl LedgerAmount {
    fn plus(self, other: Self) -> Self {
        Self { cost: self.cost + other.cost, tokens: self.tokens.saturating_add(other.tokens) }
    }

    fn minus(self, other: Self) -> Self {
        Self { cost: self.cost.saturating_sub(other.cost), tokens: self.tokens.saturating_sub(other.tokens) }
    }
}

/// A price in micro-dollars per million tokens, each that of the most expensive class that can apply (writing to a
/// cache may cost more than plain input).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LedgerRate {
    pub input: u64,
    pub output: u64,
}

impl LedgerRate {
    /// Returns the cost of these tokens, each class rounded up to the next micro-dollar.
    pub fn cost(self, input: u64, output: u64) -> MicroUsd {
        let class = |tokens: u64, rate: u64| {
            let micros = (u128::from(tokens) * u128::from(rate)).div_ceil(u128::from(MILLION));
            MicroUsd(u64::try_from(micros).unwrap_or(u64::MAX))
        };
        class(input, self.input) + class(output, self.output)
    }
}

impl LedgerRate {
    /// Returns the most expensive rates at which a call with a prompt of this length can be charged.
    pub fn worst_case(price: &Price, input: u64, writes: CacheLifetime) -> Self {
        let (input, output) = price.highest_rates(input, writes);
        Self { input, output }
    }
}

const MILLION: u64 = 1_000_000;

/// The cap that a call would have exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LedgerCapKind {
    Cost,
    Tokens,
}

/// A call that does not fit into the budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerRefusal {
    #[error("budget spent: the call may cost {wanted}, and {left} of {cap} is left")]
    Cost { wanted: MicroUsd, left: MicroUsd, cap: MicroUsd },
    #[error("budget spent: the call may use {wanted} tokens, and {left} of {cap} are left")]
    Tokens { wanted: u64, left: u64, cap: u64 },
    #[error("the run has ended, so no further calls are made for it")]
    Closed,
}

impl LedgerRefusal {
    pub fn kind(&self) -> LedgerCapKind {
        match self {
            Self::Cost { .. } | Self::Closed => LedgerCapKind::Cost,
            Self::Tokens { .. } => LedgerCapKind::Tokens,
        }
    }

    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Cost { .. } => Some("ralph resume RUN --add-cost 5".to_owned()),
            // No flag adds tokens alone; that cap comes from the task.
            Self::Closed => None,
            Self::Tokens { .. } => Some("raise `max_tokens_total` in the task, then start the run again".to_owned()),
        }
    }
}

/// The number of reservations that this process has made.
static NEXT_RESERVATION_ID: AtomicU64 = AtomicU64::new(0);

/// The ledger of one run. Clones share it.
#[derive(Debug, Clone)]
pub struct Ledger {
    state: Arc<Mutex<LedgerState>>,
}

#[derive(Debug)]
struct LedgerState {
    caps: LedgerCaps,
    settled: LedgerAmount,
    /// The sum of all open reservations.
    reserved: LedgerAmount,
    /// The reservation of each open call, by its id.
    open: BTreeMap<u64, LedgerAmount>,
    closed: bool,
}

impl Ledger {
    /// Opens the ledger of a run that may have spent something already.
    pub fn new(caps: LedgerCaps, spent_cost: MicroUsd, spent_tokens: u64) -> Self {
        let settled = LedgerAmount { cost: spent_cost, tokens: spent_tokens };
        let state =
            LedgerState { caps, settled, reserved: LedgerAmount::default(), open: BTreeMap::new(), closed: false };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Reserves the worst case of a call, or refuses the call.
    pub fn reserve(&self, worst_cost: MicroUsd, worst_tokens: u64) -> Result<Reservation, LedgerRefusal> {
        self.lock()
            .reserve(LedgerAmount { cost: worst_cost, tokens: worst_tokens })
            .map(|(id, held)| self.reservation(id, held))
    }

    /// Clamps the output of a call to what is left and reserves its worst case, in one step: between two steps
    /// another call could take the remaining budget.
    pub fn reserve_call(
        &self,
        rate: LedgerRate,
        input: u64,
        wanted_output: u64,
    ) -> Result<(Reservation, u64), LedgerRefusal> {
        let mut state = self.lock();
        // If not one token fits, one is requested all the same, so that the refusal says which cap is reached.
        let output = state.clamp(rate, input, wanted_output).unwrap_or(1.min(wanted_output));
        let (id, held) =
            state.reserve(LedgerAmount { cost: rate.cost(input, output), tokens: input.saturating_add(output) })?;
        drop(state);
        Ok((self.reservation(id, held), output))
    }

    /// Returns the largest output, at most `wanted_output`, whose worst case still fits; `None` if not one token does.
    pub fn clamp_output(&self, rate: LedgerRate, input_estimate: u64, wanted_output: u64) -> Option<u64> {
        self.lock().clamp(rate, input_estimate, wanted_output)
    }

    pub fn balance(&self) -> LedgerBalance {
        self.lock().balance()
    }

    /// Returns what calls have cost so far, without reservations.
    pub fn settled(&self) -> LedgerAmount {
        self.lock().settled
    }

    /// Returns what open calls may still cost.
    pub fn reserved(&self) -> LedgerAmount {
        self.lock().reserved
    }

    /// Resets caps and spend to what the run's events add up to; reservations of open calls are kept.
    pub fn reset_spend(&self, caps: LedgerCaps, spent_cost: MicroUsd, spent_tokens: u64) {
        let mut state = self.lock();
        state.caps = caps;
        state.settled = LedgerAmount { cost: spent_cost, tokens: spent_tokens };
        state.closed = false;
    }

    /// Refuses every call from now on; open calls are still settled as usual.
    pub fn close(&self) {
        self.lock().closed = true;
    }

    /// Charges the whole reservation of an open call whose end is no longer awaited; when its end comes later, it
    /// changes nothing.
    pub fn forfeit(&self, id: u64) {
        self.lock().close(id, |held| held);
    }

    /// Raises the caps and returns them. A cap is never lowered or removed: a smaller number, or `None`, leaves it
    /// unchanged.
    pub fn raise_caps(&self, caps: LedgerCaps) -> LedgerCaps {
        let mut state = self.lock();
        state.caps = LedgerCaps {
            cost: state.caps.cost.map(|cap| caps.cost.map_or(cap, |new| cap.max(new))),
            tokens: state.caps.tokens.map(|cap| caps.tokens.map_or(cap, |new| cap.max(new))),
        };
        state.caps
    }

    fn reservation(&self, id: u64, worst: LedgerAmount) -> Reservation {
        Reservation { ledger: self.clone(), id, worst }
    }

    /// Locks the ledger. No code under the lock can panic, so its state is consistent even if the lock is poisoned.
    fn lock(&self) -> MutexGuard<'_, LedgerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LedgerState {
    fn reserve(&mut self, wanted: LedgerAmount) -> Result<(u64, LedgerAmount), LedgerRefusal> {
        if self.closed {
            return Err(LedgerRefusal::Closed);
        }
        let taken = self.settled.plus(self.reserved);
        if let Some(cap) = self.caps.cost
            && taken.cost.0.checked_add(wanted.cost.0).is_none_or(|sum| sum > cap.0)
        {
            return Err(LedgerRefusal::Cost { wanted: wanted.cost, left: cap.saturating_sub(taken.cost), cap });
        }
        if let Some(cap) = self.caps.tokens
            && taken.tokens.checked_add(wanted.tokens).is_none_or(|sum| sum > cap)
        {
            return Err(LedgerRefusal::Tokens { wanted: wanted.tokens, left: cap.saturating_sub(taken.tokens), cap });
        }
        // Without a cap the sum may saturate; only what was really added may be subtracted again.
        let reserved = self.reserved.plus(wanted);
        let held = reserved.minus(self.reserved);
        self.reserved = reserved;
        let id = NEXT_RESERVATION_ID.fetch_add(1, Ordering::Relaxed);
        self.open.insert(id, held);
        Ok((id, held))
    }

    /// Ends an open call with what it cost; a call that has already ended is left unchanged.
    fn close(&mut self, id: u64, actual: impl FnOnce(LedgerAmount) -> LedgerAmount) {
        if let Some(held) = self.open.remove(&id) {
            self.reserved = self.reserved.minus(held);
            self.settled = self.settled.plus(actual(held));
        }
    }

    fn balance(&self) -> LedgerBalance {
        let taken = self.settled.plus(self.reserved);
        LedgerBalance {
            cost: self.caps.cost.map(|cap| cap.saturating_sub(taken.cost)),
            tokens: self.caps.tokens.map(|cap| cap.saturating_sub(taken.tokens)),
        }
    }

    fn clamp(&self, rate: LedgerRate, input: u64, wanted: u64) -> Option<u64> {
        let taken = self.settled.plus(self.reserved);
        let mut output = wanted;
        if let Some(cap) = self.caps.cost {
            let left = cap.0.checked_sub(taken.cost.0)?.checked_sub(rate.cost(input, 0).0)?;
            if rate.output > 0 {
                let most = u128::from(left) * u128::from(MILLION) / u128::from(rate.output);
                output = output.min(u64::try_from(most).unwrap_or(u64::MAX));
            }
        }
        if let Some(cap) = self.caps.tokens {
            output = output.min(cap.checked_sub(taken.tokens)?.checked_sub(input)?);
        }
        (output > 0).then_some(output)
    }
}

/// Budget reserved for one call. Dropping it charges all of it.
#[derive(Debug)]
#[must_use = "dropping a reservation charges its worst case"]
pub struct Reservation {
    ledger: Ledger,
    id: u64,
    worst: LedgerAmount,
}

impl Reservation {
    /// Returns a number that no other call of this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the worst case that was reserved.
    pub fn worst_case(&self) -> LedgerAmount {
        self.worst
    }

    /// Replaces the worst case by what the call really used, even if that is more.
    pub fn settle(self, actual_cost: MicroUsd, actual_tokens: u64) {
        self.close(|_| LedgerAmount { cost: actual_cost, tokens: actual_tokens });
    }

    /// Releases the whole reservation: the call was never dialled.
    pub fn release(self) {
        self.close(|_| LedgerAmount::default());
    }

    fn close(&self, actual: impl FnOnce(LedgerAmount) -> LedgerAmount) {
        self.ledger.lock().close(self.id, actual);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.close(|held| held);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    fn caps(cost: u64, tokens: u64) -> LedgerCaps {
        LedgerCaps { cost: Some(MicroUsd(cost)), tokens: Some(tokens) }
    }

    fn spend(cost: u64, tokens: u64) -> LedgerAmount {
        LedgerAmount { cost: MicroUsd(cost), tokens }
    }

    #[track_caller]
    fn check(ledger: &Ledger, settled: LedgerAmount, reserved: LedgerAmount) {
        assert_eq!((ledger.settled(), ledger.reserved()), (settled, reserved));
    }

    #[test]
    fn a_reservation_is_settled_released_or_charged_on_drop() {
        let ledger = Ledger::new(caps(100, 1000), MicroUsd(10), 100);
        let call = ledger.reserve(MicroUsd(40), 400).unwrap();
        assert_eq!(call.worst_case(), spend(40, 400));
        check(&ledger, spend(10, 100), spend(40, 400));
        assert_eq!(ledger.balance(), LedgerBalance { cost: Some(MicroUsd(50)), tokens: Some(500) });
        call.settle(MicroUsd(15), 150);
        check(&ledger, spend(25, 250), spend(0, 0));

        ledger.reserve(MicroUsd(75), 750).unwrap().release();
        check(&ledger, spend(25, 250), spend(0, 0));

        drop(ledger.reserve(MicroUsd(5), 50).unwrap());
        check(&ledger, spend(30, 300), spend(0, 0));
    }

    #[test]
    fn a_forfeited_call_is_charged_once() {
        let ledger = Ledger::new(caps(100, 1000), MicroUsd::ZERO, 0);
        let (late, other) = (ledger.reserve(MicroUsd(40), 400).unwrap(), ledger.reserve(MicroUsd(10), 100).unwrap());
        ledger.forfeit(late.id());
        check(&ledger, spend(40, 400), spend(10, 100));
        late.settle(MicroUsd(7), 70);
        check(&ledger, spend(40, 400), spend(10, 100));
        other.release();
        check(&ledger, spend(40, 400), spend(0, 0));
    }

    #[test]
    fn a_closed_ledger_refuses_every_call() {
        let ledger = Ledger::new(LedgerCaps::default(), MicroUsd::ZERO, 0);
        let open = ledger.reserve(MicroUsd(40), 400).unwrap();
        ledger.close();
        assert_eq!(ledger.reserve(MicroUsd::ZERO, 0).map(drop).unwrap_err(), LedgerRefusal::Closed);
        assert_eq!(ledger.reserve_call(LedgerRate::default(), 1, 1).map(drop).unwrap_err(), LedgerRefusal::Closed);
        open.settle(MicroUsd(3), 30);
        check(&ledger, spend(3, 30), spend(0, 0));
        ledger.reset_spend(LedgerCaps::default(), MicroUsd(3), 30);
        ledger.reserve(MicroUsd(1), 1).unwrap().release();
    }

    #[test]
    fn refusals_name_the_cap() {
        let ledger = Ledger::new(caps(100, 1000), MicroUsd(10), 900);
        let _open = ledger.reserve(MicroUsd(50), 50).unwrap();
        let cost = ledger.reserve(MicroUsd(41), 1).unwrap_err();
        assert_eq!(cost, LedgerRefusal::Cost { wanted: MicroUsd(41), left: MicroUsd(40), cap: MicroUsd(100) });
        let tokens = ledger.reserve(MicroUsd(40), 51).unwrap_err();
        assert_eq!(tokens, LedgerRefusal::Tokens { wanted: 51, left: 50, cap: 1000 });
        assert_eq!((cost.kind(), tokens.kind()), (LedgerCapKind::Cost, LedgerCapKind::Tokens));
        assert_eq!(tokens.to_string(), "budget spent: the call may use 51 tokens, and 50 of 1000 are left");
        check(&ledger, spend(10, 900), spend(50, 50));
    }

    #[test]
    fn a_charge_above_the_worst_case_refuses_further_calls() {
        let ledger = Ledger::new(caps(100, 1000), MicroUsd::ZERO, 0);
        ledger.reserve(MicroUsd(10), 10).unwrap().settle(MicroUsd(150), 10);
        check(&ledger, spend(150, 10), spend(0, 0));
        assert_eq!(ledger.balance(), LedgerBalance { cost: Some(MicroUsd::ZERO), tokens: Some(990) });
        assert_eq!(ledger.reserve(MicroUsd::ZERO, 0).map(drop).unwrap_err().kind(), LedgerCapKind::Cost);
        assert_eq!(ledger.clamp_output(LedgerRate::default(), 0, 10), None);
    }

    #[test]
    fn a_free_model_needs_no_budget() {
        let ledger = Ledger::new(LedgerCaps { cost: Some(MicroUsd::ZERO), tokens: None }, MicroUsd::ZERO, 0);
        let (call, output) = ledger.reserve_call(LedgerRate::default(), 500, 64).unwrap();
        assert_eq!(output, 64);
        call.settle(MicroUsd::ZERO, 520);
        check(&ledger, spend(0, 520), spend(0, 0));
    }

    #[test]
    fn raising_caps_never_lowers_one() {
        let none = LedgerCaps::default();
        for (before, with, after) in [
            (caps(10, 20), caps(15, 20), caps(15, 20)),
            (caps(10, 20), caps(5, 25), caps(10, 25)),
            (caps(10, 20), none, caps(10, 20)),
            (none, caps(5, 5), none),
        ] {
            assert_eq!(Ledger::new(before, MicroUsd::ZERO, 0).raise_caps(with), after);
        }
        let ledger = Ledger::new(caps(10, 20), MicroUsd(10), 0);
        assert!(ledger.reserve(MicroUsd(1), 1).is_err());
        ledger.raise_caps(caps(11, 20));
        ledger.reserve(MicroUsd(1), 1).unwrap().release();
    }

    #[test]
    fn output_is_clamped_to_the_remaining_budget() {
        let rate = LedgerRate { input: 3_000_000, output: 15_000_000 };
        #[track_caller]
        fn check(caps: LedgerCaps, rate: LedgerRate, input: u64, wanted: u64, want: Option<u64>) {
            let ledger = Ledger::new(caps, MicroUsd::ZERO, 0);
            assert_eq!(ledger.clamp_output(rate, input, wanted), want);
            match (ledger.reserve_call(rate, input, wanted), want) {
                (Ok((_, output)), Some(want)) => assert_eq!(output, want),
                (Err(_), None) => (),
                (got, want) => assert!(wanted == 0, "{got:?} {want:?}"),
            }
        }
        check(caps(1000, 10_000), rate, 100, 4096, Some(46));
        check(caps(1000, 120), rate, 100, 4096, Some(20));
        check(caps(1000, 10_000), rate, 100, 30, Some(30));
        check(caps(315, 10_000), rate, 100, 30, Some(1));
        check(caps(314, 10_000), rate, 100, 30, None);
        check(caps(299, 10_000), rate, 100, 30, None);
        check(caps(1000, 100), rate, 100, 30, None);
        check(caps(1000, 99), rate, 100, 30, None);
        check(caps(1000, 1000), rate, 100, 0, None);
        check(LedgerCaps::default(), rate, u64::MAX, u64::MAX, Some(u64::MAX));
        check(caps(u64::MAX - 1, u64::MAX), LedgerRate { input: u64::MAX, output: u64::MAX }, u64::MAX, 1, None);
        check(caps(0, 1000), LedgerRate { input: 0, output: 1 }, 100, 5, None);
    }

    #[test]
    fn saturated_sums_come_back_down() {
        let ledger = Ledger::new(LedgerCaps::default(), MicroUsd::ZERO, 0);
        let one = ledger.reserve(MicroUsd(u64::MAX), u64::MAX).unwrap();
        let two = ledger.reserve(MicroUsd(5), 5).unwrap();
        one.release();
        two.release();
        check(&ledger, spend(0, 0), spend(0, 0));
    }

    #[test]
    fn fifty_concurrent_threads_stay_below_the_cap() {
        const CAP: u64 = 1_000_000;
        let ledger = Ledger::new(caps(CAP, CAP), MicroUsd(CAP / 100 * 99), CAP / 100 * 99);
        let start = Barrier::new(50);
        let granted: u64 = thread::scope(|scope| {
            let workers: Vec<_> = (0..50u64)
                .map(|n| {
                    let (ledger, start) = (&ledger, &start);
                    scope.spawn(move || {
                        start.wait();
                        let mut granted = 0;
                        for round in 0..40 {
                            let worst = 100 + (n * 7 + round) % 50;
                            let Ok(call) = ledger.reserve(MicroUsd(worst), worst) else { continue };
                            granted += 1;
                            let taken = ledger.settled().plus(ledger.reserved());
                            assert!(taken.cost.0 <= CAP && taken.tokens <= CAP, "{taken:?}");
                            match round % 3 {
                                0 => call.settle(MicroUsd(worst), worst),
                                1 => call.release(),
                                _ => drop(call),
                            }
                        }
                        granted
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert!(granted > 0);
        assert_eq!(ledger.reserved(), LedgerAmount::default());
        let settled = ledger.settled();
        assert!(settled.cost.0 <= CAP && settled.tokens <= CAP, "{settled:?}");
    }

    #[derive(Debug, Clone)]
    enum LedgerStep {
        Reserve(u64, u64),
        Call(u64, u64, u64),
        Settle(usize, u64),
        Release(usize),
        Drop(usize),
        Raise(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<LedgerStep>> {
        let step = prop_oneof![
            (0..200u64, 0..200u64).prop_map(|(cost, tokens)| LedgerStep::Reserve(cost, tokens)),
            (0..5_000_000u64, 0..100u64, 0..300u64)
                .prop_map(|(rate, input, output)| LedgerStep::Call(rate, input, output)),
            (any::<usize>(), 0..=100u64).prop_map(|(at, percent)| LedgerStep::Settle(at, percent)),
            any::<usize>().prop_map(LedgerStep::Release),
            any::<usize>().prop_map(LedgerStep::Drop),
            (0..3000u64).prop_map(LedgerStep::Raise),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn any_order_of_calls_stays_below_the_cap(steps in steps(), cost in 0..2000u64, tokens in 0..2000u64) {
            let ledger = Ledger::new(caps(cost, tokens), MicroUsd::ZERO, 0);
            let mut limit = caps(cost, tokens);
            let mut open: Vec<Reservation> = Vec::new();
            let mut settled = LedgerAmount::default();
            for step in steps {
                let mut take = |at: usize| (!open.is_empty()).then(|| open.swap_remove(at % open.len()));
                match step {
                    LedgerStep::Reserve(cost, tokens) => open.extend(ledger.reserve(MicroUsd(cost), tokens)),
                    LedgerStep::Call(rate, input, wanted) => {
                        let rate = LedgerRate { input: rate, output: rate };
                        let clamped = ledger.clamp_output(rate, input, wanted);
                        let granted = ledger.reserve_call(rate, input, wanted);
                        prop_assert_eq!(granted.as_ref().ok().map(|(_, output)| *output).filter(|n| *n > 0), clamped);
                        open.extend(granted.map(|(call, _)| call));
                    }
                    LedgerStep::Settle(at, percent) => if let Some(call) = take(at) {
                        let worst = call.worst_case();
                        let actual = spend(worst.cost.0 * percent / 100, worst.tokens * percent / 100);
                        settled = settled.plus(actual);
                        call.settle(actual.cost, actual.tokens);
                    },
                    LedgerStep::Release(at) => if let Some(call) = take(at) { call.release() },
                    LedgerStep::Drop(at) => if let Some(call) = take(at) {
                        settled = settled.plus(call.worst_case());
                        drop(call);
                    },
                    LedgerStep::Raise(to) => limit = ledger.raise_caps(caps(to, to)),
                }
                let reserved = open.iter().map(Reservation::worst_case).fold(LedgerAmount::default(), LedgerAmount::plus);
                prop_assert_eq!((ledger.settled(), ledger.reserved()), (settled, reserved));
                let taken = settled.plus(reserved);
                prop_assert!(Some(taken.cost) <= limit.cost && Some(taken.tokens) <= limit.tokens);
            }
        }

        #[test]
        fn a_clamped_output_is_the_largest_that_fits(
            rate in (0..9_000_000u64, 0..9_000_000u64), input in 0..500u64, wanted in 1..5000u64,
            cost in 0..5000u64, tokens in 0..3000u64,
        ) {
            let rate = LedgerRate { input: rate.0, output: rate.1 };
            let ledger = Ledger::new(caps(cost, tokens), MicroUsd::ZERO, 0);
            let fits = |output: u64| {
                ledger.reserve(rate.cost(input, output), input + output).map(Reservation::release).is_ok()
            };
            match ledger.clamp_output(rate, input, wanted) {
                Some(output) => prop_assert!(fits(output) && output <= wanted && (output == wanted || !fits(output + 1))),
                None => prop_assert!(!fits(1)),
            }
        }
    }
}
