//! Tests every image format and compression.

use std::collections::BTreeMap;

use super::*;
use crate::image::ImageConfig;
use crate::image::build::{self, DockerSaveFormat, LayerCompression};

fn image(packing: LayerCompression) -> ImageBuilder {
    let config = ImageConfig {
        env: vec!["PATH=/bin".to_owned(), "A=b=c".to_owned()],
        workdir: Some("/srv".to_owned()),
        user: Some("1000:1000".to_owned()),
        entrypoint: vec!["/bin/sh".to_owned()],
        cmd: vec!["-c".to_owned(), "true".to_owned()],
        labels: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
    };
    let upper = LayerBuilder::new().file("etc/motd", 0o644, "hello").symlink("sh", "/bin/sh");
    ImageBuilder { compression: packing, config, ..ImageBuilder::new([small_layer(), upper]) }
}

const WANT: [&str; 5] = ["d755 bin", "f755 bin/sh shell", "d755 etc", "f644 etc/motd hello", "l sh -> /bin/sh"];

#[track_caller]
fn check(place: &ImageFixture, reference: &ImageReference, want: &ImageBuilder) {
    let prepared =
        place.store().prepare(reference).unwrap_or_else(|error| panic!("{reference}: {}", error_chain(&error)));
    assert_eq!(lines(&prepared.root), WANT, "{reference}");
    assert_eq!(prepared.config, want.config);
    let digest = prepared.digest.clone().unwrap();
    assert_eq!(prepared.key, digest);
    assert_eq!(prepared.root, place.path("store").canonicalize().unwrap().join(&digest[7..]).join("rootfs"));
    assert_eq!(place.store_entries(), [&digest[7..]]);
    // The second call unpacks nothing.
    assert_eq!(place.store().prepare(reference).unwrap(), prepared);
}

#[test]
fn forms() {
    for packing in [LayerCompression::Plain, LayerCompression::Gzip, LayerCompression::Zstd] {
        let image = image(packing);
        let place = ImageFixture::new();
        image.write_layout(&place.path("image"), Some("v1")).unwrap();
        check(&place, &place.oci(), &image);
        check(&place, &ImageReference::Oci { dir: place.path("image"), tag: Some("v1".to_owned()) }, &image);
        for form in [DockerSaveFormat::Classic, DockerSaveFormat::Layout] {
            for outer in [LayerCompression::Plain, LayerCompression::Gzip, LayerCompression::Zstd] {
                let place = ImageFixture::new();
                let archive = outer.compress(&image.archive(form).unwrap()).unwrap();
                check(&place, &place.archive(&archive), &image);
            }
        }
    }
}

#[test]
fn a_layout_and_its_archive_are_the_same_image() {
    let place = ImageFixture::new();
    let image = image(LayerCompression::Gzip);
    image.write_layout(&place.path("image"), None).unwrap();
    let one = place.store().prepare(&place.oci()).unwrap();
    let two = place.store().prepare(&place.archive(&image.archive(DockerSaveFormat::Layout).unwrap())).unwrap();
    assert_eq!(one, two);
}

#[test]
fn a_layer_that_an_archive_links_to_is_found() {
    let place = ImageFixture::new();
    let mut tar = tar::Builder::new(Vec::new());
    let layer = small_layer();
    let config = format!(r#"{{"rootfs":{{"diff_ids":["sha256:{}"]}}}}"#, ralph_core::hash::sha256(&layer.tar()));
    let files: [(&str, &[u8]); 3] = [
        ("a/layer.tar", &layer.tar()),
        ("c.json", config.as_bytes()),
        ("manifest.json", br#"[{"Config":"c.json","RepoTags":null,"Layers":["b/layer.tar"]}]"#),
    ];
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, name, bytes).unwrap();
    }
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    tar.append_link(&mut header, "b/layer.tar", "../a/layer.tar").unwrap();
    let prepared = place.store().prepare(&place.archive(&tar.into_inner().unwrap())).unwrap();
    assert_eq!(lines(&prepared.root), ["d755 bin", "f755 bin/sh shell"]);
}

