//! Tests images that try to escape or to use too much: refused with one message, nothing kept, nothing outside
//! changed.

use super::*;
use crate::image::build::{self, DockerSaveFormat, LayerCompression};

/// Writes a layout, lets `spoil` damage it, and checks the error message.
#[track_caller]
fn check_damaged(limits: ImageLimits, image: &ImageBuilder, spoil: impl FnOnce(&Path), want: &str) {
    let place = ImageFixture { limits, ..ImageFixture::new() };
    let before = place.outside();
    image.write_layout(&place.path("image"), None).unwrap();
    spoil(&place.path("image"));
    let got = match place.store().prepare(&place.oci()) {
        Ok(prepared) => panic!("accepted: {:?}", lines(&prepared.root)),
        Err(error) => error_chain(&error).replace(&place.oci().to_string(), "IMAGE"),
    };
    let dir = place.path("image").canonicalize().unwrap();
    assert_eq!(got.replace(&dir.display().to_string(), "DIR"), want);
    assert_eq!(place.outside(), before);
    assert_eq!(place.store_entries(), <[&str; 0]>::default());
}

#[track_caller]
fn check(layer: LayerBuilder, want: &str) {
    check_damaged(
        ImageLimits::default(),
        &ImageBuilder::new([small_layer(), layer]),
        |_| (),
        &format!("layer 2 of the image: refused {want}"),
    );
}

#[test]
fn names_that_escape_are_refused() {
    let file = |name: &str| LayerBuilder::new().file(name, 0o644, "x");
    check(file("../outside/canary"), "`../outside/canary`: its path contains `..`");
    check(file("a/../../b"), "`a/../../b`: its path contains `..`");
    check(file("bin/.."), "`bin/..`: its path contains `..`");
    check(file("/../x"), "`/../x`: its path contains `..`");
    check(file("//nowhere/x"), "`//nowhere/x`: its path is absolute and not normalised");
    check(file("/./nowhere"), "`/./nowhere`: its path is absolute and not normalised");
    check(LayerBuilder::new().member(b'0', b"a\0/../b", b"", 0o644, b""), "`a/../b`: its name holds a NUL byte");
    check(file(""), "``: its name is empty");
    check(file("./"), "`./`: it has content although it is not a file");
    check(LayerBuilder::new().symlink(".", "/nowhere"), "`.`: the root of the image can only be a directory");
    check(LayerBuilder::new().symlink("/", "/nowhere"), "`/`: the root of the image can only be a directory");
    check(file("\u{1b}[2Jx/../y"), "`x/../y`: its path contains `..`");
    check(file(&"x".repeat(256)), &format!("`{}…`: a name in its path is too long", "x".repeat(200)));
    check(file(&"x/".repeat(101)), &format!("`{}…`: it has content although it is not a file", "x/".repeat(100)));
    check(
        LayerBuilder::new().directory(&"x/".repeat(101), 0o755),
        &format!("`{}…`: its path is too deep", "x/".repeat(100)),
    );
    check(
        LayerBuilder::new().directory(&"x/".repeat(3000)[1..], 0o755),
        &format!("`/{}x…`: its path is too long", "x/".repeat(99)),
    );
}

#[test]
fn links_that_escape_are_refused() {
    let link = |target: &str| LayerBuilder::new().hardlink("h", target);
    check(link("../outside/canary"), "`h`: it is a hard link to a path that is not plain");
    check(link("//nowhere/x"), "`h`: it is a hard link to a path that is not plain");
    check(link(""), "`h`: it is a hard link to a path that is not plain");
    check(link("/nowhere/x"), "`h`: it is a hard link to something that is not in the image");
    check(link("bin"), "`h`: it is a hard link to something that is not a file");
    check(link("/"), "`h`: it is a hard link to something that is not a file");
    check(link("bin/sh/x"), "`h`: it is a hard link through something that is not a directory");
    let through = LayerBuilder::new().symlink("l", "bin").hardlink("h", "l/sh");
    check(through, "`h`: it is a hard link through something that is not a directory");
    let replaced = LayerBuilder::new().file("d/f", 0o644, "").hardlink("d", "d/f");
    check(replaced, "`d`: it is a hard link to something that is not in the image");
    let loops = LayerBuilder::new().symlink("a", "b").symlink("b", "a").file("a/x", 0o644, "");
    check(loops, "`a/x`: its path goes through too many links");
    let winding = LayerBuilder::new().directory("w", 0o755).symlink("l", &"w/../".repeat(300)).file("l/x", 0o644, "");
    check(winding, "`l/x`: its path goes through too many links");
    check(LayerBuilder::new().file("bin/sh/x", 0o644, ""), "`bin/sh/x`: a part of its path is not a directory");
    check(
        LayerBuilder::new().symlink("l", "bin/sh").file("l/x", 0o644, ""),
        "`l/x`: a part of its path is not a directory",
    );
    check(
        LayerBuilder::new().member(b'2', b"l", b"a\0b", 0o777, b""),
        "`l`: the target of its link is empty, too long or holds a NUL byte",
    );
    check(LayerBuilder::new().symlink("l", ""), "`l`: the target of its link is empty, too long or holds a NUL byte");
    // Short paths through links can still create a deep tree.
    let x = "x/".repeat(90);
    let deep =
        LayerBuilder::new().directory(&x, 0o755).symlink("l", &x).directory(&format!("l/{}", "y/".repeat(11)), 0o755);
    check(deep, "`l/y/y/y/y/y/y/y/y/y/y/y/`: its path is too deep");
}

