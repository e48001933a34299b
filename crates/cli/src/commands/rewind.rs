//! `ralph rewind`: back to where an iteration ended.

use ralph_core::exit::Exit;
use ralph_engine::run::rewind as back;

use crate::args::Rewind;
use crate::error::Outcome;
use crate::live::Wake;
use crate::setup::Setup;
use crate::ui::Ui;

pub(crate) async fn rewind(setup: &Setup, args: &Rewind, ui: &mut Ui) -> Outcome {
    let folder = setup.own(&args.run)?;
    let id = folder.id();
    let sha = back(&setup.host, folder, args.iteration, Box::new(Wake::default())).await?;
    if ui.json() {
        ui.object(&serde_json::json!({"format": 1, "run": id, "iteration": args.iteration, "commit": sha}));
        return Ok(Exit::Success);
    }
    ui.say(&format!("run {id} stands at iteration {} again ({})", args.iteration, ralph_core::text::head(&sha, 10)));
    ui.say(&format!("next: ralph resume {id}"));
    Ok(Exit::Success)
}
