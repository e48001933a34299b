//! Starts here.
