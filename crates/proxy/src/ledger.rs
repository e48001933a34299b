//! The account book of one run: what its calls may still cost, kept so that parallel calls cannot pass the cap.
//!
//! The worst case of a call is reserved before it is dialled and replaced by what it really cost afterwards. Settled
//! and reserved amounts together never pass a cap. Only a provider that charges more than the worst case can push the
//! settled amount above it; that is written down in full, and from then on every call is refused.
//!
//! A reservation ends in one of three ways: [`Reservation::settle`] with what was used, [`Reservation::release`] when
//! the call was never dialled, or by being dropped, which charges all of it: a call whose end nobody saw may have cost
//! that much.
//!
//! The book lives in memory. It starts from the spend that the run's events add up to; reading usage from a stream and
//! writing events is done elsewhere.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ralph_core::money::Micros;
use ralph_core::price::{CacheWrites, Price};

/// The most a run may spend; `None` is no cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Caps {
    pub cost: Option<Micros>,
    pub tokens: Option<u64>,
}

/// What is neither settled nor reserved; `None` where there is no cap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    pub cost: Option<Micros>,
    pub tokens: Option<u64>,
}

/// An amount of money and of tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spend {
    pub cost: Micros,
    pub tokens: u64,
}

impl Spend {
    fn plus(self, other: Self) -> Self {
        Self { cost: self.cost + other.cost, tokens: self.tokens.saturating_add(other.tokens) }
    }

    fn minus(self, other: Self) -> Self {
        Self { cost: self.cost.saturating_sub(other.cost), tokens: self.tokens.saturating_sub(other.tokens) }
    }
}

/// A price in micro-dollars per million tokens, each the dearest class that can apply (writing to a cache may cost more
/// than plain input).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rate {
    pub input: u64,
    pub output: u64,
}

impl Rate {
    /// Returns what so many tokens cost, each class rounded up to the next micro-dollar.
    pub fn cost(self, input: u64, output: u64) -> Micros {
        let class = |tokens: u64, rate: u64| {
            let micros = (u128::from(tokens) * u128::from(rate)).div_ceil(u128::from(MILLION));
            Micros(u64::try_from(micros).unwrap_or(u64::MAX))
        };
        class(input, self.input) + class(output, self.output)
    }
}

impl Rate {
    /// Returns the dearest rates that a call with so long a prompt can be charged by.
    pub fn worst(price: &Price, input: u64, writes: CacheWrites) -> Self {
        let (input, output) = price.dearest(input, writes);
        Self { input, output }
    }
}

const MILLION: u64 = 1_000_000;

/// Which cap a call would have passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Cost,
    Tokens,
}

/// A call that does not fit into the budget.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("budget spent: the call may cost {wanted}, and {left} of {cap} is left")]
    Cost { wanted: Micros, left: Micros, cap: Micros },
    #[error("budget spent: the call may use {wanted} tokens, and {left} of {cap} are left")]
    Tokens { wanted: u64, left: u64, cap: u64 },
    #[error("the run has come to its end, and nothing more is bought for it")]
    Closed,
}

impl Refused {
    pub fn kind(&self) -> Kind {
        match self {
            Self::Cost { .. } | Self::Closed => Kind::Cost,
            Self::Tokens { .. } => Kind::Tokens,
        }
    }

    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Cost { .. } => Some("ralph resume RUN --add-cost 5".to_owned()),
            // No flag adds tokens alone; the cap is the task's.
            Self::Closed => None,
            Self::Tokens { .. } => Some("raise `max_tokens_total` in the task, then start the run again".to_owned()),
        }
    }
}

/// How many reservations this process has made.
static RESERVATIONS: AtomicU64 = AtomicU64::new(0);

/// The account book of one run. Clones share it.
#[derive(Debug, Clone)]
pub struct Ledger {
    book: Arc<Mutex<Book>>,
}

#[derive(Debug)]
struct Book {
    caps: Caps,
    settled: Spend,
    /// The sum of what is open.
    reserved: Spend,
    /// What each open call has set aside.
    open: BTreeMap<u64, Spend>,
    closed: bool,
}

