//! A work sandbox that was spoilt or removed from inside: the iteration has failed, the run has not.

use std::collections::BTreeMap;

use ralph_core::event::{Ended, Event, Level, Reason};
use ralph_core::gutter::{Sample, Signature};
use ralph_core::text;
use ralph_sandbox::Error as SandboxError;

use super::runner::Runner;
use crate::error::Error;
use crate::git;

/// What an error of a step says about the sandbox it worked in.
enum Damage {
    /// Its clone or its files can no longer be worked with.
    Spoilt {
        why: String,
    },
    Gone,
}

fn damage(error: &Error) -> Option<Damage> {
    let inside = |error: &SandboxError, why: String| match error {
        SandboxError::Gone { .. } => Some(Damage::Gone),
        SandboxError::File { .. }
        | SandboxError::Refused { .. }
        | SandboxError::TooLarge { .. }
        | SandboxError::TooMany { .. } => Some(Damage::Spoilt { why }),
        _ => None,
    };
    match error {
        Error::Spoilt { why } => Some(Damage::Spoilt { why: why.clone() }),
        Error::Sandbox(error) => inside(error, error.to_string()),
        Error::Git(git::Error::Sandbox { source, .. }) => inside(source, source.to_string()),
        Error::Git(error @ (git::Error::Inside { .. } | git::Error::Odd { .. })) => {
            Some(Damage::Spoilt { why: error.to_string() })
        }
        _ => None,
    }
}

impl Runner {
    /// Goes on after a step that failed by the state of the work sandbox; any other error is passed on.
    pub(super) async fn after_damage(&mut self, error: Error) -> Result<(), Error> {
        match damage(&error) {
            // Made anew and spoilt again before anything was done in it: that is not the model.
            Some(Damage::Spoilt { .. }) if self.anew => Err(error),
            Some(Damage::Spoilt { why }) => self.start_over(&why).await,
            Some(Damage::Gone) => {
                self.give_up_iteration("the sandbox is gone; it was removed during this iteration")?;
                self.pause(Reason::SandboxLost)
            }
            None => Err(error),
        }
    }

    /// Ends the iteration as failed and makes the sandbox anew from the last commit that was handed over.
    async fn start_over(&mut self, why: &str) -> Result<(), Error> {
        // Masked before it is cut, or half a secret could be left.
        let why = text::first_line(&self.redactor.redact(&text::plain(why)), 300).to_owned();
        let told = format!("the sandbox was made anew from the last commit that was handed over: {why}");
        // Before the iteration ends, and with it what it was to prove again.
        let reclaim = self.state().held();
        self.give_up_iteration(&told)?;
        let state = self.state();
        let started = state.started.clone();
        let start = state.workplace.as_ref().map_or_else(|| started.start_commit.clone(), |place| place.start.clone());
        let head = state.imported.clone().unwrap_or_else(|| start.clone());
        self.anew = true;
        self.move_in(&started, &start, &head, reclaim).await?;
        self.log(Level::Warn, told)
    }

    /// Ends the open iteration as failed, without another look into the sandbox.
    fn give_up_iteration(&mut self, why: &str) -> Result<(), Error> {
        self.survey = None;
        self.tell_unread()?;
        let state = self.state();
        let Some(open) = state.open.clone() else { return Ok(()) };
        let n = open.n;
        let head = state.imported.clone().unwrap_or_else(|| state.started.start_commit.clone());
        let verified = state.verified.iter().cloned().collect();
        let why = self.redactor.redact(why).into_owned();
        self.files.remember("errors.log", &format!("== iteration {n} ==\n{why}\n"))?;
        self.files.remember("activity.log", &format!("iteration {n}: profile {}, given up: {why}\n", open.profile))?;
        let sample = Sample {
            n,
            failures: vec![Signature::of("sandbox", 1, &why)],
            changed_lines: 0,
            files: BTreeMap::new(),
            newly_verified: 0,
            tests: None,
            waiting: false,
        };
        self.events.append(Event::IterationFinished {
            n,
            outcome: Ended::ActionFailed,
            head,
            summary: why,
            sample,
            verified,
        })
    }
}
