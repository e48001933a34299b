//! How much of everything an image may have before it is taken for a bomb.

/// Limits for one image. What is counted is what was really read or made, never what a header claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageLimits {
    /// All layers together, unpacked, with their tar headers and with the holes of sparse files.
    pub bytes: u64,
    /// Entries of all layers together.
    pub entries: u64,
    /// One file.
    pub file: u64,
    /// Unpacked bytes per compressed byte of one layer, judged once `ratio_from` bytes were unpacked.
    pub ratio: u64,
    pub ratio_from: u64,
    /// Directories one inside another.
    pub depth: usize,
    /// Bytes of one path, or of the target of a link.
    pub path: usize,
    /// Bytes of one extended header, which is the only part of a layer that is held in memory.
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
            // Text compresses to a tenth, logs to a hundredth; only made-up content goes beyond.
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
