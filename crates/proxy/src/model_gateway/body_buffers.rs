//! Limits the memory that request bodies of one sandbox take while they are read and parsed as a whole.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// The buffer space that all bodies of a sandbox share.
const BODY_BUFFER_BYTES: usize = 64 << 20;
const BODY_BUFFER_UNIT: usize = 64 << 10;
/// The most long bodies of a sandbox that are parsed at the same time: parsed, one takes far more memory than its
/// text.
const MAX_BODY_PARSERS: usize = 2;

/// The buffer space for the bodies of one sandbox.
#[derive(Debug)]
pub(crate) struct BodyBuffers {
    /// In units of [`BODY_BUFFER_UNIT`].
    units: Arc<Semaphore>,
    parsers: Semaphore,
    max_body: usize,
}

impl BodyBuffers {
    pub(crate) fn new(max_body: usize) -> Self {
        let units = Arc::new(Semaphore::new(BODY_BUFFER_BYTES / BODY_BUFFER_UNIT));
        Self { units, parsers: Semaphore::new(MAX_BODY_PARSERS), max_body }
    }

    /// Waits for buffer space for a body; a body of unknown length reserves the maximum.
    pub(crate) async fn reserve(&self, length: Option<u64>) -> Option<OwnedSemaphorePermit> {
        let most = self.max_body;
        let bytes = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(most).min(most);
        Arc::clone(&self.units).acquire_many_owned(u32::try_from(buffer_units(bytes)).unwrap_or(1)).await.ok()
    }

    /// Waits until a long body may be parsed.
    pub(crate) async fn acquire_parser(&self) -> Option<SemaphorePermit<'_>> {
        self.parsers.acquire().await.ok()
    }
}

/// Returns how many units a body of this many bytes takes.
fn buffer_units(bytes: usize) -> usize {
    bytes.div_ceil(BODY_BUFFER_UNIT).clamp(1, BODY_BUFFER_BYTES / BODY_BUFFER_UNIT)
}

/// Releases the buffer space that a body turned out not to need.
pub(crate) fn release_unused_buffer(permit: &mut OwnedSemaphorePermit, bytes: usize) {
    drop(permit.split(permit.num_permits().saturating_sub(buffer_units(bytes))));
}
