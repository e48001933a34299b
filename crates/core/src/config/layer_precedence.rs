//! Orders the layers and selects values by one of two rules: the highest layer wins, or it wins unless a checkout asks
//! for more than a lower layer allows.

use super::config_keys::ConfigValues;
use super::error::{ConfigWidening, Error};
use super::layer::ConfigLayer;
use super::origin::{ConfigOrigin, ResolvedValue};

/// The layers, lowest first.
#[derive(Debug)]
pub(super) struct ConfigStack<'a>(Vec<&'a ConfigLayer>);

/// An option that a checkout may only narrow.
pub(super) struct CappedOption<T> {
    pub(super) key: &'static str,
    pub(super) get: fn(&ConfigValues) -> Option<T>,
    /// Returns whether the first value allows something that the second does not.
    pub(super) wider: fn(&T, &T) -> bool,
    pub(super) show: fn(&T) -> String,
    /// The words before a limit: "at most" or "at least".
    pub(super) bound: &'static str,
    /// The flag that would allow a value, if there is one.
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

    /// Returns the value of the highest layer.
    pub(super) fn pick<T>(&self, built_in: T, get: impl Fn(&ConfigValues) -> Option<T>) -> ResolvedValue<T> {
        let found = self.0.iter().rev().find_map(|layer| Some((get(&layer.values)?, layer.origin.clone())));
        match found {
            Some((value, origin)) => ResolvedValue { value, origin },
            None => ResolvedValue::built_in(built_in),
        }
    }

    /// Like [`ConfigStack::pick`], for an option without a default.
    pub(super) fn pick_option<T>(&self, get: impl Fn(&ConfigValues) -> Option<T>) -> ResolvedValue<Option<T>> {
        self.pick(None, |values| get(values).map(Some))
    }

    /// Returns the value of the highest layer, and refuses a checkout that asks for more than a layer below it allows.
    ///
    /// The built-in default is no cap. A value of the user above the checkout (flag, environment) is final.
    pub(super) fn capped<T: Clone>(&self, option: &CappedOption<T>) -> Result<Option<ResolvedValue<T>>, Error> {
        self.capped_by(option, None)
    }

    /// Like [`ConfigStack::capped`], with a default that caps the project too: the user may not have read the files of
    /// a checkout, while the task is what the user asks for.
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
                let limited = !layer.origin.is_trusted() && !self.is_settled_above(&layer.origin, option.get);
                if limited && (option.wider)(&value, &limit.value) {
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

    /// Returns whether a layer of the user above this one sets the option.
    pub(super) fn is_settled_above<T>(&self, origin: &ConfigOrigin, get: fn(&ConfigValues) -> Option<T>) -> bool {
        self.0.iter().any(|layer| {
            layer.origin.is_trusted() && layer.origin.rank() > origin.rank() && get(&layer.values).is_some()
        })
    }
}
