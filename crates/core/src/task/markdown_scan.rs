//! Scans the Markdown of a task once for its title, milestones, checkboxes, steps and their proofs.
//!
//! The Markdown parser decides what is a list item, a quote, a comment or code: a checkbox counts exactly where a
//! reader of the rendered page sees one outside a block quote.

use std::ops::Range;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use super::checkbox::{Checkbox, CheckboxForm, split_id};
use super::front_matter_split::TaskSourceKind;
use super::numbered_step_heading;
use crate::source_span::Span;

#[derive(Debug, Default, PartialEq)]
pub(super) struct TaskOutline {
    pub title: Option<String>,
    pub boxes: Vec<Checkbox>,
}

pub(super) fn scan(source: &str, body: Span, opening: TaskSourceKind) -> TaskOutline {
    let mut scan = TaskScanner { source, opening, offset: body.start, ..TaskScanner::default() };
    for (event, range) in Parser::new_ext(body.of(source), Options::ENABLE_TASKLISTS).into_offset_iter() {
        scan.event(event, range);
    }
    let mut unnamed = 0;
    for checkbox in scan.boxes.iter_mut().filter(|checkbox| checkbox.id.is_empty()) {
        unnamed += 1;
        checkbox.id = format!("c{unnamed}");
    }
    TaskOutline { title: scan.title.or(scan.subtitle), boxes: scan.boxes }
}

#[derive(Default)]
struct TaskScanner<'a> {
    source: &'a str,
    opening: TaskSourceKind,
    offset: usize,
    title: Option<String>,
    subtitle: Option<String>,
    boxes: Vec<Checkbox>,
    quotes: usize,
    /// For each open list item, the checkbox that was the owner around it.
    outer: Vec<Option<usize>>,
    item_start: usize,
    /// The checkbox that a `verify:` line would belong to.
    owner: Option<usize>,
    step: Option<(HeadingLevel, usize)>,
    milestone: Option<(HeadingLevel, String)>,
    heading: Option<(HeadingLevel, Range<usize>, String)>,
    /// The checkbox whose own text is being read.
    wording: Option<usize>,
    line: ScanLine,
    /// The owner of a `verify:` line without a command: the command follows.
    awaiting_command: Option<usize>,
    code: Option<(Range<usize>, String)>,
}

/// The relevant text of the current line.
#[derive(Default)]
struct ScanLine {
    text: String,
    start: Option<usize>,
    /// The number of proofs in the line.
    proofs: usize,
    /// The length of `text` before the last proof.
    seen: usize,
    /// Words followed the last proof: later code spans are prose, not commands.
    closed: bool,
}

impl ScanLine {
    fn is_verify(&self) -> bool {
        after_verify(&self.text).is_some()
    }
}

fn after_verify(text: &str) -> Option<&str> {
    let text = text.trim_start();
    let word = text.get(..7)?;
    word.eq_ignore_ascii_case("verify:").then(|| text.get(7..).unwrap_or("").trim())
}

/// Returns whether the words between two code spans only join them.
fn only_joins(between: &str) -> bool {
    let word = between.trim_matches(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '+' | '&'));
    matches!(word, "" | "and" | "then" | "and then")
}

