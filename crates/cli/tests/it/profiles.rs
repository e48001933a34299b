//! Tests `ralph profile`: what models cost and what is missing before they can be used.

use std::fs;
use std::path::PathBuf;

use ralph_testkit::model_server::{FakeModelServer, ModelBehaviour};
use serde_json::{Value, json};

use crate::repo_fixture::{CliOutput, RepoFixture};

/// A small price file: two models with a price, one that is free, three entries that are no price per token.
const PRICES: &str = r#"{
  "sample_spec": {"input_cost_per_token": "dollars", "litellm_provider": "one of them"},
  "gpt-5": {"input_cost_per_token": 2e-06, "output_cost_per_token": 2e-05, "litellm_provider": "openai"},
  "groq/new-one": {"input_cost_per_token": 3e-07, "output_cost_per_token": 9e-07,
    "cache_read_input_token_cost": 1.5e-07, "litellm_provider": "groq"},
  "ollama/llama3": {"input_cost_per_token": 0, "output_cost_per_token": 0, "litellm_provider": "ollama"},
  "picture": {"output_cost_per_image": 0.04, "litellm_provider": "openai"},
  "trial": {"input_cost_per_token": 0, "output_cost_per_token": 0, "litellm_provider": "groq"},
  "words": 7
}"#;

fn prices_file(fixture: &RepoFixture) -> PathBuf {
    fixture.repo.home().join(".config/ralph/prices.json")
}

#[track_caller]
fn parse_json(output: &CliOutput) -> Value {
    assert_eq!(output.code, 0, "{output}");
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error} in {output}"))
}

/// Returns the row of a list with this value in a field.
#[track_caller]
fn row(list: &Value, field: &str, value: &str) -> Value {
    let rows = list.as_array().expect("a list");
    rows.iter().find(|row| row[field] == value).unwrap_or_else(|| panic!("no {value} in {list}")).clone()
}

#[track_caller]
fn import(fixture: &RepoFixture, text: &str, more: &[&str]) -> CliOutput {
    let file = fixture.repo.home().join("prices-of-today.json");
    fs::write(&file, text).unwrap();
    fixture.ralph(&[&["profile", "prices", "--import", file.to_str().unwrap()], more].concat())
}

