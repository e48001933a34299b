//! `ralph audit`: whether what was written down about a run can be relied on.

use std::time::Duration;

use ralph_core::audit::{Fault, Report};
use ralph_core::exit::Exit;
use ralph_engine::audit;
use ralph_engine::store::Folder;
use serde_json::json;

use crate::args::Audit;
use crate::error::{Failure, Outcome};
use crate::setup::Setup;
use crate::ui::Ui;

/// How often a line that is just being written is looked at again.
const LOOKS: u32 = 20;

pub(crate) async fn audit(setup: &Setup, args: &Audit, ui: &mut Ui) -> Outcome {
    match args {
        Audit::Verify(args) => verify(&setup.recorded(&args.run)?, ui).await,
    }
}

async fn verify(folder: &Folder, ui: &mut Ui) -> Outcome {
    let run = folder.id();
    match settled(folder).await? {
        Ok(report) => {
            tell(&run, &report, ui);
            Ok(Exit::Success)
        }
        Err(fault) if ui.json() => {
            let told = json!({"line": fault.line(), "what": fault.word(), "why": fault.to_string(),
                "hint": fault.hint(&run)});
            ui.object(&json!({"format": 1, "run": run, "sound": false, "fault": told}));
            Ok(Exit::Failed)
        }
        Err(fault) => {
            let mut failure = Failure::new(Exit::Failed, format!("the audit file of run `{run}` cannot be relied on"))
                .because(&fault);
            failure.hint = fault.hint(&run);
            failure.log = Some(audit::path(folder).display().to_string());
            Err(failure)
        }
    }
}

/// A live run may be in the middle of a line: that is no fault.
async fn settled(folder: &Folder) -> Result<Result<Report, Fault>, Failure> {
    for _ in 0..LOOKS {
        match audit::verify(folder)? {
            Err(Fault::Torn { .. }) if folder.in_use() => tokio::time::sleep(Duration::from_millis(20)).await,
            judged => return Ok(judged),
        }
    }
    Ok(audit::verify(folder)?)
}

fn tell(run: &str, report: &Report, ui: &mut Ui) {
    let Report { head, anchor, damaged, skipped } = report;
    let unanchored = report.unanchored();
    if ui.json() {
        let anchored = anchor.as_ref().map(|anchor| json!({"event": anchor.event, "lines": anchor.head.lines}));
        ui.object(&json!({"format": 1, "run": run, "sound": true, "lines": head.lines, "head": head.hash,
            "anchored": anchored, "unanchored": unanchored, "damaged": damaged, "skipped": skipped}));
        return;
    }
    let anchored = match anchor {
        Some(anchor) => format!("anchored at event {}", anchor.event),
        None => "not anchored".to_owned(),
    };
    ui.data(&format!("{}, head {}, {anchored}", counted(head.lines, "line"), head.hash));
    if unanchored > 0 {
        ui.say(&format!("{} came after the last anchor: nothing vouches for the end yet", counted(unanchored, "line")));
    }
    if *damaged > 0 {
        ui.say(&format!("{} of it cut off by a crash or a full disk, and marked", counted(*damaged, "place")));
    }
    if *skipped > 0 {
        ui.say(&format!("{} only counted, not written one by one", counted(*skipped, "record")));
    }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
