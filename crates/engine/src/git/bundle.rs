//! Parses the header of a bundle file: which commits it needs and which refs it offers. The pack after it is not read
//! here.

use super::Sha;
use super::validated_names::ObjectFormat;

/// A fully parsed header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BundleHeader {
    pub(crate) prerequisites: Vec<Sha>,
    pub(crate) refs: Vec<(Sha, String)>,
    /// The number of objects that the pack claims to hold.
    pub(crate) objects: u32,
    /// The offset of the pack.
    pub(crate) pack_at: u64,
}

/// A longer header is an attack: ralph's own has a handful of lines.
pub(crate) const HEADER_CAP: usize = 64 << 10;

/// Parses the first bytes of a bundle; the error says what is wrong with it.
pub(crate) fn parse_header(bytes: &[u8], format: ObjectFormat) -> Result<BundleHeader, &'static str> {
    let (mut needs, mut refs) = (Vec::new(), Vec::new());
    let mut rest = bytes;
    let mut line = || -> Option<&[u8]> {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (line, behind) = rest.split_at_checked(end)?;
        rest = behind.get(1..)?;
        Some(line)
    };
    let version = match line() {
        Some(b"# v2 git bundle") => 2,
        Some(b"# v3 git bundle") => 3,
        _ => return Err("it is not a git bundle"),
    };
    let mut declared = ObjectFormat::Sha1;
    loop {
        let Some(line) = line() else { return Err("its header does not end") };
        if line.is_empty() {
            break;
        }
        let Ok(line) = std::str::from_utf8(line) else { return Err("its header is not text") };
        if let Some(capability) = line.strip_prefix('@').filter(|_| version == 3) {
            declared = capability
                .strip_prefix("object-format=")
                .and_then(ObjectFormat::parse)
                .ok_or("it asks for an unknown capability")?;
        } else if let Some(need) = line.strip_prefix('-') {
            let name = need.split(' ').next().unwrap_or_default();
            needs.push(Sha::parse(name).map_err(|_| "it needs something that is not a commit")?);
        } else {
            let (name, target) = line.split_once(' ').ok_or("it has an unreadable ref")?;
            let sha = Sha::parse(name).map_err(|_| "it has an unreadable ref")?;
            refs.push((sha, target.to_owned()));
        }
    }
    if declared != format {
        return Err("it names objects with another hash");
    }
    let pack_at = bytes.len() - rest.len();
    let Some((b"PACK", rest)) = rest.split_at_checked(4) else { return Err("it holds no pack") };
    let objects = rest.get(4..8).and_then(|count| <[u8; 4]>::try_from(count).ok()).map(u32::from_be_bytes);
    let objects = objects.ok_or("its pack is cut off")?;
    Ok(BundleHeader {
        prerequisites: needs,
        refs,
        objects,
        pack_at: u64::try_from(pack_at).map_err(|_| "its header is too long")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const PACK: &str = "PACK\0\0\0\x02\0\0\0\x07";

    #[test]
    fn headers() {
        let sha = Sha::parse(A).unwrap();
        let text = format!("# v2 git bundle\n-{A} a subject\n{A} refs/heads/ralph/x\n\n{PACK}");
        let want = BundleHeader {
            prerequisites: vec![sha.clone()],
            refs: vec![(sha, "refs/heads/ralph/x".to_owned())],
            objects: 7,
            pack_at: u64::try_from(text.len() - PACK.len()).unwrap(),
        };
        assert_eq!(parse_header(text.as_bytes(), ObjectFormat::Sha1), Ok(want));
        for (text, why) in [
            ("", "it is not a git bundle"),
            ("# v4 git bundle\n\n", "it is not a git bundle"),
            ("# v2 git bundle\n", "its header does not end"),
            ("# v2 git bundle\n@filter=blob:none\n\nPACK", "it has an unreadable ref"),
            ("# v3 git bundle\n@filter=blob:none\n\nPACK", "it asks for an unknown capability"),
            ("# v3 git bundle\n@object-format=sha256\n\nPACK", "it names objects with another hash"),
            ("# v2 git bundle\n-HEAD\n\n", "it needs something that is not a commit"),
            ("# v2 git bundle\n\nPAC", "it holds no pack"),
            ("# v2 git bundle\n\nPACK\0\0", "its pack is cut off"),
        ] {
            assert_eq!(parse_header(text.as_bytes(), ObjectFormat::Sha1), Err(why), "{text:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn hostile_headers_never_panic(tail in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = parse_header(&tail, ObjectFormat::Sha1);
            let _ = parse_header(&[b"# v3 git bundle\n".as_slice(), &tail].concat(), ObjectFormat::Sha1);
        }
    }
}
