//! Converts the YAML tree to the typed front matter and collects every mistake.

use std::collections::BTreeMap;

use super::error::{TaskProblem, TaskProblemKind};
use super::front_matter::{
    ApplyMode, DiagnoseSettings, EngineKind, FORMAT, FrontMatter, PullRequestSettings, TaskNetwork, TaskResources,
    TaskTestFrequency,
};
use super::front_matter_keys::{ISSUE_KEYS, KEYS_WITHOUT_EFFECT, TASK_KEYS};
use super::front_matter_split::TaskSourceKind;
use super::yaml::{YamlEntry, YamlNode, YamlValue};
use crate::gutter::{LadderRung, MAX_RUNGS};
use crate::money::MicroUsd;
use crate::policy::PolicyMode;
use crate::source_span::Span;
use crate::text;

/// The front matter with the keys only an issue may have, and the span of each key's value.
#[derive(Debug, Default)]
pub(super) struct IssueFrontMatter {
    pub front: FrontMatter,
    pub branch: Option<String>,
    pub base: Option<String>,
    pub depends: Vec<u64>,
    pub spans: BTreeMap<String, Span>,
    pub problems: Vec<TaskProblem>,
}

pub(super) fn read(source: &str, entries: &[YamlEntry], opening: TaskSourceKind) -> IssueFrontMatter {
    let mut reader = FrontMatterReader { source, problems: Vec::new() };
    let mut read = IssueFrontMatter::default();
    let front = &mut read.front;
    let names: Vec<&str> = TASK_KEYS
        .iter()
        .chain(if opening == TaskSourceKind::Issue { ISSUE_KEYS } else { &[] })
        .map(|key| key.name)
        .collect();
    for entry in reader.known_entries(entries, &names) {
        let (key, node) = (entry.key.as_str(), &entry.node);
        read.spans.insert(entry.key.clone(), if node.span.start == node.span.end { entry.key_span } else { node.span });
        // A key without a value is the same as no key.
        if node.value == YamlValue::Null {
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
            "max_iterations" => front.max_iterations = reader.small_integer(key, node, 1),
            "max_wall_time_minutes" => front.max_wall_time_minutes = reader.small_integer(key, node, 1),
            "max_cost_usd_estimate" => front.max_cost_usd_estimate = reader.dollars(key, node),
            "max_tokens_total" => front.max_tokens_total = reader.integer(key, node, 1),
            "max_consecutive_gutter" => front.max_consecutive_gutter = reader.small_integer(key, node, 1),
            "ladder" => front.ladder = reader.ladder(key, node),
            "test_command" => front.test_command = reader.text(key, node),
            "verify_commands" => front.verify_commands = reader.list(key, node),
            "test_every" => {
                let choices = [("iteration", TaskTestFrequency::Iteration), ("claim", TaskTestFrequency::Claim)];
                front.test_every = reader.choice(key, node, &choices).unwrap_or_default();
            }
            "proof_timeout_s" => reader.set_integer(&mut front.proof_timeout_s, key, node, 1),
            "min_checkboxes" => reader.set_integer(&mut front.min_checkboxes, key, node, 0),
            "min_changed_lines" => reader.set_integer(&mut front.min_changed_lines, key, node, 0),
            "protected_paths" => front.protected_paths = reader.globs(key, node),
            "may_change" => front.may_change = reader.globs(key, node),
            "commit_state" => front.commit_state = reader.flag(key, node).unwrap_or_default(),
            "diagnose" => front.diagnose = reader.diagnose(key, node),
            "pr" => front.pr = reader.pull_request(key, node, &mut read.spans),
            "branch" => read.branch = reader.text(key, node),
            "base" => read.base = reader.text(key, node),
            "depends" => read.depends = reader.depends(key, node),
            _ => (),
        }
    }
    if opening == TaskSourceKind::Issue && front.base_branch.is_none() {
        front.base_branch.clone_from(&read.base);
    }
    read.problems = reader.problems;
    read
}

struct FrontMatterReader<'a> {
    source: &'a str,
    problems: Vec<TaskProblem>,
}

