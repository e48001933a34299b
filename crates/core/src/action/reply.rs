//! Defines the reply of a model as types: the schema shown to the model is generated from them, so the two cannot
//! disagree.
//!
//! `parse` reads the model's text (fences, repair, error messages). Paths are plain text here, because a bad path fails
//! one action and not the whole reply: the engine parses them as `RepoPath`.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::kind::ActionKind;

pub const MAX_ACTIONS: usize = 100;
/// Sizes in characters, as JSON Schema counts them.
pub(super) const MAX_SUMMARY: usize = 16_384;
pub(super) const MAX_COMMAND: usize = 65_536;
pub(super) const MAX_PATH: usize = 4_096;
pub(super) const MAX_MESSAGE: usize = 16_384;
pub(super) const MAX_REASON: usize = 8_192;
pub(super) const MAX_LIST: usize = 1_000;
pub(super) const MAX_CLAIM: usize = 2_048;

const TIMEOUT_S: u32 = 900;
const MAX_TIMEOUT_S: u32 = 7_200;

/// One answer of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Reply")]
pub struct ActionReply {
    /// What this step does and why, in one or two sentences.
    #[schemars(length(max = MAX_SUMMARY))]
    pub summary: String,
    /// Done in order; the first that fails ends the list.
    #[schemars(length(max = MAX_ACTIONS))]
    pub actions: Vec<Action>,
    /// What the model believes to be finished; each is proved before it counts.
    #[serde(default)]
    pub claims: ReplyClaims,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Claims")]
pub struct ReplyClaims {
    /// The boxes by their ids, as the prompt lists the open ones: `M1.2`, not what they say.
    #[schemars(length(max = MAX_LIST), inner(length(max = MAX_CLAIM)))]
    pub checkboxes_checked: Vec<String>,
    /// The milestones all of whose boxes are done, by their first word: `M1`.
    #[schemars(length(max = MAX_LIST), inner(length(max = MAX_CLAIM)))]
    pub milestones_completed: Vec<String>,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Action {
    /// Run a shell command in the sandbox.
    Run {
        #[schemars(length(min = 1, max = MAX_COMMAND))]
        command: String,
        /// A folder of the repository.
        #[serde(default = "here")]
        #[schemars(length(min = 1, max = MAX_PATH))]
        cwd: String,
        /// Seconds until the command is killed, brought into 1 to 7200.
        #[serde(default = "timeout", deserialize_with = "clamped")]
        #[schemars(range(min = 0))]
        timeout_s: u32,
    },
    /// Change one file by a unified diff.
    Patch {
        #[schemars(length(min = 1, max = MAX_PATH))]
        path: String,
        #[schemars(length(min = 1))]
        patch: String,
    },
    /// Write one file as a whole, or add to its end.
    Write {
        #[schemars(length(min = 1, max = MAX_PATH))]
        path: String,
        content: String,
        #[serde(default)]
        append: bool,
        /// Octal permission bits such as `755`; unset keeps what the file has.
        #[serde(default)]
        mode: Option<PermissionBits>,
    },
    /// Commit what was done.
    Commit {
        #[schemars(length(min = 1, max = MAX_MESSAGE))]
        message: String,
        /// The files to commit; none means everything that changed.
        #[serde(default)]
        #[schemars(length(max = MAX_LIST), inner(length(min = 1, max = MAX_PATH)))]
        paths: Vec<String>,
    },
    /// Start the next iteration with a fresh context.
    Rotate {
        #[schemars(length(max = MAX_REASON))]
        reason: String,
    },
    /// Wait for a person.
    Pause {
        #[schemars(length(max = MAX_REASON))]
        reason: String,
    },
    /// Claim that the task is done.
    StopSuccess {
        #[schemars(length(max = MAX_REASON))]
        reason: String,
    },
    /// Give the task up.
    StopFailure {
        #[schemars(length(max = MAX_REASON))]
        reason: String,
    },
}

impl Action {
    /// Returns the kind, which is also the serialized tag of the action.
    pub fn kind(&self) -> ActionKind {
        match self {
            Self::Run { .. } => ActionKind::Run,
            Self::Patch { .. } => ActionKind::Patch,
            Self::Write { .. } => ActionKind::Write,
            Self::Commit { .. } => ActionKind::Commit,
            Self::Rotate { .. } => ActionKind::Rotate,
            Self::Pause { .. } => ActionKind::Pause,
            Self::StopSuccess { .. } => ActionKind::StopSuccess,
            Self::StopFailure { .. } => ActionKind::StopFailure,
        }
    }

    /// Describes the action in one line.
    pub fn brief(&self) -> String {
        let line = |text: &str| crate::text::first_line(&crate::text::strip_control(text), 200).to_owned();
        match self {
            Self::Run { command, .. } => line(command),
            Self::Patch { path, .. } => format!("patch {}", line(path)),
            Self::Write { path, append: true, .. } => format!("append to {}", line(path)),
            Self::Write { path, .. } => format!("write {}", line(path)),
            Self::Commit { message, .. } => format!("commit: {}", line(message)),
            Self::Rotate { reason }
            | Self::Pause { reason }
            | Self::StopSuccess { reason }
            | Self::StopFailure { reason } => {
                format!("{}: {}", self.kind(), line(reason))
            }
        }
    }

