//! Tests whole prompts of both engines, and that no input can break them.
//!
//! `RALPH_BLESS=1 cargo test -p ralph-core prompt::` rewrites the pages beside this file.

use std::path::Path;

use proptest::prelude::*;
use ralph_core::action;
use ralph_core::money::MicroUsd;
use ralph_core::prompt::{
    IterationPrompt, LastAction, LastActions, MAX_PROMPT_BYTES, OutputEnds, PromptCheckbox, PromptInputs, PromptPart,
    PromptRequest, RemainingBudget, build, templates,
};

const NONCE: &str = "k3v9q2w8";
const AGENT: PromptRequest<'static> = PromptRequest::Agent { notes_file: ".ralph/notes.md" };

const TASK: &str = "\
---
task_id: greet-001
test_command: \"make test\"
---

# Greet

## Milestone M1: words

- [x] M1.1 It says hello
  - verify: `sh tests/hello.sh`
- [ ] M1.2 It says goodbye
  - verify: `sh tests/goodbye.sh`
";

/// An iteration in the middle of a run that had problems.
fn mid_run_inputs(ask: PromptRequest<'_>) -> PromptInputs<'_> {
    PromptInputs {
        nonce: NONCE,
        run: "01k3x5",
        iteration: 4,
        task: TASK,
        task_file: "ralph_task.md",
        guardrails: "### sign: small diffs\n- trigger: a fix starts to spread\n- instruction: change only what the box needs\n",
        progress: "## Done\n- M1.1\n\n## Next\n- M1.2\n",
        notes: "- the words are in src/words.c\n",
        errors_log: "3: make test: exit 2\n",
        git_status: "M src/words.c\n",
        diffstat: "12\t3\tsrc/words.c\n",
        test_output: "1 failed, 2 passed in 0.1s\n",
        tested_in: Some(3),
        test_command: "make test",
        boxes: &[PromptCheckbox { id: "M1.1", verified: true }, PromptCheckbox { id: "M1.2", verified: false }],
        protected_paths: &[],
        left: RemainingBudget {
            iterations: Some(26),
            minutes: Some(100),
            cost: Some(MicroUsd(8_160_000)),
            tokens: None,
        },
        scores: &[0.0, 0.3, 0.5, 0.8],
        rotated_because: Some("the same failure 3 times"),
        last_actions: match ask {
            PromptRequest::Actions { .. } => Some(LastActions { iteration: 3, actions: &DONE }),
            PromptRequest::Agent { .. } => None,
        },
        refused: "- evil.test (2 times): no rule names it, and the network policy is `allowlist`\n",
        ask,
    }
}

/// The actions of an iteration that first read a file.
const DONE: [LastAction<'_>; 3] = [
    LastAction {
        index: 0,
        brief: "cat src/words.c",
        ended: "exit 0",
        why: "",
        output: Some(OutputEnds { start: "const char *hello = \"hello\";\n", end: "", unread: 0 }),
    },
    LastAction { index: 1, brief: "patch src/words.c", ended: "done", why: "src/words.c: 61 bytes", output: None },
    LastAction {
        index: 2,
        brief: "make test",
        ended: "exit 2",
        why: "",
        output: Some(OutputEnds { start: "cc -c src/words.c\n", end: "make: no rule\n", unread: 70_000 }),
    },
];

/// The first iteration of a run: nothing has happened yet.
fn first_iteration_inputs<'a>(ask: PromptRequest<'a>, guardrails: &'a str) -> PromptInputs<'a> {
    PromptInputs {
        iteration: 1,
        guardrails,
        progress: templates::PROGRESS,
        notes: templates::NOTES,
        errors_log: "",
        git_status: "",
        diffstat: "",
        test_output: "",
        tested_in: None,
        boxes: &[PromptCheckbox { id: "M1.1", verified: false }, PromptCheckbox { id: "M1.2", verified: false }],
        left: RemainingBudget { iterations: Some(30), minutes: None, cost: None, tokens: Some(2_000_000) },
        scores: &[],
        rotated_because: None,
        last_actions: None,
        refused: "",
        ..mid_run_inputs(ask)
    }
}

/// Compares a prompt with the page of its name, or rewrites the page.
#[track_caller]
fn check(name: &str, inputs: &PromptInputs<'_>) {
    let prompt = build(inputs);
    assert_eq!(build(inputs), prompt, "the same inputs, the same bytes");
    let page = format!("{}\n======== the message ========\n\n{}", prompt.system, prompt.user);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/prompt").join(format!("{name}.md"));
    if std::env::var_os("RALPH_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&path, &page).unwrap();
    }
    let want = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(page == want, "{name}.md is old: RALPH_BLESS=1 cargo test -p ralph-core prompt::\n{page}");
}

#[test]
fn whole_prompts() {
    let schema = action::schema().to_string();
    let actions = PromptRequest::Actions { schema: &schema, examples: action::example() };
    let guardrails = templates::guardrails();
    check("actions-first", &first_iteration_inputs(actions, &guardrails));
    check("actions-middle", &mid_run_inputs(actions));
    check("agent-first", &first_iteration_inputs(AGENT, &guardrails));
    check("agent-middle", &mid_run_inputs(AGENT));
    check(
        "agent-all-proved",
        &PromptInputs { boxes: &[PromptCheckbox { id: "M1.1", verified: true }], ..mid_run_inputs(AGENT) },
    );
}

/// The fenced parts, by their names.
const FENCED: [(&str, PromptPart); 11] = [
    ("task", PromptPart::Task),
    ("guardrails", PromptPart::Guardrails),
    ("progress", PromptPart::Progress),
    ("notes", PromptPart::Notes),
    ("errors-log", PromptPart::Errors),
    ("git-status", PromptPart::GitStatus),
    ("diffstat", PromptPart::Diffstat),
    ("test-output", PromptPart::TestOutput),
    ("rotated-because", PromptPart::RotatedBecause),
    ("last-actions", PromptPart::LastActions),
    ("refused", PromptPart::Refused),
];

/// Returns what is wrong with the fences of a message: each must be closed by its own end and hold no more than its
/// cap, and the mark must not occur anywhere else.
fn fence_flaw(user: &str) -> Option<String> {
    let mut open: Option<(&str, usize)> = None;
    for line in user.lines() {
        if line.contains("[ralph:") || line.contains(NONCE) {
            let words = line.strip_prefix("[ralph:").and_then(|rest| rest.strip_suffix(']')).unwrap_or_default();
            open = match (words.split(' ').collect::<Vec<_>>().as_slice(), open) {
                (["begin", name, NONCE], None) => Some((name, 0)),
                (["end", name, NONCE], Some((opened, held))) if *name == opened => {
                    let part = FENCED.iter().find(|(fence, _)| fence == name)?.1;
                    if held > part.cap() + 1 {
                        return Some(format!("{name} holds {held} bytes"));
                    }
                    None
                }
                _ => return Some(format!("{line:?} in {open:?}")),
            };
        } else if let Some((_, held)) = &mut open {
            *held += line.len() + 1;
        }
    }
    open.map(|(name, _)| format!("{name} is not closed"))
}

fn inputs_with_everywhere<'a>(
    text: &'a str,
    names: &'a [String],
    boxes: &'a [PromptCheckbox<'a>],
    actions: &'a [LastAction<'a>],
    ask: PromptRequest<'a>,
) -> PromptInputs<'a> {
    PromptInputs {
        run: text,
        task: text,
        guardrails: text,
        progress: text,
        notes: text,
        errors_log: text,
        git_status: text,
        diffstat: text,
        test_output: text,
        test_command: text,
        boxes,
        protected_paths: names,
        rotated_because: Some(text),
        last_actions: Some(LastActions { iteration: 3, actions }),
        task_file: text,
        refused: text,
        ..mid_run_inputs(ask)
    }
}

