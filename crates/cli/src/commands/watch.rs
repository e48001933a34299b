//! `ralph watch`: one run on the whole screen.

use anstream::ColorChoice;

use crate::args::Color;
use crate::error::{Failure, Outcome};
use crate::setup::Setup;
use crate::ui::Ui;
use crate::watch;

pub(crate) async fn watch(setup: &Setup, run: &str, color: Color, ui: &Ui) -> Outcome {
    let env = &setup.environment.env;
    if ui.json() {
        return Err(Failure::usage("`ralph watch` draws a screen and prints no data")
            .hint(format!("ralph logs -f {run} --json")));
    }
    if !watch::drawable(env) {
        return Err(Failure::usage("`ralph watch` needs a terminal to draw on").hint(format!("ralph logs -f {run}")));
    }
    let folder = setup.host.home.find(run)?;
    watch::watch(&setup.host, &folder, color.choice(env) != ColorChoice::Never).await
}
