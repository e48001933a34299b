//! From the YAML tree to the typed front matter, collecting every mistake on the way.

use std::collections::BTreeMap;

use super::error::{Problem, ProblemKind};
use super::frame::Opening;
use super::front::{Apply, Diagnose, EngineKind, FORMAT, Front, Mode, Network, PullRequest, Resources, TestEvery};
use super::key::{ISSUE_KEYS, KEYS};
use super::yaml::{Entry, Node, Value};
use crate::gutter::{RUNGS, Rung};
use crate::money::Micros;
use crate::span::Span;
use crate::text;

/// The front matter with what only an issue may say, and where each key's value stands.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub front: Front,
    pub branch: Option<String>,
    pub base: Option<String>,
    pub depends: Vec<u64>,
    pub spans: BTreeMap<String, Span>,
    pub problems: Vec<Problem>,
}

pub(super) fn read(source: &str, entries: &[Entry], opening: Opening) -> Read {
    let mut reader = Reader { source, problems: Vec::new() };
    let mut read = Read::default();
    let front = &mut read.front;
    let names: Vec<&str> =
        KEYS.iter().chain(if opening == Opening::Issue { ISSUE_KEYS } else { &[] }).map(|key| key.name).collect();
    for entry in reader.known(entries, &names) {
        let (key, node) = (entry.key.as_str(), &entry.node);
        read.spans.insert(entry.key.clone(), if node.span.start == node.span.end { entry.key_span } else { node.span });
        // A key with nothing behind it is the same as no key.
        if node.value == Value::Null {
            continue;
        }
        match key {
            "format" => reader.format(node),
            "task_id" => front.task_id = reader.task_id(node).unwrap_or_default(),
            "repo_url" => front.repo_url = reader.text(key, node),
            "base_branch" => front.base_branch = reader.text(key, node),
            "target_branch_prefix" => front.target_branch_prefix = reader.text(key, node),
            "target_branch_slug" => front.target_branch_slug = reader.text(key, node),
            "engine" => {
                let choices = [("actions", EngineKind::Actions), ("agent", EngineKind::Agent)];
                front.engine = reader.choice(key, node, &choices).unwrap_or_default();
            }
            "agent" => front.agent = reader.text(key, node),
            "sandbox_provider" => front.sandbox_provider = reader.text(key, node),
            "sandbox_image" => front.sandbox_image = reader.text(key, node),
            "sandbox_resources" => front.sandbox_resources = reader.resources(key, node),
            "sandbox_network" => front.sandbox_network = reader.network(key, node),
            "model_profile_default" => front.model_profile_default = reader.text(key, node),
            "model_profile_fallback" => front.model_profile_fallback = reader.text(key, node),
            "model_profile_doctor" => front.model_profile_doctor = reader.text(key, node),
            "max_iterations" => front.max_iterations = reader.small(key, node, 1),
            "max_wall_time_minutes" => front.max_wall_time_minutes = reader.small(key, node, 1),
            "max_cost_usd_estimate" => front.max_cost_usd_estimate = reader.dollars(key, node),
            "max_tokens_total" => front.max_tokens_total = reader.whole(key, node, 1),
            "max_consecutive_gutter" => front.max_consecutive_gutter = reader.small(key, node, 1),
            "ladder" => front.ladder = reader.ladder(key, node),
            "test_command" => front.test_command = reader.text(key, node),
            "verify_commands" => front.verify_commands = reader.list(key, node),
            "test_every" => {
                let choices = [("iteration", TestEvery::Iteration), ("claim", TestEvery::Claim)];
                front.test_every = reader.choice(key, node, &choices).unwrap_or_default();
            }
            "proof_timeout_s" => reader.set(&mut front.proof_timeout_s, key, node, 1),
            "min_checkboxes" => reader.set(&mut front.min_checkboxes, key, node, 0),
            "min_changed_lines" => reader.set(&mut front.min_changed_lines, key, node, 0),
            "protected_paths" => front.protected_paths = reader.globs(key, node),
            "commit_state" => front.commit_state = reader.flag(key, node).unwrap_or_default(),
            "mode" => {
                let choices = [("autonomous", Mode::Autonomous), ("guided", Mode::Guided), ("debug", Mode::Debug)];
                front.mode = reader.choice(key, node, &choices).unwrap_or_default();
            }
            "debug_commands" => front.debug_commands = reader.list(key, node),
            "diagnose" => front.diagnose = reader.diagnose(key, node),
            "pr" => front.pr = reader.pull_request(key, node, &mut read.spans),
            "branch" => read.branch = reader.text(key, node),
            "base" => read.base = reader.text(key, node),
            "depends" => read.depends = reader.depends(key, node),
            _ => (),
        }
    }
    if opening == Opening::Issue && front.base_branch.is_none() {
        front.base_branch.clone_from(&read.base);
    }
    read.problems = reader.problems;
    read
}

