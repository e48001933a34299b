//! `ralph diff`: what a run changed, from the host's own repository.

use ralph_core::exit::Exit;
use ralph_core::text::plain;
use ralph_engine::git;

use crate::args::Diff;
use crate::error::{Failure, Outcome};
use crate::setup::Setup;
use crate::ui::Ui;

pub(crate) async fn diff(setup: &Setup, args: &Diff, ui: &mut Ui) -> Outcome {
    let folder = setup.find(&args.run)?;
    let state = folder.state()?;
    let tool = &setup.host.tool;
    let range = git::range(tool, &folder, &state, args.iteration).await.map_err(ralph_engine::Error::from)?;
    let Some((from, to)) = range else {
        let message = match args.iteration {
            Some(n) => format!("iteration {n} of run `{}` handed over nothing", folder.id()),
            None => format!("run `{}` has handed over nothing yet", folder.id()),
        };
        return Err(Failure::new(Exit::Failed, message).hint(format!("ralph logs {}", folder.id())));
    };
    if ui.json() {
        let stat = git::diffstat(tool, &folder, &from, &to).await.map_err(ralph_engine::Error::from)?;
        let patch = if args.stat {
            None
        } else {
            Some(git::diff(tool, &folder, &from, &to).await.map_err(ralph_engine::Error::from)?)
        };
        ui.object(&serde_json::json!({"format": 1, "from": from, "to": to, "files": stat, "patch": patch}));
        return Ok(Exit::Success);
    }
    if args.stat {
        for file in git::diffstat(tool, &folder, &from, &to).await.map_err(ralph_engine::Error::from)? {
            ui.data(&format!("{:>6} {:>6}  {}", sign('+', file.added), sign('-', file.removed), plain(&file.path)));
        }
    } else {
        ui.raw(&plain(&git::diff(tool, &folder, &from, &to).await.map_err(ralph_engine::Error::from)?));
    }
    Ok(Exit::Success)
}

fn sign(sign: char, lines: Option<u64>) -> String {
    lines.map_or_else(|| "binary".to_owned(), |lines| format!("{sign}{lines}"))
}