#[test]
fn a_link_to_the_outside_is_followed_only_inside_the_tree() {
    let place = ImageFixture::new();
    let before = place.outside();
    let outside = place.path("outside").canonicalize().unwrap();
    let upper = LayerBuilder::new()
        .symlink("l", outside.to_str().unwrap())
        .file("l/canary", 0o777, "dead")
        .whiteout("l/inner")
        .opaque("l/inner");
    let prepared =
        place.prepare(&ImageBuilder::new([small_layer(), upper, LayerBuilder::new().whiteout("l/canary")])).unwrap();
    assert_eq!(place.outside(), before);
    let inside = prepared.root.join(outside.strip_prefix("/").unwrap());
    assert_eq!(names(&inside), <[&str; 0]>::default());
}

#[test]
fn entries_that_are_not_files_are_refused() {
    let member = |kind, name: &str| LayerBuilder::new().member(kind, name.as_bytes(), b"", 0o666, b"");
    check(member(b'3', "null"), "`null`: it is a device");
    check(member(b'3', "dev/sda"), "`dev/sda`: it is a device");
    check(member(b'3', "dev/pts/0"), "`dev/pts/0`: it is a device");
    check(member(b'4', "dev/null"), "`dev/null`: it is a device");
    check(member(b'6', "pipe"), "`pipe`: it is a named pipe");
    check(member(b's', "socket"), "`socket`: it has an unknown type");
    check(member(b'V', "label"), "`label`: it has an unknown type");
    check(member(b'3', ".wh.bin"), "`.wh.bin`: a whiteout can only be a file");
    check(LayerBuilder::new().file(".wh...", 0o644, ""), "`.wh...`: it is a whiteout without a valid name");
    check(LayerBuilder::new().file("bin/.wh..", 0o644, ""), "`bin/.wh..`: it is a whiteout without a valid name");
    check(LayerBuilder::new().file(".wh.", 0o644, ""), "`.wh.`: it is a whiteout without a valid name");
    check(
        LayerBuilder::new().file(".wh.bin/x", 0o644, ""),
        "`.wh.bin/x`: a directory in its path is named like a whiteout",
    );
}

