//! `ralph logs`: the events of a run as lines, or as they are.

use std::time::Duration;

use ralph_core::event::{BadLine, Event, Line};
use ralph_core::exit::Exit;
use ralph_core::run::State;
use ralph_engine::store::{Folder, Follow};

use crate::args::Logs;
use crate::error::{Failure, Outcome};
use crate::render::events;
use crate::setup::Setup;
use crate::ui::Ui;

/// How often a followed run is looked at.
const LOOK: Duration = Duration::from_millis(200);

pub(crate) async fn logs(setup: &Setup, args: &Logs, ui: &mut Ui) -> Outcome {
    let folder = setup.find(&args.run)?;
    let mut follow = Follow::new(&folder.events_path(), &folder.id());
    let mut state: Option<State> = None;
    let (mut iteration, mut shown) = (0, false);
    loop {
        while let Some(line) = next(&mut follow, &folder)? {
            match &mut state {
                // A history that does not fold is still worth printing.
                Some(state) => drop(state.apply(&line)),
                None => state = State::begin(line.clone()).ok(),
            }
            iteration = of(&line).unwrap_or(iteration);
            if args.iteration.is_some_and(|wanted| wanted != iteration) {
                continue;
            }
            shown = true;
            if ui.json() {
                ui.data(&line.to_json());
            } else if let Some(text) = events::line(&line, state.as_ref()) {
                ui.data(&text);
            }
        }
        let resting = state.as_ref().is_some_and(|state| !state.status.active());
        if state.is_none() && !args.follow {
            return Err(Failure::new(Exit::Failed, format!("run `{}` has no events yet", folder.id()))
                .hint(format!("ralph logs -f {}", folder.id())));
        }
        if !args.follow || (resting && !folder.in_use()) {
            return match args.iteration.filter(|_| !shown) {
                None => Ok(Exit::Success),
                Some(n) => Err(Failure::usage(format!("run `{}` has no iteration {n}", folder.id()))
                    .hint(format!("ralph logs {} shows all", folder.id()))),
            };
        }
        if !resting && !folder.in_use() {
            ui.say(&format!("no process works on run {0}; next: ralph resume {0}", folder.id()));
            return Ok(Exit::Success);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A damaged line ends the log; the file itself is all there is to look at then.
fn next(follow: &mut Follow, folder: &Folder) -> Result<Option<Line>, Failure> {
    follow.next().map_err(|error| {
        let newer = matches!(&error, ralph_engine::Error::BadEvent { source: BadLine::Newer { .. }, .. });
        let failure = Failure::from(error);
        if newer {
            failure
        } else {
            failure.hint(format!("look at the file itself: {}", folder.events_path().display()))
        }
    })
}

/// Returns the iteration an event begins.
fn of(line: &Line) -> Option<u32> {
    match &line.event {
        Event::IterationStarted { n, .. } => Some(*n),
        _ => None,
    }
}
