//! The house rules that no lint knows: who may use what, what `core` may not do, how long a file may be.

mod check;
mod finding;
mod floors;
mod source;
mod text;
mod words;

pub(crate) use check::run;