#[test]
fn ambiguous_headers_are_refused() {
    let record = |key: &str, value: &str| build::record(key, value.as_bytes());
    let pax = |records: &[u8]| LayerBuilder::new().member(b'x', b"pax", b"", 0o644, records);
    check(
        pax(&record("path", "a")).member(b'x', b"pax", b"", 0o644, b"").file("b", 0o644, ""),
        "`pax`: two extended headers of one kind describe one entry",
    );
    check(
        pax(&record("path", "a")).member(b'L', b"long", b"", 0o644, b"c\0").file("b", 0o644, ""),
        "`b`: two extended headers of one kind describe one entry",
    );
    check(pax(&record("path", "a")), "``: an extended header has no entry");
    check(pax(b"5 path=a\n"), "`pax`: its extended header is malformed");
    check(pax(&record("size", "99999999999999999999")), "`pax`: its extended header is malformed");
    check(pax(&record("size", "18446744073709551615")).file("a", 0o644, ""), "`a`: its size is malformed");
    check(pax(&record("GNU.sparse.major", "1")), "`pax`: it is a sparse file in an unknown format");
    check(
        LayerBuilder::new().member(b'g', b"all", b"", 0o644, &record("path", "a")),
        "`all`: a global header changes names or sizes",
    );
    check(
        LayerBuilder::new().member(b'5', b"d", b"", 0o755, b"content"),
        "`d`: it has content although it is not a file",
    );
    check(
        LayerBuilder::new().member(b'2', b"l", b"bin", 0o777, b"content"),
        "`l`: it has content although it is not a file",
    );
    check(LayerBuilder::new().raw(&[0; 512]).file("late", 0o644, ""), "``: something follows the end of the archive");
    let large = vec![b'a'; (1 << 20) + 1];
    check(LayerBuilder::new().member(b'x', b"pax", b"", 0o644, &large), "`pax`: its extended header is too large");
    check(LayerBuilder::new().member(b'L', b"long", b"", 0o644, &large), "`long`: its extended header is too large");
    let sparse = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "9")]
        .map(|(key, value)| record(key, value))
        .concat();
    for map in ["", "1\n5\n9\n", "2\n4\n1\n0\n1\n", "1\n-1\n1\n", "99999999\n", "x\n", "1\n0\n1\n"] {
        let mut content = map.as_bytes().to_vec();
        content.resize(512, 0);
        let layer = pax(&sparse).member(b'0', b"s", b"", 0o644, &content);
        check(layer, "`s`: the map of this sparse file is malformed");
    }
}

#[test]
fn truncated_and_damaged_tars_are_refused() {
    let cut = |tar: &[u8]| {
        let layer = LayerBuilder::new().raw(tar);
        let want = |why: &str| format!("could not read layer 1 of the image: {why}");
        (ImageBuilder::new([layer]), want)
    };
    let whole = LayerBuilder::new().file("f", 0o644, &"x".repeat(5000)).tar();
    let mut bad = whole.clone();
    bad[0] = b'g';
    let (image, want) = cut(&bad);
    check_damaged(ImageLimits::default(), &image, |_| (), &want("a tar header has a wrong checksum"));
    let mut header = build::header(b'0', b"f", b"", 0o644, 99_999);
    header.push(b'x');
    let (image, want) = cut(&header);
    check_damaged(ImageLimits::default(), &image, |_| (), &want("unexpected end of file"));
}

#[test]
fn decompression_bombs_are_refused() {
    let bomb = |limits: ImageLimits, layers: &[LayerBuilder], packing: LayerCompression, want: &str| {
        let image = ImageBuilder { compression: packing, ..ImageBuilder::new(layers.to_vec()) };
        let want = format!("layer {} of the image: refused after {want}", layers.len());
        check_damaged(limits, &image, |_| (), &want);
    };
    let zeros = "\0".repeat(1 << 20);
    let file = || LayerBuilder::new().file("zeros", 0o644, &zeros);
    let limits = || ImageLimits { ratio_from: 1 << 16, ..ImageLimits::default() };
    bomb(limits(), &[file()], LayerCompression::Gzip, "`zeros`: it unpacks to more than 250 times its size");
    bomb(limits(), &[file()], LayerCompression::Zstd, "`zeros`: it unpacks to more than 250 times its size");
    let late = LayerBuilder::new().file("a", 0o644, "").raw(&vec![0; 1 << 20]);
    bomb(limits(), &[late], LayerCompression::Gzip, "``: it unpacks to more than 250 times its size");
    let limits = ImageLimits { bytes: 1 << 20, ..ImageLimits::default() };
    bomb(
        limits.clone(),
        &[small_layer(), file()],
        LayerCompression::Gzip,
        "`zeros`: the image unpacks to more than 1048576 bytes",
    );
    let half = || LayerBuilder::new().file("half", 0o644, &zeros[..600_000]);
    bomb(limits, &[half(), half()], LayerCompression::Gzip, "`half`: the image unpacks to more than 1048576 bytes");
    let limits = ImageLimits { file: 100, ..ImageLimits::default() };
    bomb(limits, &[small_layer(), file()], LayerCompression::Plain, "`zeros`: a file is larger than 100 bytes");
    let limits = ImageLimits { entries: 3, ..ImageLimits::default() };
    let many = LayerBuilder::new().file("a", 0o644, "").file("b", 0o644, "");
    bomb(limits, &[small_layer(), many], LayerCompression::Plain, "`b`: the image has more than 3 entries");
    let limits = ImageLimits { entries: 30, ..ImageLimits::default() };
    let again = (0..10).fold(LayerBuilder::new(), |layer, n| layer.file(&format!("d/{n}"), 0o644, ""));
    let again = (0..10).fold(again, |layer, _| layer.opaque("d"));
    bomb(limits, &[again], LayerCompression::Plain, "`d/.wh..wh..opq`: it hides the same entries again and again");
    let sparse = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0"), ("GNU.sparse.realsize", "99999999999")]
        .map(|(key, value)| build::record(key, value.as_bytes()))
        .concat();
    let mut content = b"0\n".to_vec();
    content.resize(512, 0);
    let holes =
        LayerBuilder::new().member(b'x', b"pax", b"", 0o644, &sparse).member(b'0', b"holes", b"", 0o644, &content);
    let want = "`holes`: a file is larger than 8589934592 bytes";
    bomb(ImageLimits::default(), std::slice::from_ref(&holes), LayerCompression::Plain, want);
    let limits = ImageLimits { file: u64::MAX, ..ImageLimits::default() };
    bomb(limits, &[holes], LayerCompression::Plain, "`holes`: the image unpacks to more than 17179869184 bytes");
    check_damaged(
        ImageLimits { layers: 1, ..ImageLimits::default() },
        &ImageBuilder::new([small_layer(), small_layer()]),
        |_| (),
        "`IMAGE` cannot be used: it has more than 1 layers",
    );
}