struct Reader<'a> {
    source: &'a str,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    /// Reports the keys nobody knows and returns the others.
    fn known<'e>(&mut self, entries: &'e [Entry], names: &[&str]) -> Vec<&'e Entry> {
        let (known, unknown): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| names.contains(&entry.key.as_str()));
        for entry in unknown {
            let shown = text::plain(text::first_line(&entry.key, 64));
            let problem =
                Problem::new(ProblemKind::UnknownKey, self.source, entry.key_span, format!("unknown key `{shown}`"));
            let lower = shown.to_ascii_lowercase().replace('-', "_");
            self.problems.push(match text::did_you_mean(&lower, names.iter().copied()) {
                Some(name) => problem.with_hint(format!("did you mean `{name}`?")),
                None => problem.with_hint("remove it; `ralph help task-file` lists the keys"),
            });
        }
        known
    }

    fn bad(&mut self, key: &str, node: &Node, wants: &str) -> Option<&mut Problem> {
        let is = match &node.value {
            Value::Null => "nothing".to_owned(),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a map".to_owned(),
            Value::Text(text) => format!("`{}`", text::plain(text::first_line(text, 40))),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => format!("`{}`", text::head(&node.raw, 40)),
        };
        let message = format!("`{key}` must be {wants}, not {is}");
        self.problems.push(Problem::new(ProblemKind::BadValue, self.source, node.span, message).with_key(key));
        self.problems.last_mut()
    }

    fn text(&mut self, key: &str, node: &Node) -> Option<String> {
        let text = match &node.value {
            Value::Text(text) => text.trim().to_owned(),
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => node.raw.clone(),
            Value::Null => return None,
            Value::List(_) | Value::Map(_) => {
                self.bad(key, node, "text");
                return None;
            }
        };
        if text.contains('\0') {
            self.bad(key, node, "text without NUL characters");
            return None;
        }
        (!text.is_empty()).then_some(text)
    }

    fn list(&mut self, key: &str, node: &Node) -> Vec<String> {
        let Value::List(items) = &node.value else {
            if let Some(problem) = self.bad(key, node, "a list") {
                problem.hint = Some(format!("write `{key}: [\"…\"]`"));
            }
            return Vec::new();
        };
        items.iter().filter_map(|item| self.text(key, item)).collect()
    }

    fn globs(&mut self, key: &str, node: &Node) -> Vec<String> {
        let globs = self.list(key, node);
        if globs.iter().any(|glob| globset::Glob::new(glob).is_err()) {
            self.bad(key, node, "a list of valid globs");
        }
        globs
    }

    fn flag(&mut self, key: &str, node: &Node) -> Option<bool> {
        if let Value::Bool(flag) = node.value {
            return Some(flag);
        }
        self.bad(key, node, "true or false");
        None
    }

    fn whole(&mut self, key: &str, node: &Node, least: u64) -> Option<u64> {
        let number = match node.value {
            Value::Int(number) => u64::try_from(number).ok().filter(|number| *number >= least),
            _ => None,
        };
        if number.is_none() {
            self.bad(key, node, &format!("a whole number of at least {least}"));
        }
        number
    }

    fn small(&mut self, key: &str, node: &Node, least: u64) -> Option<u32> {
        let number = self.whole(key, node, least)?;
        let small = u32::try_from(number).ok();
        if small.is_none() {
            self.bad(key, node, &format!("at most {}", u32::MAX));
        }
        small
    }

    fn set(&mut self, field: &mut u32, key: &str, node: &Node, least: u64) {
        if let Some(number) = self.small(key, node, least) {
            *field = number;
        }
    }

    fn dollars(&mut self, key: &str, node: &Node) -> Option<Micros> {
        let usd = match node.value {
            Value::Float(usd) => usd,
            Value::Int(usd) => u32::try_from(usd).map_or(-1.0, f64::from),
            _ => -1.0,
        };
        let amount = Micros::from_usd(usd);
        if usd.is_finite() && amount > Micros::ZERO {
            return Some(amount);
        }
        self.bad(key, node, "an amount of dollars above 0");
        None
    }

    fn choice<T: Copy>(&mut self, key: &str, node: &Node, choices: &[(&str, T)]) -> Option<T> {
        let word = match &node.value {
            Value::Text(word) => word.as_str(),
            _ => node.raw.as_str(),
        };
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == word) {
            return Some(*value);
        }
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        let meant = text::did_you_mean(text::head(word, 64), names.iter().copied());
        let wants = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
        if let Some(problem) = self.bad(key, node, &wants) {
            problem.hint = meant.map(|name| format!("did you mean `{name}`?"));
        }
        None
    }

    fn format(&mut self, node: &Node) {
        if node.value != Value::Int(FORMAT.into())
            && let Some(problem) = self.bad("format", node, &format!("`{FORMAT}`"))
        {
            problem.hint = Some("a newer ralph may read it: `ralph --version` says which one this is".to_owned());
        }
    }

    fn task_id(&mut self, node: &Node) -> Option<String> {
        let id = self.text("task_id", node)?;
        let legal = id.len() <= 63
            && !id.starts_with('-')
            && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if legal {
            return Some(id);
        }
        if let Some(problem) = self.bad("task_id", node, "at most 63 of a-z, 0-9 and `-`, not starting with `-`") {
            let slug = text::slug(&id, 63);
            problem.hint = (!slug.is_empty()).then(|| format!("write `task_id: {slug}`"));
        }
        None
    }

    fn map<'e>(&mut self, key: &str, node: &'e Node, names: &[&str]) -> Vec<&'e Entry> {
        if let Value::Map(entries) = &node.value {
            let known = self.known(entries, names);
            return known.into_iter().filter(|entry| entry.node.value != Value::Null).collect();
        }
        self.bad(key, node, &format!("a map of {}", names.join(", ")));
        Vec::new()
    }

    fn resources(&mut self, key: &str, node: &Node) -> Resources {
        let mut resources = Resources::default();
        for Entry { key, node, .. } in self.map(key, node, &["vcpu", "memory_gib", "disk_gib"]) {
            let number = self.small(key, node, 1);
            match key.as_str() {
                "vcpu" => resources.vcpu = number,
                "memory_gib" => resources.memory_gib = number,
                _ => resources.disk_gib = number,
            }
        }
        resources
    }

    fn network(&mut self, key: &str, node: &Node) -> Network {
        let mut network = Network::default();
        for Entry { key, node, .. } in self.map(key, node, &["policy", "allow"]) {
            match key.as_str() {
                "policy" => network.policy = self.text(key, node),
                _ => network.allow = Some(self.list(key, node)),
            }
        }
        network
    }

    fn ladder(&mut self, key: &str, node: &Node) -> Option<Vec<Rung>> {
        let Value::List(items) = &node.value else {
            if let Some(problem) = self.bad(key, node, "a list of rungs") {
                problem.hint = Some(format!("write `{key}: [rotate, pause]`"));
            }
            return None;
        };
        let choices = Rung::ALL.map(|rung| (rung.word(), rung));
        let rungs: Vec<Rung> = items.iter().filter_map(|item| self.choice(key, item, &choices)).collect();
        if items.is_empty() || items.len() > RUNGS {
            self.bad(key, node, &format!("a list of 1 to {RUNGS} rungs"));
        }
        Some(rungs)
    }

    fn diagnose(&mut self, key: &str, node: &Node) -> Diagnose {
        let mut diagnose = Diagnose::default();
        for Entry { key, node, .. } in self.map(key, node, &["apply", "every"]) {
            match key.as_str() {
                "apply" => {
                    let choices = [("approve", Apply::Approve), ("auto", Apply::Auto)];
                    diagnose.apply = self.choice(key, node, &choices).unwrap_or_default();
                }
                _ => self.set(&mut diagnose.every, key, node, 0),
            }
        }
        diagnose
    }

    fn pull_request(&mut self, key: &str, node: &Node, spans: &mut BTreeMap<String, Span>) -> PullRequest {
        const NAMES: [&str; 6] =
            ["draft", "labels", "title_template", "body_template", "wait_for_ci", "required_checks"];
        let mut pr = PullRequest::default();
        for Entry { key, node, .. } in self.map(key, node, &NAMES) {
            spans.insert(format!("pr.{key}"), node.span);
            match key.as_str() {
                "draft" => pr.draft = self.flag(key, node).unwrap_or(true),
                "labels" => pr.labels = self.list(key, node),
                "title_template" => pr.title_template = self.text(key, node),
                "body_template" => pr.body_template = self.text(key, node),
                "wait_for_ci" => pr.wait_for_ci = self.flag(key, node).unwrap_or_default(),
                _ => pr.required_checks = self.list(key, node),
            }
        }
        pr
    }

    /// Issue numbers, written `24` or `"#24"`, as a list or alone.
    fn depends(&mut self, key: &str, node: &Node) -> Vec<u64> {
        let items = match &node.value {
            Value::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let mut numbers = Vec::new();
        for item in items {
            let number = match &item.value {
                Value::Int(number) => u64::try_from(*number).ok(),
                Value::Text(text) => text.trim().trim_start_matches('#').parse().ok(),
                _ => None,
            };
            match number.filter(|number| *number > 0) {
                Some(number) => numbers.push(number),
                None => {
                    self.bad(key, item, "a list of issue numbers");
                }
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}
