//! Tests a run requested with plain data, without a command line: loaded, linted, resolved, begun and driven.

use std::path::PathBuf;

use ralph_core::env_vars::Env;
use ralph_core::exit_code::RalphExitCode;
use ralph_engine::host_environment::HostContext;
use ralph_engine::run::{KeepSandbox, RunSpec, StopSignals, begin};
use ralph_engine::setup::{RunOverrides, RunRequest, SetupError, TASK_FILE, TaskInput, find_run_to_change, ralph_home};
use ralph_engine::store::SilentObserver;
use ralph_testkit::repo::TestRepo;

const TASK: &str = "\
---
task_id: request-001
test_command: \"true\"
max_iterations: 5
max_wall_time_minutes: 10
max_cost_usd_estimate: 1
---

# Write one file

- [ ] M1.1 There is a file out.txt
  - verify: `test -e out.txt`
- [ ] M1.2 It says done
  - verify: `grep -q done out.txt`
";

const MODELS: &str = "\
profiles:
  default-cheap:
    litellm_model: scripted/script.jsonl
    price: {input_per_mtok: 0.6, output_per_mtok: 2.2}
";

const SCRIPT: &str = r#"{"format": 1}
{"json": {"summary": "Done.", "actions": [{"type": "write", "path": "out.txt", "content": "done\n"}, {"type": "stop_success", "reason": "done"}], "claims": {"checkboxes_checked": ["M1.1", "M1.2"]}}}
"#;

/// A repository with a task below its top, and a user with a scripted model and a config.
async fn host() -> (TestRepo, HostContext) {
    let repo = TestRepo::with_commit();
    repo.write("tasks/write.md", TASK);
    repo.commit("a task");
    let config = repo.home().join(".config/ralph");
    std::fs::create_dir_all(&config).unwrap();
    for (name, text) in
        [("models.yaml", MODELS), ("script.jsonl", SCRIPT), ("config.toml", "[git]\nname = \"someone\"\n")]
    {
        std::fs::write(config.join(name), text).unwrap();
    }
    let env = [("PATH", std::env::var("PATH").unwrap()), ("HOME", repo.home().display().to_string())];
    let env = Env::new(env.map(|(name, value)| (name.to_owned(), value)));
    let host = HostContext::open(ralph_home(&env).unwrap(), env).await.unwrap();
    (repo, host)
}

fn request(dir: PathBuf, task: TaskInput) -> RunRequest {
    let overrides = RunOverrides { backend: Some("local".to_owned()), ..RunOverrides::default() };
    RunRequest { dir, task, overrides }
}

async fn resolve(host: &HostContext, request: RunRequest) -> Result<RunSpec, SetupError> {
    request.load(host).await?.lint(host).await?.resolve(host).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_becomes_a_verified_run() {
    for (task, task_path) in [
        (TaskInput::File("write.md".into()), "tasks/write.md"),
        (TaskInput::Text(TASK.replace("request-001", "request-002")), TASK_FILE),
    ] {
        let (repo, host) = host().await;
        let spec = resolve(&host, request(repo.path().join("tasks"), task)).await.unwrap();
        assert_eq!((spec.task_path.as_str(), spec.backend.as_str(), spec.budget.iterations), (task_path, "local", 5));
        assert_eq!(spec.identity.name, "someone", "the user's config counts");
        let (announce, stops) = (Box::new(SilentObserver), StopSignals::default());
        let mut runner = begin(&host, spec, announce, stops, KeepSandbox::Never).await.unwrap().runner;
        let state = runner.drive().await.unwrap();
        assert_eq!(state.exit(), RalphExitCode::Success, "{:?}", state.status);
        let branch = state.started.branch.clone();
        assert_eq!(repo.git(["show", &format!("{branch}:out.txt")]), "done");
        assert!(repo.git(["show", &format!("{branch}:{task_path}")]).contains("- [x] M1.2"));
        // The latest run of the given directory, whatever this process's own directory is.
        let found = find_run_to_change(&host.home, &repo.path().join("tasks"), "@").unwrap();
        assert_eq!(found.id(), state.id());
    }
}

#[tokio::test]
async fn refusals_name_the_next_step() {
    let (repo, host) = host().await;
    let text = |text: &str| TaskInput::Text(text.to_owned());
    let no_backend = RunRequest {
        overrides: RunOverrides { backend: Some("lokal".to_owned()), ..RunOverrides::default() },
        ..request(repo.path(), text(TASK))
    };
    for (request, message, hint) in [
        (request(repo.path(), TaskInput::DefaultFile), "there is no task file `ralph_task.md`", "`ralph init` writes"),
        (request(repo.path(), TaskInput::File("none.md".into())), "there is no task file `none.md`", "ralph init"),
        (request(repo.path(), text("# No front matter\n")), "`ralph_task.md` cannot be run as it is", ""),
        (no_backend, "there is no sandbox backend `lokal`", "did you mean `local`?"),
    ] {
        let error = resolve(&host, request).await.unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
        assert!(error.hint().unwrap().starts_with(hint), "{:?}", error.hint());
        assert_eq!(error.exit(), RalphExitCode::Usage, "{error}");
    }
    assert_eq!(host.home.run_ids().unwrap(), Vec::<String>::new(), "nothing was begun");
}
