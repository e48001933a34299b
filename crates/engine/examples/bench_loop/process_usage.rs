//! Reads the system's figures about this process and about folders. Missing figures are 0.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Returns the resident memory of this process in MiB.
pub(crate) fn resident_mib() -> f64 {
    field("/proc/self/status", "VmRSS:") as f64 / 1024.0
}

/// The resources used so far by this process and the programs it waited for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProcessUsage {
    /// Bytes written to any file or pipe, and to disk.
    pub(crate) passed: u64,
    pub(crate) stored: u64,
    /// Calls of `write` and similar system calls.
    pub(crate) calls: u64,
    /// Processor time: it is not affected by other programs.
    pub(crate) busy_ms: u64,
}

pub(crate) fn process_usage() -> ProcessUsage {
    let of = |name| field("/proc/self/io", name);
    ProcessUsage { passed: of("wchar:"), stored: of("write_bytes:"), calls: of("syscw:"), busy_ms: busy_ms() }
}

/// Returns the processor time of this process and of the programs it waited for.
fn busy_ms() -> u64 {
    const TICK_MS: u64 = 10;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).unwrap_or_default();
    fields.split_whitespace().skip(11).take(4).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * TICK_MS
}

fn field(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The content of a folder, links not followed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FolderSize {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// The space it takes on disk.
    pub(crate) allocated: u64,
}

pub(crate) fn folder_size(folder: &Path) -> FolderSize {
    let mut size = FolderSize::default();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            size.files += 1;
            size.allocated += meta.blocks() * 512;
            if meta.is_dir() {
                folders.push(entry.path());
            } else {
                size.bytes += meta.len();
            }
        }
    }
    size
}
