//! Tests the output of successful runs: text for people, JSON for programs, the state afterwards.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use insta::assert_snapshot;

use crate::repo_fixture::RepoFixture;

#[test]
fn a_run_and_everything_about_it() {
    let fixture = RepoFixture::with_task();
    assert_snapshot!(fixture.ralph(&["lint"]), @"
    exit 0
    --- stderr
    ✓ ralph_task.md is ready to run
    ");
    assert_snapshot!(fixture.ralph(&["run"]), @"
    exit 0
    --- stderr
    TIME run RUN1 · Write one file · branch ralph/small-001/write-one-file
    TIME sandbox agent-loop-actions-ralph-small-001-write-one-file is ready (embedded)
    TIME red first: 2 of 2 checks fail on the base commit, as they should
    TIME iteration 1/5 with default-cheap
    TIME   scripted/script.jsonl answered: 2 actions, 2375 tokens, $0.001513
    TIME   ✓ action 1 one.txt: 4 bytes N ms
    TIME   ✓ action 2 SHA N ms
    TIME   ✗ check test M1.2: `sh tests/two.sh` exit 1 N ms
    TIME   ✓ check M1.1: `sh tests/one.sh` exit 0 N ms
    TIME   imported 2 commits up to SHA
    TIME   ! claimed M1.2 without proof: not ticked
    TIME   progress, 1/2 boxes verified: Half of it.
    TIME pushed ralph/small-001/write-one-file at SHA to REPO
    TIME ✓ pull request opened: file://HOME/.local/state/ralph/runs/RUN1/pull-request.md
    TIME iteration 2/5 with default-cheap
    TIME   scripted/script.jsonl answered: 3 actions, 2500 tokens, $0.001604
    TIME   ✓ action 1 one.txt: 8 bytes N ms
    TIME   ✓ action 2 SHA N ms
    TIME   ✓ action 3 done N ms
    TIME   ✓ check test M1.2: `sh tests/two.sh` exit 0 N ms
    TIME   ✓ check M1.1: `sh tests/one.sh` exit 0 N ms
    TIME   imported 4 commits up to SHA
    TIME   progress, 2/2 boxes verified: The rest.
    TIME pushed ralph/small-001/write-one-file at SHA to REPO
    TIME pull request updated: all boxes verified
    TIME   ✓ proof test M1.2: `sh tests/two.sh` exit 0 N ms
    TIME   ✓ proof M1.1: `sh tests/one.sh` exit 0 N ms
    TIME pull request updated: proved
    TIME ✓ succeeded: every box was proved again on the pushed commit
             next: ralph diff RUN1, then merge ralph/small-001/write-one-file
    ");
    let shown = fixture.ralph(&["show", "@"]).to_string();
    let (shown, receipt) = shown.split_once("  ## Receipt").unwrap();
    assert!(receipt.contains("\"signature\""), "{receipt}");
    assert_snapshot!(shown, @"
    exit 0
    --- stdout
    Write one file · succeeded
      run           RUN1
      task          small-001 in ralph_task.md
      repository    REPO
      branch        ralph/small-001/write-one-file from main
      pull request  file://HOME/.local/state/ralph/runs/RUN1/pull-request.md
      sandbox       embedded agent-loop-actions-ralph-small-001-write-one-file
      profile       default-cheap
      commits       4 SHA
      loop score    0.0 ▁▁
      iterations    2 of 5
      minutes       N of 10
      dollars       0.0031 of 1
      tokens        4875, no limit

    Boxes
      ✓ verified  M1.1 There is a file one.txt
      ✓ verified  M1.2 It says two

    Proof on the pushed commit, in a fresh sandbox
      ✓ passed  M1.1 `sh tests/one.sh` N ms
      ✓ passed  test M1.2 `sh tests/two.sh` N ms
      all other changed files:
        one.txt

    Pull request
      # Write one file
      
      The model's own words, which nobody checked:
      
      ```text
      The rest.
      ```
      
      ## Verification
      
      Re-run by ralph on the pushed commit, each line in a fresh sandbox. The results are ralph's own; what they show is what the tests test.
      
      | proves | command | result | time |
      |---|---|---|---|
      | test, M1.2 | `sh tests/two.sh` | passed | N s |
      | M1.1 | `sh tests/one.sh` | passed | N s |
      
      ### What the proof read that this run changed
      
      - All other changed files: the product, as a rule: `one.txt`
      
      
      ---
      Task `small-001` on branch `ralph/small-001/write-one-file`, model cost $0.003117. Made by ralph.
      
      ## Changes
      
      - `one.txt` +2 -0
      - `ralph_task.md` +2 -2
    ");
    assert_snapshot!(fixture.ralph(&["diff", "@", "--stat"]), @"
    exit 0
    --- stdout
        +2     -0  one.txt
        +2     -2  ralph_task.md
    ");
    assert_snapshot!(fixture.ralph(&["diff", "@", "--iteration", "9"]), @"
    exit 1
    --- stderr
    ralph: iteration 9 of run `RUN1` has no commits

    hint: ralph logs RUN1
    ");
    assert_snapshot!(fixture.ralph(&["verify", "@"]), @"
    exit 0
    --- stdout
    same  exit 0 then, 0 now  test M1.2  sh tests/two.sh
    same  exit 0 then, 0 now  M1.1       sh tests/one.sh
    --- stderr
    receipt of run RUN1 for ralph/small-001/write-one-file at SHA
      test M1.2: sh tests/two.sh
      M1.1: sh tests/one.sh
    signature holds; signed by this installation (SHA…)
    proved again
    ");
    assert_snapshot!(fixture.ralph(&["sandbox", "ls"]), @"
    exit 0
    --- stderr
    no sandboxes
    ");
    for args in [&["pause", "@"][..], &["stop", "@"], &["rotate", "@"], &["note", "@", "x"], &["guardrail", "@", "x"]] {
        let output = fixture.ralph(args);
        let want = format!(
            "ralph: run `RUN1` cannot do `{}`: it has succeeded\n\nhint: ralph show RUN1\n",
            args.first().unwrap()
        );
        assert_eq!((output.code, output.stderr), (2, want));
    }
    assert_snapshot!(fixture.ralph(&["resume", "@"]), @"
    exit 1
    --- stderr
    ralph: run `RUN1` cannot continue: it has succeeded

    hint: ralph diff RUN1
    ");
    assert_snapshot!(fixture.ralph(&["rewind", "@", "1"]), @"
    exit 2
    --- stderr
    ralph: run `RUN1` cannot go back to iteration 1: it has succeeded

    hint: ralph logs RUN1
    ");
    let followed = fixture.ralph(&["logs", "-f", "@"]);
    assert_eq!(followed, fixture.ralph(&["logs", "@"]), "a run that rests is not waited for");
    let again = fixture.ralph(&["run", "--json"]);
    assert_eq!(again.code, 0);
    assert!(again.stdout.contains("ralph/small-001/write-one-file-v2"), "{again}");
    let wanted = fixture.runs().first().unwrap().get(..1).unwrap().to_owned();
    let output = fixture.ralph(&["show", &wanted]);
    assert_eq!(output.code, 2);
    assert_eq!(output.stderr, format!("ralph: `{wanted}` could mean RUN1, RUN2\n\nhint: ralph show RUN1\n"));
}

/// With `--json`, stdout is one object, or one event per line, whatever else is printed.
#[test]
fn json() {
    let fixture = RepoFixture::with_task();
    let run = fixture.ralph(&["run", "--json"]);
    let events: Vec<serde_json::Value> = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let numbers: Vec<_> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["type"], "run-finished");
    assert_eq!(run.stderr, "");
    let local = fixture.ralph(&["sandbox", "exec", "--backend", "local", "--", "true"]);
    assert!(
        local.stderr.starts_with("! backend local does NOT isolate: commands run on this machine as you"),
        "{local}"
    );
    assert_eq!(fixture.ralph(&["logs", "@", "--json"]).stdout, run.stdout);
    for (args, key) in [
        (&["ls"][..], "runs"),
        (&["show", "@"], "branch"),
        (&["diff", "@"], "patch"),
        (&["verify", "@"], "lines"),
        (&["lint"], "findings"),
        (&["config", "show"], "values"),
        (&["config", "path"], "paths"),
        (&["config", "schema"], "properties"),
        (&["sandbox", "ls"], "sandboxes"),
        (&["sandbox", "prune", "--dry-run"], "sandboxes"),
        (&["prune-sandboxes", "--dry-run"], "sandboxes"),
        (&["trust"], "trusted"),
        (&["init", "--force"], "file"),
    ] {
        let mut args = args.to_vec();
        args.push("--json");
        let output = fixture.ralph(&args);
        let value: serde_json::Value =
            serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output}"));
        assert_eq!((output.code, value.get(key).is_some()), (0, true), "{args:?}: {output}");
        if key != "properties" {
            assert_eq!(value["format"], 1, "{args:?}");
        }
    }
}

/// When the reader of a run's output closes it, the run is saved properly and can be resumed.
#[test]
fn a_closed_output_saves_the_run() {
    let fixture = RepoFixture::with_task();
    let mut child = fixture.command(&["run", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("run-started"), "{first}");
    let mut output = String::new();
    child.stderr.take().unwrap().read_to_string(&mut output).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{output}");
    assert!(output.contains("the output was closed"), "{output}");
    let list = fixture.ralph(&["ls"]);
    assert!(list.stdout.contains("paused"), "{list}");
    assert_eq!(fixture.ralph(&["resume", "@"]).code, 0);
    let mut child = fixture.command(&["logs", "@"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut output = String::new();
    child.stderr.take().unwrap().read_to_string(&mut output).unwrap();
    assert_eq!((child.wait().unwrap().code(), output.as_str()), (Some(0), ""), "a closed pipe is no error");
}

/// A run whose process died is shown as crashed, and the command it names resumes it.
#[test]
fn a_run_that_crashed() {
    let fixture = RepoFixture::with_task();
    fixture.config("script.jsonl", "{\"format\": 1}\n{\"json\": {\"summary\": \"wait\", \"actions\": [{\"type\": \"run\", \"command\": \"sleep 600\"}], \"claims\": {\"checkboxes_checked\": [], \"milestones_completed\": []}}, \"repeat\": true}\n");
    let mut child = fixture.command(&["run", "--json"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("action-started")));
    let held = fixture.ralph(&["sandbox", "rm", "agent-loop-actions-ralph-small-001-write-one-file"]);
    assert_eq!((held.code, held.stderr.contains("hint: ralph stop RUN1")), (2, true), "{held}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_snapshot!(fixture.ralph(&["show", "@"]).stdout.lines().take(2).collect::<Vec<_>>().join("\n"), @"
    Write one file · crashed: its process ended unexpectedly
    next: ralph resume RUN1
    ");
    assert!(fixture.ralph(&["ls"]).stdout.contains(" crashed "));
    let stopped = fixture.ralph(&["stop", "@"]);
    assert_eq!((stopped.code, stopped.stderr.as_str()), (0, "run RUN1 is stopped; its commits are kept\n"));
}

#[test]
fn receipts() {
    let fixture = RepoFixture::with_task();
    assert_eq!(fixture.ralph(&["run"]).code, 0);
    let path = fixture.state().join("runs").join(fixture.runs().first().unwrap()).join("receipt.json");
    let good = std::fs::read_to_string(path).unwrap();
    fixture.repo.write("bad.json", good.replacen("\"code\": 0", "\"code\": 1", 1));
    assert_snapshot!(fixture.ralph(&["verify", "bad.json"]), @"
    exit 1
    --- stderr
    ralph: the receipt cannot be trusted: its signature does not match what it says

    hint: get the receipt again from where it was made
    ");
    fixture.repo.write("text.json", "no receipt");
    assert_eq!(fixture.ralph(&["verify", "text.json"]).code, 1);
    fixture.repo.write("good.json", &good);
    assert_eq!(fixture.ralph(&["verify", "good.json"]).code, 0);
    // A receipt of another installation has commands that are not trusted.
    let home = fixture.repo.home().join("other");
    let other = [("HOME", home.to_str().unwrap())];
    let key = ralph_engine::receipt::read(&good).unwrap().key;
    let output = fixture.ralph_with(&other, &["verify", "good.json"]);
    assert_eq!(output.code, 5, "a cage confines them, and their signer is unknown: {}", output.stderr);
    assert!(output.stderr.contains("signed by a key this installation does not know"), "{}", output.stderr);
    assert_eq!(fixture.ralph_with(&other, &["verify", "good.json", "--backend", "local", "--key", &key]).code, 0);
    assert_eq!(fixture.ralph(&["verify", "good.json", "--key", &key.replace(['0', '1', '2'], "f")]).code, 1);
    let receipt = fixture.repo.home().join("good.json");
    std::fs::write(&receipt, good).unwrap();
    let args = ["verify", receipt.to_str().unwrap(), "--backend", "local"];
    let output =
        fixture.output_of(&fixture.command(&args).current_dir(fixture.repo.home()).envs(other).output().unwrap());
    assert_snapshot!(output.stderr.lines().skip_while(|line| !line.starts_with("ralph:")).collect::<Vec<_>>().join("\n"), @"
    ralph: commit `SHA` of the receipt is in no repository here

    hint: go to the repository, then: git fetch origin ralph/small-001/write-one-file
    ");
    assert_eq!(output.code, 1);
}

#[test]
fn receipts_that_prove_nothing() {
    let fixture = RepoFixture::with_task();
    assert_eq!(fixture.ralph(&["run"]).code, 0);
    let path = fixture.state().join("runs").join(fixture.runs().first().unwrap()).join("receipt.json");
    let good = ralph_engine::receipt::read(&std::fs::read_to_string(path).unwrap()).unwrap().body;
    let test = good.checks.iter().find(|check| check.proves.contains(&"test".into())).unwrap().clone();
    let keys = tempfile::tempdir().unwrap();
    let key = ralph_engine::receipt::SigningKey::load_or_create(&keys.path().join("key")).unwrap();
    let failed = ralph_core::receipt::ReceiptCheck { command: "false".to_owned(), code: 1, ..test.clone() };
    let other = ralph_core::receipt::ReceiptCheck { proves: vec!["M1.1".into()], ..test };
    for (checks, message) in [
        (vec![], "not proved: it holds no check"),
        (vec![failed], "not proved: one of its checks failed when it was signed"),
        (vec![other], "not proved: none of its checks runs a test command"),
    ] {
        let forged = key.sign(ralph_core::receipt::ReceiptBody { checks, ..good.clone() });
        fixture.repo.write("forged.json", serde_json::to_string(&forged).unwrap());
        let output = fixture.ralph(&["verify", "forged.json", "--key", &key.public()]);
        assert_eq!(output.code, 1, "{}", output.stderr);
        assert!(output.stderr.contains(message), "{}", output.stderr);
        assert_eq!(fixture.ralph(&["verify", "forged.json", "--json"]).code, 1);
    }
}

#[test]
fn sandboxes() {
    let fixture = RepoFixture::with_task();
    assert_eq!(fixture.ralph(&["run", "--max-iterations", "1"]).code, 3);
    assert_snapshot!(fixture.ralph(&["sandbox", "ls"]), @"
    exit 0
    --- stdout
    SANDBOX                                            BACKEND   FOR   RUN           STATE
    agent-loop-actions-ralph-small-001-write-one-file  embedded  work  RUN1  failed
    ");
    assert_snapshot!(fixture.ralph(&["sandbox", "prune"]), @"
    exit 0
    --- stderr
    nothing to remove: every sandbox belongs to a run that can be resumed
    ");
    let name = "agent-loop-actions-ralph-small-001-write-one-file";
    assert_snapshot!(fixture.ralph(&["sandbox", "rm", name]), @"
    exit 0
    --- stderr
    sandbox agent-loop-actions-ralph-small-001-write-one-file is removed
    next: ralph resume --recreate RUN1, to continue from its last imported commit
    ");
    assert_snapshot!(fixture.ralph(&["note", "@", "hello"]), @"
    exit 1
    --- stderr
    ralph: run `RUN1` cannot continue: its sandbox `agent-loop-actions-ralph-small-001-write-one-file` is gone

    hint: ralph resume --recreate RUN1
    ");
    assert_snapshot!(fixture.ralph(&["resume", "@", "--add-iterations", "3"]), @"
    exit 1
    --- stderr
    ralph: run `RUN1` cannot continue: its sandbox `agent-loop-actions-ralph-small-001-write-one-file` is gone

    hint: ralph resume --recreate RUN1
    ");
    assert_eq!(fixture.ralph(&["resume", "@", "--add-iterations", "3", "--recreate"]).code, 0);
    let shown = fixture.ralph(&["show", "@"]).stdout;
    assert!(shown.contains("  iterations    2 of 4\n"), "a refused resume raised the budget too: {shown}");
    assert_eq!(fixture.ralph(&["run", "--keep-sandbox"]).code, 0);
    assert_snapshot!(fixture.ralph(&["sandbox", "prune", "--dry-run"]), @"
    exit 0
    --- stdout
    would remove agent-loop-actions-ralph-small-001-write-one-file-v2: run `RUN2` is not kept
    ");
    assert_snapshot!(fixture.ralph(&["prune-sandboxes"]), @"
    exit 0
    --- stdout
    removed agent-loop-actions-ralph-small-001-write-one-file-v2: run `RUN2` is not kept
    ");
    assert_snapshot!(fixture.ralph(&["sandbox", "ls"]), @"
    exit 0
    --- stderr
    no sandboxes
    ");
}

#[test]
fn colours() {
    let fixture = RepoFixture::with_task();
    fixture.ralph(&["run", "--max-iterations", "1"]);
    let coloured = |env: &[(&str, &str)], args: &[&str]| {
        let output = fixture.command(args).envs(env.iter().copied()).output().unwrap();
        output.stdout.contains(&0x1b)
    };
    assert!(!coloured(&[], &["ls"]), "a pipe");
    assert!(coloured(&[], &["ls", "--color", "always"]));
    assert!(coloured(&[("CLICOLOR_FORCE", "1")], &["ls"]));
    assert!(!coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], &["ls"]));
    assert!(coloured(&[("NO_COLOR", "1")], &["ls", "--color", "always"]), "a flag beats the environment");
}
