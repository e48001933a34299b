//! `ralph watch`: one run on the whole screen.

use std::io::Read as _;

use anstream::ColorChoice;
use ralph_core::control::Control;

use super::steer::steer;
use crate::args::{Color, Watch};
use crate::error::{Failure, Outcome};
use crate::setup::Setup;
use crate::ui::Ui;
use crate::watch;

/// The longest control that is read: a long note fits many times.
const LONGEST: u64 = 1 << 20;

pub(crate) async fn watch(setup: &Setup, args: &Watch, color: Color, ui: &mut Ui) -> Outcome {
    let (run, env) = (&args.run, &setup.environment.env);
    if args.ask {
        return steer(setup, run, asked(run)?, ui).await;
    }
    if ui.json() {
        return Err(Failure::usage("`ralph watch` draws a screen and prints no data")
            .hint(format!("ralph logs -f {run} --json")));
    }
    if !watch::drawable(env) {
        return Err(Failure::usage("`ralph watch` needs a terminal to draw on").hint(format!("ralph logs -f {run}")));
    }
    let folder = setup.find(run)?;
    watch::watch(&folder, color.choice(env) != ColorChoice::Never).await
}

/// Reads the control that a screen asks this process to carry out.
fn asked(run: &str) -> Result<Control, Failure> {
    let mut text = String::new();
    let failed = |error: &dyn std::error::Error| {
        Failure::usage("there is no control on standard input").because(error).hint(format!("ralph watch {run}"))
    };
    std::io::stdin().take(LONGEST).read_to_string(&mut text).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}
