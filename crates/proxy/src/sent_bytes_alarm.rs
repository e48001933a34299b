//! Counts the bytes that a run has sent out, and raises an alarm when they exceed a limit.
//!
//! Nothing is cut here: an upload can be what the run is for. But the contents of a tunnel cannot be inspected, so
//! its size is the one thing about it that can be noticed. Model calls are not counted: they are paid for, and the
//! budget limits them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ralph_core::egress::EgressTarget;

use crate::egress_events::{AlarmKind, EgressAlarm, EgressEvent, EgressObserver};

/// The bytes sent out, over all sandboxes of a run. Clones share the count.
#[derive(Debug, Clone)]
pub struct OutflowMeter(Arc<OutflowState>);

#[derive(Debug)]
struct OutflowState {
    /// Sending more than this raises an alarm.
    limit: Option<u64>,
    sent: AtomicU64,
}

impl OutflowMeter {
    /// Continues from what was sent before. Without a limit no alarm is raised.
    pub fn new(limit: Option<u64>, sent: u64) -> Self {
        Self(Arc::new(OutflowState { limit, sent: AtomicU64::new(sent) }))
    }

    pub fn limit(&self) -> Option<u64> {
        self.0.limit
    }

    /// Returns how many bytes were sent so far.
    pub fn sent(&self) -> u64 {
        self.0.sent.load(Ordering::Relaxed)
    }

    /// Adds bytes sent to a target, and raises the alarm when they are the first to exceed the limit.
    pub(crate) fn add(&self, bytes: u64, target: &EgressTarget, observer: &dyn EgressObserver) {
        let before = self.0.sent.fetch_add(bytes, Ordering::Relaxed);
        let Some(limit) = self.0.limit else { return };
        if before <= limit && before.saturating_add(bytes) > limit {
            let (credential, host, port) = (String::new(), target.host().to_owned(), target.port());
            observer.observe(EgressEvent::Alarm(EgressAlarm {
                what: AlarmKind::OutflowExceeded { limit },
                credential,
                host,
                port,
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct AlarmRecorder(Mutex<Vec<String>>);

    impl EgressObserver for AlarmRecorder {
        fn observe(&self, event: EgressEvent) {
            let EgressEvent::Alarm(EgressAlarm { what, credential, host, port }) = event else { panic!("{event:?}") };
            assert_eq!(credential, "");
            self.0.lock().unwrap().push(format!("{what}: {host}:{port}"));
        }
    }

    #[track_caller]
    fn check(limit: Option<u64>, before: u64, sent: &[u64], want: &[&str]) {
        let (outflow, notes) = (OutflowMeter::new(limit, before), AlarmRecorder::default());
        for bytes in sent {
            outflow.clone().add(*bytes, &EgressTarget::new("x.io", 443).unwrap(), &notes);
        }
        assert_eq!(*notes.0.lock().unwrap(), want);
        assert_eq!(outflow.sent(), before + sent.iter().sum::<u64>());
    }

    #[test]
    fn the_alarm_is_raised_once_when_the_limit_is_exceeded() {
        let alarm = &["the run has sent out more than 10 bytes: x.io:443"][..];
        check(Some(10), 0, &[4, 6], &[]);
        check(Some(10), 0, &[4, 7, 1, 100], alarm);
        check(Some(10), 0, &[11], alarm);
        check(Some(10), 9, &[1, 1, 1], alarm);
        check(Some(10), 11, &[100], &[]);
        check(None, 0, &[u64::MAX / 2], &[]);
    }
}
