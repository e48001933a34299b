//! Searches the `PATH` for toolchains, directory by directory.

use std::path::{Path, PathBuf};

use ralph_core::config::ToolchainSelection;
use ralph_core::text::did_you_mean;

use super::error::ToolchainError;
use super::host::{HostPaths, SANDBOX_HOME, ToolchainHost};
use super::path_policy::UserHome;
use super::setup::ToolchainSetup;
use super::setup_builder::{DirectoryClaim, PathEntry, ToolchainPlan};
use super::{
    cache, fs_probe, known_tools, multi_language_manager, other_path_dirs, program_links, registries, rust, tool_names,
    version_manager,
};

/// The `PATH` to use if the host's has no system directory at all.
const SYSTEM_PATH: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin"];

/// Finds the toolchains that a sandbox should see.
///
/// `auto` takes what the `PATH` uses and notes what it leaves out. Names (`rust`, `nvm`) take only these toolchains,
/// from the `PATH` or from their usual folders; absolute folders take exactly that folder. A named toolchain that
/// cannot be shown is an error. `none` leaves only the system's own programs.
pub fn find(asked: &ToolchainSelection, host: &ToolchainHost<'_>) -> Result<ToolchainSetup, ToolchainError> {
    find_with_paths(asked, host, &HostPaths::default())
}

pub(super) fn find_with_paths(
    asked: &ToolchainSelection,
    host: &ToolchainHost<'_>,
    places: &HostPaths,
) -> Result<ToolchainSetup, ToolchainError> {
    let unusable = || ToolchainError::Home { path: host.home.to_owned() };
    let named = fs_probe::clean(host.home).ok_or_else(unusable)?;
    let home = UserHome { real: fs_probe::real_dir(&named).ok_or_else(unusable)?, named };
    let mut plan = ToolchainPlan::new(*host, places, home, asked);
    let named = match asked {
        ToolchainSelection::Only(names) => {
            names.iter().map(|name| ToolchainRequest::parse(name)).collect::<Result<_, _>>()?
        }
        ToolchainSelection::Auto | ToolchainSelection::None => Vec::new(),
    };
    bind_named_folders(&mut plan, &named)?;
    for dir in std::env::split_paths(host.path) {
        visit_path_dir(&mut plan, &dir);
    }
    find_at_usual_paths(&mut plan, &named)?;
    if !plan.paths().iter().any(|dir| places.is_system(dir)) {
        for dir in SYSTEM_PATH {
            plan.add_to_path(Path::new(dir));
        }
    }
    rust::bind_toolchains(&mut plan);
    program_links::follow(&mut plan);
    set_home_variables(&mut plan);
    registries::forward_registries(&mut plan);
    cache::list(&mut plan);
    Ok(plan.finish())
}

/// One element of a list of toolchains.
#[derive(Debug)]
enum ToolchainRequest<'a> {
    Name(&'a str),
    Folder(PathBuf),
}

impl<'a> ToolchainRequest<'a> {
    fn parse(name: &'a str) -> Result<Self, ToolchainError> {
        let path = Path::new(name);
        if path.is_absolute() {
            let refused = || ToolchainError::Refused { path: path.to_owned(), why: "its path contains `..`" };
            return fs_probe::clean(path).map(Self::Folder).ok_or_else(refused);
        }
        if tool_names::is_known(name) {
            return Ok(Self::Name(name));
        }
        Err(ToolchainError::Unknown { name: name.to_owned(), meant: did_you_mean(name, tool_names::known()) })
    }
}

/// Shows the folders that the list names; they come first on the `PATH`.
fn bind_named_folders(plan: &mut ToolchainPlan<'_>, named: &[ToolchainRequest<'_>]) -> Result<(), ToolchainError> {
    for named in named {
        let ToolchainRequest::Folder(dir) = named else { continue };
        let real = fs_probe::real_dir(dir).ok_or_else(|| ToolchainError::NoDirectory { path: dir.clone() })?;
        if !plan.places.is_system(&real) {
            plan.try_bind(dir, &real).map_err(|why| ToolchainError::Refused { path: dir.clone(), why })?;
        }
        let bin = dir.join("bin");
        let programs = if bin.is_dir() { bin } else { dir.clone() };
        if plan.add_to_path(&programs) {
            plan.programs.push(programs);
        }
    }
    Ok(())
}

