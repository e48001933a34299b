//! Unpacks any bytes as the layer of an image: unpacked or refused, but nothing outside the target directory is
//! created or changed.
#![no_main]

use std::{env, fs, process};

use libfuzzer_sys::fuzz_target;
use ralph_sandbox::files::remove_tree;
use ralph_sandbox::image::{ImageLimits, unpack_layer};

fuzz_target!(|bytes: &[u8]| {
    let place = env::temp_dir().join(format!("ralph-fuzz-{}", process::id()));
    let (tree, canary) = (place.join("tree"), place.join("canary"));
    fs::create_dir_all(&tree).expect("a folder can be made");
    fs::write(&canary, "alive").expect("a file can be made");
    let limits = ImageLimits { bytes: 1 << 20, file: 1 << 20, entries: 100, ..ImageLimits::default() };
    if let Err(refused) = unpack_layer(&*with_checksums(bytes), &tree, &limits) {
        assert!(!refused.to_string().is_empty(), "refused without a reason");
    }
    assert_eq!(fs::read_to_string(&canary).expect("the canary is there"), "alive");
    assert_eq!(fs::read_dir(&place).expect("the folder is there").count(), 2, "something was made outside");
    remove_tree(&place).expect("what was unpacked can be removed");
});

/// Makes every block a header with a valid checksum: no mutation would ever guess one.
fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(512).filter(|block| block.iter().any(|byte| *byte != 0)) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    bytes
}
