//! Builds a run event by event, with a clock that only moves explicitly.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use ralph_core::diagnosis::{Proposal, ProposalList};
use ralph_core::event::{Event, EventLine};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Size;
use serde_json::{Value, json};

use super::super::draw::draw;
use super::super::model::{WatchEffect, WatchMessage, WatchModel};

/// The model and the events so far.
pub(super) struct WatchFixture {
    pub(super) model: WatchModel,
    /// The proposals in the folder of the run.
    pub(super) proposals: ProposalList,
    seq: u64,
    at: Timestamp,
}

impl WatchFixture {
    /// Creates a run that has just begun: four boxes in two milestones, three profiles, ten dollars.
    pub(super) fn new() -> Self {
        Self::from_started(&run_started_json())
    }

    pub(super) fn from_started(started: &Value) -> Self {
        let at: Timestamp = "2026-03-04T09:30:00Z".parse().unwrap();
        let mut model = WatchModel::new("d1vn1bc09rwx", at, TimeZone::UTC, false);
        model.update(WatchMessage::Resized(Size::new(80, 24)));
        let mut story = Self { model, proposals: ProposalList::default(), seq: 0, at };
        story.push_event(started);
        story
    }

    /// Advances the clock.
    pub(super) fn advance(&mut self, seconds: i64) -> &mut Self {
        self.at = self.at.checked_add(SignedDuration::from_secs(seconds)).unwrap();
        self.model.update(WatchMessage::Tick { now: self.at });
        self
    }

    /// Adds an event, in the format of the file.
    #[track_caller]
    pub(super) fn push_event(&mut self, event: &Value) -> &mut Self {
        let event: Event = serde_json::from_value(event.clone()).unwrap();
        self.seq += 1;
        self.model.update(WatchMessage::Line(Box::new(EventLine {
            seq: self.seq,
            at: self.at,
            passed_ms: None,
            event,
        })));
        self.model.update(WatchMessage::CaughtUp);
        self
    }

    /// Adds a diagnosis that proposes guardrails with these instructions.
    pub(super) fn write_diagnosis(&mut self, n: u32, signs: &[&str]) -> &mut Self {
        let first = u32::try_from(self.proposals.proposals.len()).unwrap() + 1;
        let sign = |instruction: &&str| Proposal::Guardrail {
            trigger: "a check is red".to_owned(),
            instruction: (*instruction).to_owned(),
            evidence: "seen".to_owned(),
        };
        self.proposals.replace_from(first, n, n, signs.iter().map(sign).collect());
        self.push_event(&json!({"type": "diagnosis-written", "n": n, "profile": "opus", "proposals": signs.len(),
            "guardrails": signs.len(), "failed": signs.is_empty().then_some("no answer")}))
    }

    pub(super) fn sandbox_ready(&mut self) -> &mut Self {
        self.advance(2).push_event(&json!({"type": "sandbox-ready", "sandbox": "agent-loop-1", "backend": "embedded",
            "isolated": true, "start": COMMIT, "head": COMMIT, "reclaim": []}));
        self.advance(3).push_event(&json!({"type": "baseline-checked", "checks": [
            {"proves": ["test"], "command": "npm test", "verdict": "red"},
            {"proves": ["M1.1"], "command": "sh tests/login.sh", "verdict": "red"}]}))
    }

    pub(super) fn start_iteration(&mut self, n: u32, profile: &str) -> &mut Self {
        self.advance(1).push_event(&json!({"type": "iteration-started", "n": n, "profile": profile, "because": null,
            "head": "a8bf", "tree": "4085"}))
    }

    pub(super) fn model_call(&mut self, n: u32, cost: u64) -> &mut Self {
        self.advance(20).push_event(
            &json!({"type": "model-called", "n": n, "call": 0, "profile": "glm", "model": "zai/glm-4.7",
            "answer": {"kind": "actions", "count": 3, "response": "0933"},
            "usage": {"input": 21000, "cached_input": 0, "cache_write": 0, "output": 900, "reasoning": 0},
            "cost": cost, "duration_ms": 20000}),
        )
    }

    pub(super) fn start_action(&mut self, n: u32, brief: &str) -> &mut Self {
        self.advance(1).push_event(&json!({"type": "action-started", "n": n, "index": 0, "kind": "run", "brief": brief,
            "before": {"kind": "nothing"}}))
    }

    pub(super) fn finish_check(&mut self, n: u32, proves: &str, code: i32) -> &mut Self {
        self.advance(4).push_event(&json!({"type": "check-finished", "n": n, "stage": "iteration",
            "command": format!("sh tests/{proves}.sh"), "proves": [proves], "code": code, "timed_out": false,
            "duration_ms": 4000, "output": "8b47"}))
    }

    pub(super) fn end_iteration(
        &mut self,
        n: u32,
        outcome: &str,
        new: u32,
        verified: &[&str],
        score: f64,
    ) -> &mut Self {
        self.advance(2).push_event(&json!({"type": "iteration-finished", "n": n, "outcome": outcome, "head": "b593",
            "summary": "Looked at the session store.", "sample": {"n": n, "newly_verified": new}, "verified": verified}));
        let evidence = if score > 0.0 { vec!["A 0.5: `npm test` failed the same way 3 times"] } else { vec![] };
        self.push_event(
            &json!({"type": "gutter-scored", "n": n, "score": {"total": score, "a": 0.0, "b": 0.0, "c": 0.0,
            "evidence": evidence, "veto": null}}),
        )
    }

