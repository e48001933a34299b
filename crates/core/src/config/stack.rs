//! The layers in order, and the two ways to choose among them: the highest wins, and the highest wins unless a
//! checkout asks for more than the layers below it allow.

use super::error::{ConfigWidening, Error};
use super::layer::ConfigLayer;
use super::origin::{ConfigOrigin, ResolvedValue};
use super::values::ConfigValues;

/// The layers, lowest first.
#[derive(Debug)]
pub(super) struct ConfigStack<'a>(Vec<&'a ConfigLayer>);

/// An option that a checkout may only narrow.
pub(super) struct CappedOption<T> {
    pub(super) key: &'static str,
    pub(super) get: fn(&ConfigValues) -> Option<T>,
    /// Says whether the first value allows something that the second does not.
    pub(super) wider: fn(&T, &T) -> bool,
    pub(super) show: fn(&T) -> String,
    /// How a limit reads: "at most" or "at least".
    pub(super) bound: &'static str,
    /// The flag that would allow a value, where there is one.
    pub(super) flag: Option<&'static str>,
}

impl<'a> ConfigStack<'a> {
    pub(super) fn new(layers: &'a [ConfigLayer]) -> Self {
        let mut sorted: Vec<&ConfigLayer> = layers.iter().collect();
        sorted.sort_by_key(|layer| layer.origin.rank());
        Self(sorted)
    }

    pub(super) fn lowest_first(&self) -> impl Iterator<Item = &'a ConfigLayer> + '_ {
        self.0.iter().copied()
    }

    /// Returns what the highest layer said.
    pub(super) fn pick<T>(&self, built_in: T, get: impl Fn(&ConfigValues) -> Option<T>) -> ResolvedValue<T> {
        let found = self.0.iter().rev().find_map(|layer| Some((get(&layer.values)?, layer.origin.clone())));
        match found {
            Some((value, origin)) => ResolvedValue { value, origin },
            None => ResolvedValue::built_in(built_in),
        }
    }

    /// As [`ConfigStack::pick`], for an option without a default.
    pub(super) fn pick_option<T>(&self, get: impl Fn(&ConfigValues) -> Option<T>) -> ResolvedValue<Option<T>> {
        self.pick(None, |values| get(values).map(Some))
    }

    /// Returns what the highest layer said, and refuses a checkout that asks for more than a layer below it allows.
    ///
    /// The built-in default is no cap. A word of the user above the checkout (flag, environment) settles it.
    pub(super) fn capped<T: Clone>(&self, option: &CappedOption<T>) -> Result<Option<ResolvedValue<T>>, Error> {
        self.capped_by(option, None)
    }

    /// As [`ConfigStack::capped`], with a default that caps the project too: its files come with a checkout that nobody may
    /// have read, while the task is what the user asks for.
    pub(super) fn capped_or<T: Clone>(&self, option: &CappedOption<T>, built_in: T) -> Result<ResolvedValue<T>, Error> {
        let built_in = ResolvedValue::built_in(built_in);
        Ok(self.capped_by(option, Some(&built_in))?.unwrap_or(built_in))
    }

    fn capped_by<T: Clone>(
        &self,
        option: &CappedOption<T>,
        built_in: Option<&ResolvedValue<T>>,
    ) -> Result<Option<ResolvedValue<T>>, Error> {
        let mut below: Option<ResolvedValue<T>> = None;
        for layer in self.lowest_first() {
            let Some(value) = (option.get)(&layer.values) else { continue };
            let project = matches!(layer.origin, ConfigOrigin::Project(_));
            if let Some(limit) = below.as_ref().or(built_in.filter(|_| project)) {
                let judged = !layer.origin.is_trusted() && !self.is_settled_above(&layer.origin, option.get);
                if judged && (option.wider)(&value, &limit.value) {
                    let asked = (option.show)(&value);
                    return Err(ConfigWidening {
                        key: option.key,
                        flag: option.flag.map(|flag| format!("{flag} {asked}")),
                        asked,
                        by: layer.origin.clone(),
                        limit: format!("{} {}", option.bound, (option.show)(&limit.value)),
                        limit_by: limit.origin.clone(),
                    }
                    .into());
                }
            }
            below = Some(ResolvedValue { value, origin: layer.origin.clone() });
        }
        Ok(below)
    }

    /// Says whether the user spoke about an option in a layer above this one.
    pub(super) fn is_settled_above<T>(&self, origin: &ConfigOrigin, get: fn(&ConfigValues) -> Option<T>) -> bool {
        self.0.iter().any(|layer| {
            layer.origin.is_trusted() && layer.origin.rank() > origin.rank() && get(&layer.values).is_some()
        })
    }
}
