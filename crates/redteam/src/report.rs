//! What became of each attack.

use std::fmt;

use serde::Serialize;

use ralph_sandbox::IsolationMechanism;

/// What an attack goes for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum AttackArea {
    /// Files.
    FS,
    /// Processes.
    PR,
    /// The kernel's surface.
    KS,
    /// The network.
    NE,
    /// Names.
    DN,
    /// The way out, and the credentials that are lent there.
    PC,
    /// Resources.
    RX,
    /// What stays behind.
    PE,
}

impl AttackArea {
    /// Reads the area a case's number begins with.
    pub fn of(id: &str) -> Self {
        match id.get(..2) {
            Some("PR") => Self::PR,
            Some("KS") => Self::KS,
            Some("NE") => Self::NE,
            Some("DN") => Self::DN,
            Some("PC") => Self::PC,
            Some("RX") => Self::RX,
            Some("PE") => Self::PE,
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
    /// It cannot be tried here, and why.
    Skipped(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttackReport {
    pub id: &'static str,
    pub area: AttackArea,
    pub name: &'static str,
    pub verdict: AttackVerdict,
    /// The walls whose absence this case notices.
    pub walls: Vec<IsolationMechanism>,
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

/// What became of all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RedteamReport {
    pub backend: String,
    pub cases: Vec<AttackReport>,
}

impl RedteamReport {
    /// Returns whether nothing got out and nothing was left unproved.
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
