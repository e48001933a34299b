//! `ralph watch`: opens the full-screen view of one run.

use anstream::ColorChoice;

use crate::args::{ColorMode, WatchArgs};
use crate::error::{CliError, CliResult};
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;
use crate::watch;

pub(crate) async fn watch(setup: &CliSetup, args: &WatchArgs, color: ColorMode, ui: &mut Ui) -> CliResult {
    let (run, env) = (&args.run, &setup.environment.env);
    if ui.json() {
        return Err(CliError::usage("`ralph watch` draws a screen and prints no data")
            .hint(format!("ralph logs -f {run} --json")));
    }
    if !watch::can_draw(env) {
        return Err(CliError::usage("`ralph watch` needs a terminal to draw on").hint(format!("ralph logs -f {run}")));
    }
    let folder = setup.find_run(run)?;
    watch::watch(&setup.host, &folder, color.choice(env) != ColorChoice::Never, ui).await
}
