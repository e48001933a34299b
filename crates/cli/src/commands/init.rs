//! `ralph init`: a task file that fits the repository.

use ralph_core::exit::Exit;
use ralph_core::init::{Template as Kind, detect, task};
use ralph_core::text::slug;
use ralph_engine::store::write_atomic;

use crate::args::{Init, Template};
use crate::error::{Failure, Outcome};
use crate::setup::{Setup, TASK_FILE};
use crate::ui::Ui;

pub(crate) async fn init(setup: &Setup, args: &Init, ui: &mut Ui) -> Outcome {
    let repo = setup.repo().await?;
    let top = repo.top();
    let path = top.join(TASK_FILE);
    if path.exists() && !args.force {
        return Err(Failure::usage(format!("`{TASK_FILE}` is there already"))
            .hint("edit it, or `ralph init --force` to start over"));
    }
    let names = std::fs::read_dir(top)
        .map_err(|error| Failure::new(Exit::Failed, format!("could not list `{}`", top.display())).because(&error))?;
    let files = names.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let makefile = std::fs::read_to_string(top.join("Makefile")).ok();
    let package = std::fs::read_to_string(top.join("package.json")).ok();
    let stack = detect(&files, makefile.as_deref(), package.as_deref());
    let kind = match args.template {
        Template::Minimal => Kind::Minimal,
        Template::Feature => Kind::Feature,
        Template::Bugfix => Kind::Bugfix,
    };
    let name = top.file_name().map(|name| slug(&name.to_string_lossy(), 40)).filter(|name| !name.is_empty());
    let id = format!("{}-001", name.as_deref().unwrap_or("task"));
    write_atomic(&path, task(kind, &id, stack.as_ref()).as_bytes())?;
    let how = match &stack {
        Some(stack) => format!(": a {} project, tested by `{}`", stack.name, stack.test_command),
        None => "; nothing here said how the project is tested, so put your command in".to_owned(),
    };
    if ui.json() {
        ui.object(
            &serde_json::json!({"format": 1, "file": path, "test_command": stack.map(|stack| stack.test_command)}),
        );
        return Ok(Exit::Success);
    }
    ui.say(&format!("wrote {TASK_FILE}{how}"));
    ui.say("next: say what shall be true in it, then ralph lint");
    Ok(Exit::Success)
}
