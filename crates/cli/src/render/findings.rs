//! Prints the linter's findings with the source lines they refer to.

use std::path::Path;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use ralph_core::lint::{LintFinding, Severity};
use ralph_core::text::strip_control;

use crate::terminal_output::{RED, Ui, YELLOW, paint};

/// Prints each finding with its location, one sentence and one fix.
pub(crate) fn print_findings(findings: &[LintFinding], source: &str, path: &Path, ui: &mut Ui) {
    for finding in findings {
        ui.print_message(&render_finding(finding, source, path));
    }
}

fn render_finding(finding: &LintFinding, source: &str, path: &Path) -> String {
    let code = finding.rule.code();
    let fits = finding
        .span
        .filter(|span| source.get(span.start..span.end).is_some() && strip_control(source) == source.replace('\r', ""));
    let Some(span) = fits else {
        let (style, word) = match finding.severity {
            Severity::Error => (RED, "error"),
            Severity::Warning => (YELLOW, "warning"),
        };
        let place =
            finding.span.map(|span| span.line_column(source)).map(|(line, column)| format!(" at {line}:{column}"));
        let head = paint(style, &format!("{word}[{code}]"));
        return format!("{head}: {}{}\n  fix: {}", finding.message, place.unwrap_or_default(), finding.fix);
    };
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let name = path.display().to_string();
    // Of a long span only the first line is shown.
    let end = source.get(span.start..span.end).and_then(|text| text.find('\n')).map_or(span.end, |at| span.start + at);
    let report = [
        level.primary_title(finding.message.as_str()).id(code).element(
            Snippet::source(source).path(name.as_str()).annotation(AnnotationKind::Primary.span(span.start..end)),
        ),
        annotate_snippets::Group::with_title(Level::HELP.secondary_title(finding.fix.as_str())),
    ];
    Renderer::styled().render(&report)
}
