//! Whole hosts, laid out in a temporary directory.

mod cases;
mod fake;
mod random;
mod real;
