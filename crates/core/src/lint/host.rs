//! The rules about names that only the host knows: profiles, backends, agents, template variables.

use std::collections::BTreeMap;

use super::context::{Context, Pricing, TEMPLATE_VARIABLES};
use super::finding::Rule;
use super::rules::{Rules, shown};
use crate::task::{EngineKind, Front};
use crate::text;

impl Rules<'_> {
    pub(super) fn profiles(&mut self, front: &Front) {
        let Some(profiles) = &self.context.profiles else { return };
        let Context { wanted_profile, default_profile, fallback_profile, doctor_profile, .. } = &self.context;
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
                        || format!("name one of {}, or add it to `models.yaml`", names(profiles.keys())),
                        |meant| format!("did you mean `{meant}`?"),
                    );
                    self.error(Rule::UnknownProfile, key, format!("there is no profile `{}`", shown(name)), fix);
                }
                Some(Pricing::Unknown) if !capped => {
                    unpriced.entry(name).or_insert(key);
                }
                Some(_) => (),
            }
        }
        for (name, key) in unpriced {
            self.error(
                Rule::UnknownPrice,
                key,
                format!("the price of profile `{}` is not known, so the cost cap cannot hold", shown(name)),
                "add `max_tokens_total: 2000000` (or run with `--max-tokens`), or a `price` to the profile",
            );
        }
    }

    pub(super) fn backend(&mut self, front: &Front) {
        let Some(backends) = &self.context.backends else { return };
        let Some(name) = front.sandbox_provider.as_ref().or(self.context.default_backend.as_ref()) else { return };
        let Some(maxima) = backends.get(name) else {
            let meant = text::did_you_mean(text::head(name, 64), backends.keys().map(String::as_str));
            let all = backends.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let fix = meant.map_or_else(|| format!("use one of: {all}"), |meant| format!("did you mean `{meant}`?"));
            self.error(Rule::UnknownBackend, "sandbox_provider", format!("there is no backend `{}`", shown(name)), fix);
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
                let message = format!("`{what}: {asked}` is more than backend `{}` gives", shown(name));
                self.error(
                    Rule::ResourcesOverMaximum,
                    "sandbox_resources",
                    message,
                    format!("ask for at most `{what}: {most}`"),
                );
            }
        }
    }

    pub(super) fn agent(&mut self, front: &Front) {
        let Some(agents) = &self.context.agents else { return };
        if front.engine != EngineKind::Agent || agents.contains(front.agent()) {
            return;
        }
        let name = front.agent();
        let meant = text::did_you_mean(text::head(name, 64), agents.iter().map(String::as_str));
        let fix =
            meant.map_or_else(|| format!("name one of {}", names(agents)), |meant| format!("did you mean `{meant}`?"));
        self.error(Rule::UnknownAgent, "agent", format!("there is no agent `{}`", shown(name)), fix);
    }

    pub(super) fn templates(&mut self, front: &Front) {
        let templates =
            [("pr.title_template", &front.pr.title_template), ("pr.body_template", &front.pr.body_template)];
        for (key, template) in templates {
            for name in variables(template.as_deref().unwrap_or("")) {
                let meant = text::did_you_mean(&name, TEMPLATE_VARIABLES);
                let all = TEMPLATE_VARIABLES.map(|name| format!("{{{name}}}")).join(" ");
                let fix =
                    meant.map_or_else(|| format!("use one of: {all}"), |meant| format!("did you mean `{{{meant}}}`?"));
                let message = format!("`{key}` has the unknown variable `{{{name}}}`");
                self.error(Rule::UnknownTemplateVariable, key, message, fix);
            }
        }
    }
}

/// Returns the variables of a template that nobody knows, each once. `{` before anything but a word is plain text.
fn variables(template: &str) -> Vec<String> {
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
fn names<'a>(known: impl IntoIterator<Item = &'a String>) -> String {
    known.into_iter().map(|name| format!("`{}`", shown(name))).collect::<Vec<_>>().join(", ")
}
