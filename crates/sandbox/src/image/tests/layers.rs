//! Tests how layers affect each other.

use super::*;
use crate::image::build::{self, MTIME};

#[track_caller]
fn check(layers: impl IntoIterator<Item = LayerBuilder>, want: &[&str]) {
    let place = ImageFixture::new();
    let prepared = place.prepare(&ImageBuilder::new(layers)).unwrap_or_else(|error| panic!("{}", error_chain(&error)));
    assert_eq!(lines(&prepared.root), want);
}

fn tree() -> LayerBuilder {
    let layer = LayerBuilder::new().directory("d/", 0o755).file("d/f", 0o644, "lower").directory("d/e/", 0o755);
    layer.file("d/e/g", 0o644, "lower").file("k", 0o644, "kept")
}

#[test]
fn whiteouts() {
    check([tree(), LayerBuilder::new().whiteout("d/f")], &["d755 d", "d755 d/e", "f644 d/e/g lower", "f644 k kept"]);
    check([tree(), LayerBuilder::new().whiteout("d")], &["f644 k kept"]);
    check(
        [tree(), LayerBuilder::new().whiteout("k").whiteout("nothing").whiteout("no/such")],
        &["d755 d", "d755 d/e", "f644 d/e/g lower", "f644 d/f lower"],
    );
    check(
        [tree(), LayerBuilder::new().whiteout("d"), LayerBuilder::new().file("d", 0o600, "new")],
        &["f600 d new", "f644 k kept"],
    );
    // The link is hidden, not its target.
    let linked = LayerBuilder::new().symlink("l", "d");
    check(
        [tree(), linked, LayerBuilder::new().whiteout("l").whiteout("d/e")],
        &["d755 d", "f644 d/f lower", "f644 k kept"],
    );
}

#[test]
fn a_whiteout_does_not_hide_its_own_layer() {
    let want = ["d755 d", "f644 d/f upper", "f644 k kept"];
    let upper = || LayerBuilder::new().directory("d/", 0o755);
    check([tree(), upper().whiteout("d").file("d/f", 0o644, "upper")], &want);
    check([tree(), upper().file("d/f", 0o644, "upper").whiteout("d")], &want);
    check([tree(), upper().opaque("d").file("d/f", 0o644, "upper")], &want);
    check([tree(), upper().file("d/f", 0o644, "upper").opaque("d")], &want);
    // Not even if the layer only contains entries below it.
    check([tree(), LayerBuilder::new().file("d/f", 0o644, "upper").whiteout("d")], &want);
    check(
        [tree(), LayerBuilder::new().file("d/e/h", 0o644, "upper").opaque("d")],
        &["d755 d", "d755 d/e", "f644 d/e/h upper", "f644 k kept"],
    );
    // The next layer is a different one.
    check(
        [tree(), LayerBuilder::new().file("d/f", 0o644, "upper"), LayerBuilder::new().opaque("d")],
        &["d755 d", "f644 k kept"],
    );
}

#[test]
fn opaque_directories() {
    check([tree(), LayerBuilder::new().opaque("d")], &["d755 d", "f644 k kept"]);
    check([tree(), LayerBuilder::new().opaque("d/e")], &["d755 d", "d755 d/e", "f644 d/f lower", "f644 k kept"]);
    check([tree(), LayerBuilder::new().file(".wh..wh..opq", 0o644, "").file("n", 0o644, "new")], &["f644 n new"]);
    check([tree(), LayerBuilder::new().opaque("none")], &lines_of_tree());
    // Old AUFS bookkeeping is ignored.
    check([tree(), LayerBuilder::new().file(".wh..wh.aufs", 0o644, "x")], &lines_of_tree());
}

fn lines_of_tree() -> [&'static str; 5] {
    ["d755 d", "d755 d/e", "f644 d/e/g lower", "f644 d/f lower", "f644 k kept"]
}

