//! The house rules that no lint knows: who may use what, what `core` may not do, how long a file may be.

mod check;
mod code_scanner;
mod finding;
mod forbidden_words;
mod layers;
mod text;

pub(crate) use check::run;
