//! Tests with random layers: nothing outside the store is created or changed, and nothing panics.
//!
//! If that ever fails, the names used here reach no further than the test's own folder: a bug in code that removes
//! trees must not damage the machine it is found on.

use proptest::prelude::*;

use super::*;
use crate::image::unpack_layer;

/// Names from a small alphabet, so that entries collide, replace and link each other. Most are valid, because the
/// first refusal ends the image.
fn name() -> impl Strategy<Value = String> {
    let join = |(start, parts): (&str, Vec<&str>)| format!("{start}{}", parts.join("/"));
    let tame = prop::sample::select(vec!["a", "a", "b", "b", "c", "l", "m", "bin"]);
    let tame = (prop::sample::select(vec!["", "./"]), prop::collection::vec(tame, 1..4)).prop_map(join);
    let wild = prop::sample::select(vec!["a", "b", "l", "", ".", "..", "dev", "null", ".wh.a", ".wh..", "a\0", "é\n"]);
    let start = prop::sample::select(vec!["", "./", "../", "OUTSIDE/", "../../../outside/"]);
    let wild = (start, prop::collection::vec(wild, 0..4)).prop_map(join);
    prop_oneof![20 => tame, 1 => wild]
}

type RandomTarEntry = (u8, String, String, u32, String);

fn entry() -> impl Strategy<Value = RandomTarEntry> {
    let kind = prop_oneof![30 => prop::sample::select(b"000552221".to_vec()), 1 => prop::sample::select(b"3467LKxgSs".to_vec())];
    let out = prop::sample::select(vec!["..", "../..", "../../..", "../../../outside", "OUTSIDE", "OUTSIDE/canary"]);
    let link = prop_oneof![2 => name(), 1 => out.prop_map(str::to_owned)];
    let content = prop_oneof![2 => Just(String::new()), 1 => "[a-z0-9 =\n]{0,20}"];
    let hidden = prop::sample::select(vec![".wh.a", ".wh.b", ".wh.l", ".wh..wh..opq"]);
    let whiteout =
        (name(), hidden).prop_map(|(name, hidden)| (b'0', format!("{name}/{hidden}"), String::new(), 0, String::new()));
    prop_oneof![6 => (kind, name(), link, 0..0o10000_u32, content), 1 => whiteout]
}

/// Links and directories may have no content; most entries should pass that check.
fn layer(entries: &[RandomTarEntry], outside: &str) -> LayerBuilder {
    entries.iter().fold(LayerBuilder::new(), |layer, (kind, name, link, mode, content)| {
        let place = |text: &str| text.replace("OUTSIDE", outside);
        let content = if matches!(kind, b'1' | b'2' | b'5') { "" } else { content };
        layer.member(*kind, place(name).as_bytes(), place(link).as_bytes(), *mode, content.as_bytes())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_outside_is_changed(
        lower in prop::collection::vec(entry(), 0..8),
        upper in prop::collection::vec(entry(), 0..8),
    ) {
        let place = ImageFixture::new();
        let outside = place.path("outside").canonicalize().unwrap();
        let before = place.outside();
        let layers = [small_layer(), layer(&lower, outside.to_str().unwrap()), layer(&upper, outside.to_str().unwrap())];
        let prepared = place.prepare(&ImageBuilder::new(layers));
        prop_assert_eq!(place.outside(), before);
        prop_assert_eq!(names(place.folder.path()), ["image", "outside", "store"]);
        match prepared {
            Ok(prepared) => {
                prop_assert_eq!(place.store_entries(), [&prepared.digest.unwrap()[7..]]);
                walk(&prepared.root, "", &mut |name, path| {
                    let meta = fs::symlink_metadata(path).unwrap();
                    assert!(meta.is_dir() || meta.is_file() || meta.is_symlink(), "{name}");
                    assert_eq!(meta.mode() & 0o6000, 0, "{name}");
                    assert!(!meta.is_dir() || meta.mode() & 0o700 == 0o700, "{name}");
                });
            }
            Err(_) => prop_assert_eq!(place.store_entries(), Vec::<String>::new()),
        }
    }

    #[test]
    fn valid_entries_are_never_refused(
        entries in prop::collection::vec((prop::sample::select(b"05".to_vec()), "[ab](/[ab]){0,2}"), 0..8),
    ) {
        // Each below directories only: every other name is a file's, with its own letter.
        let layer = entries.iter().fold(small_layer(), |layer, (kind, name)| match kind {
            b'5' => layer.directory(name, 0o755),
            _ => layer.file(&format!("{name}/f"), 0o644, name),
        });
        let place = ImageFixture::new();
        prop_assert!(place.prepare(&ImageBuilder::new([layer.clone(), layer])).is_ok());
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(blocks in prop::collection::vec((entry(), prop::collection::vec((0..512_usize, any::<u8>()), 0..3)), 0..4)) {
        // Headers with some bytes changed and the checksum corrected.
        let mut tar = Vec::new();
        for (entry, changes) in blocks {
            let mut bytes = layer(&[entry], "/outside").tar();
            bytes.truncate(bytes.len() - 1024);
            for (at, byte) in changes {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            if let Some(head) = bytes.get_mut(..512) {
                let mut header = tar::Header::new_old();
                header.as_mut_bytes().copy_from_slice(head);
                header.set_cksum();
                head.copy_from_slice(header.as_bytes());
            }
            tar.extend(bytes);
        }
        let place = ImageFixture::new();
        let before = place.outside();
        let into = place.path("far/down/into");
        fs::create_dir_all(&into).unwrap();
        let _ = unpack_layer(&tar[..], &into, &ImageLimits { bytes: 1 << 20, ..ImageLimits::default() });
        prop_assert_eq!(place.outside(), before);
        prop_assert_eq!(names(place.folder.path()), ["far", "outside"]);
    }
}
