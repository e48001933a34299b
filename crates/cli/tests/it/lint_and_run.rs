//! Tests that `ralph lint` refuses the tasks that `ralph run` refuses, with the same words, and no others.

use ralph_testkit::home::{TASK, TestHome};

use crate::cli_harness::{ProcessOutput, RalphHarness, answer, commit, write};

/// Returns the line that says what is wrong.
fn error_line(output: &ProcessOutput) -> String {
    let line = output.stderr.lines().rfind(|line| line.starts_with("ralph: "));
    line.unwrap_or_default().to_owned()
}

/// Lints and runs a task with these keys in its front matter, under this config. `None` is a task that both accept.
#[track_caller]
fn check(keys: &str, config: &str, flags: &[&str], want: Option<&str>) {
    let home = TestHome::with_task(&TASK.replacen("max_iterations: 1\n", keys, 1));
    home.config("config.toml", &format!("[model]\ndefault = 'lab'\n{config}"));
    let work = [write("one.txt", "1"), write("two.txt", "2"), commit("count")];
    let ralph = RalphHarness::with_home(home, &[answer(&work, &["M1.1", "M1.2"])]);
    let call = |command: &str| ralph.ralph(&[&[command], flags].concat());
    let (linted, ran) = (call("lint"), call("run"));
    let (says_lint, says_run) = (error_line(&linted), error_line(&ran));
    match want {
        None => assert_eq!((linted.code, ran.code), (Some(0), Some(0)), "{keys}: {}\n{}", linted.stderr, ran.stderr),
        Some(want) => {
            assert!(linted.code != Some(0) && linted.code == ran.code, "{keys}: {} {}", linted.stderr, ran.stderr);
            assert_eq!(says_lint, says_run, "{keys}");
            assert!(linted.stderr.contains(want), "{keys}: {}", linted.stderr);
        }
    }
}

#[test]
fn both_agree() {
    let one = "max_iterations: 1\n";
    let with = |keys: &str| format!("{one}{keys}\n");
    check(one, "", &[], None);
    check(&with("sandbox_network: {policy: deny}"), "", &[], None);
    for (keys, want) in [
        ("sandbox_network: {policy: nonsense}", "`policy` must be `deny` or `allowlist` or `open`, not `nonsense`"),
        ("sandbox_network: {policy: open}", "asks for `sandbox.network.policy = open`"),
        ("sandbox_network: {policy: allowlist, allow: [a.example.com]}", "asks for `sandbox.network.allowed"),
        ("sandbox_provider: docker", "there is no backend `docker`"),
        ("base_branch: nowhere", "nowhere"),
        ("model_profile_default: nobody", "nobody"),
        ("engine: agent\nagent: nobody", "nobody"),
        ("max_tokens_total: 900000\nmax_consecutive_gutter: 900", "max_consecutive_gutter"),
        ("mode: debug", "`mode` would have no effect"),
        ("debug_commands: [ls]", "`debug_commands` would have no effect"),
        ("pr: {wait_for_ci: true}", "`wait_for_ci` would have no effect"),
        ("ladder: [sleep]", "`ladder` must be"),
    ] {
        check(&with(keys), "[budget]\nmax_consecutive_gutter = 5\n", &[], Some(want));
    }
    for (config, want) in [
        ("[lint]\nmin_checkboxes = 5\n", "few-checkboxes"),
        ("[budget]\nmax_iterations = 1\nmax_cost_usd = 0.5\n", "budget.max_cost_usd"),
        ("[sandbox]\nreuse_container = true\n", "`sandbox.reuse_container` would have no effect"),
        ("[sandbox]\nenabled = false\n", "`sandbox.enabled` would have no effect"),
        ("[sandbox.network]\nenforcement = 'proxy'\n", "`sandbox.network.enforcement` would have no effect"),
        ("[sandbox]\nbackend = 'docker'\n", "backend `docker` is not available"),
    ] {
        check(one, config, &[], Some(want));
    }
    let denied = ["--network", "deny", "--allow-host", "a.example.com"];
    check(one, "", &denied, Some("ralph: "));
    check(one, "", &["--lend", "NO_SUCH_SECRET=a.example.com"], Some("NO_SUCH_SECRET"));
    // The flag of the hint works for both.
    check(&with("sandbox_network: {policy: open}"), "", &["--network", "open"], None);
    check(one, "[budget]\nmax_cost_usd = 0.5\n", &["--max-cost", "1"], None);
}
