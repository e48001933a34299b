//! `ralph edit-task`: another text for the task of a run.

use ralph_core::control::{Control, TaskEdit};

use crate::args::stuck::EditTask;
use crate::error::{Failure, Outcome};
use crate::setup::Setup;
use crate::ui::Ui;

pub(crate) async fn edit_task(setup: &Setup, args: EditTask, ui: &mut Ui) -> Outcome {
    let text = std::fs::read_to_string(&args.file).map_err(|error| {
        Failure::usage(format!("could not read the task file `{}`", args.file.display()))
            .because(&error)
            .hint("name a Markdown file in UTF-8: ralph edit-task RUN FILE")
    })?;
    let edit = TaskEdit { text, allow_weaker: args.allow_weaker, ..TaskEdit::default() };
    super::steer::steer(setup, &args.run, Control::EditTask(edit), ui).await
}
