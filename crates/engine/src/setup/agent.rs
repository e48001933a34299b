//! Chooses the agent that works in the sandbox, if any.

use ralph_core::agent::CustomAgent;
use ralph_core::config::AgentConfig;
use ralph_core::event::PinnedAgent;
use ralph_core::task::{EngineKind, FrontMatter};
use ralph_core::text::{did_you_mean, head, strip_control};

use super::{RunOverrides, SetupError};

/// The name of the agent whose command line is the user's own.
const CUSTOM_AGENT: &str = "custom";

/// Returns the agents a task may name.
pub(super) fn agent_names() -> impl Iterator<Item = &'static str> {
    ralph_core::agent::all().iter().map(|agent| agent.name()).chain([CUSTOM_AGENT])
}

/// Returns the agent that works in the sandbox; `None` if ralph's own engine does.
pub(super) fn resolve_agent(
    front: &FrontMatter,
    overrides: &RunOverrides,
    config: &AgentConfig,
) -> Result<Option<PinnedAgent>, SetupError> {
    let engine = match overrides.engine.as_deref() {
        Some("actions") if overrides.agent.is_some() => return Err(SetupError::AgentWithoutEngine),
        Some("actions") => EngineKind::Actions,
        Some("agent") => EngineKind::Agent,
        Some(other) => return Err(SetupError::NoEngine { name: strip_control(other) }),
        None if overrides.agent.is_some() => EngineKind::Agent,
        None => front.engine,
    };
    if engine == EngineKind::Actions {
        return Ok(None);
    }
    let name = overrides.agent.as_deref().unwrap_or(front.agent());
    if !agent_names().any(|known| known == name) {
        let name = strip_control(head(name, 64));
        let meant = did_you_mean(&name, agent_names());
        return Err(SetupError::NoAgent { name, meant });
    }
    let template = (name == CUSTOM_AGENT).then(|| config.command.value.clone());
    if let Some(template) = &template {
        CustomAgent::new(template).map_err(|why| SetupError::CustomAgent { why })?;
    }
    Ok(Some(PinnedAgent {
        name: name.to_owned(),
        template,
        session_s: u64::from(config.session_s.value),
        idle_s: u64::from(config.idle_s.value),
        grace_s: u64::from(config.grace_s.value),
    }))
}
