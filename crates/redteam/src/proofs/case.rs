//! Describes one attack on a proof.

use ralph_sandbox::embedded::IsolationMechanism;

use super::projects::AttackedProject;
use crate::case::{AttackCase, AttackPayload};

/// One attack on a proof.
pub type ProofCase = AttackCase<ProofPayload>;

/// The attack itself.
#[derive(Debug, Clone, Copy)]
pub struct ProofPayload {
    pub(super) project: &'static AttackedProject,
    /// A shell line that changes the project.
    pub(super) change: &'static str,
    /// A shell line that works in the sandbox before the check.
    pub(super) before: Option<&'static str>,
    pub(super) expected: ExpectedProof,
    pub(super) control: ProofControl,
}

/// The required result of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExpectedProof {
    /// The check fails.
    Refused,
    /// It fails, or the report on its files says more of this one than that it changed.
    Flagged(&'static str),
    /// It fails, or the report on its files lists this one.
    Named(&'static str),
}

/// Where the attack must work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProofControl {
    /// In the same kind of sandbox, as a plain command.
    PlainCommand,
    /// The same, unless the kernel's settings forbid tracing everywhere.
    PlainTracing,
    /// On the host, in the changed project: no sandbox allows it.
    Host,
    /// The same, unless the kernel's settings forbid tracing everywhere.
    HostTracing,
}

impl AttackPayload for ProofPayload {
    /// Proofs are protected by how checks are run, whatever mechanisms the cage has.
    fn mechanisms(&self) -> &'static [IsolationMechanism] {
        &[]
    }
}

impl ProofCase {
    /// Creates an attack that must be refused.
    pub(super) const fn refused(
        id: &'static str,
        name: &'static str,
        project: &'static AttackedProject,
        change: &'static str,
    ) -> Self {
        let (expected, control) = (ExpectedProof::Refused, ProofControl::PlainCommand);
        Self { id, name, payload: ProofPayload { project, change, before: None, expected, control } }
    }

    /// Creates an attack that may succeed if this file is reported as one that can decide.
    pub(super) const fn flagged(
        id: &'static str,
        name: &'static str,
        project: &'static AttackedProject,
        change: &'static str,
        file: &'static str,
    ) -> Self {
        let case = Self::refused(id, name, project, change);
        Self { payload: ProofPayload { expected: ExpectedProof::Flagged(file), ..case.payload }, ..case }
    }

    /// Creates an attack that may succeed if this file is listed.
    pub(super) const fn named(
        id: &'static str,
        name: &'static str,
        project: &'static AttackedProject,
        change: &'static str,
        file: &'static str,
    ) -> Self {
        let case = Self::refused(id, name, project, change);
        Self { payload: ProofPayload { expected: ExpectedProof::Named(file), ..case.payload }, ..case }
    }

    /// Runs a command in the sandbox before the check.
    pub(super) const fn before(self, line: &'static str) -> Self {
        Self { payload: ProofPayload { before: Some(line), ..self.payload }, ..self }
    }

    pub(super) const fn control(self, control: ProofControl) -> Self {
        Self { payload: ProofPayload { control, ..self.payload }, ..self }
    }
}
