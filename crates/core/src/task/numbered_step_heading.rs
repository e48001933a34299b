//! Parses the steps of an issue: headings `Step N: title` whose end shows their progress.

use crate::source_span::Span;

/// A heading that is a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IssueStep {
    pub number: u32,
    pub title: String,
    pub done: bool,
    pub blocked: Option<String>,
    /// The marker with its brackets, or the empty position after the title.
    pub mark: Span,
    /// The heading without its line ending.
    pub span: Span,
}

/// Parses a heading from its source; only `#` headings can be steps, because a marker must stay on its line.
pub(super) fn read(source: &str, heading: Span) -> Option<IssueStep> {
    let raw = heading.of(source);
    let line = raw.lines().next().unwrap_or("").trim_end();
    let text = line.trim_start().trim_start_matches('#');
    if text.len() == line.trim_start().len() {
        return None;
    }
    let start = heading.start + (line.len() - text.len());
    let text = without_closing(text).trim_end();
    let (number, title) = numbered(text.trim_start())?;
    let (title, done, blocked, mark) = match marker(text) {
        Some((mut at, state)) => {
            // The last of several markers counts, and all of them are replaced with it.
            while let Some((earlier, _)) = text.get(..at).and_then(|before| marker(before.trim_end())) {
                at = earlier;
            }
            // `marker` matched on the whole heading; the title is the part of it before the brackets.
            let title_start = text.len() - title.len();
            let title = text.get(title_start..at).unwrap_or("");
            let mark = Span::new(start + at, start + text.len());
            (title, state.is_none(), state, mark)
        }
        None => (title, false, None, Span::new(start + text.len(), start + text.len())),
    };
    let span = Span::new(heading.start, heading.start + line.len());
    Some(IssueStep { number, title: title.trim().to_owned(), done, blocked, mark, span })
}

/// Removes the optional run of `#` that may close a heading.
fn without_closing(text: &str) -> &str {
    let bare = text.trim_end().trim_end_matches('#');
    if bare.is_empty() || bare.ends_with([' ', '\t']) { bare } else { text }
}

fn numbered(text: &str) -> Option<(u32, &str)> {
    let word = text.get(..4).filter(|word| word.eq_ignore_ascii_case("step"))?;
    let rest = text.get(word.len()..)?;
    let number = rest.trim_start();
    if number.len() == rest.len() {
        return None;
    }
    let digits = number.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = number.split_at(digits);
    let title = rest.trim_start().strip_prefix([':', '.', '-', '—', '–'])?;
    Some((digits.parse().ok()?, title))
}

/// Finds the marker at the end: its start, and the reason if the step is blocked.
fn marker(text: &str) -> Option<(usize, Option<String>)> {
    let inner = text.strip_suffix(']')?;
    let at = inner.rfind('[')?;
    let word = inner.get(at + 1..)?.trim();
    if word.eq_ignore_ascii_case("done") {
        return Some((at, None));
    }
    let blocked = word.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("blocked"));
    let reason = word.get(7..)?.trim_start();
    if !blocked || !(reason.is_empty() || reason.starts_with(':')) {
        return None;
    }
    Some((at, Some(reason.trim_start_matches(':').trim().to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, want: Option<(u32, &str, bool, Option<&str>, &str)>) {
        let step = read(line, Span::new(0, line.len()));
        let got = step
            .as_ref()
            .map(|step| (step.number, step.title.as_str(), step.done, step.blocked.as_deref(), step.mark.of(line)));
        assert_eq!(got, want, "{line:?}");
    }

    #[test]
    fn steps() {
        check("### Step 1: Build it", Some((1, "Build it", false, None, "")));
        check("### Step 1: Build it [done]\r\n", Some((1, "Build it", true, None, "[done]")));
        check("## step 12: X [DONE] ##", Some((12, "X", true, None, "[DONE]")));
        check("### Step 2: X [blocked: no key]", Some((2, "X", false, Some("no key"), "[blocked: no key]")));
        check("### Step 2: X [Blocked]", Some((2, "X", false, Some(""), "[Blocked]")));
        check("### Step 2: use [x] C#", Some((2, "use [x] C#", false, None, "")));
        check("### Step 2: X [DONE] [blocked: no] [done]", Some((2, "X", true, None, "[DONE] [blocked: no] [done]")));
        check("### Step 2: [done]", Some((2, "", true, None, "[done]")));
        check("### Step 3: a [link]", Some((3, "a [link]", false, None, "")));
        check("### Steps 3: a", None);
        check("### Step: a", None);
        check("### Step 99999999999: a", None);
        check("Step 1: a\n---", None);
        check("### Stüp 1: a", None);
        check("###", None);
    }

    #[test]
    fn markers_go_after_the_title() {
        let line = "### Step 1: Build it  ###";
        let step = read(line, Span::new(0, line.len())).unwrap();
        assert_eq!(&line[..step.mark.start], "### Step 1: Build it");
    }
}
