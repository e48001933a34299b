//! Tables of cases for the meter: answers by wire and in pieces, requests, and how much they weigh.

mod requests;
mod split_bodies;
mod token_estimates;
mod usage_streams;