#[test]
fn profiles_are_listed() {
    let fixture = RepoFixture::new();
    fixture.config(
        "models.yaml",
        "profiles:\n  own: {litellm_model: groq/new-one}\n  nowhere: {litellm_model: azure/gpt-5}\n  played: {litellm_model: scripted/a.jsonl}\n",
    );
    let output = fixture.ralph_with(&[("ZAI_API_KEY", "not-a-real-key-1")], &["profile", "ls", "--json"]);
    let listed = parse_json(&output);
    assert_eq!(listed["format"], 1);
    let built_in = "built-in";
    let user = "user HOME/.config/ralph/models.yaml";
    let found = |name: &str| json!({"state": "found", "name": name, "source": "environment"});
    let missing = |name: &str| json!({"state": "missing", "name": name});
    for (name, model, input, output, cached, origin, key) in [
        ("default-cheap", "zai/glm-4.7", json!(0.6), json!(2.2), json!(0.11), built_in, found("ZAI_API_KEY")),
        ("own", "groq/new-one", Value::Null, Value::Null, Value::Null, user, missing("GROQ_API_KEY")),
        ("played", "scripted/a.jsonl", json!(0.0), json!(0.0), json!(0.0), user, json!({"state": "not-needed"})),
    ] {
        let row = row(&listed["profiles"], "name", name);
        let price = &row["price"];
        assert_eq!(
            (&row["model"], &price["input_per_mtok"], &price["output_per_mtok"], &price["cached_input_per_mtok"]),
            (&json!(model), &input, &output, &cached),
            "{row}"
        );
        assert_eq!((&row["origin"], &row["key"], &row["needs_trust"]), (&json!(origin), &key, &json!(false)), "{row}");
    }
    assert_eq!(row(&listed["profiles"], "name", "nowhere")["key"]["state"], "trouble");

    let output = fixture.ralph_with(&[("ZAI_API_KEY", "not-a-real-key-1")], &["profile", "ls"]);
    assert_eq!(output.code, 0, "{output}");
    let line = |name: &str| {
        let line = output.stdout.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap_or_default();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    for (name, want) in [
        ("NAME", "NAME MODEL IN OUT CACHED ORIGIN KEY TRUST"),
        ("default-cheap", "default-cheap zai/glm-4.7 0.60 2.20 0.11 built-in ZAI_API_KEY (environment) -"),
        ("own", "own groq/new-one ? ? ? user HOME/.config/ralph/models.yaml no GROQ_API_KEY -"),
        ("played", "played scripted/a.jsonl 0.00 0.00 0.00 user HOME/.config/ralph/models.yaml not needed -"),
    ] {
        assert_eq!(line(name), want);
    }
    for want in [
        "prices are dollars per million tokens",
        "own: its price is unknown, so a run with it needs a token cap; next: ralph profile prices --import FILE",
        "nowhere: provider `azure` has no base URL of its own; set AZURE_API_BASE",
    ] {
        assert!(output.stderr.contains(want), "no `{want}` in {output}");
    }
    assert!(!output.to_string().contains("not-a-real-key"), "{output}");
}

/// A cost cap cannot hold for a model of unknown price, wherever the profile is named.
#[test]
fn a_profile_without_a_price_needs_a_token_cap() {
    const NOT_KNOWN: &str = "the price of profile `mystery` is not known, so the cost cap cannot be enforced";
    let fixture = RepoFixture::with_task();
    let models = std::fs::read_to_string(fixture.repo.home().join(".config/ralph/models.yaml")).unwrap();
    fixture.config("models.yaml", &format!("{models}  mystery: {{litellm_model: groq/new-one}}\n"));
    let refused = |args: &[&str]| {
        let output = fixture.ralph(args);
        assert_eq!(output.code, 2, "{output}");
        assert!(output.stderr.contains(NOT_KNOWN), "{output}");
    };
    assert_eq!(fixture.ralph(&["lint"]).code, 0);
    refused(&["run", "--profile", "mystery"]);
    for key in ["default", "fallback", "doctor"] {
        fixture.config("config.toml", &format!("[model]\n{key} = \"mystery\"\n"));
        refused(&["lint"]);
        refused(&["run"]);
        fixture.config("config.toml", &format!("[model]\n{key} = \"mystery\"\n[budget]\nmax_tokens = 200000\n"));
        let output = fixture.ralph(&["lint"]);
        assert_eq!(output.code, 0, "{output}");
    }
    fixture.config("config.toml", "");
    // With a cap, only the key is missing.
    let output = fixture.ralph(&["run", "--profile", "mystery", "--max-tokens", "200000"]);
    assert_eq!(output.code, 4, "{output}");
    assert_eq!(fixture.runs(), Vec::<String>::new());
}

#[test]
fn profiles_of_the_project_need_trust() {
    let fixture = RepoFixture::new();
    fixture.repo.write(
        "models.yaml",
        "profiles:\n  odd: {litellm_model: openai/gpt-5, base_url: 'https://other.example', api_key_env: PATH}\n  fine: {litellm_model: openai/gpt-5}\n",
    );
    let listed = parse_json(&fixture.ralph(&["profile", "ls", "--json"]));
    let odd = row(&listed["profiles"], "name", "odd");
    assert_eq!((&odd["needs_trust"], &odd["key"]), (&json!(true), &json!({"state": "untrusted"})));
    assert_eq!(odd["untrusted"], json!(["base_url", "api_key_env"]));
    assert_eq!(row(&listed["profiles"], "name", "fine")["needs_trust"], false);
    let output = fixture.ralph(&["profile", "ls"]);
    let message = "odd: models.yaml sets base_url, api_key_env; read it, then run `ralph trust`";
    assert!(output.stderr.contains(message), "{output}");

    assert_eq!(fixture.ralph(&["trust", "--yes"]).code, 0);
    let listed = parse_json(&fixture.ralph(&["profile", "ls", "--json"]));
    let odd = row(&listed["profiles"], "name", "odd");
    assert_eq!((&odd["needs_trust"], &odd["untrusted"]), (&json!(false), &json!([])));
}

#[test]
fn prices_are_shown() {
    let fixture = RepoFixture::new();
    let all = parse_json(&fixture.ralph(&["profile", "prices", "--json"]));
    assert_eq!((&all["format"], &all["imported"]), (&json!(1), &Value::Null));
    assert_eq!(row(&all["prices"], "model", "gemini/gemini-2.5-pro")["price"]["above_200k"]["output_per_mtok"], 15.0);
    assert_eq!(row(&all["prices"], "model", "claude-opus-4-5")["price"]["cache_write_long_per_mtok"], 10.0);
    assert_eq!(row(&all["prices"], "model", "deepseek/deepseek-chat")["max_output_tokens"], 8192);
    for (wanted, want) in [
        (&["gpt-5-codex"][..], &["azure/gpt-5-codex", "gpt-5-codex"][..]),
        (&["openai/gpt-5-codex"], &["gpt-5-codex"]),
        (&["openai/gpt-5-codex", "glm-5-code"], &["gpt-5-codex", "zai/glm-5-code"]),
    ] {
        let output = fixture.ralph(&[&["profile", "prices", "--json"], wanted].concat());
        let models: Vec<String> = parse_json(&output)["prices"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["model"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(models, want, "{wanted:?}");
    }
    let output = fixture.ralph(&["profile", "prices", "deepseek/deepseek-chat"]);
    let of = ralph_core::price::PriceTable::shipped_on();
    let message = format!("prices are dollars per million tokens; the built-in ones date from {of}\n");
    assert_eq!((output.code, output.stderr), (0, message));
    let lines: Vec<String> =
        output.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        [
            "MODEL PROVIDER IN OUT CACHED ORIGIN",
            "deepseek-chat deepseek 0.28 0.42 0.028 built-in",
            "deepseek/deepseek-chat deepseek 0.28 0.42 0.028 built-in",
        ]
    );
    for (wanted, hint) in [("gpt5", "ralph profile prices gpt-5"), ("zzz", "ralph profile prices --import FILE")] {
        let output = fixture.ralph(&["profile", "prices", wanted]);
        assert_eq!(
            (output.code, output.stdout.as_str(), output.stderr.as_str()),
            (1, "", format!("ralph: no price is known for `{wanted}`\n\nhint: {hint}\n").as_str())
        );
    }
}

#[test]
fn imported_prices_take_effect() {
    let fixture = RepoFixture::with_task();
    fixture.config("models.yaml", "profiles: {default-cheap: {litellm_model: groq/new-one}}\n");
    let unknown = || {
        let output = fixture.ralph(&["lint"]);
        format!("{}{}", output.stdout, output.stderr).contains("price")
    };
    assert!(unknown(), "an unknown price is reported");
    let output = import(&fixture, PRICES, &[]);
    assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output}");
    assert_eq!(
        output.stderr,
        "the prices of 3 models were imported; 3 entries that are not sold by the token alone were skipped\n\
         they are in `HOME/.config/ralph/prices.json` and apply to every run that starts from now on\n"
    );
    assert!(!unknown());
    let shown = parse_json(&fixture.ralph(&["profile", "prices", "--json"]));
    for (model, origin, output) in
        [("gpt-5", "imported", 20.0), ("groq/new-one", "imported", 0.9), ("zai/glm-4.7", "built-in", 2.2)]
    {
        let row = row(&shown["prices"], "model", model);
        assert_eq!((&row["origin"], &row["price"]["output_per_mtok"]), (&json!(origin), &json!(output)), "{model}");
    }
    let listed = parse_json(&fixture.ralph(&["profile", "ls", "--json"]));
    assert_eq!(row(&listed["profiles"], "name", "default-cheap")["price"]["cached_input_per_mtok"], 0.15);

    // An import replaces the one before, and shows the models that are asked for.
    let other = PRICES.replace("9e-07", "8e-07").replace("\"gpt-5\"", "\"gpt-5-codex\"");
    let output = parse_json(&import(&fixture, &other, &["new-one", "--json"]));
    assert_eq!(
        output["imported"],
        json!({"models": 3, "skipped": 3, "file": "HOME/.config/ralph/prices.json"}),
        "{output}"
    );
    assert_eq!(output["prices"].as_array().map(Vec::len), Some(1));
    assert_eq!(output["prices"][0]["price"]["output_per_mtok"], 0.8);
    let shown = parse_json(&fixture.ralph(&["profile", "prices", "gpt-5", "--json"]));
    assert_eq!(row(&shown["prices"], "model", "gpt-5")["origin"], "built-in");

    // Text of an imported file must not control the terminal.
    assert_eq!(import(&fixture, &PRICES.replace("new-one", "new\\u001b[31m-\\none"), &[]).code, 0);
    let output = fixture.ralph(&["profile", "prices", "groq"]);
    assert!(output.stdout.contains("\ngroq/new- ") && !output.stdout.contains('\u{1b}'), "{output}");
}

#[test]
fn invalid_price_files_are_not_imported() {
    let fixture = RepoFixture::new();
    let empty = PRICES.replace("e-0", "e+0").replace("ollama", "openai");
    let cases = [
        ("", "the price file is not a JSON object, at line 1, column 0"),
        ("[1, 2]", "the price file is not a JSON object, at line 1, column 0"),
        ("{}", "the price file has no model with a price"),
        (r#"{"format": 1, "models": {}}"#, "the price file has no model with a price"),
        (empty.as_str(), "the price file has no model with a price"),
    ];
    for before in [None, Some(PRICES)] {
        if let Some(good) = before {
            assert_eq!(import(&fixture, good, &[]).code, 0);
        }
        let held = fs::read(prices_file(&fixture)).ok();
        for (text, why) in cases {
            let output = import(&fixture, text, &[]);
            let refused = "ralph: `HOME/prices-of-today.json` was not imported, and the prices are unchanged";
            assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{output}");
            assert!(output.stderr.starts_with(&format!("{refused}\n  caused by: {why}\n")), "{output}");
            assert!(
                output.stderr.ends_with("\n\nhint: use LiteLLM's `model_prices_and_context_window.json`\n"),
                "{output}"
            );
            assert_eq!(fs::read(prices_file(&fixture)).ok(), held, "{text}");
        }
        for path in ["nothing-here.json", "."] {
            let output = fixture.ralph(&["profile", "prices", "--import", path]);
            assert_eq!(output.code, 2, "{output}");
            assert!(output.stderr.contains("was not imported, and the prices are unchanged"), "{output}");
            assert_eq!(fs::read(prices_file(&fixture)).ok(), held, "{path}");
        }
    }
}

#[test]
fn damaged_prices_are_reported() {
    let fixture = RepoFixture::with_task();
    for (text, why) in [
        ("{\"format\": 1, \"mod", "it is not a price list written by ralph, at line 1, column 18"),
        ("{\"format\": 9}", "it has format 9, and this ralph reads 1"),
        (
            "{\"format\":1,\"models\":{\"m\":{\"provider\":\"zai\",\"price\":{\"input\":0,\"output\":0,\"cached_input\":0,\"cache_write\":0}}}}",
            "`m` has a price of zero, which would disable the cost cap",
        ),
    ] {
        fixture.config("prices.json", text);
        for args in [
            &["run"][..],
            &["lint"],
            &["profile", "ls"],
            &["profile", "prices"],
            &["sandbox", "exec", "--profile", "default-cheap", "--", "true"],
        ] {
            let output = fixture.ralph(args);
            let message = format!(
                "ralph: the imported prices in `HOME/.config/ralph/prices.json` cannot be used: {why}\n\n\
                 hint: import them again with `ralph profile prices --import FILE`, or remove them: \
                 rm HOME/.config/ralph/prices.json\n"
            );
            assert_eq!(
                (output.code, output.stdout.as_str(), output.stderr.as_str()),
                (2, "", message.as_str()),
                "{args:?}"
            );
        }
        assert_eq!(fixture.runs(), Vec::<String>::new());
    }
    assert_eq!(import(&fixture, PRICES, &[]).code, 0);
    assert_eq!(fixture.ralph(&["profile", "prices"]).code, 0);
}

/// A repository whose profile `lab` calls a server with a given behaviour.
struct ProfileFixture {
    fixture: RepoFixture,
    server: FakeModelServer,
    _runtime: tokio::runtime::Runtime,
}

impl ProfileFixture {
    fn new(model: &str, behaviour: ModelBehaviour) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = runtime.block_on(FakeModelServer::with_behaviours([behaviour])).unwrap();
        let fixture = RepoFixture::new();
        let profile = json!({"litellm_model": model, "base_url": server.base_url(), "api_key_env": "LAB_KEY",
            "price": {"input_per_mtok": 1, "output_per_mtok": 2}, "timeout_s": 1});
        fixture.config("models.yaml", &json!({"profiles": {"lab": profile}}).to_string());
        fixture.config("config.toml", "[model]\ndefault = \"lab\"\n");
        Self { fixture, server, _runtime: runtime }
    }

    fn test(&self, more: &[&str]) -> CliOutput {
        let output = self.fixture.ralph_with(&[("LAB_KEY", KEY)], &[&["profile", "test"], more].concat());
        assert!(!output.to_string().contains(KEY), "{output}");
        output
    }
}

const KEY: &str = "not-a-real-key-of-anybody";

#[test]
fn a_profile_is_tested() {
    for model in ["openai/m", "openai/m-codex", "anthropic/m", "gemini/m", "azure/m"] {
        let fixture = ProfileFixture::new(model, ModelBehaviour::ok("OK"));
        let report = parse_json(&fixture.test(&["--json"]));
        let row = &report["tests"][0];
        assert_eq!(
            (&report["format"], &row["ok"], &row["name"], &row["model"]),
            (&json!(1), &json!(true), &json!("lab"), &json!(model))
        );
        assert_eq!(
            (&row["text"], &row["usage"]["input"], &row["usage"]["output"]),
            (&json!("OK"), &json!(12), &json!(5)),
            "{row}"
        );
        // Twelve tokens at one dollar and five at two dollars per million.
        assert_eq!((&row["cost_usd"], &row["usage_reported"]), (&json!(0.000_022), &json!(true)), "{row}");
        let asked = fixture.server.requests();
        assert_eq!(asked.len(), 1);
        let body = asked[0].json().to_string();
        assert!(body.contains(":16") && body.len() < 400, "a tiny call: {body}");
    }
    let fixture = ProfileFixture::new("openai/m", ModelBehaviour::ok("OK"));
    let output = fixture.test(&["lab"]);
    let lines: Vec<String> =
        output.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(output.code, 0, "{output}");
    assert_eq!(lines, ["NAME MODEL ANSWERED BY LATENCY IN OUT COST", "lab openai/m m N s 12 5 $0.000022"], "{output}");
}

#[test]
fn failures_of_a_profile_are_reported() {
    #[track_caller]
    fn check(behaviour: ModelBehaviour, code: i32, class: &str, hint: &str) {
        let fixture = ProfileFixture::new("anthropic/m", behaviour);
        let output = fixture.test(&["--json"]);
        assert_eq!(output.code, code, "{output}");
        let report: Value = serde_json::from_str(&output.stdout).unwrap();
        let row = &report["tests"][0];
        assert_eq!((&row["ok"], &row["class"], &row["hint"]), (&json!(false), &json!(class), &json!(hint)), "{row}");
        assert_eq!(fixture.server.requests().len(), 1, "asked once");
        let output = fixture.test(&[]);
        assert!(output.code == code && output.stderr.contains(&format!("; next: {hint}\n")), "{output}");
    }
    let again = "this may be temporary; later: ralph profile test lab";
    let refused = format!("no such key: {KEY}");
    check(ModelBehaviour::error(401, "authentication_error", &refused), 4, "auth", "ralph secret set LAB_KEY");
    check(ModelBehaviour::rate_limited("7"), 1, "rate-limited", again);
    check(ModelBehaviour::overloaded(), 1, "overloaded", again);
    check(ModelBehaviour::html(502), 1, "server-error", again);
    check(ModelBehaviour::Hang, 1, "timeout", "raise `timeout_s` in the profile, or lower `max_output_tokens`");
    check(
        ModelBehaviour::error(404, "not_found_error", "model: m"),
        1,
        "not-found-model",
        "check the model name and `base_url` of the profile in `models.yaml`",
    );
    check(
        ModelBehaviour::invalid_json(),
        1,
        "bad-answer",
        "check that the profile's `base_url` is one of its provider's API",
    );
    check(
        ModelBehaviour::error(402, "billing_error", "pay"),
        1,
        "quota",
        "add credit at the provider, or choose another profile",
    );
}

#[test]
fn a_profile_without_a_key_or_a_name_is_not_tested() {
    let fixture = RepoFixture::new();
    fixture.config(
        "models.yaml",
        "profiles:\n  own: {litellm_model: groq/x}\n  cloud: {litellm_model: bedrock/x}\n  sold: {litellm_model: anthropic/x}\n",
    );
    let output = fixture.ralph(&["profile", "test", "own"]);
    assert_eq!(output.code, 4, "{output}");
    assert!(output.stderr.contains("next: ralph secret set GROQ_API_KEY"), "{output}");
    let output = fixture.ralph(&["profile", "test", "cloud"]);
    assert_eq!(output.code, 1, "{output}");
    assert!(output.stderr.contains("provider `bedrock` needs a LiteLLM proxy"), "{output}");
    // A subscription token is only for the provider's own agent.
    let output =
        fixture.ralph_with(&[("CLAUDE_CODE_OAUTH_TOKEN", "sk-ant-oat01-nobodys")], &["profile", "test", "sold"]);
    assert_eq!(output.code, 4, "{output}");
    assert!(output.stderr.contains("next: ralph secret set ANTHROPIC_API_KEY"), "{output}");
    // A key is not sent unencrypted.
    fixture.config("models.yaml", "profiles:\n  own: {litellm_model: groq/x, base_url: \"http://gw.corp/v1\"}\n");
    let output = fixture.ralph_with(&[("GROQ_API_KEY", KEY)], &["profile", "test", "own"]);
    assert_eq!(output.code, 1, "{output}");
    assert!(output.stderr.contains("next: use `https://gw.corp`, or a tunnel: "), "{output}");
    let output = fixture.ralph(&["profile", "test", "onw"]);
    assert_eq!(output.code, 2, "{output}");
    assert!(output.stderr.contains("did you mean `own`?"), "{output}");
}

/// `doctor` reports what is missing for the first run, each with what to do.
#[test]
fn doctor_checks_the_setup() {
    let fixture = RepoFixture::new();
    let look = |env: &[(&str, &str)]| {
        let output = fixture.ralph_with(env, &["doctor", "--json"]);
        let report: Value = serde_json::from_str(&output.stdout).unwrap();
        (output.code, report["findings"].clone())
    };
    let (code, found) = look(&[]);
    let profile = row(&found, "what", "profile").clone();
    assert_eq!(
        (&profile["state"], &profile["next"]),
        (&json!("weak"), &json!("ralph secret set ZAI_API_KEY")),
        "{found}"
    );
    assert_eq!((code, &row(&found, "what", "config")["state"]), (0, &json!("good")), "{found}");
    let (_, found) = look(&[("ZAI_API_KEY", "one-of-theirs")]);
    let profile = row(&found, "what", "profile");
    assert_eq!(profile["found"], "`default-cheap` is zai/glm-4.7, key: ZAI_API_KEY (environment)");
    assert!(!found.to_string().contains("one-of-theirs"), "{found}");

    fixture.config("config.toml", "[model]\ndefault = \"nobody\"\n");
    let (code, found) = look(&[]);
    assert_eq!((code != 0, &row(&found, "what", "profile")["state"]), (true, &json!("missing")), "{found}");
    fixture.config("config.toml", "[model\n");
    let (code, found) = look(&[]);
    let config = row(&found, "what", "config");
    assert!(code != 0 && config["state"] == "missing" && config["next"].is_string(), "{found}");
}