impl TaskScanner<'_> {
    fn span(&self, range: &Range<usize>) -> Span {
        Span::new(self.offset + range.start, self.offset + range.end)
    }

    fn event(&mut self, event: Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(Tag::BlockQuote(_)) => {
                self.end_line();
                self.quotes += 1;
            }
            Event::End(TagEnd::BlockQuote(_)) => {
                self.line = ScanLine::default();
                self.quotes = self.quotes.saturating_sub(1);
            }
            _ if self.quotes > 0 => (),
            Event::Start(tag) => self.start(&tag, range),
            Event::End(tag) => self.end(tag),
            Event::TaskListMarker(done) => self.checkbox(done, &range),
            Event::Text(text) => self.text(&text, &range),
            Event::Code(code) => self.code_span(&code, &range),
            Event::SoftBreak | Event::HardBreak => {
                if let Some((_, _, text)) = &mut self.heading {
                    text.push(' ');
                }
                self.end_line();
            }
            _ => (),
        }
    }

    fn start(&mut self, tag: &Tag<'_>, range: Range<usize>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.end_line();
                self.heading = Some((*level, range, String::new()));
            }
            Tag::Item => {
                self.end_line();
                self.wording = None;
                self.outer.push(self.owner);
                self.item_start = range.start;
            }
            Tag::List(_) => {
                self.end_line();
                self.wording = None;
            }
            Tag::CodeBlock(_) => {
                self.end_line();
                self.wording = None;
                self.code = Some((range, String::new()));
            }
            Tag::Paragraph | Tag::HtmlBlock => self.end_line(),
            _ => (),
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => self.end_heading(),
            TagEnd::Paragraph => {
                self.end_line();
                self.wording = None;
            }
            TagEnd::Item => {
                self.end_line();
                self.wording = None;
                let outer = self.outer.pop().flatten();
                if outer != self.owner {
                    self.awaiting_command = None;
                }
                self.owner = outer;
            }
            TagEnd::CodeBlock => {
                if let Some((range, code)) = self.code.take()
                    && let Some(owner) = self.awaiting_command.take()
                {
                    self.add_proof(owner, &code, &range);
                }
            }
            _ => (),
        }
    }

    fn text(&mut self, text: &str, range: &Range<usize>) {
        if let Some((_, _, heading)) = &mut self.heading {
            heading.push_str(text);
        } else if let Some((_, code)) = &mut self.code {
            code.push_str(text);
        } else if self.owner.is_some() {
            self.line.start.get_or_insert(range.start);
            self.line.text.push_str(text);
        }
    }

    fn code_span(&mut self, code: &str, range: &Range<usize>) {
        if let Some((_, _, heading)) = &mut self.heading {
            heading.push_str(code);
            return;
        }
        let Some(owner) = self.owner else { return };
        let awaited = self.awaiting_command == Some(owner) && self.line.text.trim().is_empty();
        if !self.line.is_verify() && !awaited {
            self.text(code, range);
            return;
        }
        let is_step = self.boxes.get(owner).is_some_and(|checkbox| checkbox.form == CheckboxForm::Step);
        let between = self.line.text.get(self.line.seen..).unwrap_or("");
        if !is_step && self.line.proofs > 0 && !only_joins(between) {
            self.line.closed = true;
        }
        if !self.line.closed {
            self.add_proof(owner, code, range);
            self.line.proofs += 1;
            self.line.seen = self.line.text.len();
        }
    }

    fn add_proof(&mut self, owner: usize, command: &str, range: &Range<usize>) {
        let span = self.span(range);
        let command = command.trim();
        if command.is_empty() || command.contains('\0') {
            return;
        }
        if let Some(checkbox) = self.boxes.get_mut(owner) {
            checkbox.proofs.push(command.to_owned());
            checkbox.proof_spans.push(span);
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let Some(owner) = self.owner else { return };
        if let Some(rest) = after_verify(&line.text) {
            self.awaiting_command = None;
            if line.proofs == 0 && rest.is_empty() {
                self.awaiting_command = Some(owner);
            } else if line.proofs == 0 {
                let start = self.offset + line.start.unwrap_or(0);
                let span = self.line_at(start);
                if let Some(checkbox) = self.boxes.get_mut(owner) {
                    checkbox.bare_verify.get_or_insert(span);
                }
            }
            return;
        }
        if line.text.trim().is_empty() {
            return;
        }
        self.awaiting_command = None;
        if let Some(checkbox) = self.wording.and_then(|index| self.boxes.get_mut(index)) {
            if !checkbox.text.is_empty() {
                checkbox.text.push(' ');
            }
            let words = line.text.trim();
            match split_id(words).filter(|_| checkbox.text.is_empty() && checkbox.id.is_empty()) {
                Some((id, rest)) => {
                    checkbox.id = id.to_owned();
                    checkbox.id_span = find_word(self.source, checkbox.span, id);
                    checkbox.text = rest.to_owned();
                }
                None => checkbox.text.push_str(words),
            }
        }
    }

    /// Returns the span from `start` to the end of its line.
    fn line_at(&self, start: usize) -> Span {
        let rest = self.source.get(start..).unwrap_or("");
        let line = rest.split('\n').next().unwrap_or("").trim_end();
        Span::new(start, start + line.len())
    }

    fn checkbox(&mut self, done: bool, range: &Range<usize>) {
        // The marker's range may begin with spaces, but it ends with the closing bracket.
        let end = self.offset + range.end;
        let under_step = self.step.and_then(|(_, index)| self.boxes.get(index)).map(|step| step.id.clone());
        let milestone = under_step.or_else(|| self.milestone.as_ref().map(|(_, name)| name.clone()));
        let index = self.boxes.len();
        self.boxes.push(Checkbox {
            id: String::new(),
            text: String::new(),
            done,
            blocked: None,
            form: CheckboxForm::Item,
            mark: Span::new(end.saturating_sub(2), end.saturating_sub(1)),
            span: self.line_at(self.offset + self.item_start),
            id_span: None,
            milestone,
            proofs: Vec::new(),
            proof_spans: Vec::new(),
            bare_verify: None,
        });
        self.owner = Some(index);
        self.wording = Some(index);
        self.awaiting_command = None;
    }

    fn end_heading(&mut self) {
        let Some((level, range, text)) = self.heading.take() else { return };
        self.awaiting_command = None;
        let text = text.trim();
        if level == HeadingLevel::H1 {
            self.title.get_or_insert_with(|| text.to_owned());
        }
        self.subtitle.get_or_insert_with(|| text.to_owned());
        if self.step.is_some_and(|(step, _)| level <= step) {
            self.step = None;
        }
        if let Some(name) = milestone_name(text) {
            self.milestone = Some((level, name.to_owned()));
        } else if self.milestone.as_ref().is_some_and(|(milestone, _)| level <= *milestone) {
            self.milestone = None;
        }
        let step = (self.opening == TaskSourceKind::Issue)
            .then(|| numbered_step_heading::read(self.source, self.span(&range)))
            .flatten();
        if let Some(step) = step {
            self.step = Some((level, self.boxes.len()));
            self.boxes.push(Checkbox {
                id: format!("step-{}", step.number),
                text: step.title,
                done: step.done,
                blocked: step.blocked,
                form: CheckboxForm::Step,
                mark: step.mark,
                span: step.span,
                id_span: None,
                milestone: self.milestone.as_ref().map(|(_, name)| name.clone()),
                proofs: Vec::new(),
                proof_spans: Vec::new(),
                bare_verify: None,
            });
        }
        if self.outer.is_empty() {
            self.owner = self.step.map(|(_, index)| index);
        }
    }
}