    /// Returns whether the action's text is used byte for byte, so that a silent change of one escape would do harm.
    pub(super) fn has_verbatim_text(&self) -> bool {
        match self {
            Self::Run { .. } | Self::Patch { .. } | Self::Write { .. } | Self::Commit { .. } => true,
            Self::Rotate { .. } | Self::Pause { .. } | Self::StopSuccess { .. } | Self::StopFailure { .. } => false,
        }
    }
}

/// Permission bits of a file: nine of them, because set-user-id and its kin have no place in a work tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("pattern" = "^0?[0-7]{3}$"))]
#[schemars(rename = "Mode")]
pub struct PermissionBits(u32);

impl PermissionBits {
    pub fn new(bits: u32) -> Option<Self> {
        (bits <= 0o777).then_some(Self(bits))
    }

    pub fn bits(self) -> u32 {
        self.0
    }
}

impl TryFrom<String> for PermissionBits {
    type Error = BadPermissionBits;

    fn try_from(text: String) -> Result<Self, BadPermissionBits> {
        let digits = if text.len() == 4 { text.strip_prefix('0').unwrap_or("") } else { &text };
        if digits.len() != 3 || !digits.bytes().all(|byte| (b'0'..=b'7').contains(&byte)) {
            return Err(BadPermissionBits(crate::text::first_line(&text, 20).to_owned()));
        }
        u32::from_str_radix(digits, 8).map(Self).map_err(|_| BadPermissionBits(text))
    }
}

impl From<PermissionBits> for String {
    fn from(mode: PermissionBits) -> Self {
        mode.to_string()
    }
}

impl fmt::Display for PermissionBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:03o}", self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("mode `{0}` is not three octal digits such as \"755\"")]
pub struct BadPermissionBits(String);

fn here() -> String {
    ".".to_owned()
}

fn timeout() -> u32 {
    TIMEOUT_S
}

/// Deserializes what JSON Schema calls an integer (`900`, but also `900.0` and `1e3`) and clamps it to the range.
fn clamped<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    if seconds < 0.0 || seconds.fract() != 0.0 {
        return Err(serde::de::Error::custom(format!("timeout_s: {seconds} is not a whole number of seconds")));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 1..=7200 and whole")]
    let seconds = seconds.clamp(1.0, f64::from(MAX_TIMEOUT_S)) as u32;
    Ok(seconds)
}

/// Returns the JSON Schema of [`ActionReply`], as shown to the model.
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(ActionReply).to_value()
}

/// Returns one short valid reply for the prompt.
pub fn example() -> &'static str {
    EXAMPLE
}

const EXAMPLE: &str = r#"{
  "summary": "Make the greeting a parameter and prove it.",
  "actions": [
    {"type": "patch", "path": "src/greet.py", "patch": "@@ -1,2 +1,2 @@\n-def greet():\n-    return \"hello\"\n+def greet(name):\n+    return f\"hello {name}\"\n"},
    {"type": "write", "path": ".ralph/notes.md", "content": "greet() takes a name now\n", "append": true},
    {"type": "run", "command": "python -m pytest -q", "timeout_s": 300},
    {"type": "commit", "message": "greet: take a name"}
  ],
  "claims": {"checkboxes_checked": ["M1.2"], "milestones_completed": []}
}"#;

#[cfg(test)]
pub(super) mod strategies {
    //! Random replies, for the property tests of this folder.

    use proptest::prelude::*;

    use super::*;

    fn word() -> impl Strategy<Value = String> {
        "(?s).{1,12}"
    }

    fn action() -> impl Strategy<Value = Action> {
        prop_oneof![
            (word(), word(), 1_u32..=7200).prop_map(|(command, cwd, timeout_s)| Action::Run {
                command,
                cwd,
                timeout_s
            }),
            (word(), word()).prop_map(|(path, patch)| Action::Patch { path, patch }),
            (word(), "(?s).{0,40}", any::<bool>(), proptest::option::of(0_u32..=0o777)).prop_map(
                |(path, content, append, mode)| Action::Write {
                    path,
                    content,
                    append,
                    mode: mode.and_then(PermissionBits::new)
                }
            ),
            (word(), proptest::collection::vec(word(), 0..3))
                .prop_map(|(message, paths)| Action::Commit { message, paths }),
            word().prop_map(|reason| Action::Rotate { reason }),
            word().prop_map(|reason| Action::Pause { reason }),
            word().prop_map(|reason| Action::StopSuccess { reason }),
            word().prop_map(|reason| Action::StopFailure { reason }),
        ]
    }

    pub(in super::super) fn reply() -> impl Strategy<Value = ActionReply> {
        let list = || proptest::collection::vec(word(), 0..3);
        (word(), proptest::collection::vec(action(), 0..6), list(), list()).prop_map(
            |(summary, actions, checkboxes_checked, milestones_completed)| ActionReply {
                summary,
                actions,
                claims: ReplyClaims { checkboxes_checked, milestones_completed },
            },
        )
    }
}
