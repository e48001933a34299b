//! Tables of test cases for the meter: answers by API and in pieces, requests, and token estimates.

mod requests;
mod split_bodies;
mod token_estimates;
mod usage_streams;