impl Ledger {
    /// Opens the book of a run that has already spent something.
    pub fn new(caps: Caps, spent_cost: Micros, spent_tokens: u64) -> Self {
        let settled = Spend { cost: spent_cost, tokens: spent_tokens };
        let book = Book { caps, settled, reserved: Spend::default(), open: BTreeMap::new(), closed: false };
        Self { book: Arc::new(Mutex::new(book)) }
    }

    /// Sets the worst case of a call aside, or refuses the call.
    pub fn reserve(&self, worst_cost: Micros, worst_tokens: u64) -> Result<Reservation, Refused> {
        self.lock().reserve(Spend { cost: worst_cost, tokens: worst_tokens }).map(|(id, held)| self.hold(id, held))
    }

    /// Clamps the output of a call to what is left and sets its worst case aside, in one step: between two steps
    /// another call could take the room.
    pub fn reserve_call(&self, rate: Rate, input: u64, wanted_output: u64) -> Result<(Reservation, u64), Refused> {
        let mut book = self.lock();
        // Asking for one token when none fits lets the refusal say which cap is in the way.
        let output = book.clamp(rate, input, wanted_output).unwrap_or(1.min(wanted_output));
        let (id, held) =
            book.reserve(Spend { cost: rate.cost(input, output), tokens: input.saturating_add(output) })?;
        drop(book);
        Ok((self.hold(id, held), output))
    }

    /// Returns the largest output, at most `wanted_output`, whose worst case still fits; `None` if not one token does.
    pub fn clamp_output(&self, rate: Rate, input_estimate: u64, wanted_output: u64) -> Option<u64> {
        self.lock().clamp(rate, input_estimate, wanted_output)
    }

    pub fn room(&self) -> Room {
        self.lock().room()
    }

    /// Returns what calls have cost so far, reservations aside.
    pub fn settled(&self) -> Spend {
        self.lock().settled
    }

    /// Returns what open calls may still cost.
    pub fn reserved(&self) -> Spend {
        self.lock().reserved
    }

    /// Begins a new page: caps and spend as the run's events add up to; what open calls reserved stays reserved.
    pub fn renew(&self, caps: Caps, spent_cost: Micros, spent_tokens: u64) {
        let mut book = self.lock();
        book.caps = caps;
        book.settled = Spend { cost: spent_cost, tokens: spent_tokens };
        book.closed = false;
    }

    /// Refuses every call from now on; those that are open are settled as ever.
    pub fn close(&self) {
        self.lock().closed = true;
    }

    /// Charges all that an open call has set aside: nobody waits for its end any longer, and when it comes it changes
    /// nothing.
    pub fn forfeit(&self, id: u64) {
        self.lock().close(id, |held| held);
    }

    /// Raises the caps and returns them. A cap is never lowered and never taken away: a smaller figure, and `None`,
    /// leave it as it is.
    pub fn raise(&self, caps: Caps) -> Caps {
        let mut book = self.lock();
        book.caps = Caps {
            cost: book.caps.cost.map(|cap| caps.cost.map_or(cap, |new| cap.max(new))),
            tokens: book.caps.tokens.map(|cap| caps.tokens.map_or(cap, |new| cap.max(new))),
        };
        book.caps
    }

    fn hold(&self, id: u64, worst: Spend) -> Reservation {
        Reservation { ledger: self.clone(), id, worst }
    }

