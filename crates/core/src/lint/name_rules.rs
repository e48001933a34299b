//! The rules about names that only the host can resolve: profiles, backends, agents, template variables.

use std::collections::BTreeMap;

use super::context::{LintContext, PriceStatus, TEMPLATE_VARIABLES};
use super::finding::LintRule;
use super::rules::{LintPass, excerpt};
use crate::task::{EngineKind, FrontMatter};
use crate::text;

impl LintPass<'_> {
    pub(super) fn profiles(&mut self, front: &FrontMatter) {
        let Some(profiles) = &self.context.profiles else { return };
        let LintContext { wanted_profile, default_profile, fallback_profile, doctor_profile, .. } = &self.context;
        let default = wanted_profile.as_ref().or(front.model_profile_default.as_ref()).or(default_profile.as_ref());
        let named = [
            ("model_profile_default", default),
            ("model_profile_fallback", front.model_profile_fallback.as_ref().or(fallback_profile.as_ref())),
            ("model_profile_doctor", front.model_profile_doctor.as_ref().or(doctor_profile.as_ref())),
        ];
        let capped = front.max_tokens_total.is_some() || self.context.has_token_cap;
        let mut unpriced: BTreeMap<&str, &str> = BTreeMap::new();
        for (key, name) in named.into_iter().filter_map(|(key, name)| Some((key, name?))) {
            match profiles.get(name) {
                None => {
                    let meant = text::did_you_mean(text::head(name, 64), profiles.keys().map(String::as_str));
                    let fix = meant.map_or_else(
                        || format!("name one of {}, or add it to `models.yaml`", quoted_list(profiles.keys())),
                        |meant| format!("did you mean `{meant}`?"),
                    );
                    self.error(LintRule::UnknownProfile, key, format!("there is no profile `{}`", excerpt(name)), fix);
                }
                Some(PriceStatus::Unknown) if !capped => {
                    unpriced.entry(name).or_insert(key);
                }
                Some(_) => (),
            }
        }
        for (name, key) in unpriced {
            self.error(
                LintRule::UnknownPrice,
                key,
                format!("the price of profile `{}` is not known, so the cost cap cannot be enforced", excerpt(name)),
                "add `max_tokens_total: 2000000` (or run with `--max-tokens`), or a `price` to the profile",
            );
        }
    }

    pub(super) fn backend(&mut self, front: &FrontMatter) {
        let Some(backends) = &self.context.backends else { return };
        let Some(name) = front.sandbox_provider.as_ref().or(self.context.default_backend.as_ref()) else { return };
        let Some(maxima) = backends.get(name) else {
            // One that a flag or the config names is no mistake of the task.
            if front.sandbox_provider.is_none() {
                return;
            }
            let meant = text::did_you_mean(text::head(name, 64), backends.keys().map(String::as_str));
            let all = backends.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let fix = meant.map_or_else(|| format!("use one of: {all}"), |meant| format!("did you mean `{meant}`?"));
            self.error(
                LintRule::UnknownBackend,
                "sandbox_provider",
                format!("there is no backend `{}`", excerpt(name)),
                fix,
            );
            return;
        };
        let asked = &front.sandbox_resources;
        let pairs = [
            ("vcpu", asked.vcpu, maxima.vcpu),
            ("memory_gib", asked.memory_gib, maxima.memory_gib),
            ("disk_gib", asked.disk_gib, maxima.disk_gib),
        ];
        for (what, asked, most) in pairs {
            if let (Some(asked), Some(most)) = (asked, most)
                && asked > most
            {
                let message = format!("`{what}: {asked}` is more than backend `{}` can provide", excerpt(name));
                self.error(
                    LintRule::ResourcesOverMaximum,
                    "sandbox_resources",
                    message,
                    format!("request at most `{what}: {most}`"),
                );
            }
        }
    }

    pub(super) fn agent(&mut self, front: &FrontMatter) {
        let Some(agents) = &self.context.agents else { return };
        if front.engine != EngineKind::Agent || agents.contains(front.agent()) {
            return;
        }
        let name = front.agent();
        let meant = text::did_you_mean(text::head(name, 64), agents.iter().map(String::as_str));
        let fix = meant
            .map_or_else(|| format!("name one of {}", quoted_list(agents)), |meant| format!("did you mean `{meant}`?"));
        self.error(LintRule::UnknownAgent, "agent", format!("there is no agent `{}`", excerpt(name)), fix);
    }

    pub(super) fn templates(&mut self, front: &FrontMatter) {
        let templates =
            [("pr.title_template", &front.pr.title_template), ("pr.body_template", &front.pr.body_template)];
        for (key, template) in templates {
            for name in unknown_variables(template.as_deref().unwrap_or("")) {
                let meant = text::did_you_mean(&name, TEMPLATE_VARIABLES);
                let all = TEMPLATE_VARIABLES.map(|name| format!("{{{name}}}")).join(" ");
                let fix =
                    meant.map_or_else(|| format!("use one of: {all}"), |meant| format!("did you mean `{{{meant}}}`?"));
                let message = format!("`{key}` has the unknown variable `{{{name}}}`");
                self.error(LintRule::UnknownTemplateVariable, key, message, fix);
            }
        }
    }
}

/// Returns the unknown variables of a template, each once. `{` before anything but a word is plain text.
fn unknown_variables(template: &str) -> Vec<String> {
    let mut unknown = Vec::new();
    for piece in template.split('{').skip(1) {
        let Some((name, _)) = piece.split_once('}') else { continue };
        let word = !name.is_empty() && name.len() <= 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if word && !TEMPLATE_VARIABLES.contains(&name) && !unknown.iter().any(|known| known == name) {
            unknown.push(name.to_owned());
        }
    }
    unknown
}
fn quoted_list<'a>(known: impl IntoIterator<Item = &'a String>) -> String {
    known.into_iter().map(|name| format!("`{}`", excerpt(name))).collect::<Vec<_>>().join(", ")
}
