//! What ralph tells of its own work where `RALPH_LOG` asks for it: lines on standard error, masked like everything it says.

use std::io::{self, Write};

use ralph_core::redact::Redactor;
use ralph_engine::secret::SecretStore;
use ralph_engine::setup::ralph_home;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::environment::ProcessEnvironment;
use crate::ui::Ui;

/// Logs what a filter names. The secrets are gathered before the first line, since gathering them logs too.
pub(crate) fn to_stderr(filter: &str, environment: &ProcessEnvironment, ui: &mut Ui) {
    let Ok(targets) = filter.parse::<Targets>() else {
        ui.print_message(&format!(
            "`RALPH_LOG={filter}` is no log filter, so nothing is logged; try `RALPH_LOG=debug`"
        ));
        return;
    };
    // Without a home the command itself will say so; what looks like a secret is masked all the same.
    let store = ralph_home(&environment.env).map(|home| SecretStore::open(&home, &environment.env));
    let secrets = store.map(|store| store.all_values()).unwrap_or_default();
    let masked = RedactingMakeWriter { redactor: Redactor::new(secrets), to: io::stderr };
    let lines = tracing_subscriber::fmt::layer().with_writer(masked);
    let subscriber = tracing_subscriber::registry().with(lines.with_filter(targets));
    // A second subscriber cannot be set; there is only ever this one.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Masks each line as a whole on its way.
struct RedactingMakeWriter<To> {
    redactor: Redactor,
    to: To,
}

/// A line that is being written; it goes out when it is let go of.
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

    /// Nothing goes out yet: a piece may end in the middle of a secret.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Drop for RedactedLineWriter<'_, W> {
    fn drop(&mut self) {
        let text = String::from_utf8_lossy(&self.held);
        // There is nowhere else to tell that standard error is gone.
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
            self.0.lock().expect("nobody panics here").extend_from_slice(piece);
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
        let told = String::from_utf8(sink.0.lock().expect("nobody panics here").clone()).expect("text");
        assert_eq!(told.matches("[redacted:MINE]").count(), 2, "{told}");
        assert_eq!(told.matches("[redacted:github-token]").count(), 1, "{told}");
        assert!(!told.contains("hunter2") && !told.contains(&token), "{told}");
        assert_eq!(told.lines().count(), 3, "{told}");
    }
}
