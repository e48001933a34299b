//! The table of front-matter keys: `ralph help task-file` prints it and the parser accepts these keys.

/// One key of the front matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrontMatterKey {
    pub name: &'static str,
    /// The default value, in words.
    pub default: &'static str,
    pub meaning: &'static str,
}

const fn key(name: &'static str, default: &'static str, meaning: &'static str) -> FrontMatterKey {
    FrontMatterKey { name, default, meaning }
}

/// Every key a task may have, in the order of the help.
pub const TASK_KEYS: &[FrontMatterKey] = &[
    key("format", "1", "version of the task format"),
    key("task_id", "required", "name of the task, the same across resumes: a-z, 0-9 and dashes, at most 63"),
    key("repo_url", "the current repo", "https, ssh or file URL, or a path"),
    key("base_branch", "the current branch", "branch the run starts from and the pull request targets"),
    key("target_branch_prefix", "ralph/<task_id>/", "start of the branch name; must begin with ralph/"),
    key("target_branch_slug", "slug of the title", "rest of the branch name"),
    key("engine", "actions", "actions or agent"),
    key("agent", "claude", "agent program for `engine: agent`"),
    key("sandbox_provider", "from the config", "embedded, docker, microvm, tart, daytona or local"),
    key("sandbox_image", "the backend's", "image the sandbox starts from"),
    key("sandbox_resources", "the backend's", "vcpu, memory_gib, disk_gib"),
    key("sandbox_network", "the host's", "policy and allow; may only narrow the host's policy"),
    key("model_profile_default", "from the config", "profile of the normal iterations"),
    key("model_profile_fallback", "from the config", "profile to swap to when stuck"),
    key("model_profile_doctor", "from the config", "profile that writes diagnoses"),
    key("max_iterations", "30", "iterations after which the run ends"),
    key("max_wall_time_minutes", "120", "minutes after which the run ends, pauses not counted"),
    key("max_cost_usd_estimate", "10", "dollars after which the run ends"),
    key("max_tokens_total", "none", "tokens after which the run ends"),
    key(
        "max_consecutive_gutter",
        "3",
        "stuck iterations without progress, resumes or not, after which a run with no rung left fails",
    ),
    key("ladder", "from the config", "what is tried in turn when stuck: rotate, fallback, diagnose, pause, give-up"),
    key("test_command", "required", "the command that must succeed for the task to succeed"),
    key("verify_commands", "[]", "further commands; they cover checkboxes without a proof of their own"),
    key("test_every", "iteration", "when test_command runs: iteration or claim"),
    key("proof_timeout_s", "600", "seconds one proof may take"),
    key("min_checkboxes", "2", "fewest checkboxes the linter accepts"),
    key("min_changed_lines", "1", "fewest changed lines that count as work"),
    key("protected_paths", "[]", "globs of files the run must not change; `!path` frees one that its checks use"),
    key("may_change", "[]", "globs of tests and test settings whose changes by the run count in its checks"),
    key("commit_state", "false", "keep .ralph/ in the commits"),
    key(
        "diagnose",
        "{apply: approve, every: 0}",
        "how often to diagnose; with `auto`, signs, stricter tasks and profiles need no approval, weaker ones always do",
    ),
    key("pr", "{draft: true}", "draft, labels, title_template, body_template"),
];

/// Keys of the task format that this version refuses, because they would have no effect, with the reason.
pub(super) const KEYS_WITHOUT_EFFECT: [(&str, &str); 4] = [
    ("mode", "every run is autonomous; `ralph pause`, `ralph note` and `ralph stop` steer it"),
    (
        "debug_commands",
        "there is no debug mode; write them into `verify_commands`, or run them with `ralph sandbox exec`",
    ),
    ("wait_for_ci", "a run ends with its own proofs and does not wait for CI"),
    ("required_checks", "a run ends with its own proofs and does not wait for CI"),
];

/// The keys only an issue may have.
pub const ISSUE_KEYS: &[FrontMatterKey] = &[
    key("branch", "ralph/<task_id>/<slug>", "branch of the issue"),
    key("base", "remote HEAD", "branch the pull request targets"),
    key("depends", "[]", "numbers of the issues that must be done first"),
];