    /// Adds a whole iteration.
    pub(super) fn full_iteration(
        &mut self,
        n: u32,
        outcome: &str,
        new: u32,
        verified: &[&str],
        score: f64,
    ) -> &mut Self {
        let profile = if n > 4 { "sonnet" } else { "glm" };
        self.start_iteration(n, profile).model_call(n, 210_000 + u64::from(n) * 20_000).start_action(n, "npm test");
        self.finish_check(n, "M1.2", i32::from(!verified.contains(&"M1.2")))
            .end_iteration(n, outcome, new, verified, score)
    }

    /// Adds five iterations of work.
    pub(super) fn five_iterations(&mut self) -> &mut Self {
        self.sandbox_ready()
            .full_iteration(1, "progress", 1, &["M1.1"], 0.0)
            .full_iteration(2, "progress", 0, &["M1.1"], 0.0)
            .full_iteration(3, "action-failed", 0, &["M1.1"], 0.3)
            .full_iteration(4, "no-progress", 0, &["M1.1"], 0.5)
            .full_iteration(5, "progress", 1, &["M1.1", "M1.2"], 0.2)
    }

    pub(super) fn press(&mut self, c: char) -> Option<WatchEffect> {
        self.press_code(KeyCode::Char(c))
    }

    pub(super) fn press_code(&mut self, code: KeyCode) -> Option<WatchEffect> {
        match self.model.update(WatchMessage::Key(KeyEvent::new(code, KeyModifiers::NONE))) {
            Some(WatchEffect::LoadProposals) => self.model.update(WatchMessage::Proposals(Ok(self.proposals.clone()))),
            effect => effect,
        }
    }

    pub(super) fn type_text(&mut self, text: &str) {
        for c in text.chars() {
            assert_eq!(self.press(c), None, "`{c}` of {text}");
        }
    }

    /// Draws the screen at a size.
    pub(super) fn buffer(&mut self, width: u16, height: u16) -> Buffer {
        self.model.update(WatchMessage::Resized(Size::new(width, height)));
        draw_cells(&self.model, width, height)
    }

    /// Draws the screen at a size, as lines of text.
    pub(super) fn screen(&mut self, width: u16, height: u16) -> String {
        self.model.update(WatchMessage::Resized(Size::new(width, height)));
        draw_text(&self.model, width, height)
    }
}

fn draw_cells(model: &WatchModel, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(model, frame)).unwrap();
    terminal.backend().buffer().clone()
}

/// Draws a model as lines of text.
pub(in super::super) fn draw_text(model: &WatchModel, width: u16, height: u16) -> String {
    let buffer = draw_cells(model, width, height);
    let mut text = String::new();
    for y in 0..height {
        let row: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// The commit the run starts from.
const COMMIT: &str = "a8bf6d0e23d6e3896d6d4709d04294950b3fc692";

/// The first event.
pub(in super::super) fn run_started_json() -> Value {
    let profile = |name: &str, model: &str| {
        json!({"name": name, "model": model, "base_url": null, "api_key_env": null, "max_output_tokens": 2048,
            "temperature": null, "timeout_s": 60, "price": null, "extra": {}})
    };
    let pinned = |id: &str, text: &str, milestone: &str| json!({"id": id, "text": text, "milestone": milestone, "proofs": ["true"]});
    json!({"type": "run-started", "format": 1, "run": "d1vn1bc09rwx", "ralph": "0.1.0", "task_id": "auth-007",
        "title": "Fix the login that forgets its session", "repo": "/home/ann/shop", "task_path": "ralph_task.md",
        "task_sha256": "1c89", "base_branch": "main", "base_commit": COMMIT, "start_commit": COMMIT,
        "branch": "ralph/auth-007/fix-the-login", "engine": "actions", "backend": "embedded", "image": null,
        "resources": {"memory": null, "cpus": null, "disk": null, "pids": 4096}, "toolchains": "auto",
        "profiles": {"default": profile("glm", "zai/glm-4.7"), "fallback": profile("sonnet", "anthropic/sonnet"),
            "doctor": profile("opus", "anthropic/opus")},
        "budget": {"iterations": 30, "wall_ms": 7_200_000, "cost": 10_000_000, "tokens": null, "consecutive_gutter": 3},
        "test_command": "npm test", "test_every": "iteration", "check_timeout_s": 600,
        "boxes": [pinned("M1.1", "A login outlives a restart", "M1"), pinned("M1.2", "A logout ends it everywhere", "M1"),
            pinned("M2.1", "An old cookie is refused with 401", "M2"), pinned("M2.2", "The page says why", "M2")],
        "protected_paths": ["tests/"], "proof_files": [], "policy": {"mode": "deny", "allow": [], "deny": []},
        "commit_state": false, "min_changed_lines": 1, "ladder": ["rotate", "fallback", "pause"],
        "identity": {"name": "ralph", "email": "ralph@localhost"},
        "pr": {"draft": true, "labels": [], "title_template": null, "body_template": null}, "baseline": true})
}
