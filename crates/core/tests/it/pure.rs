//! `core` reads no file, clock, network or environment, and never waits.

use std::path::Path;

const FORBIDDEN: [&str; 12] = [
    "tokio",
    "std::fs",
    "std::net",
    "std::env",
    "std::thread",
    "std::process",
    "std::io::",
    "SystemTime::now",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "async fn",
];

#[test]
fn sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root];
    let mut seen = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            seen += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            // What stands in comments and texts is not called.
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            for (number, line) in code.enumerate() {
                for word in FORBIDDEN {
                    assert!(!line.contains(word), "{}:{}: {word}", path.display(), number + 1);
                }
            }
        }
    }
    assert!(seen > 30, "only {seen} files were looked at");
}

#[test]
fn dependencies() {
    let manifest = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let normal = manifest.split("[dependencies]").nth(1).unwrap().split("[dev-dependencies]").next().unwrap();
    for word in ["tokio", "reqwest", "rustix", "tempfile", "ralph-"] {
        assert!(!normal.contains(word), "{word}");
    }
}