/// Handles one directory of the host's `PATH`.
fn visit_path_dir(plan: &mut ToolchainPlan<'_>, dir: &Path) {
    if !dir.is_absolute() {
        let name = dir.display();
        return plan.note(&format!("`{name}` of the PATH is not shown: it is a relative path"));
    }
    // Directories that do not exist are common, and nothing is lost.
    let Some(real) = fs_probe::real_dir(dir) else { return };
    let named = fs_probe::clean(dir).unwrap_or_else(|| real.clone());
    if plan.places.is_system(&named) || plan.places.is_system(&real) {
        plan.add_to_path(&named);
        return;
    }
    if *plan.asked == ToolchainSelection::None {
        return;
    }
    let entry = PathEntry { named, real };
    if claim(plan, &entry) == DirectoryClaim::NotMine {
        match plan.asked {
            ToolchainSelection::Auto => other_path_dirs::show(plan, &entry),
            // A named folder is already bound.
            ToolchainSelection::Only(_) | ToolchainSelection::None => (),
        }
    }
}

fn claim(plan: &mut ToolchainPlan<'_>, entry: &PathEntry) -> DirectoryClaim {
    let claims = [rust::claim, version_manager::claim, multi_language_manager::claim, known_tools::claim];
    let mine = claims.iter().any(|claim| claim(plan, entry) == DirectoryClaim::Mine);
    if mine { DirectoryClaim::Mine } else { DirectoryClaim::NotMine }
}

/// Looks in the usual folders for named toolchains that are not on the `PATH`.
fn find_at_usual_paths(plan: &mut ToolchainPlan<'_>, named: &[ToolchainRequest<'_>]) -> Result<(), ToolchainError> {
    for named in named {
        let ToolchainRequest::Name(word) = named else { continue };
        let tools: Vec<&tool_names::ToolName> = tool_names::tools(word).collect();
        for pattern in tools.iter().flat_map(|tool| tool.usual) {
            if plan.has_found(word) {
                break;
            }
            if let Some(entry) = expand_newest(&plan.home.named, pattern).and_then(PathEntry::of) {
                claim(plan, &entry);
            }
        }
        let program = tool_names::program(word);
        let on_path = |program: &str| plan.paths().iter().any(|dir| dir.join(program).is_file());
        if !plan.has_found(word) && !program.is_some_and(on_path) {
            return Err(ToolchainError::Missing { name: (*word).to_owned() });
        }
    }
    Ok(())
}

/// Replaces `*` with the newest version.
fn expand_newest(home: &Path, pattern: &str) -> Option<PathBuf> {
    let mut path = home.to_owned();
    for part in pattern.split('/') {
        if part == "*" {
            path.push(fs_probe::newest_version(&path)?);
        } else {
            path.push(part);
        }
    }
    path.is_dir().then_some(path)
}

/// Sets the variables that name a toolchain's folder, or a writable folder instead.
fn set_home_variables(plan: &mut ToolchainPlan<'_>) {
    if plan.has_found("rust") {
        plan.set_env_path("CARGO_HOME", &Path::new(SANDBOX_HOME).join(".cargo"));
    }
    if plan.has_found("go") {
        plan.set_env_path("GOPATH", &Path::new(SANDBOX_HOME).join("go"));
    }
    if plan.has_found("ruby") {
        // The gems of the shown Ruby stay visible; new ones go to a writable folder.
        plan.set_env_path("GEM_HOME", &Path::new(SANDBOX_HOME).join(".gem"));
    }
    if let Some(root) = plan.host.dir_var("GOROOT").filter(|root| plan.wants(&["go"]) && plan.is_visible(root)) {
        plan.set_env_path("GOROOT", &root);
    }
    set_java_home(plan);
}

fn set_java_home(plan: &mut ToolchainPlan<'_>) {
    if !plan.wants(&["java", "sdkman"]) {
        return;
    }
    let configured = plan.host.dir_var("JAVA_HOME").and_then(|dir| fs_probe::clean(&dir));
    let usual = plan.roots(&["SDKMAN_DIR"], &[".sdkman"]).into_iter().map(|root| root.join("candidates/java/current"));
    let homes: Vec<PathBuf> = configured.into_iter().chain(usual.filter(|_| plan.has_found("sdkman"))).collect();
    for home in homes.iter().filter(|home| home.join("bin/java").is_file()) {
        if plan.is_visible(home) || plan.bind(home) {
            plan.mark_found(&["java"]);
            return plan.set_env_path("JAVA_HOME", home);
        }
    }
}
