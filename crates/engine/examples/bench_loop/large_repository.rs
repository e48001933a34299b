//! Measures a repository of 50 000 files and a log of 200 MB: what grows with them and what does not.

use std::time::Instant;

use ralph_core::prompt::{
    self, LastAction, LastActions, OutputEnds, PromptCheckbox, PromptInputs, PromptRequest, RemainingBudget,
};

use crate::BenchResult;
use crate::bench_run::{BenchAction, drive};
use crate::figures::{FigureTable, percentile};
use crate::machine_baseline::ms;

const FILES: usize = 50_000;
const LOG_BYTES: usize = 200_000_000;
const ITERATIONS: u32 = 40;
const TIMES: usize = 10;
/// A prompt reads only the ends of what it shows, whatever its length.
const PROMPT_MS: f64 = 50.0;
/// From the start of an iteration to the model's answer: reading from the sandbox, building, storing the prompt.
const READ_MS: f64 = 200.0;

pub(crate) async fn measure(table: &mut FigureTable) -> BenchResult<()> {
    let line = "error: something long and tedious went wrong in module 17, as it did before\n";
    let log = line.repeat(LOG_BYTES / line.len());
    let status = (0..FILES).map(|at| format!("M src/d{}/f{at}.rs\n", at % 23)).collect::<Vec<_>>().concat();
    let mut times = Vec::new();
    for n in 1..=TIMES {
        let began = Instant::now();
        let output = Some(OutputEnds::whole(&log));
        let action = LastAction { index: 0, brief: "make", ended: "exit 2", why: "", output };
        let built = prompt::build(&inputs(u32::try_from(n)?, &log, &status, &[action]));
        times.push(ms(began));
        if built.user.len() > 400 << 10 {
            return Err(format!("the prompt has {} bytes", built.user.len()).into());
        }
    }
    table.add_with_target("prompt from a log of 200 MB, p50", percentile(&times, 50), PROMPT_MS, "ms");
    drop(log);
    let driven = Box::pin(drive(BenchAction::Write, ITERATIONS, FILES, Some(LOG_BYTES))).await?;
    let ((whole, prompt), (status_ms, planted)) = (driven.median(), driven.median_tree_status());
    if planted < 2 * usize::try_from(ITERATIONS)? {
        return Err(format!("only {planted} large files were in place").into());
    }
    table.add("50 000 files, 200 MB of log and output: an iteration, p50", whole, "ms");
    table.add("the same: git status and diffstat, p50", status_ms, "ms");
    table.add_with_target("the same: a prompt, from files to answer, p50", prompt, READ_MS, "ms");
    table.add_with_target("the same: git and prompt together, p50", status_ms + prompt, READ_MS, "ms");
    Ok(())
}

fn inputs<'a>(n: u32, log: &'a str, status: &'a str, actions: &'a [LastAction<'a>]) -> PromptInputs<'a> {
    PromptInputs {
        nonce: "k3v9q2w8",
        run: "bench",
        iteration: n,
        task: "# Do nothing\n",
        task_file: "ralph_task.md",
        guardrails: "",
        progress: "next: nothing\n",
        notes: "",
        errors_log: log,
        git_status: status,
        diffstat: status,
        test_output: log,
        tested_in: n.checked_sub(1),
        test_command: "true",
        boxes: &[PromptCheckbox { id: "M1.1", verified: false }],
        protected_paths: &[],
        left: RemainingBudget::default(),
        scores: &[0.3],
        rotated_because: None,
        last_actions: Some(LastActions { iteration: n, actions }),
        refused: "",
        ask: PromptRequest::Agent { notes_file: ".ralph/notes.md" },
    }
}
