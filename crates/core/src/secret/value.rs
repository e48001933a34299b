//! A value that cannot be printed or serialised by accident, and that leaves no copy behind.

use std::borrow::Borrow;
use std::fmt;
use std::hint::black_box;
use std::ops::Deref;

use zeroize::Zeroizing;

/// A credential held on the host. It has no `Display` and no `Serialize`; [`Secret::expose`] is the only access. Its
/// memory is wiped on drop, and comparing two takes the same time whether they differ early or late.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub fn new(value: impl Into<String>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let (own, other) = (self.0.as_bytes(), other.0.as_bytes());
        // The length is not secret: all credentials of a kind share it.
        let differing = own.iter().zip(other).fold(0, |all, (a, b)| black_box(all | (a ^ b)));
        own.len() == other.len() && black_box(differing) == 0
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

// Compilation fails as soon as a `Secret` can be shown or serialised: each trait of this list would give
// `exposes_value` a second meaning for it, and the compiler could not tell which one is meant.
const _: () = {
    trait ExposesValue<Way> {
        fn exposes_value() {}
    }
    struct ViaDisplay;
    struct ViaSerialize;
    struct ViaDeref;
    struct ViaAsRef;
    struct ViaBorrow;
    struct ViaInto;
    impl<T: ?Sized> ExposesValue<()> for T {}
    impl<T: ?Sized + fmt::Display> ExposesValue<ViaDisplay> for T {}
    impl<T: ?Sized + serde::Serialize> ExposesValue<ViaSerialize> for T {}
    impl<T: ?Sized + Deref> ExposesValue<ViaDeref> for T {}
    impl<T: ?Sized + AsRef<str>> ExposesValue<ViaAsRef> for T {}
    impl<T: ?Sized + Borrow<str>> ExposesValue<ViaBorrow> for T {}
    impl<T: Into<String>> ExposesValue<ViaInto> for T {}
    let _ = <Secret as ExposesValue<_>>::exposes_value;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_value() {
        assert_eq!(format!("{:?}", Secret::new("sk-live-123")), "Secret(…)");
    }

    #[test]
    fn comparing() {
        for (a, b, want) in [
            ("", "", true),
            ("abc", "abc", true),
            ("abc", "abd", false),
            ("abc", "ab", false),
            ("ab", "abc", false),
            ("xbc", "abc", false),
        ] {
            assert_eq!(Secret::new(a) == Secret::new(b), want, "{a} {b}");
        }
    }
}