fn edit(dir: &Path, change: impl FnOnce(&mut serde_json::Value)) {
    let mut index = serde_json::from_slice(&fs::read(dir.join("index.json")).unwrap()).unwrap();
    change(&mut index);
    fs::write(dir.join("index.json"), serde_json::to_vec(&index).unwrap()).unwrap();
}

/// Replaces the manifest with another document, under a correct digest.
fn replace(dir: &Path, media_type: &str, change: impl FnOnce(&mut serde_json::Value)) {
    edit(dir, |index| {
        let digest = index["manifests"][0]["digest"].as_str().unwrap().to_owned();
        let mut manifest =
            serde_json::from_slice(&fs::read(dir.join("blobs/sha256").join(&digest[7..])).unwrap()).unwrap();
        change(&mut manifest);
        let bytes = serde_json::to_vec(&manifest).unwrap();
        fs::write(dir.join("blobs/sha256").join(ralph_core::hash::sha256(&bytes)), &bytes).unwrap();
        index["manifests"][0] = build::descriptor(media_type, &bytes);
    });
}

#[test]
fn invalid_documents_are_refused() {
    const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    let image = ImageBuilder { compression: LayerCompression::Plain, ..ImageBuilder::new([small_layer()]) };
    let check = |spoil: &dyn Fn(&Path), want: &str| {
        // Digests and sizes depend on the contents; the message does not.
        let place = ImageFixture::new();
        let before = place.outside();
        image.write_layout(&place.path("image"), None).unwrap();
        spoil(&place.path("image"));
        let error = place.store().prepare(&place.oci()).unwrap_err();
        let mut said = error_chain(&error).replace(&place.oci().to_string(), "IMAGE");
        said.truncate(said.rfind(" at line ").unwrap_or(said.len()));
        while let Some(at) = said.find("sha256:").filter(|at| said[*at + 7..].len() >= 64) {
            said.replace_range(at..at + 71, "DIGEST");
        }
        assert_eq!(said, want);
        assert_eq!(place.outside(), before);
        assert_eq!(place.store_entries(), <[&str; 0]>::default());
    };
    let index = |text: &'static str| move |dir: &Path| fs::write(dir.join("index.json"), text).unwrap();
    check(
        &|dir| fs::remove_file(dir.join("index.json")).unwrap(),
        "`IMAGE` cannot be used: it has no `index.json`, so it is not an image layout",
    );
    check(&index("{"), "could not parse the index of `IMAGE`: EOF while parsing an object");
    check(&index(r#"{"manifests":[]}"#), "`IMAGE` cannot be used: the index is empty");
    check(
        &|dir| fs::write(dir.join("index.json"), vec![b' '; (4 << 20) + 1]).unwrap(),
        "the index of `IMAGE` is larger than 4194304 bytes",
    );
    check(
        &|dir| edit(dir, |index| index["manifests"][0]["digest"] = "../../etc/passwd".into()),
        "could not parse the index of `IMAGE`: `../../etc/passwd` is not a sha256 digest",
    );
    check(
        &|dir| edit(dir, |index| index["manifests"][0]["digest"] = "sha256:../../../../../../etc/passwd".into()),
        "could not parse the index of `IMAGE`: `sha256:../../../../../../etc/passwd` is not a sha256 digest",
    );
    check(
        &|dir| edit(dir, |index| index["manifests"][0]["digest"] = format!("sha256:{}", "0".repeat(64)).into()),
        "`IMAGE` cannot be used: the manifest DIGEST is missing",
    );
    check(
        &|dir| edit(dir, |index| index["manifests"][0]["mediaType"] = "text/html".into()),
        "`IMAGE` cannot be used: the document DIGEST declares a different media type",
    );
    check(
        &|dir| edit(dir, |index| index["layers"] = serde_json::json!([])),
        "`IMAGE` cannot be used: the index is an index and a manifest at once",
    );
    check(
        &|dir| replace(dir, MANIFEST, |manifest| manifest["manifests"] = serde_json::json!([])),
        "`IMAGE` cannot be used: the manifest DIGEST is an index and a manifest at once",
    );
    check(
        &|dir| replace(dir, "application/vnd.oci.image.index.v1+json", |_| ()),
        "`IMAGE` cannot be used: the index DIGEST declares a different media type",
    );
    check(
        &|dir| replace(dir, MANIFEST, |manifest| manifest["config"]["mediaType"] = "application/vnd.cncf.helm".into()),
        "`IMAGE` cannot be used: `application/vnd.cncf.helm` is not a known media type",
    );
    check(
        &|dir| replace(dir, MANIFEST, |manifest| manifest["layers"][0]["mediaType"] = "image/\u{1b}[1mpng".into()),
        "`IMAGE` cannot be used: `image/png` is not a known media type",
    );
    for foreign in [
        "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip",
        "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
    ] {
        check(
            &|dir| replace(dir, MANIFEST, |manifest| manifest["layers"][0]["mediaType"] = foreign.into()),
            "`IMAGE` cannot be used: the content of its layer DIGEST is kept elsewhere and is not pulled",
        );
    }
    check(
        &|dir| replace(dir, MANIFEST, |manifest| manifest["layers"] = serde_json::json!([])),
        "`IMAGE` cannot be used: it has 0 layers and 1 digests for them",
    );
    check(
        &|dir| replace(dir, MANIFEST, |manifest| manifest["layers"][0]["size"] = 7.into()),
        "layer 1 of `IMAGE` does not match: expected 7 bytes, found 2560 bytes",
    );
    check(
        &|dir| replace(dir, MANIFEST, |manifest| manifest["layers"][0]["size"] = (-1).into()),
        "could not parse the manifest DIGEST of `IMAGE`: invalid value: integer `-1`, expected u64",
    );
    check(
        &|dir| edit(dir, |index| index["manifests"][0]["size"] = 7.into()),
        "the manifest DIGEST of `IMAGE` does not match: expected 7 bytes, found 397 bytes",
    );
}

#[test]
fn content_must_match_its_digest() {
    let image = ImageBuilder { compression: LayerCompression::Plain, ..ImageBuilder::new([small_layer()]) };
    let largest = |dir: &Path| {
        let mut blobs: Vec<PathBuf> = names(dir).iter().map(|name| dir.join(name)).collect();
        blobs.sort_by_key(|blob| fs::metadata(blob).unwrap().len());
        blobs.pop().unwrap()
    };
    let (tar, hash) = (small_layer().tar(), ralph_core::hash::sha256(&small_layer().tar()));
    // One changed byte of a file's content; the tar around it is still valid.
    let mut changed = tar.clone();
    let at = changed.windows(5).position(|window| window == b"shell").unwrap();
    changed[at] = b'S';
    check_damaged(
        ImageLimits::default(),
        &image,
        |dir| fs::write(largest(&dir.join("blobs/sha256")), &changed).unwrap(),
        &format!(
            "layer 1 of `IMAGE` does not match: expected sha256:{hash}, found sha256:{}",
            ralph_core::hash::sha256(&changed)
        ),
    );
    // Damage that also breaks the compression is reported as damage.
    let packed = LayerCompression::Gzip.compress(&tar).unwrap();
    let broken = vec![b'!'; packed.len()];
    check_damaged(
        ImageLimits::default(),
        &ImageBuilder::new([small_layer()]),
        |dir| fs::write(dir.join("blobs/sha256").join(ralph_core::hash::sha256(&packed)), &broken).unwrap(),
        &format!(
            "layer 1 of `IMAGE` does not match: expected sha256:{}, found sha256:{}",
            ralph_core::hash::sha256(&packed),
            ralph_core::hash::sha256(&broken)
        ),
    );
    // A layer that matches the manifest, but not the configuration.
    let place = ImageFixture::new();
    let mut archive =
        ImageBuilder { compression: LayerCompression::Plain, ..image }.archive(DockerSaveFormat::Classic).unwrap();
    let at = archive.windows(5).position(|window| window == b"shell").unwrap();
    archive[at] = b'S';
    let reference = place.archive(&archive);
    let refused = place.store().prepare(&reference).unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!(
            "layer 1, unpacked, of `{reference}` does not match: expected sha256:{hash}, found sha256:{}",
            ralph_core::hash::sha256(&changed)
        )
    );
    assert_eq!(refused.hint().as_deref(), Some("the image is damaged or was changed: save it again from its source"));
    assert_eq!(place.store_entries(), <[&str; 0]>::default());
}

#[test]
fn blobs_that_are_links_are_refused() {
    let image = ImageBuilder::new([small_layer()]);
    check_damaged(
        ImageLimits::default(),
        &image,
        |dir| {
            fs::rename(dir.join("index.json"), dir.join("other.json")).unwrap();
            std::os::unix::fs::symlink("other.json", dir.join("index.json")).unwrap();
        },
        "could not read `DIR/index.json`: a part of the path is a symbolic link",
    );
}

#[test]
fn invalid_archives_are_refused() {
    let check = |bytes: &[u8], want: &str| {
        let place = ImageFixture::new();
        let before = place.outside();
        let reference = place.archive(bytes);
        let refused = error_chain(&place.store().prepare(&reference).unwrap_err());
        assert_eq!(refused.replace(&reference.to_string(), "IMAGE"), format!("`IMAGE` {want}"));
        assert_eq!((place.outside(), place.store_entries()), (before, Vec::new()));
    };
    let image = ImageBuilder::new([small_layer()]).archive(DockerSaveFormat::Classic).unwrap();
    let twice = [&image[..image.len() - 1024], &image[..]].concat();
    check(&twice, "cannot be used: `layer-0/layer.tar` in it: it occurs twice");
    check(&[b'x'; 2000], "cannot be used: it is not a tar archive");
    check(b"", "cannot be used: it has no `index.json`, so it is not an image layout");
    check(&LayerBuilder::new().file("../x", 0o644, "").tar(), "cannot be used: `../x` in it: its path contains `..`");
    check(&LayerBuilder::new().symlink("l", "../../x").tar(), "cannot be used: `l` in it: its link leads outside");
    check(
        &LayerBuilder::new().member(b'3', b"d", b"", 0, b"").tar(),
        "cannot be used: `d` in it: it is not a plain file",
    );
    let saved = |manifest: &str| LayerBuilder::new().file("manifest.json", 0o644, manifest).tar();
    check(&saved(r#"[{"Config":"/etc/passwd"}]"#), "cannot be used: its file `/etc/passwd` is missing");
    check(&saved(r#"[{"Config":"../../etc/passwd"}]"#), "cannot be used: its file `../../etc/passwd` is missing");
    let two = r#"[{"Config":"a","RepoTags":["a:1"]},{"Config":"b","RepoTags":["b:1"]}]"#;
    check(&saved(two), "holds more than one image");
    let hex = "0".repeat(64);
    let named = LayerBuilder::new()
        .file("manifest.json", 0o644, &format!(r#"[{{"Config":"{hex}.json","Layers":[]}}]"#))
        .file(&format!("{hex}.json"), 0o644, "{}");
    let place = ImageFixture::new();
    let refused = place.store().prepare(&place.archive(&named.tar())).unwrap_err();
    assert!(refused.to_string().starts_with("the configuration of `docker-archive:"), "{refused}");
    assert!(refused.to_string().contains(&format!("expected sha256:{hex}, found sha256:")), "{refused}");
}

#[test]
fn a_compressed_archive_that_is_a_bomb_is_refused() {
    let limits = ImageLimits { ratio_from: 1 << 16, ..ImageLimits::default() };
    let place = ImageFixture { limits, ..ImageFixture::new() };
    let reference = place.archive(&LayerCompression::Gzip.compress(&vec![0; 1 << 20]).unwrap());
    let refused = place.store().prepare(&reference).unwrap_err();
    let want = format!("`{reference}` cannot be used: it unpacks to more than 250 times its size");
    assert_eq!(refused.to_string(), want);
    assert_eq!(place.store_entries(), <[&str; 0]>::default());
}