    /// No code under the lock can panic, so a poisoned book is still a true one.
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn reserve(&mut self, wanted: Spend) -> Result<(u64, Spend), Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        let taken = self.settled.plus(self.reserved);
        if let Some(cap) = self.caps.cost
            && taken.cost.0.checked_add(wanted.cost.0).is_none_or(|sum| sum > cap.0)
        {
            return Err(Refused::Cost { wanted: wanted.cost, left: cap.saturating_sub(taken.cost), cap });
        }
        if let Some(cap) = self.caps.tokens
            && taken.tokens.checked_add(wanted.tokens).is_none_or(|sum| sum > cap)
        {
            return Err(Refused::Tokens { wanted: wanted.tokens, left: cap.saturating_sub(taken.tokens), cap });
        }
        // Without a cap the sum may reach the top of the number; only what was really added may be taken off again.
        let reserved = self.reserved.plus(wanted);
        let held = reserved.minus(self.reserved);
        self.reserved = reserved;
        let id = RESERVATIONS.fetch_add(1, Ordering::Relaxed);
        self.open.insert(id, held);
        Ok((id, held))
    }

    /// Ends an open call with what it cost; one that has ended stays as it is.
    fn close(&mut self, id: u64, actual: impl FnOnce(Spend) -> Spend) {
        if let Some(held) = self.open.remove(&id) {
            self.reserved = self.reserved.minus(held);
            self.settled = self.settled.plus(actual(held));
        }
    }

    fn room(&self) -> Room {
        let taken = self.settled.plus(self.reserved);
        Room {
            cost: self.caps.cost.map(|cap| cap.saturating_sub(taken.cost)),
            tokens: self.caps.tokens.map(|cap| cap.saturating_sub(taken.tokens)),
        }
    }

    fn clamp(&self, rate: Rate, input: u64, wanted: u64) -> Option<u64> {
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

/// Budget set aside for one call. Dropping it charges all of it.
#[derive(Debug)]
#[must_use = "dropping a reservation charges its worst case"]
pub struct Reservation {
    ledger: Ledger,
    id: u64,
    worst: Spend,
}

impl Reservation {
    /// Returns a number that no other call of this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the worst case that was set aside.
    pub fn worst(&self) -> Spend {
        self.worst
    }

    /// Replaces the worst case by what the call really used, even where that is more.
    pub fn settle(self, actual_cost: Micros, actual_tokens: u64) {
        self.close(|_| Spend { cost: actual_cost, tokens: actual_tokens });
    }

    /// Gives everything back: the call was never dialled.
    pub fn release(self) {
        self.close(|_| Spend::default());
    }

    fn close(&self, actual: impl FnOnce(Spend) -> Spend) {
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

    fn caps(cost: u64, tokens: u64) -> Caps {
        Caps { cost: Some(Micros(cost)), tokens: Some(tokens) }
    }

    fn spend(cost: u64, tokens: u64) -> Spend {
        Spend { cost: Micros(cost), tokens }
    }

    #[track_caller]
    fn check(ledger: &Ledger, settled: Spend, reserved: Spend) {
        assert_eq!((ledger.settled(), ledger.reserved()), (settled, reserved));
    }

    #[test]
    fn three_ways_to_end() {
        let ledger = Ledger::new(caps(100, 1000), Micros(10), 100);
        let call = ledger.reserve(Micros(40), 400).unwrap();
        assert_eq!(call.worst(), spend(40, 400));
        check(&ledger, spend(10, 100), spend(40, 400));
        assert_eq!(ledger.room(), Room { cost: Some(Micros(50)), tokens: Some(500) });
        call.settle(Micros(15), 150);
        check(&ledger, spend(25, 250), spend(0, 0));

        ledger.reserve(Micros(75), 750).unwrap().release();
        check(&ledger, spend(25, 250), spend(0, 0));

        drop(ledger.reserve(Micros(5), 50).unwrap());
        check(&ledger, spend(30, 300), spend(0, 0));
    }

    #[test]
    fn a_call_that_was_given_up_is_charged_once() {
        let ledger = Ledger::new(caps(100, 1000), Micros::ZERO, 0);
        let (late, other) = (ledger.reserve(Micros(40), 400).unwrap(), ledger.reserve(Micros(10), 100).unwrap());
        ledger.forfeit(late.id());
        check(&ledger, spend(40, 400), spend(10, 100));
        late.settle(Micros(7), 70);
        check(&ledger, spend(40, 400), spend(10, 100));
        other.release();
        check(&ledger, spend(40, 400), spend(0, 0));
    }

    #[test]
    fn a_closed_book_lets_nothing_through() {
        let ledger = Ledger::new(Caps::default(), Micros::ZERO, 0);
        let open = ledger.reserve(Micros(40), 400).unwrap();
        ledger.close();
        assert_eq!(ledger.reserve(Micros::ZERO, 0).map(drop).unwrap_err(), Refused::Closed);
        assert_eq!(ledger.reserve_call(Rate::default(), 1, 1).map(drop).unwrap_err(), Refused::Closed);
        open.settle(Micros(3), 30);
        check(&ledger, spend(3, 30), spend(0, 0));
        ledger.renew(Caps::default(), Micros(3), 30);
        ledger.reserve(Micros(1), 1).unwrap().release();
    }

    #[test]
    fn refusals_name_the_cap() {
        let ledger = Ledger::new(caps(100, 1000), Micros(10), 900);
        let _open = ledger.reserve(Micros(50), 50).unwrap();
        let cost = ledger.reserve(Micros(41), 1).unwrap_err();
        assert_eq!(cost, Refused::Cost { wanted: Micros(41), left: Micros(40), cap: Micros(100) });
        let tokens = ledger.reserve(Micros(40), 51).unwrap_err();
        assert_eq!(tokens, Refused::Tokens { wanted: 51, left: 50, cap: 1000 });
        assert_eq!((cost.kind(), tokens.kind()), (Kind::Cost, Kind::Tokens));
        assert_eq!(tokens.to_string(), "budget spent: the call may use 51 tokens, and 50 of 1000 are left");
        check(&ledger, spend(10, 900), spend(50, 50));
    }

    #[test]
    fn a_bill_above_the_worst_case_stops_everything() {
        let ledger = Ledger::new(caps(100, 1000), Micros::ZERO, 0);
        ledger.reserve(Micros(10), 10).unwrap().settle(Micros(150), 10);
        check(&ledger, spend(150, 10), spend(0, 0));
        assert_eq!(ledger.room(), Room { cost: Some(Micros::ZERO), tokens: Some(990) });
        assert_eq!(ledger.reserve(Micros::ZERO, 0).map(drop).unwrap_err().kind(), Kind::Cost);
        assert_eq!(ledger.clamp_output(Rate::default(), 0, 10), None);
    }

    #[test]
    fn a_free_model_needs_no_money() {
        let ledger = Ledger::new(Caps { cost: Some(Micros::ZERO), tokens: None }, Micros::ZERO, 0);
        let (call, output) = ledger.reserve_call(Rate::default(), 500, 64).unwrap();
        assert_eq!(output, 64);
        call.settle(Micros::ZERO, 520);
        check(&ledger, spend(0, 520), spend(0, 0));
    }

    #[test]
    fn raising_never_lowers() {
        let none = Caps::default();
        for (before, with, after) in [
            (caps(10, 20), caps(15, 20), caps(15, 20)),
            (caps(10, 20), caps(5, 25), caps(10, 25)),
            (caps(10, 20), none, caps(10, 20)),
            (none, caps(5, 5), none),
        ] {
            assert_eq!(Ledger::new(before, Micros::ZERO, 0).raise(with), after);
        }
        let ledger = Ledger::new(caps(10, 20), Micros(10), 0);
        assert!(ledger.reserve(Micros(1), 1).is_err());
        ledger.raise(caps(11, 20));
        ledger.reserve(Micros(1), 1).unwrap().release();
    }

    #[test]
    fn output_is_clamped() {
        let rate = Rate { input: 3_000_000, output: 15_000_000 };
        #[track_caller]
        fn check(caps: Caps, rate: Rate, input: u64, wanted: u64, want: Option<u64>) {
            let ledger = Ledger::new(caps, Micros::ZERO, 0);
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
        check(Caps::default(), rate, u64::MAX, u64::MAX, Some(u64::MAX));
        check(caps(u64::MAX - 1, u64::MAX), Rate { input: u64::MAX, output: u64::MAX }, u64::MAX, 1, None);
        check(caps(0, 1000), Rate { input: 0, output: 1 }, 100, 5, None);
    }

    #[test]
    fn sums_at_the_top_of_the_number_come_back_down() {
        let ledger = Ledger::new(Caps::default(), Micros::ZERO, 0);
        let one = ledger.reserve(Micros(u64::MAX), u64::MAX).unwrap();
        let two = ledger.reserve(Micros(5), 5).unwrap();
        one.release();
        two.release();
        check(&ledger, spend(0, 0), spend(0, 0));
    }

    #[test]
    fn fifty_threads_at_the_edge_stay_below_the_cap() {
        const CAP: u64 = 1_000_000;
        let ledger = Ledger::new(caps(CAP, CAP), Micros(CAP / 100 * 99), CAP / 100 * 99);
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
                            let Ok(call) = ledger.reserve(Micros(worst), worst) else { continue };
                            granted += 1;
                            let taken = ledger.settled().plus(ledger.reserved());
                            assert!(taken.cost.0 <= CAP && taken.tokens <= CAP, "{taken:?}");
                            match round % 3 {
                                0 => call.settle(Micros(worst), worst),
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
        assert_eq!(ledger.reserved(), Spend::default());
        let settled = ledger.settled();
        assert!(settled.cost.0 <= CAP && settled.tokens <= CAP, "{settled:?}");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Reserve(u64, u64),
        Call(u64, u64, u64),
        Settle(usize, u64),
        Release(usize),
        Drop(usize),
        Raise(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0..200u64, 0..200u64).prop_map(|(cost, tokens)| Step::Reserve(cost, tokens)),
            (0..5_000_000u64, 0..100u64, 0..300u64).prop_map(|(rate, input, output)| Step::Call(rate, input, output)),
            (any::<usize>(), 0..=100u64).prop_map(|(at, percent)| Step::Settle(at, percent)),
            any::<usize>().prop_map(Step::Release),
            any::<usize>().prop_map(Step::Drop),
            (0..3000u64).prop_map(Step::Raise),
        ];
        proptest::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn any_order_of_calls_stays_below_the_cap(steps in steps(), cost in 0..2000u64, tokens in 0..2000u64) {
            let ledger = Ledger::new(caps(cost, tokens), Micros::ZERO, 0);
            let mut limit = caps(cost, tokens);
            let mut open: Vec<Reservation> = Vec::new();
            let mut settled = Spend::default();
            for step in steps {
                let mut take = |at: usize| (!open.is_empty()).then(|| open.swap_remove(at % open.len()));
                match step {
                    Step::Reserve(cost, tokens) => open.extend(ledger.reserve(Micros(cost), tokens)),
                    Step::Call(rate, input, wanted) => {
                        let rate = Rate { input: rate, output: rate };
                        let clamped = ledger.clamp_output(rate, input, wanted);
                        let granted = ledger.reserve_call(rate, input, wanted);
                        prop_assert_eq!(granted.as_ref().ok().map(|(_, output)| *output).filter(|n| *n > 0), clamped);
                        open.extend(granted.map(|(call, _)| call));
                    }
                    Step::Settle(at, percent) => if let Some(call) = take(at) {
                        let worst = call.worst();
                        let actual = spend(worst.cost.0 * percent / 100, worst.tokens * percent / 100);
                        settled = settled.plus(actual);
                        call.settle(actual.cost, actual.tokens);
                    },
                    Step::Release(at) => if let Some(call) = take(at) { call.release() },
                    Step::Drop(at) => if let Some(call) = take(at) {
                        settled = settled.plus(call.worst());
                        drop(call);
                    },
                    Step::Raise(to) => limit = ledger.raise(caps(to, to)),
                }
                let reserved = open.iter().map(Reservation::worst).fold(Spend::default(), Spend::plus);
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
            let rate = Rate { input: rate.0, output: rate.1 };
            let ledger = Ledger::new(caps(cost, tokens), Micros::ZERO, 0);
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
