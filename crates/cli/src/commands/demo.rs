//! `ralph demo`: runs a demonstration offline and without keys. Scripted models in a small repository claim unproved
//! work, weaken a check and go in circles until a diagnosis is followed; the result is proved.

use std::path::{Path, PathBuf};
use std::process::Command as Process;

use ralph_core::control_request::Control;
use ralph_core::event::{PinnedProfile, RunProfiles};
use ralph_core::exit_code::RalphExitCode;
use ralph_core::price::Price;
use ralph_core::run::RunState;
use ralph_engine::control::send;
use ralph_engine::run::{BudgetRaise, KeepSandbox, PreparedRun, RecreateSandbox, StopSignals, begin, resume};
use ralph_engine::setup::{RunOverrides, TASK_FILE, resolve_run};

use super::run::{exit_code, warn_if_not_isolated};
use crate::args::DemoArgs;
use crate::error::{CliError, CliResult};
use crate::foreground::{self, DisplayNotifier};
use crate::run_setup::CliSetup;
use crate::terminal_output::{BOLD, Ui, paint};

/// The files of the small repository.
const FILES: [(&str, &str); 7] = [
    ("repo/greet.sh", include_str!("../../demo/greet.sh")),
    ("repo/tests/check-name.sh", include_str!("../../demo/check-name.sh")),
    ("repo/tests/check-usage.sh", include_str!("../../demo/check-usage.sh")),
    ("repo/tests/check-shout.sh", include_str!("../../demo/check-shout.sh")),
    ("repo/tests/all.sh", include_str!("../../demo/all.sh")),
    ("repo/ralph_task.md", include_str!("../../demo/task.md")),
    ("script.jsonl", include_str!("../../demo/script.jsonl")),
];

pub(crate) async fn demo(setup: &CliSetup, args: DemoArgs, ui: &mut Ui) -> CliResult {
    let dir = demo_dir(args.dir)?;
    for (name, text) in FILES {
        ralph_engine::store::write_atomic(&dir.join(name), text.as_bytes())?;
    }
    let repo = dir.join("repo");
    commit(&repo)?;
    print_text(
        ui,
        &paint(BOLD, "A small repository with three failing checks, and a task that asks for them to pass:"),
    );
    print_text(ui, &format!("  {}\n", repo.display()));
    print_text(
        ui,
        "The models are scripted. One will claim a box it has not earned, try to weaken a check, and then go in circles.",
    );
    print_text(
        ui,
        "ralph runs every proof on the base commit first (they must be red), re-checks every claim itself, puts",
    );
    print_text(
        ui,
        "protected files back, notices the circle, tries a fresh session, another model and a diagnosis, and in the",
    );
    print_text(ui, "end proves everything again in a fresh sandbox.\n");
    let read = setup.load_task(Some(&repo.join(TASK_FILE))).await?;
    let flags = RunOverrides {
        backend: Some(ralph_engine::host_environment::DEFAULT_BACKEND.to_owned()),
        ..RunOverrides::default()
    };
    let mut spec = resolve_run(&setup.host, &read, &flags)?;
    let played = |name: &str| scripted_profile(&dir, name);
    spec.profiles = RunProfiles {
        default: played("demo"),
        fallback: Some(played("demo-strong")),
        doctor: Some(played("demo-doctor")),
    };
    let (wake, stops) = (DisplayNotifier::default(), StopSignals::default());
    warn_if_not_isolated(&setup.host.backend(&spec.backend)?.capabilities(), ui);
    let begun = begin(&setup.host, spec, Box::new(wake.clone()), stops.clone(), KeepSandbox::Never).await;
    let PreparedRun { runner, .. } = begun.inspect_err(|_| {
        // No run has begun and the folder was created here. If it cannot be removed, it only takes up space.
        let _ = std::fs::remove_dir_all(&dir);
    })?;
    let mut state = foreground::drive(runner, &wake, stops, 0, ui).await?;
    if exit_code(&state) == RalphExitCode::Paused && state.diagnoses.open_proposals().next().is_some() {
        state = apply_diagnosis(setup, &state, ui).await?;
    }
    if exit_code(&state) == RalphExitCode::Success {
        print_text(ui, &format!("\n{}", paint(BOLD, "What happened")));
        print_text(
            ui,
            &format!(
                "  {} iterations, {} of model calls, {} commits on {}",
                state.spent.iterations, state.spent.cost, state.commits, state.started.branch
            ),
        );
        print_text(
            ui,
            "  a claim without proof was not believed, a weakened check was put back, a circle was seen, diagnosed and",
        );
        print_text(
            ui,
            "  left with the sign that the diagnosis proposed, and the pull request carries a signed receipt of the proof.",
        );
        print_text(ui, &format!("\n{}", paint(BOLD, "Try next")));
        print_text(ui, "  ralph show @        where it stands, with the pull request");
        print_text(ui, "  ralph logs @        everything that happened");
        print_text(ui, "  ralph gutter explain @   why it was found to go in circles");
        print_text(ui, "  ralph diff @        what changed");
        // By its id: `@` would mean a run of the repository in the current folder.
        print_text(ui, &format!("  ralph verify {}   run the proof again, here and now", state.id()));
    }
    Ok(exit_code(&state))
}

