//! The attack suite on systems where none of its attacks can be tried: no target can be made.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::path::PathBuf;

use super::report::{AttackReport, RedteamReport};
use crate::Backend;

/// What is attacked: nothing, here.
#[derive(Debug)]
pub struct RedteamTarget<'a> {
    never: Infallible,
    backend: PhantomData<&'a dyn Backend>,
}

impl<'a> RedteamTarget<'a> {
    pub fn for_backend(_backend: &'a dyn Backend, _dir: PathBuf) -> Option<Self> {
        None
    }

    pub fn is_own_cage(&self) -> bool {
        match self.never {}
    }
}

/// Returns whether a person's choice means any case.
pub fn selects_any(_only: &str) -> bool {
    false
}

pub async fn run(
    target: &RedteamTarget<'_>,
    _only: Option<&str>,
    _on_case: &mut (dyn FnMut(&AttackReport) + Send),
) -> RedteamReport {
    match target.never {}
}
