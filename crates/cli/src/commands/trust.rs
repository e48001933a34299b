//! `ralph trust`: records that the user trusts the current version of the project's model profiles, which can decide
//! where a key is sent.

use ralph_core::exit_code::RalphExitCode;
use ralph_core::hash::sha256;
use ralph_core::profile;
use ralph_engine::setup::{PROJECT_MODEL_FILES, record_trust, trusted_files};

use crate::args::TrustArgs;
use crate::error::{CliError, CliResult};
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

pub(crate) async fn trust(setup: &CliSetup, args: &TrustArgs, ui: &mut Ui) -> CliResult {
    let repo = setup.repo().await?;
    let known = trusted_files(&setup.host.home);
    let mut asked: Vec<&str> = Vec::new();
    for name in PROJECT_MODEL_FILES {
        let path = repo.top().join(name);
        let Ok(text) = ralph_engine::read_text_file(&path) else { continue };
        let profiles = profile::parse(&text, name)
            .map_err(|error| crate::run_setup::error_with_hint(RalphExitCode::Usage, &error, error.hint()))?;
        let telling: Vec<_> = profiles.iter().filter(|(_, profile)| !profile.sensitive_fields().is_empty()).collect();
        let hash = sha256(text.as_bytes());
        if telling.is_empty() || known.sha256.contains(&hash) {
            continue;
        }
        asked.push(name);
        ui.print_message(&format!("{name} can send your keys to:"));
        for (profile_name, profile) in telling {
            let key = profile.api_key_env.as_deref().unwrap_or("the provider's usual key");
            ui.print_message(&format!(
                "  {profile_name}: {key} to {}",
                profile.base_url.as_deref().unwrap_or("the provider's usual address")
            ));
        }
        if !args.yes {
            if !ui.can_prompt() {
                return Err(CliError::usage("there is no terminal on which to confirm it").hint("ralph trust --yes"));
            }
            if !ui.confirm("trust it as it is now?") {
                return Err(CliError::usage(format!("`{name}` is not trusted"))
                    .hint("use another profile, or `ralph trust` again"));
            }
        }
        record_trust(&setup.host.home, &hash, &path.display().to_string())?;
        ui.print_message(&format!("{name} is trusted until it changes"));
    }
    if ui.json() {
        ui.print_json(&serde_json::json!({"format": 1, "trusted": asked}));
    } else if asked.is_empty() {
        ui.print_message("nothing here needs trust");
    }
    Ok(RalphExitCode::Success)
}
