//! A supervisor that may be killed, or that has things a cage must not inherit: this program again, as the probe.

use std::path::PathBuf;
use std::time::Duration;

use super::case::name;
use crate::embedded::{Embedded, Options, Wall};
use crate::{Backend, Exec, Spec, capture};

/// The name of its one sandbox.
pub(super) const NAME: &str = "owned";

/// Makes a cage in `dir` without the walls named, runs a line in it, and tells what the line told.
pub(super) fn main(dir: &str, without: &str, line: &str) -> String {
    let without = Wall::ALL.into_iter().filter(|wall| without.split(',').any(|one| one == name(*wall))).collect();
    let options = Options { dir: PathBuf::from(dir), without, ..Options::default() };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return format!("no runtime: {error}"),
    };
    let told = runtime.block_on(async {
        let sandbox = Embedded::new(options).create(&Spec { name: NAME.to_owned(), ..Spec::default() }).await?;
        capture(&*sandbox, &Exec::shell(line, Duration::from_secs(50)), 1 << 16).await
    });
    match told {
        Ok(output) => format!("{}{}", output.stdout_text(), output.stderr_text()),
        Err(error) => format!("no cage: {error}: {:?}", std::error::Error::source(&error)),
    }
}
