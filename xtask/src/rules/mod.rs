//! Checks the workspace rules that no existing tool covers: which crate may use which, where `unsafe` is allowed, how
//! long a file may be, and that no two public types share a name.

mod check;
mod code_scanner;
mod finding;
mod forbidden_words;
mod layers;
mod text;
mod type_names;

pub(crate) use check::run;
