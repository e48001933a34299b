//! Tables of cases for the meter: answers by wire and in pieces, requests, and how much they weigh.

mod pieces;
mod requests;
mod streams;
mod weights;