#[test]
fn an_entry_replaces_one_of_another_type() {
    check([tree(), LayerBuilder::new().file("d", 0o644, "file")], &["f644 d file", "f644 k kept"]);
    check(
        [tree(), LayerBuilder::new().directory("k/", 0o700)],
        &["d755 d", "d755 d/e", "f644 d/e/g lower", "f644 d/f lower", "d700 k"],
    );
    check([tree(), LayerBuilder::new().symlink("d", "k")], &["l d -> k", "f644 k kept"]);
    let linked = || LayerBuilder::new().directory("d/", 0o755).file("d/f", 0o644, "x").symlink("l", "d");
    check([linked(), LayerBuilder::new().directory("l/", 0o755)], &["d755 d", "f644 d/f x", "d755 l"]);
    check([linked(), LayerBuilder::new().file("l", 0o644, "y")], &["d755 d", "f644 d/f x", "f644 l y"]);
    // The file is replaced, never written in place: the other name keeps its content.
    check(
        [LayerBuilder::new().file("a", 0o644, "one").hardlink("b", "a"), LayerBuilder::new().file("a", 0o644, "two")],
        &["f644 a two", "f644 b one"],
    );
    check(
        [tree(), LayerBuilder::new().directory("d/", 0o500).directory("./", 0o700)],
        &["d700 d", "d755 d/e", "f644 d/e/g lower", "f644 d/f lower", "f644 k kept"],
    );
}

#[test]
fn hard_links() {
    check(
        [tree(), LayerBuilder::new().hardlink("h", "k").hardlink("d/h", "/d/e/g")],
        &["d755 d", "d755 d/e", "f644 d/e/g lower", "f644 d/f lower", "f644 d/h lower", "f644 h kept", "f644 k kept"],
    );
    check([LayerBuilder::new().file("a", 0o644, "x").hardlink("a", "a")], &["f644 a x"]);
    check([LayerBuilder::new().symlink("a", "/nowhere").hardlink("b", "a")], &["l a -> /nowhere", "l b -> /nowhere"]);
    check(
        [LayerBuilder::new().file("a", 0o644, "x").directory("b/", 0o755).hardlink("b", "a")],
        &["f644 a x", "f644 b x"],
    );
    let place = ImageFixture::new();
    let layers = [LayerBuilder::new().file("a", 0o644, "x"), LayerBuilder::new().hardlink("b", "a")];
    let prepared = place.prepare(&ImageBuilder::new(layers)).unwrap();
    assert_eq!(fs::metadata(prepared.root.join("a")).unwrap().nlink(), 2);
}

#[test]
fn links_in_a_path_are_followed_inside_the_tree() {
    let merged = || LayerBuilder::new().directory("usr/lib/", 0o755).symlink("lib", "usr/lib");
    check(
        [merged(), LayerBuilder::new().file("lib/x", 0o644, "x")],
        &["l lib -> usr/lib", "d755 usr", "d755 usr/lib", "f644 usr/lib/x x"],
    );
    check(
        [merged(), LayerBuilder::new().file("usr/lib/x", 0o644, "x"), LayerBuilder::new().whiteout("lib/x")],
        &["l lib -> usr/lib", "d755 usr", "d755 usr/lib"],
    );
    // However far up or out they point, they end at the root of the image.
    check(
        [LayerBuilder::new().symlink("l", "../../../a"), LayerBuilder::new().file("l/x", 0o644, "x")],
        &["d755 a", "f644 a/x x", "l l -> ../../../a"],
    );
    check(
        [LayerBuilder::new().symlink("l", "/outside"), LayerBuilder::new().file("l/x", 0o644, "x")],
        &["l l -> /outside", "d755 outside", "f644 outside/x x"],
    );
    check(
        [
            LayerBuilder::new().directory("a/b/", 0o755).symlink("l", "a/b/.."),
            LayerBuilder::new().file("l/x", 0o644, "x"),
        ],
        &["d755 a", "d755 a/b", "f644 a/x x", "l l -> a/b/.."],
    );
}

#[test]
fn permissions_and_times() {
    let layer = LayerBuilder::new()
        .directory("tmp/", 0o1777)
        .directory("group/", 0o2755)
        .directory("locked/", 0o000)
        .file("locked/f", 0o000, "")
        .file("su", 0o6755, "")
        .file("sticky", 0o1644, "")
        .symlink("l", "nowhere");
    let upper = LayerBuilder::new().file("tmp/x", 0o644, "").whiteout("locked/f");
    let place = ImageFixture::new();
    let prepared = place.prepare(&ImageBuilder::new([layer, upper])).unwrap();
    assert_eq!(
        lines(&prepared.root),
        ["d755 group", "l l -> nowhere", "d700 locked", "f644 sticky ", "f755 su ", "d1777 tmp", "f644 tmp/x "],
    );
    // Directories that no entry describes get the time zero, not the time of unpacking.
    assert_eq!(fs::metadata(&prepared.root).unwrap().mtime(), 0);
    walk(&prepared.root, "", &mut |name, path| {
        let meta = fs::symlink_metadata(path).unwrap();
        assert_eq!(meta.mtime().unsigned_abs(), MTIME, "{name}");
    });
}

