//! Limits on the size of an image, against decompression bombs.

/// Limits for one image. They apply to what was actually read or created, never to what a header claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageLimits {
    /// All layers together, unpacked, including tar headers and the holes of sparse files.
    pub bytes: u64,
    /// Entries of all layers together.
    pub entries: u64,
    /// One file.
    pub file: u64,
    /// Unpacked bytes per compressed byte of one layer, checked after `ratio_from` unpacked bytes.
    pub ratio: u64,
    pub ratio_from: u64,
    /// Nesting depth of directories.
    pub depth: usize,
    /// Bytes of one path, or of a link target.
    pub path: usize,
    /// Bytes of one extended header, the only part of a layer that is held in memory.
    pub header: u64,
    /// Bytes of an index, manifest or configuration.
    pub document: u64,
    pub layers: usize,
}

impl Default for ImageLimits {
    fn default() -> Self {
        Self {
            bytes: 16 << 30,
            entries: 2_000_000,
            file: 8 << 30,
            // Text compresses to a tenth, logs to a hundredth; only crafted content goes beyond.
            ratio: 250,
            ratio_from: 64 << 20,
            depth: 100,
            path: 4095,
            header: 1 << 20,
            document: 4 << 20,
            layers: 256,
        }
    }
}