#[track_caller]
fn assert_bounded(prompt: &IterationPrompt, own: usize) {
    assert_eq!(fence_flaw(&prompt.user), None, "{}", prompt.user);
    let whole = prompt.system.len() + prompt.user.len();
    assert!(whole <= MAX_PROMPT_BYTES + own, "{whole} bytes");
}

#[test]
fn broken_fences_are_detected() {
    let fine = format!("[ralph:begin task {NONCE}]\nx\n[ralph:end task {NONCE}]\n");
    assert_eq!(fence_flaw(&fine), None);
    assert!(fence_flaw(&fine.replace("end task", "end notes")).is_some());
    assert!(fence_flaw(&format!("{fine}{NONCE}")).is_some());
    assert!(fence_flaw(&fine.replace("\nx\n", &format!("\n{}\n", "x".repeat(90 << 10)))).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Any text in every part at once, repeated until it is far above every cap.
    #[test]
    fn no_text_breaks_out_or_grows(
        text in "((?s).|\\[ralph:(begin|end) |(task|test-output) |k3v9|q2w8|k3v9q2w8|K3V9Q2W8|\\]|\n|\u{1b}\\[0m|`|\u{9b}|\u{202e}){0,40}",
        times in prop_oneof![Just(1_usize), Just(7), Just(20_000)],
    ) {
        let text = text.repeat(times);
        let names = vec![text.clone(), text.clone()];
        let boxes = [PromptCheckbox { id: &text, verified: true }, PromptCheckbox { id: &text, verified: false }];
        let schema = action::schema().to_string();
        let actions = PromptRequest::Actions { schema: &schema, examples: action::example() };
        let output = Some(OutputEnds { start: &text, end: &text, unread: 7 });
        let done = [LastAction { index: 0, brief: &text, ended: &text, why: &text, output }; 20];
        let own = schema.len() + action::example().len();
        assert_bounded(&build(&inputs_with_everywhere(&text, &names, &boxes, &done, actions)), own);
        assert_bounded(&build(&inputs_with_everywhere(&text, &names, &boxes, &done, AGENT)), 0);
    }
}
