//! `ralph logs`: prints the events of a run as lines of text or as JSON.

use std::time::Duration;

use ralph_core::event::{BadEventLine, Event, EventLine};
use ralph_core::exit_code::RalphExitCode;
use ralph_engine::store::{EventLogReader, RunFolder};
use ralph_web::view::RunView;

use crate::args::LogsArgs;
use crate::error::{CliError, CliResult};
use crate::render::events;
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

/// How often a followed run is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(crate) async fn logs(setup: &CliSetup, args: &LogsArgs, ui: &mut Ui) -> CliResult {
    let folder = setup.find_run(&args.run)?;
    let mut follow = EventLogReader::new(&folder.events_path(), &folder.id());
    let mut run = RunView::default();
    let (mut iteration, mut shown) = (0, false);
    loop {
        while let Some(line) = next_event(&mut follow, &folder)? {
            run.apply(&line, line.at);
            iteration = started_iteration(&line).unwrap_or(iteration);
            if args.iteration.is_some_and(|wanted| wanted != iteration) {
                continue;
            }
            shown = true;
            if ui.json() {
                ui.print_data(&line.to_json());
            } else if let Some(text) = events::event_line(&line, run.state.as_ref()) {
                ui.print_data(&text);
            }
        }
        let resting = run.state.as_ref().is_some_and(|state| !state.status.is_active());
        if run.state.is_none() && !args.follow {
            return Err(CliError::new(RalphExitCode::Failed, format!("run `{}` has no events yet", folder.id()))
                .hint(format!("ralph logs -f {}", folder.id())));
        }
        if !args.follow || (resting && !folder.is_live()) {
            return match args.iteration.filter(|_| !shown) {
                None => Ok(RalphExitCode::Success),
                Some(n) => Err(CliError::usage(format!("run `{}` has no iteration {n}", folder.id()))
                    .hint(format!("ralph logs {} shows all", folder.id()))),
            };
        }
        if !resting && !folder.is_live() {
            ui.print_message(&format!("no process works on run {0}; next: ralph resume {0}", folder.id()));
            return Ok(RalphExitCode::Success);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Reads the next event. A damaged line ends the log; the hint then names the file itself.
fn next_event(follow: &mut EventLogReader, folder: &RunFolder) -> Result<Option<EventLine>, CliError> {
    follow.next().map_err(|error| {
        let newer = matches!(&error, ralph_engine::Error::BadEvent { source: BadEventLine::Newer { .. }, .. });
        let failure = CliError::from(error);
        if newer {
            failure
        } else {
            failure.hint(format!("look at the file itself: {}", folder.events_path().display()))
        }
    })
}

/// Returns the iteration that an event begins.
fn started_iteration(line: &EventLine) -> Option<u32> {
    match &line.event {
        Event::IterationStarted { n, .. } => Some(*n),
        _ => None,
    }
}
