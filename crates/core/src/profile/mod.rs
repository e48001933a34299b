//! Model profiles: the providers ralph knows, `models.yaml`, whose profile counts, and where its calls go.
//!
//! Calls are made in `engine`; keys are found by the secret store and never pass through here.

mod catalog;
mod endpoint;
mod limit;
mod provider;
mod yaml;

pub use catalog::{Entry, Error, Profiles, SHIPPED, Source, Trust};
pub use endpoint::{ANTHROPIC, AZURE_VERSION, BadEndpoint, Endpoint, credential_names, endpoint};
pub use limit::{LimitField, reasons};
pub use provider::{Model, PROVIDERS, Provider, UnknownModel, Wire};
pub use yaml::{BadFile, PriceAsk, Profile, parse};
