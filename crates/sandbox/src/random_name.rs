//! Generates unguessable names for temporary files and for telling one sandbox or owner from another.

/// Returns 16 random hexadecimal characters.
pub(crate) fn random() -> String {
    let mut bytes = [0_u8; 8];
    getrandom::fill(&mut bytes).expect("the system has randomness, or nothing here can be trusted");
    ralph_core::hash::hex(&bytes)
}
