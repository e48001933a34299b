//! Lints a task with everything the linter can know about this host, repository and config.

use std::collections::BTreeMap;

use ralph_core::config::ConfigOrigin;
use ralph_core::lint::{self, BackendMaxima, LintContext, LintFinding, PriceStatus, Severity};

use ralph_sandbox::{Backend, BackendCapabilities};

use super::agent::agent_names;
use super::{LoadedTask, RunOverrides, SetupError, load_profiles, prices_in_force, resolve_config};
use crate::host_environment::HostContext;

/// Lints a task as it would be run here.
pub async fn lint_task(
    host: &HostContext,
    task: &LoadedTask,
    overrides: &RunOverrides,
) -> Result<Vec<LintFinding>, SetupError> {
    let profiles = load_profiles(&host.home, task.repo.top())?;
    let config = resolve_config(host, Some(task.repo.top()), overrides, None)?;
    if overrides.profile.is_some() {
        // The linter would blame the task for a profile the task does not name.
        profiles.get(&config.model.default.value)?;
    }
    let table = prices_in_force(&host.home)?;
    let priced = profiles
        .iter()
        .map(|(name, entry)| {
            let known = entry.profile.price(&table).is_some();
            (name.to_owned(), if known { PriceStatus::Known } else { PriceStatus::Unknown })
        })
        .collect();
    let backends: BTreeMap<String, BackendMaxima> = host.backends().iter().map(|backend| maxima(&**backend)).collect();
    let base = task.repo.base(None).await?;
    let files = task.repo.odb().files_at(&base.sha).await?;
    let context = LintContext {
        profiles: Some(priced),
        wanted_profile: overrides.profile.clone(),
        default_profile: Some(config.model.default.value.clone()),
        fallback_profile: config.model.fallback.value.clone(),
        doctor_profile: config.model.doctor.value.clone(),
        min_checkboxes: match config.lint.min_checkboxes.origin {
            ConfigOrigin::BuiltIn => 0,
            _ => config.lint.min_checkboxes.value,
        },
        has_token_cap: config.budget.max_tokens.value.is_some(),
        backends: Some(backends),
        default_backend: Some(config.sandbox.backend.value.as_str().to_owned()),
        files: Some(files.into_iter().map(|entry| entry.path).collect()),
        agents: Some(agent_names().map(str::to_owned).collect()),
        ..LintContext::default()
    };
    Ok(lint::lint(task.source.as_deref(), &context))
}

fn maxima(backend: &dyn Backend) -> (String, BackendMaxima) {
    let BackendCapabilities { name, max_vcpu, max_memory_gib, max_disk_gib, .. } = backend.capabilities();
    (name.to_owned(), BackendMaxima { vcpu: max_vcpu, memory_gib: max_memory_gib, disk_gib: max_disk_gib })
}

/// Returns the error for a task with lint errors, and whether `ralph lint --fix` can change the file.
pub fn task_errors(task: &LoadedTask, findings: &[LintFinding]) -> SetupError {
    let source = task.source.as_deref().unwrap_or_default();
    let errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
    SetupError::TaskHasErrors {
        path: task.display_path.clone(),
        problems: errors.map(|finding| finding.message.clone()).collect(),
        fixable: lint::fix(source, findings) != source,
    }
}
