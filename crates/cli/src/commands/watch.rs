//! `ralph watch`: one run on the whole screen.

use std::io::Read as _;

use anstream::ColorChoice;
use ralph_core::control::Control;

use super::steer::steer;
use crate::args::{ColorMode, WatchArgs};
use crate::error::{CliError, CliResult};
use crate::setup::CliSetup;
use crate::ui::Ui;
use crate::watch;

/// The longest control that is read: a long note fits many times.
const MAX_CONTROL_BYTES: u64 = 1 << 20;

pub(crate) async fn watch(setup: &CliSetup, args: &WatchArgs, color: ColorMode, ui: &mut Ui) -> CliResult {
    let (run, env) = (&args.run, &setup.environment.env);
    if args.ask {
        return steer(setup, run, read_control(run)?, ui).await;
    }
    if ui.json() {
        return Err(CliError::usage("`ralph watch` draws a screen and prints no data")
            .hint(format!("ralph logs -f {run} --json")));
    }
    if !watch::can_draw(env) {
        return Err(CliError::usage("`ralph watch` needs a terminal to draw on").hint(format!("ralph logs -f {run}")));
    }
    let folder = setup.find_run(run)?;
    watch::watch(&folder, color.choice(env) != ColorChoice::Never).await
}

/// Reads the control that a screen asks this process to carry out.
fn read_control(run: &str) -> Result<Control, CliError> {
    let mut text = String::new();
    let failed = |error: &dyn std::error::Error| {
        CliError::usage("there is no control on standard input").with_cause(error).hint(format!("ralph watch {run}"))
    };
    std::io::stdin().take(MAX_CONTROL_BYTES).read_to_string(&mut text).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}
