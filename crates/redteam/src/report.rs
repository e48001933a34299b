//! The results of the attacks.

use std::fmt;

use serde::Serialize;

use ralph_sandbox::IsolationMechanism;

/// The target of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum AttackArea {
    /// Files.
    FS,
    /// Processes.
    PR,
    /// The kernel's system call interface.
    KS,
    /// The network.
    NE,
    /// DNS.
    DN,
    /// The egress proxy and its credentials.
    PC,
    /// Resources.
    RX,
    /// What remains after a sandbox.
    PE,
    /// Proofs.
    PF,
}

impl AttackArea {
    /// Returns the area in the case's ID.
    pub fn of(id: &str) -> Self {
        match id.get(..2) {
            Some("PR") => Self::PR,
            Some("KS") => Self::KS,
            Some("NE") => Self::NE,
            Some("DN") => Self::DN,
            Some("PC") => Self::PC,
            Some("RX") => Self::RX,
            Some("PE") => Self::PE,
            Some("PF") => Self::PF,
            _ => Self::FS,
        }
    }
}

/// How one attack ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttackVerdict {
    /// It was refused here, and it works where nothing refuses it.
    Held,
    /// It worked.
    Escaped(String),
    /// It did not work anywhere, so its failure proves nothing.
    Invalid(String),
    /// It cannot be tried here, with the reason.
    Skipped(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttackReport {
    pub id: &'static str,
    pub area: AttackArea,
    pub name: &'static str,
    pub verdict: AttackVerdict,
    /// The isolation mechanisms whose absence this case detects.
    #[serde(rename = "walls")]
    pub mechanisms: Vec<IsolationMechanism>,
    pub millis: u64,
}

impl fmt::Display for AttackReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name, .. } = self;
        match &self.verdict {
            AttackVerdict::Held => write!(f, "held     {id}  {name}"),
            AttackVerdict::Escaped(how) => write!(f, "ESCAPED  {id}  {name}: {how}"),
            AttackVerdict::Invalid(why) => write!(f, "INVALID  {id}  {name}: {why}"),
            AttackVerdict::Skipped(why) => write!(f, "skipped  {id}  {name}: {why}"),
        }
    }
}

/// The results of all cases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RedteamReport {
    pub backend: String,
    pub cases: Vec<AttackReport>,
}

impl RedteamReport {
    /// Returns whether no attack succeeded and none was invalid.
    pub fn held(&self) -> bool {
        !self.cases.is_empty() && self.escaped().next().is_none() && self.invalid().next().is_none()
    }

    pub fn escaped(&self) -> impl Iterator<Item = &AttackReport> {
        self.cases.iter().filter(|case| matches!(case.verdict, AttackVerdict::Escaped(_)))
    }

    pub fn invalid(&self) -> impl Iterator<Item = &AttackReport> {
        self.cases.iter().filter(|case| matches!(case.verdict, AttackVerdict::Invalid(_)))
    }

    pub fn skipped(&self) -> impl Iterator<Item = &AttackReport> {
        self.cases.iter().filter(|case| matches!(case.verdict, AttackVerdict::Skipped(_)))
    }
}

impl fmt::Display for RedteamReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for case in &self.cases {
            writeln!(f, "{case}")?;
        }
        let [escaped, invalid, skipped] = [self.escaped().count(), self.invalid().count(), self.skipped().count()];
        let held = self.cases.len() - escaped - invalid - skipped;
        write!(f, "{}: {held} held, {escaped} escaped, {invalid} invalid, {skipped} skipped", self.backend)
    }
}
