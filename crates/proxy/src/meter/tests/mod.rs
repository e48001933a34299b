mod pieces;
mod requests;
mod streams;
mod weights;
