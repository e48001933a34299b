//! Tests error messages: one line, one next step, the right exit code, nothing left behind.

use insta::assert_snapshot;

use crate::repo_fixture::{CliOutput, RepoFixture};

/// Checks the shape of every error: `ralph:`, causes, a blank line, `hint:`.
#[track_caller]
fn assert_error_shape(output: &CliOutput) {
    let from = output.stderr.find("ralph: ").unwrap_or_else(|| panic!("no `ralph:` line in\n{output}"));
    let mut lines = output.stderr[from..].lines().skip(1).skip_while(|line| line.starts_with("  caused by: "));
    assert_eq!(lines.next(), Some(""), "no blank line in\n{output}");
    assert!(lines.next().is_some_and(|line| line.starts_with("hint: ")), "no hint in\n{output}");
    assert!(lines.all(|line| line.starts_with("log: ")), "more after the hint in\n{output}");
    assert!(!output.stderr.contains("rror: "), "two ways to say error in\n{output}");
    assert_eq!(output.stdout, "", "data beside an error");
}

#[track_caller]
fn check_refused(fixture: &RepoFixture, args: &[&str]) -> String {
    let output = fixture.ralph(args);
    assert_error_shape(&output);
    output.to_string()
}

#[test]
fn command_lines() {
    let fixture = RepoFixture::new();
    assert_snapshot!(check_refused(&fixture, &["rnu"]), @"
    exit 2
    --- stderr
    ralph: there is no command `ralph rnu`

    hint: did you mean `ralph run`?
    ");
    assert_snapshot!(check_refused(&fixture, &["frobnicate"]), @"
    exit 2
    --- stderr
    ralph: there is no command `ralph frobnicate`

    hint: ralph --help
    ");
    assert_snapshot!(check_refused(&fixture, &["config", "shw"]), @"
    exit 2
    --- stderr
    ralph: there is no command `ralph config shw`

    hint: did you mean `ralph config show`?
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--max-cst", "3"]), @"
    exit 2
    --- stderr
    ralph: `ralph run` takes no flag `--max-cst`

    hint: did you mean `--max-cost`?
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--max-cost", "-3"]), @"
    exit 2
    --- stderr
    ralph: `-3` is not a value of `--max-cost <USD>`: it takes dollars, zero or more, like 2.50

    hint: ralph run --help
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--max-cost", "nan"]), @"
    exit 2
    --- stderr
    ralph: `nan` is not a value of `--max-cost <USD>`: it takes dollars, zero or more, like 2.50

    hint: ralph run --help
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--max-iterations", "0"]), @"
    exit 2
    --- stderr
    ralph: `0` is not a value of `--max-iterations <N>`: it takes a whole number, 1 or more

    hint: ralph run --help
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--network", "wide"]), @"
    exit 2
    --- stderr
    ralph: `wide` is not a value of `--network <POLICY>`: it is one of deny, allowlist, open

    hint: ralph run --help
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--profile"]), @"
    exit 2
    --- stderr
    ralph: `--profile <NAME>` needs a value

    hint: ralph run --help
    ");
    assert_snapshot!(check_refused(&fixture, &["logs", "@", "--iteration", "x"]), @"
    exit 2
    --- stderr
    ralph: `x` is not a value of `--iteration <N>`: it takes a whole number, 1 or more

    hint: ralph logs --help
    ");
    assert_snapshot!(check_refused(&fixture, &["completions", "tcsh"]), @"
    exit 2
    --- stderr
    ralph: `tcsh` is not a value of `<SHELL>`

    hint: it is one of bash, elvish, fish, powershell, zsh
    ");
    assert_snapshot!(check_refused(&fixture, &["--color", "sometimes", "ls"]), @"
    exit 2
    --- stderr
    ralph: `sometimes` is not a value of `--color <WHEN>`

    hint: it is one of auto, always, never
    ");
    assert_snapshot!(check_refused(&fixture, &["show"]), @"
    exit 2
    --- stderr
    ralph: `ralph show` needs <RUN>

    hint: ralph show --help
    ");
    assert_snapshot!(check_refused(&fixture, &["note", "@"]), @"
    exit 2
    --- stderr
    ralph: `ralph note` needs <TEXT>...

    hint: ralph note --help
    ");
    assert_snapshot!(check_refused(&fixture, &["ls", "extra"]), @"
    exit 2
    --- stderr
    ralph: `ralph ls` takes no argument `extra`

    hint: ralph ls --help
    ");
    assert_snapshot!(check_refused(&fixture, &["help", "exit-code"]), @"
    exit 2
    --- stderr
    ralph: there is no topic `exit-code`

    hint: ralph help exit-codes
    ");
    assert_snapshot!(check_refused(&fixture, &["man", "shwo"]), @"
    exit 2
    --- stderr
    ralph: there is no command `ralph shwo`

    hint: did you mean `ralph show`?
    ");
    assert_snapshot!(fixture.ralph(&["--json", "shwo"]), @r#"
    exit 2
    --- stdout
    {"error":{"kind":"usage","message":"there is no command `ralph shwo`","causes":[],"hint":"did you mean `ralph show`?","log":null}}
    "#);
}

#[test]
fn places() {
    let fixture = RepoFixture::new();
    let output = fixture.ralph_in("nowhere", &["run"]);
    assert_error_shape(&output);
    assert_snapshot!(output, @r#"
    exit 2
    --- stderr
    ralph: `HOME/nowhere` is not in a git work tree

    hint: go to a checkout, or make one: git init && git commit --allow-empty -m "first commit"
    "#);
    for command in ["init", "lint", "trust"] {
        assert_eq!(fixture.ralph_in("nowhere", &[command]), output, "{command}");
    }
    fixture.repo.git(["init", "--quiet", "--bare", "../home/bare"]);
    let output = fixture.ralph_in("bare", &["run"]);
    assert_error_shape(&output);
    assert_snapshot!(output, @r#"
    exit 2
    --- stderr
    ralph: `HOME/bare` is not in a git work tree

    hint: go to a checkout, or make one: git init && git commit --allow-empty -m "first commit"
    "#);
    fixture.repo.git(["init", "--quiet", "../home/empty"]);
    let output = fixture.ralph_in("empty", &["run"]);
    assert_error_shape(&output);
    assert_snapshot!(output, @"
    exit 2
    --- stderr
    ralph: there is no task file `ralph_task.md`

    hint: `ralph init` writes one; or name another: ralph run PATH
    ");
}

#[test]
fn homes() {
    let fixture = RepoFixture::with_task();
    let unset = fixture.output_of(&fixture.command(&["ls"]).env_remove("HOME").output().unwrap());
    assert_error_shape(&unset);
    assert_snapshot!(unset, @"
    exit 6
    --- stderr
    ralph: neither `HOME` nor the XDG folders are absolute paths, so there is no place for runs

    hint: export HOME=/path/to/your/home
    ");
    assert_eq!(fixture.ralph_with(&[("HOME", "relative")], &["ls"]), unset);
    assert!(!fixture.repo.path().join("relative").exists());
    let odd = fixture.ralph_with(&[("RALPH_STATE_DIR", "relative")], &["ls"]);
    assert_error_shape(&odd);
    assert_snapshot!(odd, @r#"
    exit 2
    --- stderr
    ralph: `RALPH_STATE_DIR` is `relative`, which is not an absolute path

    hint: export RALPH_STATE_DIR="$PWD/relative"
    "#);
    let closed = fixture.ralph_with(&[("XDG_STATE_HOME", "/dev/null")], &["run"]);
    assert_snapshot!(closed, @"
    exit 1
    --- stderr
    ralph: could not read `/dev/null/ralph/runs`
      caused by: Not a directory (os error 20)

    hint: check that the folder exists and that you can write to it; `ralph config path` lists ralph's own
    ");
    let demo = fixture.repo.home().join("demo");
    let closed = fixture.ralph_with(&[("RALPH_STATE_DIR", "/dev/null/x")], &["demo", "--dir", demo.to_str().unwrap()]);
    assert_eq!(closed.code, 1, "{closed}");
    assert!(!demo.exists(), "a demo that could not begin stays behind");
    let elsewhere = fixture.repo.home().join("elsewhere");
    let ran = fixture.ralph_with(&[("RALPH_STATE_DIR", elsewhere.to_str().unwrap())], &["run"]);
    assert_eq!(ran.code, 0, "{ran}");
    assert!(elsewhere.join("runs").is_dir() && fixture.runs().is_empty());
}

#[test]
fn programs() {
    let fixture = RepoFixture::new();
    let output = fixture.ralph_with(&[("PATH", "/nonexistent")], &["ls"]);
    assert_error_shape(&output);
    assert_snapshot!(output, @"
    exit 6
    --- stderr
    ralph: `git` is not installed

    hint: install git 2.34 or newer, then try again
    ");
}

#[test]
fn task_files() {
    let fixture = RepoFixture::new();
    assert_snapshot!(check_refused(&fixture, &["run"]), @"
    exit 2
    --- stderr
    ralph: there is no task file `ralph_task.md`

    hint: `ralph init` writes one; or name another: ralph run PATH
    ");
    assert_snapshot!(check_refused(&fixture, &["lint"]), @"
    exit 2
    --- stderr
    ralph: there is no task file `ralph_task.md`

    hint: `ralph init` writes one; or name another: ralph run PATH
    ");
    assert_snapshot!(check_refused(&fixture, &["lint", "tasks/nope.md"]), @"
    exit 2
    --- stderr
    ralph: there is no task file `tasks/nope.md`

    hint: ralph init
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "src"]), @"
    exit 2
    --- stderr
    ralph: could not read the task file `src`
      caused by: Is a directory (os error 21)

    hint: name a Markdown file in UTF-8: ralph run PATH
    ");
    fixture.repo.write("bin.md", [0xff, 0xfe, 0]);
    assert_snapshot!(check_refused(&fixture, &["run", "bin.md"]), @"
    exit 2
    --- stderr
    ralph: could not read the task file `bin.md`
      caused by: stream did not contain valid UTF-8

    hint: name a Markdown file in UTF-8: ralph run PATH
    ");
    std::fs::write(fixture.repo.home().join("out side.md"), "x").unwrap();
    assert_snapshot!(check_refused(&fixture, &["run", "../home/out side.md"]), @"
    exit 2
    --- stderr
    ralph: the task file `../home/out side.md` is outside the repository `REPO`

    hint: cp '../home/out side.md' REPO
    ");
    std::os::unix::fs::symlink("../home/out side.md", fixture.repo.path().join("link.md")).unwrap();
    assert_snapshot!(check_refused(&fixture, &["run", "link.md"]), @"
    exit 2
    --- stderr
    ralph: the task file `HOME/out side.md` is outside the repository `REPO`

    hint: cp 'HOME/out side.md' REPO
    ");
    fixture.repo.write("broken.md", "---\ntask_id: t1\n test_command: [\n---\n# X\n- [ ] a\n");
    assert_snapshot!(fixture.ralph(&["run", "broken.md"]), @"
    exit 2
    --- stderr
    error[front-matter]: front matter is not YAML: mapping values are not allowed in this context
     --> broken.md:3:14
      |
    3 |  test_command: [
      |              ^
      |
    help: correct it; `ralph help task-file` shows the format
    ralph: `broken.md` cannot be run as it is: 1 error

    hint: fix the file as described above; `ralph help task-file` shows the format
    ");
    assert_snapshot!(fixture.ralph(&["run", "broken.md", "--json"]), @r#"
    exit 2
    --- stdout
    {"error":{"kind":"usage","message":"`broken.md` cannot be run as it is: 1 error","causes":["front matter is not YAML: mapping values are not allowed in this context"],"hint":"fix the file as described above; `ralph help task-file` shows the format","log":null}}
    "#);
    assert_snapshot!(fixture.ralph(&["lint", "broken.md", "--json"]), @r#"
    exit 2
    --- stdout
    {"format":1,"file":"broken.md","findings":[{"rule":"front-matter","severity":"error","span":{"start":29,"end":29},"line":3,"column":14,"message":"front matter is not YAML: mapping values are not allowed in this context","fix":"correct it; `ralph help task-file` shows the format"}]}
    "#);
    fixture.repo.write("text.md", "just text\n");
    assert_snapshot!(fixture.ralph(&["lint", "text.md"]), @"
    exit 2
    --- stderr
    error[front-matter]: the task has no front matter
     --> text.md:1:1
      |
    1 | just text
      | ^^^^^^^^^
      |
    help: start the file with a `---` line, the keys, and another `---` line; `ralph init` writes one
    ralph: `text.md` cannot be run as it is: 1 error

    hint: fix the file as described above; `ralph help task-file` shows the format
    ");
    assert_eq!(fixture.runs(), Vec::<String>::new());
}

#[test]
fn crlf_and_unicode() {
    let fixture = RepoFixture::with_task();
    let task = fixture.repo.read("ralph_task.md").unwrap();
    fixture.repo.write("tâche été.md", task.replace('\n', "\r\n"));
    assert_snapshot!(fixture.ralph(&["lint", "tâche été.md"]), @"
    exit 0
    --- stderr
    ✓ tâche été.md is ready to run
    ");
    let output = fixture.ralph(&["run", "tâche été.md"]);
    assert_eq!(output.code, 0, "{output}");
}

#[test]
fn models() {
    let fixture = RepoFixture::with_task();
    std::fs::remove_file(fixture.repo.home().join(".config/ralph/models.yaml")).unwrap();
    assert_snapshot!(check_refused(&fixture, &["run"]), @"
    exit 4
    --- stderr
    ralph: `ZAI_API_KEY` is not set, and profile `default-cheap` needs it

    hint: ralph secret set ZAI_API_KEY, or export it, or put it into `.env`
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--profile", "nope"]), @"
    exit 2
    --- stderr
    ralph: there is no model profile `nope`

    hint: the profiles are claude, codex-like, default-cheap, gemini, local, strong-doctor
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--profile", "default-chep"]), @"
    exit 2
    --- stderr
    ralph: there is no model profile `default-chep`

    hint: did you mean `default-cheap`?
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--profile", "claude"]), @"
    exit 4
    --- stderr
    ralph: `ANTHROPIC_API_KEY` is not set, and profile `claude` needs it

    hint: ralph secret set ANTHROPIC_API_KEY, or export it, or put it into `.env`
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--engine", "agent"]), @"
    exit 2
    --- stderr
    ralph: profile `default-cheap` cannot be used: its provider's protocol is OpenAI's chat completions, and the agent `claude` supports Anthropic's messages; choose a profile whose provider the agent supports

    hint: choose another with `--profile NAME`, or correct it in `models.yaml`
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--agent", "claude", "--profile", "claude"]), @"
    exit 4
    --- stderr
    ralph: `ANTHROPIC_API_KEY` is not set, and profile `claude` needs it

    hint: ralph secret set ANTHROPIC_API_KEY, or export it, or put it into `.env`
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--engine", "magic"]), @"
    exit 2
    --- stderr
    ralph: there is no engine `magic`

    hint: use `--engine actions` or `--engine agent`
    ");
    let key = [("ZAI_API_KEY", "sk-not-a-real-key")];
    let docker = fixture.ralph_with(&key, &["run", "--backend", "docker"]);
    assert_error_shape(&docker);
    assert_snapshot!(docker, @"
    exit 6
    --- stderr
    ralph: backend `docker` is not available in this ralph

    hint: use the default, `--backend embedded`; `ralph doctor` says what this machine can do
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--backend", "dokcer"]), @"
    exit 2
    --- stderr
    ralph: there is no sandbox backend `dokcer`

    hint: did you mean `docker`?
    ");
    fixture.repo.write("config/models.yaml", "profiles: [\n");
    assert_snapshot!(check_refused(&fixture, &["run"]), @"
    exit 2
    --- stderr
    ralph: model profiles could not be read
      caused by: config/models.yaml:1:11: expected mapping start

    hint: correct it in config/models.yaml
    ");
    fixture.repo.write(
        "config/models.yaml",
        "profiles:\n  far: {litellm_model: openai/x, base_url: 'https://far.example/v1'}\n",
    );
    assert_snapshot!(check_refused(&fixture, &["run", "--profile", "far"]), @"
    exit 2
    --- stderr
    ralph: model profile `far` of config/models.yaml sets base_url, and that file is not trusted

    hint: read config/models.yaml, then run `ralph trust`
    ");
    let asked = fixture.ralph(&["trust"]);
    assert_snapshot!(asked, @"
    exit 2
    --- stderr
    config/models.yaml can send your keys to:
      far: the provider's usual key to https://far.example/v1
    ralph: there is no terminal on which to confirm it

    hint: ralph trust --yes
    ");
    assert_snapshot!(fixture.ralph(&["trust", "--yes", "--json"]), @r#"
    exit 0
    --- stdout
    {"format":1,"trusted":["config/models.yaml"]}
    --- stderr
    config/models.yaml can send your keys to:
      far: the provider's usual key to https://far.example/v1
    config/models.yaml is trusted until it changes
    "#);
    assert_snapshot!(fixture.ralph(&["trust"]), @"
    exit 0
    --- stderr
    nothing here needs trust
    ");
    assert_eq!(fixture.runs(), Vec::<String>::new(), "something half-made stays behind");
}

#[test]
fn configs() {
    let fixture = RepoFixture::with_task();
    fixture.config("config.toml", "[budget]\nmax_cost_usd = \"x");
    assert_snapshot!(check_refused(&fixture, &["run"]), @r#"
    exit 2
    --- stderr
    ralph: HOME/.config/ralph/config.toml:2:18: invalid basic string, expected `"`

    hint: `ralph config schema` lists every key and what it takes
    "#);
    fixture.config("config.toml", "[budgett]\nmax_cost_usd = 1\n");
    assert_snapshot!(check_refused(&fixture, &["config", "show"]), @"
    exit 2
    --- stderr
    ralph: HOME/.config/ralph/config.toml:1:2: unknown key `budgett`

    hint: did you mean `budget`?
    ");
    fixture.config("config.toml", "[budget]\nmax_cost_usd = -1\n");
    assert_snapshot!(check_refused(&fixture, &["config", "show"]), @"
    exit 2
    --- stderr
    ralph: HOME/.config/ralph/config.toml:2:16: dollars are a number, zero or more

    hint: `ralph config schema` lists every key and what it takes
    ");
    fixture.config("config.toml", "");
    let output = fixture.ralph_with(&[("RALPH_MAX_COST", "much")], &["run"]);
    assert_error_shape(&output);
    assert_snapshot!(output, @"
    exit 2
    --- stderr
    ralph: the environment variable `RALPH_MAX_COST` is not an amount of dollars

    hint: RALPH_MAX_COST=2.50
    ");
    let output = fixture.ralph_with(&[("RALPH_BACKEND", "dokcer")], &["run"]);
    assert_error_shape(&output);
    assert_snapshot!(output, @"
    exit 2
    --- stderr
    ralph: the environment variable `RALPH_BACKEND` is not a backend: there is no sandbox backend `dokcer`

    hint: did you mean `docker`?
    ");
}

/// A task that asks for more than the user allows is refused with a hint that names a flag, and that flag works.
#[test]
fn task_cannot_widen_limits() {
    #[track_caller]
    fn check(fixture: &RepoFixture, keys: &str, config: &str, want: &str, flags: &[&str], pinned: &str) {
        let task = fixture.repo.read("ralph_task.md").unwrap();
        let task = task.replacen("test_command", &format!("{keys}test_command"), 1);
        fixture.repo.write("wide.md", task);
        fixture.config("config.toml", config);
        let output = fixture.ralph(&["run", "wide.md"]);
        assert_error_shape(&output);
        assert_eq!((output.code, output.stderr.as_str()), (2, want));
        assert!(want.contains(&flags.join(" ")), "the flag is not the one of the hint");
        let mut args = vec!["run", "wide.md", "--json"];
        args.extend(flags);
        let output = fixture.command(&args).output().unwrap();
        let first = String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned();
        assert!(first.contains(pinned), "{pinned} is not in {first}");
    }
    let fixture = RepoFixture::with_task();
    check(
        &fixture,
        "sandbox_provider: local\n",
        "[sandbox]\nbackend = 'docker'\n",
        "ralph: task wide.md asks for `sandbox.backend = local`, but user HOME/.config/ralph/config.toml allows nothing weaker than docker\n\nhint: to allow it for this run, add `--backend local`\n",
        &["--backend", "local"],
        r#""backend":"local""#,
    );
    check(
        &fixture,
        "sandbox_network: {policy: open}\n",
        "",
        "ralph: task wide.md asks for `sandbox.network.policy = open`, but built-in allows only deny\n\nhint: to allow it for this run, add `--network open`\n",
        &["--network", "open"],
        r#""policy":{"mode":"open","allow":[],"deny":[]}"#,
    );
    check(
        &fixture,
        "sandbox_network: {policy: allowlist, allow: [a.example.com]}\n",
        "",
        "ralph: task wide.md asks for `sandbox.network.allowed = a.example.com`, but built-in allows no such host\n\nhint: to allow it for this run, add `--allow-host a.example.com`\n",
        &["--allow-host", "a.example.com"],
        r#""policy":{"mode":"allowlist","allow":["a.example.com"],"deny":[]}"#,
    );
    check(
        &fixture,
        "",
        "[budget]\nmax_cost_usd = 0.5\n",
        "ralph: task wide.md asks for `budget.max_cost_usd = 1`, but user HOME/.config/ralph/config.toml allows at most 0.5\n\nhint: to allow it for this run, add `--max-cost 1`\n",
        &["--max-cost", "1"],
        r#""cost":1000000"#,
    );
    check(
        &fixture,
        "",
        "[budget]\nmax_iterations = 2\n",
        "ralph: task wide.md asks for `budget.max_iterations = 5`, but user HOME/.config/ralph/config.toml allows at most 2\n\nhint: to allow it for this run, add `--max-iterations 5`\n",
        &["--max-iterations", "5"],
        r#""iterations":5"#,
    );
    check(
        &fixture,
        "",
        "[budget]\nmax_wall_time_minutes = 3\n",
        "ralph: task wide.md asks for `budget.max_wall_time_minutes = 10`, but user HOME/.config/ralph/config.toml allows at most 3\n\nhint: to allow it for this run, add `--max-wall-time-minutes 10`\n",
        &["--max-wall-time-minutes", "10"],
        r#""wall_ms":600000"#,
    );
    check(
        &fixture,
        "max_tokens_total: 900000\n",
        "[budget]\nmax_tokens = 800000\n",
        "ralph: task wide.md asks for `budget.max_tokens = 900000`, but user HOME/.config/ralph/config.toml allows at most 800000\n\nhint: to allow it for this run, add `--max-tokens 900000`\n",
        &["--max-tokens", "900000"],
        r#""tokens":900000"#,
    );
    fixture.config("config.toml", "");
    assert_snapshot!(check_refused(&fixture, &["run", "--network", "deny", "--allow-host", "a.example.com"]), @"
    exit 2
    --- stderr
    ralph: `--allow-host` adds to a network that `--network deny` takes away

    hint: use `--network allowlist`, or omit `--network`
    ");
    assert_snapshot!(check_refused(&fixture, &["run", "--allow-host", "*"]), @"
    exit 2
    --- stderr
    ralph: rule `*` would match every host

    hint: name the hosts, or request the policy `open` explicitly
    ");
}

#[test]
fn missing_runs() {
    let fixture = RepoFixture::new();
    for command in ["show", "logs", "diff", "pause", "resume", "rotate", "stop", "verify"] {
        assert_eq!(
            check_refused(&fixture, &[command, "@"]),
            "exit 2\n--- stderr\nralph: there are no runs yet\n\nhint: `ralph run` starts one, `ralph demo` shows one\n",
            "{command}"
        );
    }
    assert_snapshot!(check_refused(&fixture, &["show", "zzz"]), @"
    exit 2
    --- stderr
    ralph: there is no run `zzz`

    hint: ralph ls
    ");
    assert_snapshot!(fixture.ralph(&["show", "@", "--json"]), @r#"
    exit 2
    --- stdout
    {"error":{"kind":"usage","message":"there are no runs yet","causes":[],"hint":"`ralph run` starts one, `ralph demo` shows one","log":null}}
    "#);
    assert_snapshot!(check_refused(&fixture, &["adopt", "nothing"]), @"
    exit 2
    --- stderr
    ralph: there is no sandbox `nothing`

    hint: ralph sandbox ls
    ");
    assert_snapshot!(check_refused(&fixture, &["sandbox", "rm", "nothing"]), @"
    exit 2
    --- stderr
    ralph: there is no sandbox `nothing`

    hint: ralph sandbox ls
    ");
    assert_snapshot!(check_refused(&fixture, &["verify", "nothing"]), @"
    exit 2
    --- stderr
    ralph: there is no receipt: `nothing` is not a receipt file, a run, or a commit with a receipt

    hint: `ralph ls` lists the runs
    ");
    assert_snapshot!(check_refused(&fixture, &["verify", "https://example.com/pull/1"]), @"
    exit 2
    --- stderr
    ralph: there is no receipt: this version cannot read pull requests of a forge

    hint: fetch the branch, then use its name instead of the URL
    ");
}

#[test]
fn unreadable_histories() {
    let fixture = RepoFixture::with_task();
    fixture.ralph(&["run", "--max-iterations", "1"]);
    let run = fixture.runs().remove(0);
    let events = fixture.state().join("runs").join(&run).join("events.jsonl");
    let good = std::fs::read_to_string(&events).unwrap();
    std::fs::write(&events, format!("{good}garbage\n")).unwrap();
    let number = good.lines().count() + 1;
    let refused = |args: &[&str]| check_refused(&fixture, args).replace(&format!("event {number} "), "event N ");
    assert_snapshot!(refused(&["show", &run]), @"
    exit 1
    --- stderr
    ralph: event N of run `RUN1` cannot be read
      caused by: the line is not a known event
      caused by: expected value at line 1 column 1

    hint: `ralph logs RUN1` shows what can still be read
    ");
    assert_snapshot!(fixture.ralph(&["ls"]).to_string().replace(&format!("event {number} "), "event N "), @"
    exit 0
    --- stderr
    ! event N of run `RUN1` cannot be read: the line is not a known event
    ");
    let logs = fixture.ralph(&["logs", &run]);
    assert_eq!(logs.stdout.lines().last().map(str::trim_start), Some("next: ralph resume RUN1 --add-iterations 10"));
    assert_snapshot!(logs.stderr.replace(&format!("event {number} "), "event N "), @"
    ralph: event N of run `RUN1` cannot be read
      caused by: the line is not a known event
      caused by: expected value at line 1 column 1

    hint: look at the file itself: HOME/.local/state/ralph/runs/RUN1/events.jsonl
    ");
    std::fs::write(&events, good.replacen("\"format\":1", "\"format\":99", 1)).unwrap();
    let newer = check_refused(&fixture, &["show", &run]);
    assert_snapshot!(newer, @"
    exit 1
    --- stderr
    ralph: event 1 of run `RUN1` cannot be read
      caused by: the run was written in format 99, and this ralph reads up to 1

    hint: upgrade ralph, or look at the run with the version that made it
    ");
    for command in ["logs", "resume", "stop"] {
        assert_eq!(check_refused(&fixture, &[command, &run]), newer, "{command}");
    }
    std::fs::write(&events, "").unwrap();
    assert_snapshot!(check_refused(&fixture, &["show", &run]), @"
    exit 2
    --- stderr
    ralph: there is no run `RUN1`

    hint: ralph ls
    ");
}

/// `@` is the latest run of the current repository; it never stops another repository's run.
#[test]
fn at_sign_is_the_latest_run_of_the_repository() {
    let fixture = RepoFixture::with_task();
    fixture.ralph(&["run"]);
    let other = "elsewhere";
    std::fs::create_dir_all(fixture.repo.home().join(other).join(".git")).unwrap();
    assert!(fixture.ralph_in(other, &["show", "@"]).to_string().starts_with("exit 0"));
    for args in [["stop", "@"], ["resume", "@"], ["pause", "@"]] {
        let output = fixture.ralph_in(other, &args).to_string();
        assert!(output.starts_with("exit 2") && output.contains("no run of this repository yet"), "{args:?}: {output}");
    }
    let inner = fixture.repo.path().join("inner");
    assert!(fixture.ralph_in(inner.to_str().unwrap(), &["stop", "@"]).to_string().contains("it has succeeded"));
}

/// Output that cannot be written is lost, and the exit code is not success.
#[test]
fn a_full_disk_is_reported() {
    let fixture = RepoFixture::with_task();
    fixture.ralph(&["run"]);
    for args in [["diff", "@"], ["logs", "@"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = fixture.command(&args).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {stderr}");
        assert!(stderr.contains("the output could not be written"), "{args:?}: {stderr}");
    }
}
