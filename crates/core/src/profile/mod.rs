//! Model profiles: the providers ralph knows, `models.yaml`, which profile takes precedence, and where its calls go.
//!
//! The engine makes the calls; the secret store finds the keys, which never pass through here.

mod endpoint;
mod models_yaml;
mod output_limit;
mod profile_resolution;
mod provider;

pub use endpoint::{
    ANTHROPIC, BadEndpoint, DEFAULT_AZURE_VERSION, ProfileEndpoint, credential_names, resolve_endpoint,
};
pub use models_yaml::{BadModelsFile, Profile, ProfilePrice, parse};
pub use output_limit::{OutputLimitField, is_reasoning_model};
pub use profile_resolution::{ProfileCatalog, ProfileEntry, ProfileError, ProfileFile, SHIPPED, TrustedFiles};
pub use provider::{PROVIDERS, Provider, ProviderModel, ProviderProtocol, UnknownModel};