/// Applies the first proposal and resumes, as a user would whose run has paused here.
async fn apply_diagnosis(setup: &CliSetup, state: &RunState, ui: &mut Ui) -> Result<RunState, CliError> {
    let (run, number) = (state.id(), state.diagnoses.open_proposals().next().unwrap_or(1));
    print_text(
        ui,
        &format!("\n{}", paint(BOLD, "Now a person is asked (exit code 5). The demo does what the last line says:")),
    );
    print_text(ui, &format!("  $ ralph apply {run} {number} && ralph resume {run}\n"));
    let folder = setup.host.home.run_folder(run);
    let wake = DisplayNotifier::default();
    let apply = Control::ApplyProposal { number };
    send(&setup.host, &folder, &apply, "the demo").await?;
    let stops = StopSignals::default();
    let (raise, announce) = (BudgetRaise::default(), Box::new(wake.clone()));
    let runner =
        resume(&setup.host, folder, raise, RecreateSandbox::No, announce, stops.clone(), KeepSandbox::Never).await?;
    foreground::drive(runner, &wake, stops, state.last_seq, ui).await
}

/// Prints a line for people; prints nothing with `--json`.
fn print_text(ui: &mut Ui, text: &str) {
    if !ui.json() {
        ui.print_message(text);
    }
}

fn demo_dir(dir: Option<PathBuf>) -> Result<PathBuf, CliError> {
    let failed = |path: &Path| {
        let message = format!("could not make the folder `{}`", path.display());
        move |error: std::io::Error| {
            CliError::new(RalphExitCode::Failed, message)
                .with_cause(&error)
                .hint("ralph demo --dir FOLDER, one you may write")
        }
    };
    let Some(dir) = dir else {
        let made = tempfile::Builder::new().prefix("ralph-demo-").tempdir();
        return Ok(made.map_err(failed(&std::env::temp_dir()))?.keep());
    };
    let dir = std::path::absolute(&dir).map_err(failed(&dir))?;
    let empty = std::fs::read_dir(&dir).map_or(true, |mut entries| entries.next().is_none());
    if !empty {
        return Err(CliError::usage(format!("`{}` is not empty", dir.display()))
            .hint("name a folder that is empty or does not exist yet"));
    }
    std::fs::create_dir_all(&dir).map_err(failed(&dir))?;
    Ok(dir)
}

/// Creates the first commit, independently of the user's git settings.
fn commit(repo: &Path) -> Result<(), CliError> {
    let steps: [&[&str]; 3] = [
        &["init", "-q", "-b", "main"],
        &["add", "-A"],
        &[
            "-c",
            "user.name=demo",
            "-c",
            "user.email=demo@localhost",
            "-c",
            "commit.gpgSign=false",
            "commit",
            "-q",
            "--no-verify",
            "-m",
            "a greeter that does not greet",
        ],
    ];
    for step in steps {
        let done = Process::new("git")
            .args(step)
            .current_dir(repo)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env_remove("GIT_DIR")
            .env_remove("GIT_WORK_TREE")
            .env_remove("GIT_INDEX_FILE")
            .output()
            .map_err(|error| {
                CliError::new(RalphExitCode::NotReady, "could not start git")
                    .with_cause(&error)
                    .hint("install git, then try again")
            })?;
        if !done.status.success() {
            let stderr = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            return Err(CliError::new(
                RalphExitCode::Failed,
                format!("git {} failed: {stderr}", step.first().unwrap_or(&"")),
            ));
        }
    }
    Ok(())
}

fn scripted_profile(dir: &Path, name: &str) -> PinnedProfile {
    PinnedProfile {
        name: name.to_owned(),
        model: format!("scripted/{}", dir.join("script.jsonl").display()),
        base_url: None,
        api_key_env: None,
        max_output_tokens: 2048,
        temperature: None,
        timeout_s: 60,
        price: Some(Price::per_mtok_usd(0.6, 2.2, None)),
        most_output: None,
        extra: std::collections::BTreeMap::new(),
    }
}
