//! Defines how much one sandbox may use of the egress proxy at the same time, and how long requests may take.

use std::time::Duration;

/// The limits of one sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyLimits {
    /// The number of concurrent connections, over all listeners.
    pub connections: usize,
    /// The longest request head.
    pub head_bytes: usize,
    /// The longest a client may take to send its request head, SOCKS greeting or TLS hello.
    pub head_time: Duration,
    /// The longest body of a model call, which has to be read as a whole.
    pub body_bytes: usize,
    /// The longest such a body may take to arrive.
    pub body_time: Duration,
    /// The longest it may wait for buffer space that the bodies of other calls occupy.
    pub buffer_wait_time: Duration,
    pub resolve_time: Duration,
    /// The longest all attempts to reach one target may take together.
    pub dial_time: Duration,
    /// The longest a connection may be silent in both directions. A model may think for many minutes.
    pub idle_time: Duration,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            head_bytes: 32 * 1024,
            head_time: Duration::from_secs(15),
            body_bytes: 32 << 20,
            body_time: Duration::from_mins(2),
            buffer_wait_time: Duration::from_mins(1),
            resolve_time: Duration::from_secs(10),
            dial_time: Duration::from_secs(20),
            idle_time: Duration::from_mins(15),
        }
    }
}
