//! Turns a run request into a run specification: config layers, profiles, prices, trust, lint and pinning.
//!
//! Nothing here prints, reads arguments or looks at the current directory: the directory and the environment are
//! given, so that the command line, a server and a worker start runs the same way. Starting itself is
//! [`crate::run::begin`].

mod agent;
mod error;
mod find_run;
mod layers;
mod lint;
mod overrides;
mod pin_model_profiles;
mod prices;
mod profiles;
mod ralph_home;
mod request;
mod run_spec;
mod shell_quote;
mod task_file;
mod task_options;
mod trust;

pub use error::SetupError;
pub use find_run::{find_audit_folder, find_run, find_run_to_change};
pub use layers::{config_file, resolve_config};
pub use lint::{lint_task, task_errors};
pub use overrides::RunOverrides;
pub use pin_model_profiles::pin_named_profiles;
pub use prices::{imported_prices, prices_file, prices_in_force};
pub use profiles::{PROJECT_MODEL_FILES, load_profiles, user_models_file};
pub use ralph_home::ralph_home;
pub use request::{LintedRequest, LoadedRequest, RunRequest, check_startable};
pub use run_spec::{pinned_resources, resolve_run};
pub use shell_quote::shell_quote;
pub use task_file::{LoadedTask, TASK_FILE, TaskInput, load_task};
pub use trust::{record_trust, trust_file, trusted_files};
