//! Makes directories on the `PATH` that belong to no known toolchain visible: each separately, if it is the user's or
//! below `/opt` and contains nothing that looks like a secret.

use super::secret_files;
use super::setup_builder::{PathEntry, ToolchainPlan};

pub(super) fn show(plan: &mut ToolchainPlan<'_>, entry: &PathEntry) {
    let named = entry.named.clone();
    let opt = plan.places.opt.clone();
    let below_opt = entry.real.starts_with(&opt);
    if !below_opt && !plan.home.contains(&entry.real) {
        let name = named.display();
        return plan.note(&format!(
            "`{name}` of the PATH is not shown: it is not a system folder; `sandbox.toolchains` can name it"
        ));
    }
    if secret_files::has_secrets(&entry.real) {
        return plan.note(&format!("`{}` of the PATH is not shown: it contains credentials", named.display()));
    }
    // `/opt/x/bin` is useless without `/opt/x`, which exists for nothing else.
    let prefix = entry.real.parent().filter(|prefix| {
        let bin = entry.real.file_name().is_some_and(|name| name == "bin" || name == "sbin");
        below_opt && bin && *prefix != opt
    });
    let shown = plan.bind(prefix.unwrap_or(&named));
    if !shown || !plan.add_to_path(&named) {
        return;
    }
    plan.programs.push(named.clone());
    let own_prefix = named.parent().filter(|prefix| **prefix != plan.home.named && !prefix.ends_with(".local"));
    let more = own_prefix.filter(|prefix| prefix.join("lib").is_dir() || prefix.join("libexec").is_dir());
    if let Some(more) = more.filter(|_| prefix.is_none() && named.ends_with("bin")) {
        plan.note(&format!(
            "only `{}` is shown; if its programs need more, `sandbox.toolchains` can name `{}`",
            named.display(),
            more.display()
        ));
    }
}
