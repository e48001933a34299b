//! Where the programs in shown directories really are. A link into a known toolchain brings that toolchain; one that
//! leads to nothing inside is told.

use std::path::{Path, PathBuf};

use super::look::{self, Kind};
use super::plan::{Claim, Entry, Plan};
use super::{manager, polyglot, rows};

/// Most programs named in one note.
const MAX_NAMED: usize = 5;

/// Follows the links of programs, then the interpreters of virtual environments.
pub(super) fn follow(plan: &mut Plan<'_>) {
    for dir in plan.programs.clone() {
        let mut lost = Vec::new();
        for (name, kind) in look::names(&dir).0 {
            if kind != Kind::Link {
                continue;
            }
            let link = dir.join(&name);
            if !leads_inside(plan, &dir, &link) {
                lost.push(name.to_string_lossy().into_owned());
            }
        }
        tell(plan, &dir, &lost);
    }
    interpreters(plan);
}

fn leads_inside(plan: &mut Plan<'_>, dir: &Path, link: &Path) -> bool {
    // A link that leads nowhere on the host is no loss.
    let Some(real) = look::real(link) else { return true };
    if plan.shows(&real) {
        return true;
    }
    // npm puts packages beside the directory with links to their programs.
    let modules = dir.parent().map(|prefix| prefix.join("lib/node_modules"));
    if let Some(modules) = modules
        && look::real_dir(&modules).is_some_and(|modules| real.starts_with(modules))
    {
        return plan.bind(&modules) && plan.shows(&real);
    }
    bring(plan, &real) && plan.shows(&real)
}

/// Shows the toolchain that a program belongs to, without putting it on the `PATH`.
fn bring(plan: &mut Plan<'_>, real: &Path) -> bool {
    let entry = Entry { named: real.to_owned(), real: real.to_owned() };
    let claims = [manager::claim, polyglot::claim, rows::claim];
    plan.aside(|plan| claims.iter().any(|claim| claim(plan, &entry) == Claim::Mine))
}

fn interpreters(plan: &mut Plan<'_>) {
    let environments: Vec<PathBuf> = plan.binds().iter().map(|bind| bind.source.clone()).collect();
    for environment in environments {
        if !environment.join("pyvenv.cfg").is_file() {
            continue;
        }
        let python = environment.join("bin/python");
        let Some(real) = look::real(&python) else { continue };
        let shown = plan.shows(&real) || (bring(plan, &real) && plan.shows(&real));
        if !shown {
            plan.note(&format!(
                "`{}` needs `{}`, which is not shown; `sandbox.toolchains` may name its folder",
                environment.display(),
                real.display()
            ));
        }
    }
}

fn tell(plan: &mut Plan<'_>, dir: &Path, lost: &[String]) {
    if lost.is_empty() {
        return;
    }
    let mut names: Vec<String> = lost.iter().take(MAX_NAMED).cloned().collect();
    if lost.len() > MAX_NAMED {
        names.push(format!("{} more", lost.len() - MAX_NAMED));
    }
    let names = names.join(", ");
    plan.note(&format!(
        "in `{}` these lead to folders that are not shown: {names}; `sandbox.toolchains` may name those folders",
        dir.display()
    ));
}
