//! Defines the command line for clap. Help, man pages and completions are generated from these definitions.

pub(crate) mod agent;
mod import;
mod network;
pub(crate) mod profile;
pub(crate) mod secret;
pub(crate) mod stuck_run;

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use ralph_core::env_vars::Env;
use ralph_core::policy::PolicyMode;
use ralph_engine::setup::RunOverrides;

pub(crate) use self::import::ImportArgs;
pub(crate) use self::network::{AuditCommand, PolicyChangeArgs, PolicyCommand, PolicyLogArgs, PolicyTestArgs};

/// Let a coding agent work alone on a task and get back a pull request whose every claim was re-proved
#[derive(Debug, Parser)]
#[command(
    name = "ralph",
    version,
    disable_help_subcommand = true,
    propagate_version = true,
    max_term_width = 100,
    after_help = "Examples:\n  ralph demo                 see it work: offline, no keys, under a minute\n  ralph init                 write a task file for this repository, to be filled in\n  ralph run                  run the task in ralph_task.md"
)]
pub(crate) struct Cli {
    /// Print data as JSON; errors too
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to use colours
    #[arg(long, global = true, value_enum, default_value_t = ColorMode::Auto, value_name = "WHEN")]
    pub(crate) color: ColorMode,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorMode {
    Auto,
    Always,
    Never,
}

impl ColorMode {
    /// Returns the colour choice: the flag wins over `NO_COLOR`, then `CLICOLOR_FORCE`, then what the terminal
    /// supports.
    pub(crate) fn choice(self, env: &Env) -> anstream::ColorChoice {
        match self {
            Self::Always => anstream::ColorChoice::Always,
            Self::Never => anstream::ColorChoice::Never,
            Self::Auto if env.get("NO_COLOR").is_some_and(|value| !value.is_empty()) => anstream::ColorChoice::Never,
            Self::Auto if env.get("CLICOLOR_FORCE").is_some_and(|value| value != "0" && !value.is_empty()) => {
                anstream::ColorChoice::Always
            }
            Self::Auto => anstream::ColorChoice::Auto,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a task until it is proved, its budget is spent or a person is needed
    #[command(after_help = "Examples:\n  ralph run\n  ralph run tasks/fix-auth.md --max-cost 3 --max-iterations 10")]
    Run(RunArgs),
    /// List runs
    #[command(after_help = "Examples:\n  ralph ls\n  ralph ls --json")]
    Ls,
    /// Show one run: where it stands, why, and what to do next
    #[command(after_help = "Examples:\n  ralph show @\n  ralph show ralph/task-001/add-health --json")]
    Show(RunSelector),
    /// Print what happened in a run
    #[command(after_help = "Examples:\n  ralph logs @\n  ralph logs -f 01k3")]
    Logs(LogsArgs),
    /// Watch a run on the whole screen and steer it by single keys
    #[command(after_help = "Examples:\n  ralph watch @\n  ralph watch ralph/task-001/add-health")]
    Watch(WatchArgs),
    /// Print what a run changed
    #[command(after_help = "Examples:\n  ralph diff @\n  ralph diff @ --iteration 3 --stat")]
    Diff(DiffArgs),
    /// Re-run the proof of a receipt, run or branch and compare
    #[command(after_help = "Examples:\n  ralph verify @\n  ralph verify receipt.json")]
    Verify(VerifyArgs),
    /// See ralph work: a small repository, a scripted model, a proved pull request
    #[command(after_help = "Examples:\n  ralph demo\n  ralph demo --dir /tmp/ralph-demo")]
    Demo(DemoArgs),
    /// Pause a run after the action under way
    #[command(after_help = "Examples:\n  ralph pause @\n  ralph resume @")]
    Pause(RunSelector),
    /// Continue a run that is paused, crashed or out of budget
    #[command(after_help = "Examples:\n  ralph resume @\n  ralph resume 01k3 --add-cost 5 --add-iterations 10")]
    Resume(ResumeArgs),
    /// Start the next iteration with a fresh session
    #[command(after_help = "Examples:\n  ralph rotate @\n  ralph rotate @ --why \"you are fixing the wrong file\"")]
    Rotate(RotateArgs),
    /// Stop a run for good and keep its commits
    #[command(after_help = "Examples:\n  ralph stop @\n  ralph stop 01k3")]
    Stop(RunSelector),
    /// Leave a note for the model
    #[command(
        after_help = "Examples:\n  ralph note @ \"use the existing parser in src/parse.rs\"\n  ralph note 01k3 \"version 2 of the API\""
    )]
    Note(MessageArgs),
    /// Add a rule that the model sees in every iteration
    #[command(
        after_help = "Examples:\n  ralph guardrail @ \"never edit generated files\"\n  ralph guardrail 01k3 \"run make fmt first\""
    )]
    Guardrail(MessageArgs),
    /// Explain why a run was or was not found to go in circles
    #[command(subcommand, after_help = "Examples:\n  ralph gutter explain @\n  ralph gutter explain 01k3 4 --json")]
    Gutter(stuck_run::GutterCommand),
    /// Have the doctor profile look at a run and propose what to do
    #[command(after_help = "Examples:\n  ralph diagnose @\n  ralph apply @")]
    Diagnose(RunSelector),
    /// Carry out what a diagnosis proposed, or list it
    #[command(after_help = "Examples:\n  ralph apply @\n  ralph apply @ 1 && ralph resume @")]
    Apply(stuck_run::ApplyArgs),
    /// Continue a run with another of its profiles
    #[command(after_help = "Examples:\n  ralph set-profile @ strong\n  ralph set-profile 01k3 default-cheap")]
    SetProfile(stuck_run::SetProfileArgs),
    /// Replace the task text of a run
    #[command(
        after_help = "Examples:\n  ralph edit-task @ ralph_task.md\n  ralph edit-task 01k3 clearer.md --allow-weaker"
    )]
    EditTask(stuck_run::EditTaskArgs),
    /// Reset a resting run to where an iteration ended
    #[command(after_help = "Examples:\n  ralph rewind @ 3\n  ralph rewind 01k3 1 && ralph resume 01k3")]
    Rewind(RewindArgs),
    /// Rebuild a run from its sandbox when its folder is gone
    #[command(
        after_help = "Examples:\n  ralph adopt agent-loop-actions-ralph-task-001-add-health\n  ralph adopt NAME --backend local"
    )]
    Adopt(AdoptArgs),
    /// Write a task file for this repository
    #[command(after_help = "Examples:\n  ralph init\n  ralph init --template bugfix")]
    Init(InitArgs),
    /// Convert another tool's plan into a task file
    #[command(
        after_help = "Examples:\n  ralph import prd.json\n  ralph import docs/plans/2026-01-02-widget.md --to tasks/widget.md"
    )]
    Import(ImportArgs),
    /// Check a task file before a token is spent
    #[command(after_help = "Examples:\n  ralph lint\n  ralph lint --baseline\n  ralph lint --fix tasks/fix-auth.md")]
    Lint(LintArgs),
    /// Check whether this machine can do what a run needs; changes nothing
    #[command(after_help = "Examples:\n  ralph doctor\n  ralph doctor --json")]
    Doctor,
    /// Make a sandbox, use it, try to break its rules, and remove it
    #[command(after_help = "Examples:\n  ralph selftest\n  ralph selftest --backend embedded --full")]
    Selftest(SelftestArgs),
    /// Attack a sandbox the way a hostile agent would, and report what it withstood
    #[command(
        after_help = "Examples:\n  ralph redteam\n  ralph redteam --backend embedded --only FS\n  ralph redteam --only KS-04 --json"
    )]
    Redteam(RedteamArgs),
    /// Store, list and check credentials
    #[command(subcommand, after_help = "Examples:\n  ralph secret set ANTHROPIC_API_KEY\n  ralph secret ls")]
    Secret(secret::SecretCommand),
    /// Store the token of an agent
    #[command(
        hide = true,
        after_help = "Examples:\n  ralph store-token --agent claude\n  ralph secret set CLAUDE_CODE_OAUTH_TOKEN"
    )]
    StoreToken(secret::StoreTokenArgs),
    /// Check whether an agent's token is present and how long it lasts
    #[command(hide = true, after_help = "Examples:\n  ralph secret check --agent claude\n  ralph secret check")]
    CheckToken(secret::SecretCheckArgs),
    /// Print an agent's token to a pipe
    #[command(
        hide = true,
        after_help = "Examples:\n  ralph get-token --agent claude | wc -c\n  ralph secret get GITHUB_PAT | wc -c"
    )]
    GetToken(secret::GetTokenArgs),
    /// List, use and remove sandboxes
    #[command(subcommand, after_help = "Examples:\n  ralph sandbox ls\n  ralph sandbox exec -- id")]
    Sandbox(SandboxCommand),
    /// Remove sandboxes that no run needs any more
    #[command(hide = true, after_help = "Examples:\n  ralph prune-sandboxes --dry-run\n  ralph sandbox prune")]
    PruneSandboxes(PruneArgs),
    /// List model profiles, try them, and show what their tokens cost
    #[command(
        subcommand,
        after_help = "Examples:\n  ralph profile ls\n  ralph profile test default-cheap\n  ralph profile prices gpt-5"
    )]
    Profile(profile::ProfileCommand),
    /// List the coding agents and fetch their programs
    #[command(subcommand, after_help = "Examples:\n  ralph agent ls\n  ralph agent install codex")]
    Agent(agent::AgentCommand),
    /// Show and change what runs may reach on the network
    #[command(subcommand, after_help = "Examples:\n  ralph policy ls\n  ralph policy log @ --denied")]
    Policy(PolicyCommand),
    /// Check the audit log of a run's network access
    #[command(subcommand, after_help = "Examples:\n  ralph audit verify @\n  ralph audit verify 01k3 --json")]
    Audit(AuditCommand),
    /// Trust the project's model profiles, as they are now
    #[command(after_help = "Examples:\n  ralph trust\n  ralph trust --yes")]
    Trust(TrustArgs),
    /// Show the configuration and where each value comes from
    #[command(subcommand, after_help = "Examples:\n  ralph config show --origin\n  ralph config path")]
    Config(ConfigCommand),
    /// Print shell completions
    #[command(
        after_help = "Examples:\n  ralph completions bash > ~/.local/share/bash-completion/completions/ralph\n  ralph completions zsh"
    )]
    Completions {
        /// The shell to print for
        shell: Shell,
    },
    /// Print the manual page
    #[command(after_help = "Examples:\n  ralph man | man -l -\n  ralph man run")]
    Man {
        /// A command, for its own page
        command: Option<String>,
    },
    /// Explain exit codes, environment variables or the task file
    #[command(after_help = "Examples:\n  ralph help task-file\n  ralph help exit-codes")]
    Help {
        /// exit-codes, environment, task-file, or a command
        topic: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The task file [default: ralph_task.md at the top of the repository]
    pub(crate) task: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overrides: RunOverrideArgs,
    /// Skip running every proof on the base commit first
    #[arg(long)]
    pub(crate) no_baseline: bool,
    /// Keep the sandbox after success
    #[arg(long)]
    pub(crate) keep_sandbox: bool,
    /// Include changed tracked files of your checkout
    #[arg(long)]
    pub(crate) include_dirty: bool,
    /// Print the run's id and work in the background
    #[arg(long)]
    pub(crate) detach: bool,
}