#[test]
fn well_known_devices_are_skipped() {
    let layer = LayerBuilder::new()
        .directory("dev/", 0o755)
        .member(b'3', b"dev/null", b"", 0o666, b"")
        .member(b'3', b"./dev/console", b"", 0o600, b"")
        .member(b'6', b"dev/initctl", b"", 0o600, b"");
    check([layer], &["d755 dev"]);
}

#[test]
fn names_of_every_length() {
    let long = format!("{}/{}", "d".repeat(200), "f".repeat(250));
    let target = "t/".repeat(1000);
    let layer = LayerBuilder::new().file(&long, 0o644, "long").symlink("l", &target);
    let dir = "d".repeat(200);
    check([layer], &[&format!("d755 {dir}"), &format!("f644 {long} long"), &format!("l l -> {target}")]);
    // The GNU format for long names, by another writer.
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(3);
    tar.append_data(&mut header, &long, &b"gnu"[..]).unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    tar.append_link(&mut header, "l", "t".repeat(150)).unwrap();
    let bytes = tar.into_inner().unwrap();
    let layer = LayerBuilder::new().raw(&bytes[..bytes.len() - 1024]);
    let link = format!("l l -> {}", "t".repeat(150));
    check([layer], &[&format!("d755 {dir}"), &format!("f644 {long} gnu"), &link]);
    check([LayerBuilder::new().file("a b\n\u{1b}[1mü", 0o644, "x")], &["f644 a b\n\u{1b}[1mü x"]);
}

/// Prepends an extended header to a file.
fn extended(records: &[Vec<u8>], name: &str, content: &[u8]) -> LayerBuilder {
    LayerBuilder::new().member(b'x', b"pax", b"", 0o644, &records.concat()).member(
        b'0',
        name.as_bytes(),
        b"",
        0o644,
        content,
    )
}

#[test]
fn extended_headers() {
    let records = [
        build::record("SCHILY.xattr.user.a", b"x\n\n9 path=no\n"),
        build::record("path", b"new\nline"),
        build::record("mtime", b"-5.5"),
    ];
    let place = ImageFixture::new();
    let prepared = place.prepare(&ImageBuilder::new([extended(&records, "old", b"x")])).unwrap();
    assert_eq!(lines(&prepared.root), ["f644 new\nline x"]);
    let meta = fs::metadata(prepared.root.join("new\nline")).unwrap();
    assert_eq!((meta.mtime(), meta.mtime_nsec()), (-6, 500_000_000));
    // The size in the record applies, not the one in the header.
    let mut header = build::header(b'0', b"big", b"", 0o644, 0);
    header.extend([b'x'; 512]);
    let records = build::record("size", b"512");
    check(
        [LayerBuilder::new().member(b'x', b"pax", b"", 0o644, &records).raw(&header)],
        &[&format!("f644 big {}", "x".repeat(512))],
    );
    check(
        [LayerBuilder::new().member(b'g', b"pax", b"", 0o644, &build::record("comment", b"c")).file("a", 0o644, "")],
        &["f644 a "],
    );
}

#[test]
fn sparse_files() {
    let want = format!("f644 s {}abc{}", "\0".repeat(600), "\0".repeat(97));
    let records = [
        ("GNU.sparse.major", "1"),
        ("GNU.sparse.minor", "0"),
        ("GNU.sparse.name", "s"),
        ("GNU.sparse.realsize", "700"),
    ]
    .map(|(key, value)| build::record(key, value.as_bytes()));
    let mut content = b"2\n600\n3\n700\n0\n".to_vec();
    content.resize(512, 0);
    content.extend(b"abc");
    check([extended(&records, "GNUSparseFile.0/s", &content)], &[&want]);
    let mut header = tar::Header::new_gnu();
    let gnu = header.as_gnu_mut().unwrap();
    gnu.name[..1].copy_from_slice(b"s");
    gnu.sparse[0].set_offset(600);
    gnu.sparse[0].set_length(3);
    gnu.set_real_size(700);
    header.set_entry_type(tar::EntryType::GNUSparse);
    header.set_mode(0o644);
    header.set_size(3);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(b"abc");
    bytes.resize(1024, 0);
    check([LayerBuilder::new().raw(&bytes)], &[&want]);
}
