//! Writes debug logs to standard error when `RALPH_LOG` asks for them, with secrets masked as in all other output.

use std::io::{self, Write};

use ralph_core::redact::Redactor;
use ralph_engine::secret::SecretStore;
use ralph_engine::setup::ralph_home;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::environment::ProcessEnvironment;
use crate::terminal_output::Ui;

/// Logs what a filter selects. The secrets are collected before the first line, since collecting them logs too.
pub(crate) fn to_stderr(filter: &str, environment: &ProcessEnvironment, ui: &mut Ui) {
    let Ok(targets) = filter.parse::<Targets>() else {
        ui.print_message(&format!(
            "`RALPH_LOG={filter}` is not a log filter, so nothing is logged; try `RALPH_LOG=debug`"
        ));
        return;
    };
    // Without a home directory the command itself will report it; text that looks like a secret is masked all the
    // same.
    let store = ralph_home(&environment.env).map(|home| SecretStore::open(&home, &environment.env));
    let secrets = store.map(|store| store.all_values()).unwrap_or_default();
    let masked = RedactingMakeWriter { redactor: Redactor::new(secrets), to: io::stderr };
    let lines = tracing_subscriber::fmt::layer().with_writer(masked);
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(targets));
    // Setting it fails only if there is a subscriber already, and this is the only one.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Masks each line as a whole before it is written.
struct RedactingMakeWriter<To> {
    redactor: Redactor,
    to: To,
}

/// A line that is being assembled; it is written when this is dropped.
struct RedactedLineWriter<'a, W: Write> {
    redactor: &'a Redactor,
    held: Vec<u8>,
    to: W,
}

impl<'a, W: Write + 'a, To: Fn() -> W> MakeWriter<'a> for RedactingMakeWriter<To> {
    type Writer = RedactedLineWriter<'a, W>;

    fn make_writer(&'a self) -> Self::Writer {
        RedactedLineWriter { redactor: &self.redactor, held: Vec::new(), to: (self.to)() }
    }
}

impl<W: Write> Write for RedactedLineWriter<'_, W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(piece);
        Ok(piece.len())
    }

    /// Writes nothing yet: a chunk may end in the middle of a secret.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Drop for RedactedLineWriter<'_, W> {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.held);
        // If standard error is gone, there is nowhere else to report it.
        let _ = self.to.write_all(self.redactor.redact(&text).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use ralph_core::secret::Secret;

    use super::*;

    #[derive(Debug, Clone, Default)]
    struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for SharedBuffer {
        fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no holder of this lock panics").extend_from_slice(piece);
            Ok(piece.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn every_line_is_masked() {
        let sink = SharedBuffer::default();
        let to = sink.clone();
        let redactor = Redactor::new([("MINE".to_owned(), Secret::new("hunter2-\"hunter2"))]);
        let lines = tracing_subscriber::fmt::layer()
            .without_time()
            .with_writer(RedactingMakeWriter { redactor, to: move || to.clone() });
        let token = ["gh", "p_q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0Jj9Ii8Hh7G"].concat();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), || {
            tracing::info!(host = "hunter2-\"hunter2.example.com", "seen");
            tracing::warn!(%token, "seen {}", "hunter2-\"hunter2");
            tracing::error!("nothing");
        });
        let logged = String::from_utf8(sink.0.lock().expect("no holder of this lock panics").clone()).expect("text");
        assert_eq!(logged.matches("[redacted:MINE]").count(), 2, "{logged}");
        assert_eq!(logged.matches("[redacted:github-token]").count(), 1, "{logged}");
        assert!(!logged.contains("hunter2") && !logged.contains(&token), "{logged}");
        assert_eq!(logged.lines().count(), 3, "{logged}");
    }
}