/// What the command line decides about a run, over its task and the config.
#[derive(Debug, Clone, Args)]
pub(crate) struct RunOverrideArgs {
    /// Where commands run
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// The model profile to use
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// The engine: `actions` (ralph's own engine) or `agent` (an agent program in the sandbox)
    #[arg(long, value_name = "NAME")]
    pub(crate) engine: Option<String>,
    /// The agent program to work with, such as `claude` or `codex`
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Stop after this many iterations
    #[arg(long, value_name = "N", value_parser = at_least_one::<u32>)]
    pub(crate) max_iterations: Option<u32>,
    /// Stop before more than this many dollars are spent
    #[arg(long, value_name = "USD", value_parser = dollars, allow_negative_numbers = true)]
    pub(crate) max_cost: Option<f64>,
    /// Stop after this many minutes
    #[arg(long, value_name = "MINUTES", alias = "max-minutes", value_parser = at_least_one::<u32>)]
    pub(crate) max_wall_time_minutes: Option<u32>,
    /// Stop before more than this many tokens are used
    #[arg(long, value_name = "N", value_parser = at_least_one::<u64>)]
    pub(crate) max_tokens: Option<u64>,
    /// What commands may reach on the network: deny, allowlist or open
    #[arg(long, value_name = "POLICY", value_parser = network)]
    pub(crate) network: Option<PolicyMode>,
    /// Let commands reach this host too; can be given more than once
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// Grant a secret to HTTPS requests of the sandbox to a host: NAME=HOST; may be given again
    #[arg(long, value_name = "NAME=HOST")]
    pub(crate) lend: Vec<String>,
}

