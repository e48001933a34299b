//! `ralph edit-task`: replaces the task text of a run.

use ralph_core::control_request::{Control, TaskEdit};

use crate::args::stuck_run::EditTaskArgs;
use crate::error::{CliError, CliResult};
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

pub(crate) async fn edit_task(setup: &CliSetup, args: EditTaskArgs, ui: &mut Ui) -> CliResult {
    let text = ralph_engine::read_text_file(&args.file).map_err(|error| {
        CliError::usage(format!("could not read the task file `{}`", args.file.display()))
            .with_cause(&error)
            .hint("name a Markdown file in UTF-8: ralph edit-task RUN FILE")
    })?;
    let edit = TaskEdit { text, allow_weaker: args.allow_weaker, ..TaskEdit::default() };
    super::send_control::steer(setup, &args.run, Control::EditTask(edit), ui).await
}
