//! Model profiles: the providers ralph knows, `models.yaml`, whose profile counts, and where its calls go.
//!
//! Calls are made in `engine`; keys are found by the secret store and never pass through here.

mod catalog;
mod endpoint;
mod models_yaml;
mod output_limit;
mod provider;

pub use catalog::{ProfileCatalog, ProfileEntry, ProfileError, ProfileFile, SHIPPED, TrustedFiles};
pub use endpoint::{
    ANTHROPIC, BadEndpoint, DEFAULT_AZURE_VERSION, ProfileEndpoint, credential_names, resolve_endpoint,
};
pub use models_yaml::{BadModelsFile, Profile, ProfilePrice, parse};
pub use output_limit::{OutputLimitField, is_reasoning_model};
pub use provider::{PROVIDERS, Provider, ProviderModel, ProviderProtocol, UnknownModel};