impl RunOverrideArgs {
    pub(crate) fn to_overrides(&self) -> RunOverrides {
        let Self {
            backend,
            profile,
            engine,
            agent,
            max_iterations,
            max_cost,
            max_wall_time_minutes,
            max_tokens,
            network,
            allow_host,
            lend,
        } = self.clone();
        RunOverrides {
            backend,
            profile,
            engine,
            agent,
            max_iterations,
            max_cost,
            max_minutes: max_wall_time_minutes,
            max_tokens,
            network,
            allow_hosts: allow_host,
            secret_grants: lend,
            no_baseline: false,
            include_dirty: false,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunSelector {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    pub(crate) run: String,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    pub(crate) run: String,
    /// Keep following until the run rests
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only this iteration
    #[arg(long, value_name = "N", value_parser = at_least_one::<u32>)]
    pub(crate) iteration: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    pub(crate) run: String,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    pub(crate) run: String,
    /// Only what this iteration changed
    #[arg(long, value_name = "N", value_parser = at_least_one::<u32>)]
    pub(crate) iteration: Option<u32>,
    /// Only the files and how much of them changed
    #[arg(long)]
    pub(crate) stat: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// A receipt file, a run, a branch, or a commit that carries a receipt
    pub(crate) what: String,
    /// Where commands run
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// The key that has to have signed it, where that is not this installation's own
    #[arg(long, value_name = "HEX")]
    pub(crate) key: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where to create the small repository [default: a new temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ResumeArgs {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    pub(crate) run: String,
    /// Add iterations to its budget
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u32>, hide_default_value = true)]
    pub(crate) add_iterations: u32,
    /// Add minutes to its budget
    #[arg(long, value_name = "MINUTES", default_value_t = 0, value_parser = whole::<u64>, hide_default_value = true)]
    pub(crate) add_minutes: u64,
    /// Add dollars to its budget
    #[arg(long, value_name = "USD", default_value_t = 0.0, value_parser = dollars, allow_negative_numbers = true, hide_default_value = true)]
    pub(crate) add_cost: f64,
    /// Add tokens to its budget
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>, hide_default_value = true)]
    pub(crate) add_tokens: u64,
    /// Recreate a lost sandbox from the last imported commit
    #[arg(long)]
    pub(crate) recreate: bool,
    /// Keep the sandbox after success
    #[arg(long)]
    pub(crate) keep_sandbox: bool,
    /// Print the run's id and work in the background
    #[arg(long)]
    pub(crate) detach: bool,
    /// Set by --detach on the process in the background
    #[arg(long, hide = true)]
    pub(crate) in_background: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RotateArgs {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    pub(crate) run: String,
    /// What to tell the fresh session
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct MessageArgs {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    pub(crate) run: String,
    /// What to tell the model
    #[arg(required = true, num_args = 1..)]
    pub(crate) text: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RewindArgs {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    pub(crate) run: String,
    /// The iteration to go back to; 0 is the start
    pub(crate) iteration: u32,
}

#[derive(Debug, Args)]
pub(crate) struct AdoptArgs {
    /// The sandbox's name
    pub(crate) sandbox: String,
    /// The backend it belongs to
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// What kind of task to write
    #[arg(long, value_enum, default_value_t = TemplateArg::Feature)]
    pub(crate) template: TemplateArg,
    /// Overwrite an existing task file
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TemplateArg {
    Minimal,
    Feature,
    Bugfix,
}

#[derive(Debug, Args)]
pub(crate) struct LintArgs {
    /// The task file [default: ralph_task.md at the top of the repository]
    pub(crate) task: Option<PathBuf>,
    /// Run every proof on the base commit too
    #[arg(long)]
    pub(crate) baseline: bool,
    /// Fix what can be fixed mechanically
    #[arg(long)]
    pub(crate) fix: bool,
    #[command(flatten)]
    pub(crate) overrides: RunOverrideArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the configuration in force
    #[command(after_help = "Examples:\n  ralph config show\n  ralph config show --origin --json")]
    Show {
        /// Name the source of each value
        #[arg(long)]
        origin: bool,
    },
    /// Print the paths of the files that are read
    #[command(after_help = "Examples:\n  ralph config path\n  ralph config path --json")]
    Path,
    /// Print the JSON schema of the configuration file
    #[command(after_help = "Examples:\n  ralph config schema\n  ralph config schema > config.schema.json")]
    Schema,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// List sandboxes and the runs they belong to
    #[command(after_help = "Examples:\n  ralph sandbox ls\n  ralph sandbox ls --json")]
    Ls(BackendFlag),
    /// Remove one sandbox and everything in it
    #[command(
        after_help = "Examples:\n  ralph sandbox rm agent-loop-actions-ralph-task-001-add-health\n  ralph sandbox rm NAME --backend local"
    )]
    Rm {
        /// The sandbox's name, as `ralph sandbox ls` shows it
        name: String,
        #[command(flatten)]
        on: BackendFlag,
    },
    /// Run a command in a sandbox: a new one that is gone afterwards, or one that exists
    #[command(
        after_help = "Examples:\n  ralph sandbox exec -- id\n  ralph sandbox exec --in NAME -- git log --oneline\n  ralph sandbox exec --allow-host pypi -- pip download six"
    )]
    Exec(Box<SandboxExecArgs>),
    /// End every process of a sandbox and keep its files
    #[command(after_help = "Examples:\n  ralph sandbox stop NAME\n  ralph sandbox stop NAME --backend local")]
    Stop {
        /// The sandbox's name, as `ralph sandbox ls` shows it
        name: String,
        #[command(flatten)]
        on: BackendFlag,
    },
    /// Remove sandboxes that no run needs any more
    #[command(after_help = "Examples:\n  ralph sandbox prune --dry-run\n  ralph sandbox prune")]
    Prune(PruneArgs),
}

#[derive(Debug, Args)]
pub(crate) struct SandboxExecArgs {
    /// The sandbox to use instead of a new one
    #[arg(long = "in", value_name = "NAME", conflicts_with_all = ["image", "network", "allow_host"])]
    pub(crate) name: Option<String>,
    /// Base image: oci:DIR, docker-archive:TAR or rootfs:DIR
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Network policy of the new sandbox
    #[arg(long, value_name = "POLICY")]
    pub(crate) network: Option<PolicyMode>,
    /// Let the new sandbox reach this host or preset; may be given again
    #[arg(long, visible_alias = "allow", value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
    /// Grant the model of this profile: its address and a phantom for its key go in, its calls are metered
    #[arg(long, value_name = "PROFILE", conflicts_with = "name")]
    pub(crate) profile: Vec<String>,
    /// The most that calls of granted models may cost
    #[arg(long, value_name = "USD", default_value_t = 1.0, requires = "profile")]
    pub(crate) max_cost: f64,
    /// Grant a secret to HTTPS requests to a host: NAME=HOST; may be given again
    #[arg(long, value_name = "NAME=HOST", conflicts_with = "name")]
    pub(crate) lend: Vec<String>,
    /// Show these host toolchains: auto, none or a name; may be given again
    #[arg(long, value_name = "NAME")]
    pub(crate) toolchain: Vec<String>,
    /// Copy this directory's files into the workspace first
    #[arg(long, value_name = "DIR")]
    pub(crate) copy: Option<std::path::PathBuf>,
    /// End the command after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub(crate) timeout: u64,
    /// Pass standard input to the command
    #[arg(long, short = 'i')]
    pub(crate) stdin: bool,
    /// Give the command a terminal
    #[arg(long, short = 't')]
    pub(crate) terminal: bool,
    #[command(flatten)]
    pub(crate) on: BackendFlag,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RedteamArgs {
    /// The backend to attack
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// Only these cases: an area (FS, PR, KS, NE, DN, PC, RX, PE, PF), a case (FS-01) or a prefix of one (KS-04*)
    #[arg(long, value_name = "CASES")]
    pub(crate) only: Option<String>,
    /// Also print the cases that passed
    #[arg(long, short = 'v')]
    pub(crate) verbose: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SelftestArgs {
    /// The backend to try
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
    /// Run the whole conformance suite as well
    #[arg(long)]
    pub(crate) full: bool,
}

#[derive(Debug, Args)]
pub(crate) struct BackendFlag {
    /// The backend the sandboxes belong to
    #[arg(long, value_name = "NAME")]
    pub(crate) backend: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PruneArgs {
    /// Only print what would be removed
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) on: BackendFlag,
}

fn dollars(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(usd) if usd.is_finite() && usd >= 0.0 => Ok(usd),
        _ => Err("it takes dollars, zero or more, like 2.50".to_owned()),
    }
}

fn network(text: &str) -> Result<PolicyMode, String> {
    let all = PolicyMode::ALL.map(PolicyMode::as_str).join(", ");
    PolicyMode::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| format!("it is one of {all}"))
}

fn whole<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "it takes a whole number".to_owned())
}

fn at_least_one<T: FromStr + From<u8> + PartialOrd>(text: &str) -> Result<T, String> {
    whole(text)
        .ok()
        .filter(|number| *number >= T::from(1))
        .ok_or_else(|| "it takes a whole number, 1 or more".to_owned())
}
