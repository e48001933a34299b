//! Defines every request that can be made of a live run, as one closed enum.
//!
//! Controls enter through the run's `control.sock`, the same way from the command line and the web, and each is
//! acknowledged by an event.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::proof_files::PinnedSection;

/// A request to a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Control {
    Pause,
    Resume,
    Rotate {
        why: Option<String>,
    },
    Stop,
    SetProfile {
        name: String,
    },
    Note {
        text: String,
    },
    Guardrail {
        text: String,
    },
    /// Replaces the task from now on.
    EditTask(TaskEdit),
    Diagnose,
    ApplyProposal {
        number: u32,
    },
    RaiseBudget {
        iterations: u32,
        minutes: u64,
        cost_usd: f64,
        tokens: u64,
    },
    /// Adds rules or presets that allow hosts.
    AllowHost(ControlHosts),
    /// Adds rules or presets that deny hosts, whatever other rules allow.
    DenyHost(ControlHosts),
}

/// The rules or presets that a policy control names: at least one, applied all together or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "HostFields", into = "HostFields")]
pub struct ControlHosts(Vec<String>);

impl ControlHosts {
    /// Returns `None` for an empty list: a control that names nothing changes nothing.
    pub fn new(hosts: Vec<String>) -> Option<Self> {
        (!hosts.is_empty()).then_some(Self(hosts))
    }

    pub fn iter(&self) -> std::slice::Iter<'_, String> {
        self.0.iter()
    }

    /// Returns the same list with every entry changed.
    #[must_use]
    pub fn map(&self, change: impl FnMut(&String) -> String) -> Self {
        Self(self.0.iter().map(change).collect())
    }
}

impl From<&str> for ControlHosts {
    fn from(host: &str) -> Self {
        Self(vec![host.to_owned()])
    }
}

impl<'a> IntoIterator for &'a ControlHosts {
    type Item = &'a String;
    type IntoIter = std::slice::Iter<'a, String>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// The serialized form of hosts: a single one in the field that earlier versions read, several in a field of their own.
#[derive(Serialize, Deserialize)]
struct HostFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hosts: Vec<String>,
}

impl From<ControlHosts> for HostFields {
    fn from(ControlHosts(mut hosts): ControlHosts) -> Self {
        let host = if hosts.len() == 1 { hosts.pop() } else { None };
        Self { host, hosts }
    }
}

impl TryFrom<HostFields> for ControlHosts {
    type Error = &'static str;

    fn try_from(fields: HostFields) -> Result<Self, Self::Error> {
        let hosts = fields.host.into_iter().chain(fields.hosts).collect();
        Self::new(hosts).ok_or("no host is named: give `host` or `hosts`")
    }
}

/// A new text for the task of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEdit {
    pub text: String,
    /// The user accepts the edit even if it makes the checks weaker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_weaker: bool,
    /// The proposal that this edit applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proposal: Option<u32>,
    /// Files that the checks of the new task depend on; filled in by the engine when it applies the edit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proof_files: Vec<String>,
    /// The same for parts of files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned_parts: Vec<PinnedSection>,
    /// The same for the tests and scripts that the run has to write first, by command.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub to_be_written: BTreeMap<String, Vec<String>>,
}

impl Control {
    /// Returns whether the control only leaves a message for the model.
    pub fn is_message(&self) -> bool {
        matches!(self, Self::Note { .. } | Self::Guardrail { .. })
    }

    /// Returns whether the control can be applied while an action is under way, because it changes what comes next and
    /// not what the action sees.
    pub fn applies_immediately(&self) -> bool {
        match self {
            Self::Note { .. }
            | Self::Guardrail { .. }
            | Self::AllowHost { .. }
            | Self::DenyHost { .. }
            | Self::SetProfile { .. }
            | Self::Diagnose
            | Self::Rotate { .. }
            | Self::RaiseBudget { .. } => true,
            // These are acknowledged when they have taken effect, and a pause takes effect when the action has ended.
            Self::Pause | Self::Resume | Self::Stop | Self::EditTask(_) | Self::ApplyProposal { .. } => false,
        }
    }

    /// Returns whether the control is about what the run does after a resume, so that a failed run can still take it.
    pub fn survives_resume(&self) -> bool {
        match self {
            Self::Note { .. }
            | Self::Guardrail { .. }
            | Self::AllowHost { .. }
            | Self::DenyHost { .. }
            | Self::SetProfile { .. }
            | Self::EditTask(_)
            | Self::Diagnose
            | Self::ApplyProposal { .. } => true,
            Self::Pause | Self::Resume | Self::Rotate { .. } | Self::Stop | Self::RaiseBudget { .. } => false,
        }
    }

    /// Returns the tag the control is written with.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Rotate { .. } => "rotate",
            Self::Stop => "stop",
            Self::SetProfile { .. } => "set-profile",
            Self::Note { .. } => "note",
            Self::Guardrail { .. } => "guardrail",
            Self::EditTask(_) => "edit-task",
            Self::Diagnose => "diagnose",
            Self::ApplyProposal { .. } => "apply-proposal",
            Self::RaiseBudget { .. } => "raise-budget",
            Self::AllowHost { .. } => "allow-host",
            Self::DenyHost { .. } => "deny-host",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, want: &[&str]) {
        let control: Control = serde_json::from_str(text).unwrap();
        let hosts = ControlHosts::new(want.iter().map(|&host| host.to_owned()).collect()).unwrap();
        assert_eq!(control, Control::AllowHost(hosts));
        assert_eq!(serde_json::to_string(&control).unwrap(), text);
    }

    #[test]
    fn one_host_keeps_the_old_field_and_several_use_the_new_one() {
        check(r#"{"type":"allow-host","host":"x.io"}"#, &["x.io"]);
        check(r#"{"type":"allow-host","hosts":["x.io","npm"]}"#, &["x.io", "npm"]);
        let none = serde_json::from_str::<Control>(r#"{"type":"deny-host","hosts":[]}"#).unwrap_err();
        assert_eq!(none.to_string(), "no host is named: give `host` or `hosts`");
    }
}
