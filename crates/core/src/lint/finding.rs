//! The linter's findings: a rule, a severity, a place, one sentence, one fix.

use serde::{Deserialize, Serialize};

use crate::source_span::Span;

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LintFinding {
    pub rule: LintRule,
    pub severity: Severity,
    /// The place in the source; `None` where there is no source.
    pub span: Option<Span>,
    pub message: String,
    /// What to do, in one sentence.
    pub fix: String,
}

/// An error stops a run from starting; a warning does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    Error,
    Warning,
}

/// Every rule. The kebab-case name is its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LintRule {
    NoFile,
    FrontMatter,
    TabInFrontMatter,
    UnknownKey,
    BadValue,
    NoTaskId,
    NoTestCommand,
    NoMaxIterations,
    NoMaxWallTime,
    NoCostCap,
    UnknownPrice,
    TooFewCheckboxes,
    TooManyCheckboxes,
    NoProof,
    DuplicateId,
    UnknownProfile,
    UnknownBackend,
    UnknownAgent,
    UnknownTemplateVariable,
    ResourcesOverMaximum,
    BranchOutsideRalph,
    BadBranch,
    DependencyCycle,
    EmptyProof,
    SharedProof,
    VagueWords,
    MissingFile,
    UntouchedTemplate,
    NothingProtected,
    Vacuous,
    Flaky,
    Slow,
    WritesProtected,
    DeniedHost,
    MissingTool,
    CannotStart,
}

impl LintRule {
    pub const ALL: [Self; 36] = [
        Self::NoFile,
        Self::FrontMatter,
        Self::TabInFrontMatter,
        Self::UnknownKey,
        Self::BadValue,
        Self::NoTaskId,
        Self::NoTestCommand,
        Self::NoMaxIterations,
        Self::NoMaxWallTime,
        Self::NoCostCap,
        Self::UnknownPrice,
        Self::TooFewCheckboxes,
        Self::TooManyCheckboxes,
        Self::NoProof,
        Self::DuplicateId,
        Self::UnknownProfile,
        Self::UnknownBackend,
        Self::UnknownAgent,
        Self::UnknownTemplateVariable,
        Self::ResourcesOverMaximum,
        Self::BranchOutsideRalph,
        Self::BadBranch,
        Self::DependencyCycle,
        Self::EmptyProof,
        Self::SharedProof,
        Self::VagueWords,
        Self::MissingFile,
        Self::UntouchedTemplate,
        Self::NothingProtected,
        Self::Vacuous,
        Self::Flaky,
        Self::Slow,
        Self::WritesProtected,
        Self::DeniedHost,
        Self::MissingTool,
        Self::CannotStart,
    ];

    /// Returns the code people see and grep for.
    pub fn code(self) -> &'static str {
        match self {
            Self::NoFile => "no-file",
            Self::FrontMatter => "front-matter",
            Self::TabInFrontMatter => "tab-in-front-matter",
            Self::UnknownKey => "unknown-key",
            Self::BadValue => "bad-value",
            Self::NoTaskId => "no-task-id",
            Self::NoTestCommand => "no-test-command",
            Self::NoMaxIterations => "no-max-iterations",
            Self::NoMaxWallTime => "no-max-wall-time",
            Self::NoCostCap => "no-cost-cap",
            Self::UnknownPrice => "unknown-price",
            Self::TooFewCheckboxes => "too-few-checkboxes",
            Self::TooManyCheckboxes => "too-many-checkboxes",
            Self::NoProof => "no-proof",
            Self::DuplicateId => "duplicate-id",
            Self::UnknownProfile => "unknown-profile",
            Self::UnknownBackend => "unknown-backend",
            Self::UnknownAgent => "unknown-agent",
            Self::UnknownTemplateVariable => "unknown-template-variable",
            Self::ResourcesOverMaximum => "resources-over-maximum",
            Self::BranchOutsideRalph => "branch-outside-ralph",
            Self::BadBranch => "bad-branch",
            Self::DependencyCycle => "dependency-cycle",
            Self::EmptyProof => "empty-proof",
            Self::SharedProof => "shared-proof",
            Self::VagueWords => "vague-words",
            Self::MissingFile => "missing-file",
            Self::UntouchedTemplate => "untouched-template",
            Self::NothingProtected => "nothing-protected",
            Self::Vacuous => "vacuous",
            Self::Flaky => "flaky",
            Self::Slow => "slow",
            Self::WritesProtected => "writes-protected",
            Self::DeniedHost => "denied-host",
            Self::MissingTool => "missing-tool",
            Self::CannotStart => "cannot-start",
        }
    }

    /// Returns whether [`super::fix`] can repair it without knowing what the author meant.
    pub fn is_mechanical(self) -> bool {
        matches!(
            self,
            Self::TabInFrontMatter
                | Self::NoTaskId
                | Self::NoMaxIterations
                | Self::NoMaxWallTime
                | Self::NoCostCap
                | Self::DuplicateId
        )
    }
}

impl LintFinding {
    pub(super) fn error(
        rule: LintRule,
        span: Option<Span>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { rule, severity: Severity::Error, span, message: message.into(), fix: fix.into() }
    }

    pub(super) fn warning(
        rule: LintRule,
        span: Option<Span>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(rule, span, message, fix) }
    }
}

/// Returns whether a run must not start.
pub fn has_errors(findings: &[LintFinding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_serialised_names() {
        for rule in LintRule::ALL {
            assert_eq!(serde_json::to_value(rule).unwrap(), rule.code());
        }
        let finding = LintFinding::warning(LintRule::VagueWords, Some(Span::new(1, 2)), "m", "f");
        assert_eq!(
            serde_json::to_string(&finding).unwrap(),
            r#"{"rule":"vague-words","severity":"warning","span":{"start":1,"end":2},"message":"m","fix":"f"}"#
        );
    }
}
