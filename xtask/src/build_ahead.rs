//! Builds what the steps after the tests need while the tests wait for processes and clocks.
//!
//! It runs as a process with the lowest priority, so that no test gets less of the processors. The steps themselves
//! repeat what is done here and report how it ended; by then nothing is left to build.

use std::process::Command;
use std::thread::JoinHandle;

use crate::tools::CargoTool;
use crate::workspace::ProjectWorkspace;
use crate::{deny, fuzz, macos, report, subprocess, tools, unused_dependencies};

const TOOLS: [&CargoTool; 3] = [&unused_dependencies::MACHETE, &deny::DENY, &fuzz::FUZZ];

/// Builds everything, in this process.
pub(crate) fn run(workspace: &ProjectWorkspace) -> anyhow::Result<()> {
    let tools = TOOLS.into_iter().try_for_each(|tool| tools::ensure(&workspace.root, tool).map(drop));
    // Each is tried whatever became of the others.
    let (checked, built) = (macos::run(workspace), fuzz::build(workspace));
    tools.and(checked).and(built)
}

/// The process in the background.
pub(crate) struct BuildAhead(JoinHandle<anyhow::Result<()>>);

impl BuildAhead {
    pub(crate) fn start(workspace: &ProjectWorkspace) -> Self {
        let workspace = workspace.clone();
        Self(std::thread::spawn(move || {
            let mut command: Command = subprocess::command("nice", &workspace.root);
            command.args(["-n", "19"]).arg(std::env::current_exe()?).arg("build-ahead");
            // The steps print the same output.
            subprocess::run_buffered(&mut command).1
        }))
    }

    /// Waits for the end. Whatever went wrong goes wrong again in the step that needs it, which fails.
    pub(crate) fn finish(self) {
        match self.0.join() {
            Ok(Ok(())) => (),
            Ok(Err(error)) => report::print_error(&format!("{error:#}")),
            Err(_) => report::print_error("the thread that builds ahead panicked"),
        }
    }
}
