//! Splits the name of an entry into plain path components.
//!
//! One leading slash is dropped, because some builders write `/etc/passwd` for `etc/passwd`; a name that has any
//! other oddity as well is refused. `./` and doubled slashes are dropped. `..` is always refused: no valid layer
//! contains it.

use super::ImageLimits;

/// The longest single name that the file systems in use can store.
const MAX_NAME_BYTES: usize = 255;

/// Returns the path components from the root; empty for the root itself.
pub(super) fn parse<'a>(name: &'a [u8], limits: &ImageLimits) -> Result<Vec<&'a [u8]>, &'static str> {
    if name.is_empty() {
        return Err("its name is empty");
    }
    if name.contains(&0) {
        return Err("its name holds a NUL byte");
    }
    if name.len() > limits.path {
        return Err("its path is too long");
    }
    let (rest, absolute) = match name {
        [b'/', rest @ ..] => (rest, true),
        _ => (name, false),
    };
    let body = rest.strip_suffix(b"/").unwrap_or(rest);
    let mut names = Vec::new();
    for part in body.split(|byte| *byte == b'/') {
        match part {
            b".." => return Err("its path contains `..`"),
            b"" if rest.is_empty() => (),
            b"" | b"." if absolute => return Err("its path is absolute and not normalised"),
            b"" | b"." => (),
            part if part.len() > MAX_NAME_BYTES => return Err("a name in its path is too long"),
            part => names.push(part),
        }
    }
    if names.len() > limits.depth {
        return Err("its path is too deep");
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, want: Result<&[&str], &str>) {
        let limits = ImageLimits { depth: 3, path: 300, ..ImageLimits::default() };
        let got = parse(name.as_bytes(), &limits)
            .map(|names| names.into_iter().map(|name| std::str::from_utf8(name).unwrap()).collect::<Vec<_>>());
        assert_eq!(got, want.map(<[&str]>::to_vec), "{name:?}");
    }

    #[test]
    fn names() {
        check("a", Ok(&["a"]));
        check("./a//b/./c/", Ok(&["a", "b", "c"]));
        check("/etc/passwd", Ok(&["etc", "passwd"]));
        check("/etc/", Ok(&["etc"]));
        check("./", Ok(&[]));
        check(".", Ok(&[]));
        check("/", Ok(&[]));
        check("...", Ok(&["..."]));
        check("a b\n/ü", Ok(&["a b\n", "ü"]));
        check("", Err("its name is empty"));
        check("..", Err("its path contains `..`"));
        check("a/../b", Err("its path contains `..`"));
        check("a/..", Err("its path contains `..`"));
        check("/../a", Err("its path contains `..`"));
        check("//etc/passwd", Err("its path is absolute and not normalised"));
        check("/./etc", Err("its path is absolute and not normalised"));
        check("/a//b", Err("its path is absolute and not normalised"));
        check("a\0b", Err("its name holds a NUL byte"));
        check("a/b/c/d", Err("its path is too deep"));
        check(&"x".repeat(256), Err("a name in its path is too long"));
        check(&"x/".repeat(200), Err("its path is too long"));
    }
}
