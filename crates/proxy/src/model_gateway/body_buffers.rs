//! Limits the memory that request bodies of one sandbox take while they are read and parsed as a whole.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// All bodies of a sandbox that are read as a whole have so much room together.
const BODY_BUFFER_BYTES: usize = 64 << 20;
const BODY_BUFFER_UNIT: usize = 64 << 10;
/// So many long bodies of a sandbox are parsed at the same time: as values, one takes far more memory than its text.
const MAX_BODY_PARSERS: usize = 2;

/// The room for the bodies of one sandbox.
#[derive(Debug)]
pub(crate) struct BodyBuffers {
    /// In pieces of [`BODY_BUFFER_UNIT`].
    room: Arc<Semaphore>,
    parsers: Semaphore,
    max_body: usize,
}

impl BodyBuffers {
    pub(crate) fn new(max_body: usize) -> Self {
        let room = Arc::new(Semaphore::new(BODY_BUFFER_BYTES / BODY_BUFFER_UNIT));
        Self { room, parsers: Semaphore::new(MAX_BODY_PARSERS), max_body }
    }

    /// Waits for room for a body; one that does not say how long it is may be as long as any.
    pub(crate) async fn reserve(&self, length: Option<u64>) -> Option<OwnedSemaphorePermit> {
        let most = self.max_body;
        let bytes = length.and_then(|length| usize::try_from(length).ok()).unwrap_or(most).min(most);
        Arc::clone(&self.room).acquire_many_owned(u32::try_from(buffer_units(bytes)).unwrap_or(1)).await.ok()
    }

    /// Waits for the turn of a long body to be parsed.
    pub(crate) async fn acquire_parser(&self) -> Option<SemaphorePermit<'_>> {
        self.parsers.acquire().await.ok()
    }
}

/// Returns how much room a body of so many bytes takes.
fn buffer_units(bytes: usize) -> usize {
    bytes.div_ceil(BODY_BUFFER_UNIT).clamp(1, BODY_BUFFER_BYTES / BODY_BUFFER_UNIT)
}

/// Gives back the room that a body turned out not to need.
pub(crate) fn release_unused_buffer(room: &mut OwnedSemaphorePermit, bytes: usize) {
    drop(room.split(room.num_permits().saturating_sub(buffer_units(bytes))));
}
