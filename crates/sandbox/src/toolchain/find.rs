//! The search itself: along the `PATH`, directory by directory.

use std::path::{Path, PathBuf};

use ralph_core::config::Toolchains;
use ralph_core::text::did_you_mean;

use super::error::Error;
use super::found::Found;
use super::host::{Host, INSIDE, Places};
use super::place::Home;
use super::plan::{Claim, Entry, Plan};
use super::{cache, links, look, loose, manager, mirror, polyglot, rows, rust, words};

/// Used when the host's `PATH` has no system directory at all.
const SYSTEM_PATH: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin"];

/// Finds the toolchains that a sandbox should see.
///
/// `auto` takes what the `PATH` uses and notes what it leaves out. Names (`rust`, `nvm`) take only these, from the
/// `PATH` or from where they usually are, and absolute folders exactly themselves; what is named and cannot be shown is
/// an error. `none` leaves the system's own programs.
pub fn find(asked: &Toolchains, host: &Host<'_>) -> Result<Found, Error> {
    find_among(asked, host, &Places::default())
}

pub(super) fn find_among(asked: &Toolchains, host: &Host<'_>, places: &Places) -> Result<Found, Error> {
    let unusable = || Error::Home { path: host.home.to_owned() };
    let named = look::clean(host.home).ok_or_else(unusable)?;
    let home = Home { real: look::real_dir(&named).ok_or_else(unusable)?, named };
    let mut plan = Plan::new(*host, places, home, asked);
    let named = match asked {
        Toolchains::Only(names) => names.iter().map(|name| Named::parse(name)).collect::<Result<_, _>>()?,
        Toolchains::Auto | Toolchains::None => Vec::new(),
    };
    folders(&mut plan, &named)?;
    for dir in std::env::split_paths(host.path) {
        walk(&mut plan, &dir);
    }
    usual(&mut plan, &named)?;
    if !plan.paths().iter().any(|dir| places.is_system(dir)) {
        for dir in SYSTEM_PATH {
            plan.path(Path::new(dir));
        }
    }
    rust::toolchains(&mut plan);
    links::follow(&mut plan);
    homes(&mut plan);
    mirror::pass_on(&mut plan);
    cache::list(&mut plan);
    Ok(plan.done())
}

/// What a list of toolchains names.
#[derive(Debug)]
enum Named<'a> {
    Word(&'a str),
    Folder(PathBuf),
}

impl<'a> Named<'a> {
    fn parse(name: &'a str) -> Result<Self, Error> {
        let path = Path::new(name);
        if path.is_absolute() {
            let refused = || Error::Refused { path: path.to_owned(), why: "its name goes up with `..`" };
            return look::clean(path).map(Self::Folder).ok_or_else(refused);
        }
        if words::is_known(name) {
            return Ok(Self::Word(name));
        }
        Err(Error::Unknown { name: name.to_owned(), meant: did_you_mean(name, words::known()) })
    }
}

/// Shows the folders that were named; they come first on the `PATH`.
fn folders(plan: &mut Plan<'_>, named: &[Named<'_>]) -> Result<(), Error> {
    for named in named {
        let Named::Folder(dir) = named else { continue };
        let real = look::real_dir(dir).ok_or_else(|| Error::NoDirectory { path: dir.clone() })?;
        if !plan.places.is_system(&real) {
            plan.try_bind(dir, &real).map_err(|why| Error::Refused { path: dir.clone(), why })?;
        }
        let bin = dir.join("bin");
        let programs = if bin.is_dir() { bin } else { dir.clone() };
        if plan.path(&programs) {
            plan.programs.push(programs);
        }
    }
    Ok(())
}

/// Takes one directory of the host's `PATH`.
fn walk(plan: &mut Plan<'_>, dir: &Path) {
    if !dir.is_absolute() {
        let name = dir.display();
        return plan.note(&format!("`{name}` of the PATH is not shown: it is relative to wherever one is"));
    }
    // One that is not there is no loss, and common.
    let Some(real) = look::real_dir(dir) else { return };
    let named = look::clean(dir).unwrap_or_else(|| real.clone());
    if plan.places.is_system(&named) || plan.places.is_system(&real) {
        plan.path(&named);
        return;
    }
    if *plan.asked == Toolchains::None {
        return;
    }
    let entry = Entry { named, real };
    if claim(plan, &entry) == Claim::NotMine {
        match plan.asked {
            Toolchains::Auto => loose::show(plan, &entry),
            // A folder that was named is there already.
            Toolchains::Only(_) | Toolchains::None => (),
        }
    }
}

fn claim(plan: &mut Plan<'_>, entry: &Entry) -> Claim {
    let claims = [rust::claim, manager::claim, polyglot::claim, rows::claim];
    let mine = claims.iter().any(|claim| claim(plan, entry) == Claim::Mine);
    if mine { Claim::Mine } else { Claim::NotMine }
}

/// Looks for what was named and is not on the `PATH` where it usually is.
fn usual(plan: &mut Plan<'_>, named: &[Named<'_>]) -> Result<(), Error> {
    for named in named {
        let Named::Word(word) = named else { continue };
        let tools: Vec<&words::Tool> = words::tools(word).collect();
        for pattern in tools.iter().flat_map(|tool| tool.usual) {
            if plan.has_met(word) {
                break;
            }
            if let Some(entry) = expand(&plan.home.named, pattern).and_then(Entry::of) {
                claim(plan, &entry);
            }
        }
        let program = words::program(word);
        let on_path = |program: &str| plan.paths().iter().any(|dir| dir.join(program).is_file());
        if !plan.has_met(word) && !program.is_some_and(on_path) {
            return Err(Error::Missing { name: (*word).to_owned() });
        }
    }
    Ok(())
}

/// Puts the newest version in the place of a star.
fn expand(home: &Path, pattern: &str) -> Option<PathBuf> {
    let mut path = home.to_owned();
    for part in pattern.split('/') {
        if part == "*" {
            path.push(look::newest(&path)?);
        } else {
            path.push(part);
        }
    }
    path.is_dir().then_some(path)
}

/// Sets the variables that name a toolchain's folder, or a writable one in its place.
fn homes(plan: &mut Plan<'_>) {
    if plan.has_met("rust") {
        plan.env("CARGO_HOME", &Path::new(INSIDE).join(".cargo"));
    }
    if plan.has_met("go") {
        plan.env("GOPATH", &Path::new(INSIDE).join("go"));
    }
    if plan.has_met("ruby") {
        // The gems of the shown ruby stay visible; new ones go where one may write.
        plan.env("GEM_HOME", &Path::new(INSIDE).join(".gem"));
    }
    if let Some(root) = plan.host.dir("GOROOT").filter(|root| plan.wants(&["go"]) && plan.shows(root)) {
        plan.env("GOROOT", &root);
    }
    java(plan);
}

fn java(plan: &mut Plan<'_>) {
    if !plan.wants(&["java", "sdkman"]) {
        return;
    }
    let said = plan.host.dir("JAVA_HOME").and_then(|dir| look::clean(&dir));
    let usual = plan.roots(&["SDKMAN_DIR"], &[".sdkman"]).into_iter().map(|root| root.join("candidates/java/current"));
    let homes: Vec<PathBuf> = said.into_iter().chain(usual.filter(|_| plan.has_met("sdkman"))).collect();
    for home in homes.iter().filter(|home| home.join("bin/java").is_file()) {
        if plan.shows(home) || plan.bind(home) {
            plan.meet(&["java"]);
            return plan.env("JAVA_HOME", home);
        }
    }
}
