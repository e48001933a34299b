//! One file per command.

mod adopt;
mod agent;
mod audit;
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
mod shell;
mod show;
mod steer;
mod trust;
mod verify;
mod watch;

use ralph_core::control::Control;

use crate::args::{Cli, Command};
use crate::environment::Environment;
use crate::error::Outcome;
use crate::setup::Setup;
use crate::ui::Ui;

/// Carries out the command a person typed.
pub(crate) async fn dispatch(cli: Cli, environment: Environment, ui: &mut Ui) -> Outcome {
    match cli.command {
        Command::Completions { shell } => return Ok(shell::completions(shell, ui)),
        Command::Man { command } => return shell::man(command.as_deref(), ui),
        Command::Help { topic } => return help::help(topic.as_deref(), ui),
        _ => (),
    }
    for remark in &environment.remarks {
        ui.say(remark);
    }
    let setup = Setup::new(environment).await?;
    match cli.command {
        Command::Run(args) => Box::pin(run::run(&setup, args, ui)).await,
        Command::Ls => ls::ls(&setup, ui),
        Command::Show(args) => show::show(&setup, &args.run, ui),
        Command::Logs(args) => logs::logs(&setup, &args, ui).await,
        Command::Watch(args) => watch::watch(&setup, &args, cli.color, ui).await,
        Command::Diff(args) => diff::diff(&setup, &args, ui).await,
        Command::Verify(args) => verify::verify(&setup, &args, ui).await,
        Command::Demo(args) => Box::pin(demo::demo(&setup, args, ui)).await,
        Command::Pause(args) => steer::steer(&setup, &args.run, Control::Pause, ui).await,
        Command::Resume(args) => Box::pin(resume::resume(&setup, args, ui)).await,
        Command::Rotate(args) => steer::steer(&setup, &args.run, Control::Rotate { why: args.why }, ui).await,
        Command::Stop(args) => steer::steer(&setup, &args.run, Control::Stop, ui).await,
        Command::Note(args) => steer::steer(&setup, &args.run, Control::Note { text: args.text.join(" ") }, ui).await,
        Command::Guardrail(args) => {
            steer::steer(&setup, &args.run, Control::Guardrail { text: args.text.join(" ") }, ui).await
        }
        Command::Gutter(args) => gutter::gutter(&setup, &args, ui),
        Command::Diagnose(args) => diagnose::diagnose(&setup, &args.run, ui).await,
        Command::Apply(args) => diagnose::apply(&setup, &args, ui).await,
        Command::SetProfile(args) => {
            steer::steer(&setup, &args.run, Control::SetProfile { name: args.profile }, ui).await
        }
        Command::EditTask(args) => edit_task::edit_task(&setup, args, ui).await,
        Command::Rewind(args) => rewind::rewind(&setup, &args, ui).await,
        Command::Adopt(args) => adopt::adopt(&setup, &args, ui).await,
        Command::Import(args) => import::import(&setup, &args, ui).await,
        Command::Init(args) => init::init(&setup, &args, ui).await,
        Command::Lint(args) => lint::lint(&setup, &args, ui).await,
        Command::Doctor => Ok(doctor::doctor(&setup, ui).await),
        Command::Redteam(args) => Box::pin(redteam::redteam(&setup, &args, ui)).await,
        Command::Selftest(args) => selftest::selftest(&setup, &args, ui).await,
        Command::Sandbox(args) => sandbox::sandbox(&setup, args, ui).await,
        Command::Secret(args) => secret::secret(&setup, args, ui).await,
        Command::StoreToken(args) => secret::store_token(&setup, args, ui).await,
        Command::CheckToken(args) => secret::secret(&setup, crate::args::secret::Secret::Check(args), ui).await,
        Command::GetToken(args) => secret::get_token(&setup, &args, ui),
        Command::PruneSandboxes(args) => sandbox::prune(&setup, &args, ui).await,
        Command::Profile(args) => profile::profile(&setup, &args, ui).await,
        Command::Agent(args) => Box::pin(agent::agent(&setup, &args, ui)).await,
        Command::Policy(args) => policy::policy(&setup, &args, ui).await,
        Command::Audit(args) => audit::audit(&setup, &args, ui).await,
        Command::Trust(args) => trust::trust(&setup, &args, ui).await,
        Command::Config(args) => config::config(&setup, &args, ui).await,
        Command::Completions { .. } | Command::Man { .. } | Command::Help { .. } => Ok(ralph_core::exit::Exit::Success),
    }
}
