//! Paths in rules: `*` matches one segment, and as the last segment all that follow.

/// Returns whether a pattern is valid in a rule: absolute, no empty, dot or escaped segments.
pub(super) fn is_pattern(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else { return false };
    let segments = || rest.split('/');
    let last = segments().count().saturating_sub(1);
    segments().enumerate().all(|(n, segment)| {
        (!segment.is_empty() || n == last)
            && !segment.starts_with("..")
            && segment != "."
            && (segment == "*" || !segment.contains('*'))
            && segment.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'%' | b'?' | b'#' | b'\\'))
    })
}

/// Returns whether a request's path, query included, matches a pattern; `None` when the path cannot be compared
/// safely, because a server may interpret it as another one.
pub(super) fn matches(pattern: &str, path: &str) -> Option<bool> {
    if pattern == "/*" {
        return Some(true);
    }
    let path = unescape(path.split(['?', '#']).next().unwrap_or(""))?;
    let mut have = path.split('/').skip(1);
    let mut want = pattern.split('/').skip(1).peekable();
    while let Some(segment) = want.next() {
        if segment == "*" && want.peek().is_none() {
            return Some(have.next().is_some());
        }
        match have.next() {
            Some(other) if segment == other || (segment == "*" && !other.is_empty()) => (),
            _ => return Some(false),
        }
    }
    Some(have.next().is_none())
}

/// Returns whether every path that matches `narrow` also matches `wide`.
pub(super) fn covers(wide: &str, narrow: &str) -> bool {
    let mut have = narrow.split('/').skip(1).peekable();
    let mut want = wide.split('/').skip(1).peekable();
    while let Some(segment) = want.next() {
        if segment == "*" && want.peek().is_none() {
            return have.next().is_some();
        }
        let Some(other) = have.next() else { return false };
        let rest = other == "*" && have.peek().is_none();
        if rest || !(segment == other || (segment == "*" && !other.is_empty())) {
            return false;
        }
    }
    have.next().is_none()
}

/// Decodes the escapes that make no difference; `None` for a path that servers may interpret differently.
fn unescape(path: &str) -> Option<String> {
    let mut out = String::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        let byte = if byte == b'%' {
            let pair = [bytes.next()?, bytes.next()?];
            let value = *crate::hash::unhex(std::str::from_utf8(&pair).ok()?)?.first()?;
            if !(value.is_ascii_alphanumeric() || matches!(value, b'-' | b'.' | b'_' | b'~')) {
                if value.is_ascii_control() || matches!(value, b'/' | b'\\' | b'%') {
                    return None;
                }
                out.push('%');
                out.push_str(&crate::hash::hex(&[value]));
                continue;
            }
            value
        } else {
            byte
        };
        if !byte.is_ascii_graphic() || byte == b'\\' {
            return None;
        }
        out.push(char::from(byte));
    }
    let last = out.split('/').count().saturating_sub(1);
    let safe = out.starts_with('/')
        && out
            .split('/')
            .enumerate()
            .skip(1)
            .all(|(n, segment)| (!segment.is_empty() || n == last) && segment != "." && !segment.starts_with(".."));
    safe.then_some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(pattern: &str, path: &str, want: Option<bool>) {
        assert!(is_pattern(pattern), "{pattern} is no pattern");
        assert_eq!(matches(pattern, path), want, "{pattern} {path}");
    }

    #[test]
    fn matching() {
        check("/a", "/a", Some(true));
        check("/a", "/a?q=1", Some(true));
        check("/a", "/a/", Some(false));
        check("/a/*", "/a/b/c", Some(true));
        check("/a/*", "/a/", Some(true));
        check("/a/*", "/a", Some(false));
        check("/*/*/git-upload-pack", "/o/r/git-upload-pack", Some(true));
        check("/*/*/git-upload-pack", "/o/r/git-receive-pack", Some(false));
        check("/*/x", "//x", None);
        check("/a/*", "/a/../b", None);
        check("/a/*", "/a/%2e%2e/b", None);
        check("/a/*", "/a/..;/b", None);
        check("/a/*", "/a%2fb", None);
        check("/a/*", "/a\\b", None);
        check("/a/*", "/a/%zz", None);
        check("/admin", "/%61dmin", Some(true));
        check("/a/*", "a/b", None);
        check("/*", "/any/../thing", Some(true));
    }

    #[test]
    fn patterns() {
        for bad in ["", "a", "/a//b", "/a/../b", "/./a", "/a*b", "/%61", "/a?b", "/a b", "/ä"] {
            assert!(!is_pattern(bad), "{bad}");
        }
    }

    #[test]
    fn covering() {
        for (wide, narrow, want) in [
            ("/*", "/a", true),
            ("/*", "/*", true),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/b/*", true),
            ("/a/*", "/a", false),
            ("/a/*", "/*", false),
            ("/*/x", "/a/x", true),
            ("/*/x", "/*/x", true),
            ("/a/x", "/*/x", false),
            ("/a/*/x", "/a/*", false),
        ] {
            assert_eq!(covers(wide, narrow), want, "{wide} over {narrow}");
        }
    }

    proptest! {
        #[test]
        fn a_covering_pattern_matches_all_covered_paths(wide in "(/(a|b|\\*)){1,4}/?", narrow in "(/(a|b|\\*)){1,4}/?", path in "(/(a|b|c)){1,5}/?") {
            if covers(&wide, &narrow) && matches(&narrow, &path) == Some(true) {
                prop_assert_eq!(matches(&wide, &path), Some(true));
            }
        }

        #[test]
        fn never_panics(pattern in "\\PC{0,20}", path in "\\PC{0,30}|[/%.a2ef\\\\]{0,30}") {
            let _ = (is_pattern(&pattern), matches(&pattern, &path), covers(&pattern, &path));
        }
    }
}
