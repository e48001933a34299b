//! The audit file of a run: what was decided at its doors, one record a line, each line chained to the one before.
//!
//! Records, their chain and the judgement whether a file is as it was written are here. Nothing is written or read
//! here: the engine keeps the file and anchors the head of its chain in the run's events.

mod chain;
mod flood;
mod record;
mod verify;

pub use chain::{Chain, Damage, Found, Head, Open, genesis};
pub use flood::{ALARMS, Class, DENIED, Flood, LENT, OTHERS};
pub use record::{FORMAT, Kind, Record};
pub use verify::{Anchor, Fault, Report, Verify};
