//! A value that cannot be printed or serialised by accident, and that leaves no copy behind.

use std::borrow::Borrow;
use std::fmt;
use std::hint::black_box;
use std::ops::Deref;

use zeroize::Zeroizing;

/// A credential held on the host. It has no `Display` and no `Serialize`; [`Secret::expose`] is the one door. Its memory
/// is wiped when it is dropped, and comparing two takes as long whether they differ early or late.
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
        // The length is no secret: it is that of every credential of its kind.
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

// Nothing compiles once a `Secret` can be shown or written: a trait of this list gives `is_told` a second meaning for it,
// and the compiler cannot tell which one is meant.
const _: () = {
    trait Told<Way> {
        fn is_told() {}
    }
    struct Shown;
    struct Written;
    struct Read;
    struct AsText;
    struct Borrowed;
    struct Turned;
    impl<T: ?Sized> Told<()> for T {}
    impl<T: ?Sized + fmt::Display> Told<Shown> for T {}
    impl<T: ?Sized + serde::Serialize> Told<Written> for T {}
    impl<T: ?Sized + Deref> Told<Read> for T {}
    impl<T: ?Sized + AsRef<str>> Told<AsText> for T {}
    impl<T: ?Sized + Borrow<str>> Told<Borrowed> for T {}
    impl<T: Into<String>> Told<Turned> for T {}
    let _ = <Secret as Told<_>>::is_told;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_says_nothing() {
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
