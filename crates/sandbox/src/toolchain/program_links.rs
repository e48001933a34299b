//! Follows the links of programs in shown directories. A link into a known toolchain shows that toolchain as well; a
//! link to something that is not shown is noted.

use std::path::{Path, PathBuf};

use super::fs_probe::{self, HostFileKind};
use super::setup_builder::{DirectoryClaim, PathEntry, ToolchainPlan};
use super::{known_tools, multi_language_manager, version_manager};

/// The most programs named in one note.
const MAX_LISTED: usize = 5;

/// Follows the links of programs, then the interpreters of virtual environments.
pub(super) fn follow(plan: &mut ToolchainPlan<'_>) {
    for dir in plan.programs.clone() {
        let mut lost = Vec::new();
        for (name, kind) in fs_probe::names(&dir).0 {
            if kind != HostFileKind::Link {
                continue;
            }
            let link = dir.join(&name);
            if !leads_inside(plan, &dir, &link) {
                lost.push(name.to_string_lossy().into_owned());
            }
        }
        note_unreachable(plan, &dir, &lost);
    }
    follow_interpreters(plan);
}

fn leads_inside(plan: &mut ToolchainPlan<'_>, dir: &Path, link: &Path) -> bool {
    // The link is already broken on the host, so nothing is lost.
    let Some(real) = fs_probe::real(link) else { return true };
    if plan.is_visible(&real) {
        return true;
    }
    // npm installs packages next to the directory with the links to their programs.
    let modules = dir.parent().map(|prefix| prefix.join("lib/node_modules"));
    if let Some(modules) = modules
        && fs_probe::real_dir(&modules).is_some_and(|modules| real.starts_with(modules))
    {
        return plan.bind(&modules) && plan.is_visible(&real);
    }
    bind_owner(plan, &real) && plan.is_visible(&real)
}

/// Shows the toolchain that a program belongs to, without adding it to the `PATH`.
fn bind_owner(plan: &mut ToolchainPlan<'_>, real: &Path) -> bool {
    let entry = PathEntry { named: real.to_owned(), real: real.to_owned() };
    let claims = [version_manager::claim, multi_language_manager::claim, known_tools::claim];
    plan.keeping_path(|plan| claims.iter().any(|claim| claim(plan, &entry) == DirectoryClaim::Mine))
}

fn follow_interpreters(plan: &mut ToolchainPlan<'_>) {
    let environments: Vec<PathBuf> = plan.binds().iter().map(|bind| bind.source.clone()).collect();
    for environment in environments {
        if !environment.join("pyvenv.cfg").is_file() {
            continue;
        }
        let python = environment.join("bin/python");
        let Some(real) = fs_probe::real(&python) else { continue };
        let shown = plan.is_visible(&real) || (bind_owner(plan, &real) && plan.is_visible(&real));
        if !shown {
            plan.note(&format!(
                "`{}` needs `{}`, which is not shown; name its folder in `sandbox.toolchains` to show it",
                environment.display(),
                real.display()
            ));
        }
    }
}

fn note_unreachable(plan: &mut ToolchainPlan<'_>, dir: &Path, lost: &[String]) {
    if lost.is_empty() {
        return;
    }
    let mut names: Vec<String> = lost.iter().take(MAX_LISTED).cloned().collect();
    if lost.len() > MAX_LISTED {
        names.push(format!("{} more", lost.len() - MAX_LISTED));
    }
    let names = names.join(", ");
    plan.note(&format!(
        "in `{}` these programs link to folders that are not shown: {names}; \
         name those folders in `sandbox.toolchains` to show them",
        dir.display()
    ));
}
