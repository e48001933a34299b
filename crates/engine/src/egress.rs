//! Puts the way out at the doors of a run's sandboxes, with the run's policy, and writes down what was decided there.

use std::collections::BTreeMap;

use ralph_core::policy::{Mode, Policy};
use ralph_sandbox::Network;

/// The label that tells a sandbox's policy to whoever stands at its doors.
const POLICY: &str = "ralph.policy";

/// Returns which doors a policy needs, and labels the sandbox with it. A run that may talk to nobody has no doors.
pub fn network(policy: &Policy, labels: &mut BTreeMap<String, String>) -> Network {
    if policy.mode == Mode::Deny {
        return Network::None;
    }
    let text = serde_json::to_string(policy).expect("strings serialise");
    labels.insert(POLICY.to_owned(), text);
    Network::Transparent
}

#[cfg(target_os = "linux")]
pub(crate) use linux::Egress;

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::fs::{File, OpenOptions};
    use std::io::{self, Write as _};
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::path::PathBuf;
    use std::sync::{Arc, Mutex, PoisonError};

    use ralph_core::policy::Policy;
    use ralph_proxy::door::{self, Doors};
    use ralph_proxy::notice::{Notice, Told};
    use ralph_proxy::resolve::System;
    use ralph_sandbox::Label;
    use ralph_sandbox::embedded::{self, Door, Keeper};
    use serde_json::json;

    use super::POLICY;
    use crate::store::Home;

    /// The file of a run that holds what was decided at its doors.
    const FILE: &str = "egress.jsonl";
    /// So much is written per sandbox; a program that knocks for ever must not fill the disk.
    const MOST: u64 = 16 << 20;

    /// The way out for all sandboxes of this machine.
    #[derive(Debug)]
    pub(crate) struct Egress {
        home: Home,
    }

    impl Egress {
        pub(crate) fn new(home: Home) -> Self {
            Self { home }
        }
    }

    impl Door for Egress {
        fn stand(
            &self,
            sandbox: &str,
            labels: &BTreeMap<String, String>,
            doors: embedded::Doors,
        ) -> io::Result<Keeper> {
            // Without a policy that can be read nobody may pass: an empty one denies.
            let policy: Policy = match labels.get(POLICY) {
                Some(text) => serde_json::from_str(text)?,
                None => Policy::default(),
            };
            let run = labels.get(Label::RUN).map(|run| self.home.folder(run).path().join(FILE));
            let book = Arc::new(Book::open(sandbox, run));
            let embedded::Doors { explicit, transparent, dns_udp, dns_tcp } = doors;
            let doors = Doors { explicit, transparent, dns_udp, dns_tcp };
            Ok(Keeper::new(door::serve(doors, policy, Arc::new(System), book)?))
        }
    }

    /// Where decisions are written down.
    #[derive(Debug)]
    struct Book {
        sandbox: String,
        file: Option<Mutex<(File, u64)>>,
    }

    impl Book {
        fn open(sandbox: &str, path: Option<PathBuf>) -> Self {
            let file = path.filter(|path| path.parent().is_some_and(std::path::Path::is_dir)).and_then(|path| {
                let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path).ok()?;
                Some(Mutex::new((file, 0)))
            });
            Self { sandbox: sandbox.to_owned(), file }
        }
    }

    impl Notice for Book {
        fn tell(&self, told: Told) {
            tracing::debug!(sandbox = self.sandbox, ?told, "egress");
            let Told::Decided(decided) = told else { return };
            let Some(file) = &self.file else { return };
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            if file.1 > MOST {
                return;
            }
            if file.1 + 4096 > MOST {
                file.1 = MOST + 1;
                let last = json!({"at": jiff::Timestamp::now().to_string(), "sandbox": self.sandbox,
                    "why": "so much was decided for this sandbox that no more is written down"});
                // As below.
                let _ = file.0.write_all(format!("{last}\n").as_bytes());
                return;
            }
            let line = json!({
                "at": jiff::Timestamp::now().to_string(),
                "sandbox": self.sandbox,
                "entry": decided.entry.as_str(),
                "host": decided.host,
                "port": decided.port,
                "allowed": decided.allowed,
                "why": decided.why.to_string(),
                "address": decided.address,
            });
            let line = format!("{line}\n");
            file.1 += line.len() as u64;
            // The decision stands whether it could be written down or not.
            let _ = file.0.write_all(line.as_bytes());
        }
    }
}