#[test]
fn a_directory_becomes_an_image() {
    let place = ImageFixture::new();
    let from = place.path("from");
    fs::create_dir_all(from.join("usr/bin")).unwrap();
    let long = format!("usr/{}", "long".repeat(40));
    fs::write(from.join(&long), "long").unwrap();
    fs::write(from.join("usr/bin/tool"), "tool").unwrap();
    for (name, mode) in [("usr", 0o755), ("usr/bin", 0o700), ("usr/bin/tool", 0o4755), (long.as_str(), 0o600)] {
        fs::set_permissions(from.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::symlink("usr/bin", from.join("bin")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
    let file = place.path("base.tar");
    let digest = build::archive_directory(&from, &file).unwrap();
    let prepared = place.store().prepare(&ImageReference::DockerArchive { file }).unwrap();
    assert_eq!(prepared.digest, Some(digest));
    let long = format!("f600 {long} long");
    assert_eq!(
        lines(&prepared.root),
        ["l bin -> usr/bin", "d755 usr", "d700 usr/bin", "f755 usr/bin/tool tool", &long],
    );
    assert_eq!(names(place.folder.path()), ["base.tar", "from", "outside", "store"]);
}

#[test]
fn one_image_of_several_is_chosen_by_tag() {
    let place = ImageFixture::new();
    let dir = place.path("image");
    let one = ImageBuilder::new([small_layer()]).write_layout(&dir, Some("one")).unwrap();
    let two = ImageBuilder::new([small_layer().file("two", 0o644, "")]).write_layout(&dir, Some("two")).unwrap();
    let digest = |tag: &str| {
        let reference = ImageReference::Oci { dir: dir.clone(), tag: Some(tag.to_owned()) };
        place.store().prepare(&reference).map(|prepared| prepared.digest.unwrap())
    };
    assert_eq!(digest("one").unwrap(), one);
    assert_eq!(digest("two").unwrap(), two);
    let refused = digest("three").unwrap_err();
    assert_eq!(refused.to_string(), format!("`oci:{}:three` has no image named `three`", dir.display()));
    assert_eq!(refused.hint().as_deref(), Some("use `oci:DIR:TAG` with one of `one`, `two`"));
    let refused = place.store().prepare(&place.oci()).unwrap_err();
    assert_eq!(refused.to_string(), format!("`oci:{}` holds more than one image", dir.display()));
    assert_eq!(refused.hint().as_deref(), Some("use `oci:DIR:TAG` with one of `one`, `two`"));
}

#[test]
fn the_image_for_this_processor_is_chosen_from_an_index() {
    let place = ImageFixture::new();
    let dir = place.path("image");
    let ours = ImageBuilder::new([small_layer()]).write_layout(&dir, None).unwrap();
    let other = ImageBuilder::new([small_layer().file("other", 0o644, "")]).write_layout(&dir, None).unwrap();
    let blob = |digest: &str| fs::read(dir.join("blobs/sha256").join(&digest[7..])).unwrap();
    let described = |digest: &str, os: &str, architecture: &str, variant: Option<&str>| {
        let mut descriptor = build::descriptor("application/vnd.oci.image.manifest.v1+json", &blob(digest));
        descriptor["platform"] = serde_json::json!({ "os": os, "architecture": architecture, "variant": variant });
        descriptor
    };
    let machine = crate::image::manifest::architecture();
    let check = |manifests: Vec<serde_json::Value>, want: Result<&str, &str>| {
        // An index in an index, as `docker save` writes it for a multi-platform image.
        let inner = serde_json::to_vec(&serde_json::json!({ "schemaVersion": 2, "manifests": manifests })).unwrap();
        fs::write(dir.join("blobs/sha256").join(ralph_core::hash::sha256(&inner)), &inner).unwrap();
        let outer = build::descriptor("application/vnd.oci.image.index.v1+json", &inner);
        let index = serde_json::json!({ "schemaVersion": 2, "manifests": [outer] });
        fs::write(dir.join("index.json"), serde_json::to_vec(&index).unwrap()).unwrap();
        let got = place.store().prepare(&place.oci()).map(|prepared| prepared.digest.unwrap());
        assert_eq!(got.map_err(|error| error_chain(&error)), want.map(str::to_owned).map_err(str::to_owned));
    };
    let unknown = || described(&other, "unknown", "unknown", None);
    check(vec![unknown(), described(&ours, "linux", machine, None)], Ok(&ours));
    check(vec![described(&other, "linux", machine, Some("v9")), described(&ours, "linux", machine, None)], Ok(&ours));
    check(vec![described(&ours, "linux", machine, Some("v8"))], Ok(&ours));
    let none = format!("`{}` has no image for linux/{machine}, only for linux/sparc, unknown/unknown", place.oci());
    check(vec![unknown(), described(&ours, "linux", "sparc", None)], Err(&none));
}

#[test]
fn a_directory_is_used_directly() {
    let place = ImageFixture::new();
    let root = place.path("root").canonicalize().unwrap_or_else(|_| {
        fs::create_dir_all(place.path("root/usr")).unwrap();
        place.path("root").canonicalize().unwrap()
    });
    let meta = fs::metadata(&root).unwrap();
    let want = ImageRootfs {
        key: format!("rootfs:{}@{}:{}", root.display(), meta.dev(), meta.ino()),
        root: root.clone(),
        digest: None,
        config: ImageConfig::default(),
    };
    assert_eq!(place.store().prepare(&ImageReference::Rootfs { dir: root.clone() }).unwrap(), want);
    assert_eq!(place.store_entries(), <[&str; 0]>::default());
    let check = |dir: &Path, why: &str| {
        let refused = place.store().prepare(&ImageReference::Rootfs { dir: dir.to_owned() }).unwrap_err();
        assert_eq!(refused.to_string(), format!("`rootfs:{}` cannot be used: {why}", dir.display()));
    };
    check(Path::new("/"), "it is the root of this machine, with everything you own in it");
    check(Path::new("/usr/.."), "it is the root of this machine, with everything you own in it");
    check(&place.path("outside"), "it has neither `usr` nor `bin`, so nothing could run in it");
    check(&place.path("outside/canary"), "it is not a directory");
}

#[test]
fn an_image_for_another_processor_is_refused() {
    let place = ImageFixture::new();
    let image = ImageBuilder { architecture: "sparc".to_owned(), ..ImageBuilder::new([small_layer()]) };
    let refused = place.prepare(&image).unwrap_err();
    let machine = crate::image::manifest::architecture();
    let want = format!("`{}` has no image for linux/{machine}, only for linux/sparc", place.oci());
    assert_eq!(refused.to_string(), want);
}
