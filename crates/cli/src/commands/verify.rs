//! `ralph verify`: the proof again, here and now.

use std::path::Path;

use ralph_core::exit::Exit;
use ralph_core::receipt::{Again, Receipt};
use ralph_core::text::head;
use ralph_engine::host::DEFAULT_BACKEND;
use ralph_engine::receipt::Key;
use ralph_engine::verify::{Signer, find, verify as again};
use ralph_sandbox::Isolation;

use super::run::warn_of;
use crate::args::Verify;
use crate::error::{Failure, Outcome};
use crate::render::columns;
use crate::setup::Setup;
use crate::ui::{GREEN, RED, Ui, YELLOW, one_line, paint};

pub(crate) async fn verify(setup: &Setup, args: &Verify, ui: &mut Ui) -> Outcome {
    let here = Path::new(".");
    let receipt = find(&setup.host, &args.what, here).await?;
    if let Some(key) = args.key.as_deref().filter(|key| !key.eq_ignore_ascii_case(&receipt.key)) {
        let found = one_line(&receipt.key, 64);
        return Err(Failure::new(
            Exit::Failed,
            format!("the receipt is signed by `{found}`, not by `{}`", one_line(key, 64)),
        )
        .hint("get the receipt again from whom you trust"));
    }
    let backend = args.backend.as_deref().unwrap_or(DEFAULT_BACKEND);
    let isolation = setup.host.backend(backend)?.capabilities();
    if !ui.json() {
        tell(&receipt, ui);
    }
    if args.backend.is_none() && isolation.isolation == Isolation::None && !is_own(setup, &receipt)? {
        // Its commands are somebody else's words, and here nothing would stand between them and this machine.
        return Err(Failure::usage(
            "the receipt was made elsewhere, and its commands would run here without isolation",
        )
        .hint(format!("read them, then: ralph verify {} --backend {backend}", args.what)));
    }
    warn_of(&isolation, ui);
    let report = again(&setup.host, receipt, backend, here).await?;
    let key = &report.receipt.key;
    let known = args.key.is_some() || report.signed_by == Signer::ThisInstallation;
    let exit = match (report.flaw, known) {
        (Some(_), _) => Exit::Failed,
        // Anybody can sign anything: whose word it is has to be settled by a person, once.
        (None, false) => Exit::Paused,
        (None, true) => Exit::Success,
    };
    if ui.json() {
        ui.object(&report);
        return Ok(exit);
    }
    let by = match (report.signed_by, &args.key) {
        (Signer::ThisInstallation, _) => "this installation",
        (Signer::Another, Some(_)) => "the key you named",
        (Signer::Another, None) => "a key this installation does not know",
    };
    ui.say(&format!("signature holds; signed by {by} ({}…)", head(key, 16)));
    let rows: Vec<Vec<String>> = report
        .lines
        .iter()
        .map(|line| {
            let verdict = match line.verdict {
                Again::Same => paint(GREEN, "same"),
                Again::Different => paint(RED, "different"),
                Again::Cannot => paint(YELLOW, "cannot"),
            };
            let now = line.now.map_or_else(|| "-".to_owned(), |code| code.to_string());
            vec![
                verdict,
                format!("exit {} then, {now} now", line.then),
                line.proves.join(" "),
                one_line(&line.command, 80),
            ]
        })
        .collect();
    for line in columns(&rows) {
        ui.data(&line);
    }
    match (report.flaw, known) {
        (Some(why), _) => ui.say(&format!("not proved: {why}")),
        (None, false) => {
            ui.say("proved again, but nobody here vouches for who signed it");
            ui.say(&format!("next: ralph verify {} --key {key}, if that is the key of whom you trust", args.what));
        }
        (None, true) => ui.say("proved again"),
    }
    Ok(exit)
}

fn tell(receipt: &Receipt, ui: &mut Ui) {
    let body = &receipt.body;
    let branch = one_line(&body.branch, 100);
    ui.say(&format!("receipt of run {} for {branch} at {}", one_line(&body.run, 40), head(&body.commit, 12)));
    for check in &body.checks {
        ui.say(&format!("  {}: {}", check.proves.join(" "), one_line(&check.command, 120)));
    }
}

fn is_own(setup: &Setup, receipt: &Receipt) -> Result<bool, Failure> {
    let path = setup.host.home.key_path();
    Ok(path.exists() && Key::load_or_make(&path)?.public() == receipt.key)
}
