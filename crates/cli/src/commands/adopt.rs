//! `ralph adopt`: a run whose folder is gone, rebuilt from its sandbox.

use std::path::Path;

use ralph_core::exit::Exit;
use ralph_engine::run::{adopt as rebuild, origin};

use crate::args::Adopt;
use crate::error::{Failure, Outcome};
use crate::live::Wake;
use crate::setup::{Flags, Setup};
use crate::ui::Ui;

pub(crate) async fn adopt(setup: &Setup, args: &Adopt, ui: &mut Ui) -> Outcome {
    let backend = setup.host.backend_of(&args.sandbox, args.backend.as_deref()).await?.capabilities().name;
    let from = origin(&setup.host, backend, &args.sandbox).await?;
    let path = Path::new(&from.repo).join(&from.task_path);
    let mut read = setup.read(Some(&path)).await.map_err(|failure| {
        if path.exists() {
            failure
        } else {
            Failure::usage(format!("the task file `{}` is needed to rebuild the run, and it is gone", path.display()))
                .hint("put it back, then adopt again")
        }
    })?;
    read.inside.clone_from(&from.task_path);
    let flags = Flags { backend: Some(backend.to_owned()), ..Flags::default() };
    let wish = setup.begin(&read, &flags)?;
    let runner = rebuild(&setup.host, from, &args.sandbox, wish, Box::new(Wake::default())).await?;
    let id = runner.state().id().to_owned();
    if ui.json() {
        ui.object(&serde_json::json!({"format": 1, "run": id, "sandbox": args.sandbox}));
        return Ok(Exit::Success);
    }
    ui.say(&format!(
        "run {id} was rebuilt from sandbox {}: {} iterations, {} spent",
        args.sandbox,
        runner.state().spent.iterations,
        runner.state().spent.cost
    ));
    ui.say(&format!("next: ralph resume {id}"));
    Ok(Exit::Success)
}
