//! Tests the store: concurrent and killed unpacking, listing and removing.

use std::sync::Barrier;

use super::*;
use crate::image::StoredImage;

#[test]
fn concurrent_calls_unpack_once() {
    let place = ImageFixture::new();
    let layer = (0..200).fold(small_layer(), |layer, n| layer.file(&format!("f{n}"), 0o644, "x"));
    ImageBuilder::new([layer]).write_layout(&place.path("image"), None).unwrap();
    let barrier = Barrier::new(6);
    let seen: Vec<u64> = std::thread::scope(|scope| {
        let prepare = || {
            barrier.wait();
            let prepared = place.store().prepare(&place.oci()).unwrap();
            assert_eq!(names(&prepared.root).len(), 201);
            fs::metadata(&prepared.root).unwrap().ino()
        };
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(prepare)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(seen.iter().all(|inode| *inode == seen[0]), "{seen:?}");
    assert_eq!(place.store_entries().len(), 1);
}

/// Creates the leftovers of a process that was killed while unpacking.
fn leave_killed_unpack(place: &ImageFixture, hex: &str) {
    let part = place.path("store").join(format!("{hex}.part"));
    fs::create_dir_all(part.join("rootfs/locked")).unwrap();
    fs::write(part.join("rootfs/half"), "half").unwrap();
    fs::set_permissions(part.join("rootfs/locked"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::write(place.path("store").join(format!("{hex}.lock")), "").unwrap();
}

#[test]
fn unpacking_removes_the_leftovers_of_a_killed_process() {
    let place = ImageFixture::new();
    let digest = ImageBuilder::new([small_layer()]).write_layout(&place.path("image"), None).unwrap();
    let (hex, other) = (&digest[7..], "f".repeat(64));
    leave_killed_unpack(&place, hex);
    leave_killed_unpack(&place, &other);
    fs::write(place.path("store/0123456789abcdef.tmp"), "").unwrap();
    let prepared = place.store().prepare(&place.oci()).unwrap();
    assert_eq!(lines(&prepared.root), ["d755 bin", "f755 bin/sh shell"]);
    assert_eq!(place.store_entries(), [hex]);
}

#[test]
fn sweeping_keeps_complete_images_and_those_in_progress() {
    let place = ImageFixture::new();
    place.prepare(&ImageBuilder::new([small_layer()])).unwrap();
    let (dead, busy) = ("e".repeat(64), "f".repeat(64));
    leave_killed_unpack(&place, &dead);
    leave_killed_unpack(&place, &busy);
    fs::write(place.path("store/notes.txt"), "mine").unwrap();
    let file = fs::File::open(place.path("store").join(format!("{busy}.lock"))).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut want = place.store_entries();
    want.retain(|name| !name.starts_with(&dead));
    assert_eq!(place.store().sweep().unwrap(), 1);
    assert_eq!(place.store_entries(), want);
    drop(file);
    assert_eq!(place.store().sweep().unwrap(), 1);
    assert_eq!(place.store().sweep().unwrap(), 0);
    want.retain(|name| !name.starts_with(&busy));
    assert_eq!(place.store_entries(), want);
}

#[test]
fn listing_measuring_and_removing() {
    let place = ImageFixture::new();
    assert_eq!(place.store().list().unwrap(), []);
    assert_eq!(place.store().sweep().unwrap(), 0);
    let layer = small_layer().file("big", 0o644, &"x".repeat(1 << 20)).hardlink("again", "big");
    let prepared = place.prepare(&ImageBuilder::new([layer])).unwrap();
    let digest = prepared.digest.unwrap();
    let list = place.store().list().unwrap();
    let bytes = list[0].bytes;
    let root = place.path("store").join(&digest[7..]).join("rootfs");
    let want = StoredImage { digest: digest.clone(), from: place.oci().to_string(), root, bytes, entries: 4 };
    assert_eq!(list, [want]);
    assert!((1 << 20..1 << 21).contains(&bytes), "{bytes}");
    assert_eq!(place.store().bytes().unwrap(), bytes);
    for other in ["", "sha256:..", "../outside", &digest[7..], &format!("sha256:{}", "0".repeat(64))] {
        assert!(!place.store().remove(other).unwrap(), "{other}");
    }
    assert!(place.store().remove(&digest).unwrap());
    assert!(!place.store().remove(&digest).unwrap());
    assert_eq!(place.store_entries(), <[&str; 0]>::default());
}

#[test]
fn damaged_metadata_is_rebuilt_and_a_newer_format_is_kept() {
    let place = ImageFixture::new();
    let prepared = place.prepare(&ImageBuilder::new([small_layer()])).unwrap();
    let meta = prepared.root.parent().unwrap().join("image.json");
    fs::write(&meta, "{").unwrap();
    fs::write(prepared.root.join("spoilt"), "").unwrap();
    assert_eq!(place.store().prepare(&place.oci()).unwrap(), prepared);
    assert_eq!(lines(&prepared.root), ["d755 bin", "f755 bin/sh shell"]);
    fs::write(&meta, r#"{"format":2}"#).unwrap();
    let refused = place.store().prepare(&place.oci()).unwrap_err();
    let path = place.path("store").join(&prepared.digest.unwrap()[7..]).join("image.json");
    assert_eq!(
        refused.to_string(),
        format!("`{}` is written in format 2; this ralph knows formats up to 1", path.display())
    );
    assert_eq!(place.store_entries().len(), 1);
}

#[test]
fn a_store_in_the_first_format_is_read() {
    let place = ImageFixture::new();
    let prepared = place.prepare(&ImageBuilder::new([small_layer()])).unwrap();
    let digest = prepared.digest.clone().unwrap();
    let old = format!(
        r#"{{"format":1,"digest":"{digest}","from":"oci:x","bytes":5,"entries":2,"new":true,
            "config":{{"env":["A=b"],"workdir":null,"user":"u","entrypoint":[],"cmd":[],"labels":{{}}}}}}"#
    );
    fs::write(prepared.root.parent().unwrap().join("image.json"), old).unwrap();
    let config =
        crate::image::ImageConfig { env: vec!["A=b".to_owned()], user: Some("u".to_owned()), ..Default::default() };
    assert_eq!(place.store().prepare(&place.oci()).unwrap(), ImageRootfs { config, ..prepared });
}