impl FrontMatterReader<'_> {
    /// Reports the unknown keys and returns the others.
    fn known_entries<'e>(&mut self, entries: &'e [YamlEntry], names: &[&str]) -> Vec<&'e YamlEntry> {
        let (known, unknown): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| names.contains(&entry.key.as_str()));
        for entry in unknown {
            let shown = text::strip_control(text::first_line(&entry.key, 64));
            if let Some((key, why)) = KEYS_WITHOUT_EFFECT.iter().find(|(key, _)| *key == entry.key) {
                let message = format!("`{key}` would have no effect: {why}");
                let problem = TaskProblem::new(TaskProblemKind::UnknownKey, self.source, entry.key_span, message);
                self.problems.push(problem.with_hint("remove it"));
                continue;
            }
            let problem = TaskProblem::new(
                TaskProblemKind::UnknownKey,
                self.source,
                entry.key_span,
                format!("unknown key `{shown}`"),
            );
            let lower = shown.to_ascii_lowercase().replace('-', "_");
            self.problems.push(match text::did_you_mean(&lower, names.iter().copied()) {
                Some(name) => problem.with_hint(format!("did you mean `{name}`?")),
                None => problem.with_hint("remove it; `ralph help task-file` lists the keys"),
            });
        }
        known
    }

    fn bad_value(&mut self, key: &str, node: &YamlNode, wants: &str) -> Option<&mut TaskProblem> {
        let is = match &node.value {
            YamlValue::Null => "nothing".to_owned(),
            YamlValue::List(_) => "a list".to_owned(),
            YamlValue::Map(_) => "a map".to_owned(),
            YamlValue::Text(text) => format!("`{}`", text::strip_control(text::first_line(text, 40))),
            YamlValue::Bool(_) | YamlValue::Int(_) | YamlValue::Float(_) => format!("`{}`", text::head(&node.raw, 40)),
        };
        let message = format!("`{key}` must be {wants}, not {is}");
        self.problems.push(TaskProblem::new(TaskProblemKind::BadValue, self.source, node.span, message).with_key(key));
        self.problems.last_mut()
    }

    fn text(&mut self, key: &str, node: &YamlNode) -> Option<String> {
        let text = match &node.value {
            YamlValue::Text(text) => text.trim().to_owned(),
            YamlValue::Bool(_) | YamlValue::Int(_) | YamlValue::Float(_) => node.raw.clone(),
            YamlValue::Null => return None,
            YamlValue::List(_) | YamlValue::Map(_) => {
                self.bad_value(key, node, "text");
                return None;
            }
        };
        if text.contains('\0') {
            self.bad_value(key, node, "text without NUL characters");
            return None;
        }
        (!text.is_empty()).then_some(text)
    }

    fn list(&mut self, key: &str, node: &YamlNode) -> Vec<String> {
        let YamlValue::List(items) = &node.value else {
            if let Some(problem) = self.bad_value(key, node, "a list") {
                problem.hint = Some(format!("write `{key}: [\"…\"]`"));
            }
            return Vec::new();
        };
        items.iter().filter_map(|item| self.text(key, item)).collect()
    }

    fn globs(&mut self, key: &str, node: &YamlNode) -> Vec<String> {
        let globs = self.list(key, node);
        if globs.iter().any(|glob| globset::Glob::new(glob).is_err()) {
            self.bad_value(key, node, "a list of valid globs");
        }
        globs
    }

    fn flag(&mut self, key: &str, node: &YamlNode) -> Option<bool> {
        if let YamlValue::Bool(flag) = node.value {
            return Some(flag);
        }
        self.bad_value(key, node, "true or false");
        None
    }

    fn integer(&mut self, key: &str, node: &YamlNode, least: u64) -> Option<u64> {
        let number = match node.value {
            YamlValue::Int(number) => u64::try_from(number).ok().filter(|number| *number >= least),
            _ => None,
        };
        if number.is_none() {
            self.bad_value(key, node, &format!("a whole number of at least {least}"));
        }
        number
    }

    fn small_integer(&mut self, key: &str, node: &YamlNode, least: u64) -> Option<u32> {
        let number = self.integer(key, node, least)?;
        let small = u32::try_from(number).ok();
        if small.is_none() {
            self.bad_value(key, node, &format!("at most {}", u32::MAX));
        }
        small
    }

    fn set_integer(&mut self, field: &mut u32, key: &str, node: &YamlNode, least: u64) {
        if let Some(number) = self.small_integer(key, node, least) {
            *field = number;
        }
    }

    fn dollars(&mut self, key: &str, node: &YamlNode) -> Option<MicroUsd> {
        let usd = match node.value {
            YamlValue::Float(usd) => usd,
            YamlValue::Int(usd) => u32::try_from(usd).map_or(-1.0, f64::from),
            _ => -1.0,
        };
        let amount = MicroUsd::from_usd(usd);
        if usd.is_finite() && amount > MicroUsd::ZERO {
            return Some(amount);
        }
        self.bad_value(key, node, "an amount of dollars above 0");
        None
    }

    fn choice<T: Copy>(&mut self, key: &str, node: &YamlNode, choices: &[(&str, T)]) -> Option<T> {
        let word = match &node.value {
            YamlValue::Text(word) => word.as_str(),
            _ => node.raw.as_str(),
        };
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == word) {
            return Some(*value);
        }
        let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
        let meant = text::did_you_mean(text::head(word, 64), names.iter().copied());
        let wants = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
        if let Some(problem) = self.bad_value(key, node, &wants) {
            problem.hint = meant.map(|name| format!("did you mean `{name}`?"));
        }
        None
    }

    fn format(&mut self, node: &YamlNode) {
        if node.value != YamlValue::Int(FORMAT.into())
            && let Some(problem) = self.bad_value("format", node, &format!("`{FORMAT}`"))
        {
            problem.hint = Some("a newer ralph may read it: `ralph --version` says which one this is".to_owned());
        }
    }

    fn task_id(&mut self, node: &YamlNode) -> Option<String> {
        let id = self.text("task_id", node)?;
        let legal = id.len() <= 63
            && !id.starts_with('-')
            && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if legal {
            return Some(id);
        }
        if let Some(problem) = self.bad_value("task_id", node, "at most 63 of a-z, 0-9 and `-`, not starting with `-`")
        {
            let slug = text::slug(&id, 63);
            problem.hint = (!slug.is_empty()).then(|| format!("write `task_id: {slug}`"));
        }
        None
    }

    fn map<'e>(&mut self, key: &str, node: &'e YamlNode, names: &[&str]) -> Vec<&'e YamlEntry> {
        if let YamlValue::Map(entries) = &node.value {
            let known = self.known_entries(entries, names);
            return known.into_iter().filter(|entry| entry.node.value != YamlValue::Null).collect();
        }
        self.bad_value(key, node, &format!("a map of {}", names.join(", ")));
        Vec::new()
    }

    fn resources(&mut self, key: &str, node: &YamlNode) -> TaskResources {
        let mut resources = TaskResources::default();
        for YamlEntry { key, node, .. } in self.map(key, node, &["vcpu", "memory_gib", "disk_gib"]) {
            let number = self.small_integer(key, node, 1);
            match key.as_str() {
                "vcpu" => resources.vcpu = number,
                "memory_gib" => resources.memory_gib = number,
                _ => resources.disk_gib = number,
            }
        }
        resources
    }

    fn network(&mut self, key: &str, node: &YamlNode) -> TaskNetwork {
        let mut network = TaskNetwork::default();
        for YamlEntry { key, node, .. } in self.map(key, node, &["policy", "allow"]) {
            match key.as_str() {
                "policy" => {
                    let choices = PolicyMode::ALL.map(|mode| (mode.as_str(), mode));
                    network.policy = self.choice(key, node, &choices);
                }
                _ => network.allow = Some(self.list(key, node)),
            }
        }
        network
    }

    fn ladder(&mut self, key: &str, node: &YamlNode) -> Option<Vec<LadderRung>> {
        let YamlValue::List(items) = &node.value else {
            if let Some(problem) = self.bad_value(key, node, "a list of rungs") {
                problem.hint = Some(format!("write `{key}: [rotate, pause]`"));
            }
            return None;
        };
        let choices = LadderRung::ALL.map(|rung| (rung.as_str(), rung));
        let rungs: Vec<LadderRung> = items.iter().filter_map(|item| self.choice(key, item, &choices)).collect();
        if items.is_empty() || items.len() > MAX_RUNGS {
            self.bad_value(key, node, &format!("a list of 1 to {MAX_RUNGS} rungs"));
        }
        Some(rungs)
    }

    fn diagnose(&mut self, key: &str, node: &YamlNode) -> DiagnoseSettings {
        let mut diagnose = DiagnoseSettings::default();
        for YamlEntry { key, node, .. } in self.map(key, node, &["apply", "every"]) {
            match key.as_str() {
                "apply" => {
                    let choices = [("approve", ApplyMode::Approve), ("auto", ApplyMode::Auto)];
                    diagnose.apply = self.choice(key, node, &choices).unwrap_or_default();
                }
                _ => self.set_integer(&mut diagnose.every, key, node, 0),
            }
        }
        diagnose
    }

    fn pull_request(&mut self, key: &str, node: &YamlNode, spans: &mut BTreeMap<String, Span>) -> PullRequestSettings {
        const NAMES: [&str; 4] = ["draft", "labels", "title_template", "body_template"];
        let mut pr = PullRequestSettings::default();
        for YamlEntry { key, node, .. } in self.map(key, node, &NAMES) {
            spans.insert(format!("pr.{key}"), node.span);
            match key.as_str() {
                "draft" => pr.draft = self.flag(key, node).unwrap_or(true),
                "labels" => pr.labels = self.list(key, node),
                "title_template" => pr.title_template = self.text(key, node),
                _ => pr.body_template = self.text(key, node),
            }
        }
        pr
    }

    /// Parses issue numbers, written `24` or `"#24"`, as a list or alone.
    fn depends(&mut self, key: &str, node: &YamlNode) -> Vec<u64> {
        let items = match &node.value {
            YamlValue::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        };
        let mut numbers = Vec::new();
        for item in items {
            let number = match &item.value {
                YamlValue::Int(number) => u64::try_from(*number).ok(),
                YamlValue::Text(text) => text.trim().trim_start_matches('#').parse().ok(),
                _ => None,
            };
            match number.filter(|number| *number > 0) {
                Some(number) => numbers.push(number),
                None => {
                    self.bad_value(key, item, "a list of issue numbers");
                }
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}
