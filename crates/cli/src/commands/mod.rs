//! Dispatches to the commands, one file for each command or group of related commands.

mod adopt;
mod agent;
mod audit;
mod completions;
mod config;
mod demo;
mod diagnose;
mod diff;
mod doctor;
mod edit_task;
mod gutter;
mod help;
mod import;
mod init;
mod lint;
mod logs;
mod ls;
mod policy;
mod profile;
mod profile_prices;
mod profile_test;
mod redteam;
mod resume;
mod rewind;
mod run;
mod sandbox;
mod sandbox_exec;
mod secret;
mod secret_set;
mod selftest;
mod send_control;
mod show;
mod trust;
mod verify;
mod watch;

use ralph_core::control_request::Control;

use crate::args::{Cli, CliCommand};
use crate::environment::ProcessEnvironment;
use crate::error::CliResult;
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

/// Runs the command that the user typed.
pub(crate) async fn dispatch(cli: Cli, environment: ProcessEnvironment, ui: &mut Ui) -> CliResult {
    match cli.command {
        CliCommand::Completions { shell } => return Ok(completions::completions(shell, ui)),
        CliCommand::Man { command } => return completions::man(command.as_deref(), ui),
        CliCommand::Help { topic } => return help::help(topic.as_deref(), ui),
        _ => (),
    }
    for remark in &environment.remarks {
        ui.print_message(remark);
    }
    let setup = CliSetup::new(environment).await?;
    match cli.command {
        CliCommand::Run(args) => Box::pin(run::run(&setup, args, ui)).await,
        CliCommand::Ls => ls::ls(&setup, ui),
        CliCommand::Show(args) => show::show(&setup, &args.run, ui),
        CliCommand::Logs(args) => logs::logs(&setup, &args, ui).await,
        CliCommand::Watch(args) => watch::watch(&setup, &args, cli.color, ui).await,
        CliCommand::Diff(args) => diff::diff(&setup, &args, ui).await,
        CliCommand::Verify(args) => verify::verify(&setup, &args, ui).await,
        CliCommand::Demo(args) => Box::pin(demo::demo(&setup, args, ui)).await,
        CliCommand::Pause(args) => send_control::steer(&setup, &args.run, Control::Pause, ui).await,
        CliCommand::Resume(args) => Box::pin(resume::resume(&setup, args, ui)).await,
        CliCommand::Rotate(args) => send_control::steer(&setup, &args.run, Control::Rotate { why: args.why }, ui).await,
        CliCommand::Stop(args) => send_control::steer(&setup, &args.run, Control::Stop, ui).await,
        CliCommand::Note(args) => {
            send_control::steer(&setup, &args.run, Control::Note { text: args.text.join(" ") }, ui).await
        }
        CliCommand::Guardrail(args) => {
            send_control::steer(&setup, &args.run, Control::Guardrail { text: args.text.join(" ") }, ui).await
        }
        CliCommand::Gutter(args) => gutter::gutter(&setup, &args, ui),
        CliCommand::Diagnose(args) => diagnose::diagnose(&setup, &args.run, ui).await,
        CliCommand::Apply(args) => diagnose::apply(&setup, &args, ui).await,
        CliCommand::SetProfile(args) => {
            send_control::steer(&setup, &args.run, Control::SetProfile { name: args.profile }, ui).await
        }
        CliCommand::EditTask(args) => edit_task::edit_task(&setup, args, ui).await,
        CliCommand::Rewind(args) => rewind::rewind(&setup, &args, ui).await,
        CliCommand::Adopt(args) => adopt::adopt(&setup, &args, ui).await,
        CliCommand::Import(args) => import::import(&setup, &args, ui).await,
        CliCommand::Init(args) => init::init(&setup, &args, ui).await,
        CliCommand::Lint(args) => lint::lint(&setup, &args, ui).await,
        CliCommand::Doctor => Ok(doctor::doctor(&setup, ui).await),
        CliCommand::Redteam(args) => Box::pin(redteam::redteam(&setup, &args, ui)).await,
        CliCommand::Selftest(args) => selftest::selftest(&setup, &args, ui).await,
        CliCommand::Sandbox(args) => sandbox::sandbox(&setup, args, ui).await,
        CliCommand::Secret(args) => secret::secret(&setup, args, ui).await,
        CliCommand::StoreToken(args) => secret::store_token(&setup, args, ui).await,
        CliCommand::CheckToken(args) => {
            secret::secret(&setup, crate::args::secret::SecretCommand::Check(args), ui).await
        }
        CliCommand::GetToken(args) => secret::get_token(&setup, &args, ui),
        CliCommand::PruneSandboxes(args) => sandbox::prune(&setup, &args, ui).await,
        CliCommand::Profile(args) => profile::profile(&setup, &args, ui).await,
        CliCommand::Agent(args) => Box::pin(agent::agent(&setup, &args, ui)).await,
        CliCommand::Policy(args) => policy::policy(&setup, &args, ui).await,
        CliCommand::Audit(args) => audit::audit(&setup, &args, ui).await,
        CliCommand::Trust(args) => trust::trust(&setup, &args, ui).await,
        CliCommand::Config(args) => config::config(&setup, &args, ui).await,
        CliCommand::Completions { .. } | CliCommand::Man { .. } | CliCommand::Help { .. } => {
            Ok(ralph_core::exit_code::RalphExitCode::Success)
        }
    }
}