fn find_word(source: &str, within: Span, word: &str) -> Option<Span> {
    let at = within.start + within.of(source).find(word)?;
    Some(Span::new(at, at + word.len()))
}

/// Returns the name in a heading `Milestone M1 — words`.
fn milestone_name(text: &str) -> Option<&str> {
    let word = text.get(..9).filter(|word| word.eq_ignore_ascii_case("milestone"))?;
    let rest = text.get(word.len()..)?;
    if !rest.starts_with(|c: char| !c.is_alphanumeric()) {
        return None;
    }
    let trim = |c: char| c.is_whitespace() || matches!(c, ':' | '-' | '—' | '–' | '.' | ',');
    let name = rest.trim_matches(trim).split_whitespace().next()?;
    Some(name.trim_matches(trim)).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boxes(body: &str, opening: TaskSourceKind) -> Vec<Checkbox> {
        scan(body, Span::new(0, body.len()), opening).boxes
    }

    /// Shows each box as `id|done|text|milestone|proofs`.
    fn shown(body: &str, opening: TaskSourceKind) -> Vec<String> {
        boxes(body, opening)
            .iter()
            .map(|b| {
                let milestone = b.milestone.as_deref().unwrap_or("");
                format!("{}|{}|{}|{milestone}|{}", b.id, if b.done { "x" } else { "" }, b.text, b.proofs.join(" ; "))
            })
            .collect()
    }

    #[track_caller]
    fn check(body: &str, want: &[&str]) {
        assert_eq!(shown(body, TaskSourceKind::Task), want, "{body:?}");
    }

    #[test]
    fn recognised_checkboxes() {
        check("- [ ] M1.1 a\n* [x] b\n+ [X] c\n1. [ ] d\n", &["M1.1||a||", "c1|x|b||", "c2|x|c||", "c3||d||"]);
        check("- [ ] **A-3** `x` is _y_\n", &["A-3||x is y||"]);
        check("- [ ] a\n  goes on\n\n  more\n", &["c1||a goes on||"]);
        check("- [ ] a\n\n- [ ] b\n", &["c1||a||", "c2||b||"]);
        check("- [ ] a\r\n- [x] b\r\n", &["c1||a||", "c2|x|b||"]);
        check("- [ ]\n- [ ] b", &["c1||||", "c2||b||"]);
        check("- a\n  - [ ] b\n", &["c1||b||"]);
    }

    #[test]
    fn ignored_checkboxes() {
        check("```\n- [ ] a\n```\n", &[]);
        check("    - [ ] a\n", &[]);
        check("`- [ ] a`\n", &[]);
        check("> - [ ] a\n", &[]);
        check("- > - [ ] a\n- [ ] b\n", &["c1||b||"]);
        check("<!--\n- [ ] a\n-->\n- [ ] b\n", &["c1||b||"]);
        check("<!-- - [ ] a -->\n", &[]);
        check("- [2026-01-29] a\n- [x](u) a\n- [x][u] a\n- [y] a\n- []\n- [ ]a\n[ ] a\n", &[]);
        check("text [ ] a\n", &[]);
        check("- `[ ]` a\n", &[]);
        check("- [ ] a\n\n  > verify: `x`\n", &["c1||a||"]);
    }

    #[test]
    fn proofs() {
        check("- [ ] a\n  - verify: `npm test` (or `curl`)\n", &["c1||a||npm test"]);
        check("- [ ] a\n  - Verify: `x`, `y` and `z`.\n", &["c1||a||x ; y ; z"]);
        check("- [ ] a\n  - **verify:** run ``a `b` c``\n", &["c1||a||a `b` c"]);
        check("- [ ] a\n  verify: `x`\n", &["c1||a||x"]);
        check("- [ ] a\n\n  verify: `x`\n", &["c1||a||x"]);
        check("- [ ] a\n  - verify:\n    ```sh\n    x &&\n      y\n    ```\n", &["c1||a||x &&\n  y"]);
        check("- [ ] a\n  - verify:\n\n  ```\n  x\n  ```\n  ```\n  z\n  ```\n", &["c1||a||x"]);
        check("- [ ] a\n  - verify:\n    - `x`\n    - `y`\n", &["c1||a||x ; y"]);
        check("- [ ] a\n  - note `n`\n  - verify: `x`\n  - verify: `y`\n", &["c1||a||x ; y"]);
        check("- [ ] a\n  - [ ] b\n    - verify: `y`\n  - verify: `x`\n", &["c1||a||x", "c2||b||y"]);
        check("- [ ] a\n- verify: `x`\n", &["c1||a||"]);
        check("- [ ] a\n  - verify:\n- [ ] b\n  ```\n  x\n  ```\n", &["c1||a||", "c2||b||"]);
        check("- [ ] a\n  - verified: `x`\n", &["c1||a||"]);
        let body = "- [ ] a\n  - verify: npm test\n";
        assert_eq!(
            boxes(body, TaskSourceKind::Task)[0].bare_verify.map(|span| span.of(body)),
            Some("verify: npm test")
        );
        let body = "- [ ] a\n  - verify: `x` and `y`\n";
        let spans: Vec<_> = boxes(body, TaskSourceKind::Task)[0].proof_spans.iter().map(|span| span.of(body)).collect();
        assert_eq!(spans, ["`x`", "`y`"]);
    }

    #[test]
    fn milestones() {
        check(
            "## Milestone M1 — Behaviour\n- [ ] a\n### Sub\n- [ ] b\n## milestone: M2\n- [ ] c\n## Notes\n- [ ] d\n",
            &["c1||a|M1|", "c2||b|M1|", "c3||c|M2|", "c4||d||"],
        );
        check("## Milestones are fine\n- [ ] a\n## Milestone\n- [ ] b\n", &["c1||a||", "c2||b||"]);
    }

    #[test]
    fn steps() {
        let body = "### Step 1: One [done]\nVerify: run `a` until `b` passes\n- [ ] x\n  - verify: `c`\n\
                    ### Step 2: Two [blocked: no key]\n**Verify:** `d`\n## Notes\nVerify: `e`\n";
        assert_eq!(shown(body, TaskSourceKind::Issue), ["step-1|x|One||a ; b", "c1||x|step-1|c", "step-2||Two||d"]);
        assert_eq!(boxes(body, TaskSourceKind::Issue)[2].blocked.as_deref(), Some("no key"));
        assert_eq!(shown(body, TaskSourceKind::Task), ["c1||x||c"]);
    }

    #[test]
    fn spans() {
        let body = "# ü\n* [x] M1.2: a\r\n  - verify: `x`\n";
        let checkbox = &boxes(body, TaskSourceKind::Task)[0];
        assert_eq!(checkbox.mark.of(body), "x");
        assert_eq!(checkbox.span.of(body), "* [x] M1.2: a");
        assert_eq!(checkbox.id_span.map(|span| span.of(body)), Some("M1.2"));
    }

    #[test]
    fn titles() {
        for (body, want) in [
            ("## A\n# B `c`\n# D\n", Some("B c")),
            ("## A\n### B\n", Some("A")),
            ("Title\n=====\n", Some("Title")),
            ("> # A\n", None),
            ("text\n", None),
        ] {
            assert_eq!(scan(body, Span::new(0, body.len()), TaskSourceKind::Task).title.as_deref(), want, "{body:?}");
        }
    }
}
