//! Where the parts of a sandbox lie on the host, and the plan of a cage over them.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::{Path, PathBuf};

use super::plan::{AGENT, Base, Ids, Limits, Network, Plan, Scratch, TextFile, Volume, Wall};
use super::system::{self, System};
use super::tools::Shown;
use super::{EXCHANGE, HOME, WORKSPACE};
use crate::Resources;
use crate::shelf::Meta;

/// Who the agent is on the host when ralph runs as root: somebody that no package and no person is.
const STRANGER: u32 = 65_533;

pub(super) const HOSTNAME: &str = "ralph";
pub(super) const PROXY_PORT: u16 = 3128;
const WEB: [u16; 2] = [80, 443];

const GIB: u64 = 1 << 30;
const MEMORY: u64 = 8 * GIB;
pub(super) const DISK: u64 = 20 * GIB;
const PIDS: u64 = 4096;
const OPEN_FILES: u64 = 65_536;
/// What process 1 and the first keepers need beside the commands.
pub(super) const OWN_PIDS: u64 = 4;

/// The volumes of every sandbox: where they are inside, and their folder.
pub(super) const VOLUMES: [(&str, &str); 3] = [(WORKSPACE, "workspace"), (HOME, "home"), (EXCHANGE, "exchange")];
/// Volumes that a snapshot holds.
pub(super) const KEPT: [&str; 2] = ["workspace", "home"];
const WORK: &str = "work";
/// What is written over an image.
const ROOT: &str = "root";

/// What a cage is to be beside its folder.
#[derive(Debug, Clone)]
pub(super) struct Wish<'a> {
    pub(super) meta: &'a Meta,
    pub(super) folder: &'a Path,
    /// Where snapshots lie.
    pub(super) layers: &'a Path,
    pub(super) system: &'a System,
    pub(super) image: Option<PathBuf>,
    pub(super) tools: &'a Shown,
    pub(super) holds_memory: bool,
    pub(super) holds_pids: bool,
    pub(super) without: &'a [Wall],
}

/// Makes what a sandbox's folder holds.
pub(super) fn furnish(folder: &Path, ids: &Ids) -> io::Result<()> {
    for part in VOLUMES.map(|(_, part)| part) {
        own(&folder.join(part), ids)?;
    }
    Ok(())
}

/// Makes what only a sandbox over layers or an image needs, and returns the place the kernel mixes a part in.
fn work(folder: &Path, part: &str, ids: &Ids) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder.join(WORK))?;
    let path = folder.join(WORK).join(part);
    if !path.exists() {
        own(&path, ids)?;
    }
    Ok(path)
}

/// Makes the directory for what is written over an image.
fn root(folder: &Path, ids: &Ids) -> io::Result<PathBuf> {
    let path = folder.join(ROOT);
    if !path.exists() {
        own(&path, ids)?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    }
    Ok(path)
}

/// Makes a directory that is the agent's.
pub(super) fn own(path: &Path, ids: &Ids) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        // By somebody who died before giving it away.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
        made => made?,
    }
    give(path, ids)
}

fn give(path: &Path, ids: &Ids) -> io::Result<()> {
    if ids.apart() { chown(path, Some(ids.agent_uid), Some(ids.agent_gid)) } else { Ok(()) }
}

/// Decides who is who, from who ralph is.
pub(super) fn ids() -> Ids {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let map = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let stranger =
        uid == 0 && system::is_mapped(&map("uid_map"), STRANGER) && system::is_mapped(&map("gid_map"), STRANGER);
    if stranger {
        Ids { uid, gid, agent_uid: STRANGER, agent_gid: STRANGER }
    } else {
        Ids { uid, gid, agent_uid: uid, agent_gid: gid }
    }
}

/// Writes the plan of a cage.
pub(super) fn plan(wish: &Wish<'_>, ids: Ids) -> io::Result<Plan> {
    let folder = wish.folder;
    let mut volumes = Vec::new();
    for (target, part) in VOLUMES {
        let layered = KEPT.contains(&part) && !wish.meta.layers.is_empty();
        let lower = wish
            .meta
            .layers
            .iter()
            .filter(|_| layered)
            .map(|layer| system::source(&wish.layers.join(layer).join(part)));
        volumes.push(Volume {
            target: target.to_owned(),
            upper: system::source(&folder.join(part))?,
            lower: lower.collect::<io::Result<_>>()?,
            work: if layered { Some(system::source(&work(folder, part, &ids)?)?) } else { None },
        });
    }
    let (base, mut binds, links, files) = match &wish.image {
        None => (Base::Empty, wish.system.binds.clone(), wish.system.links.clone(), Vec::new()),
        Some(image) => {
            let lower = system::source(&system::plain(image)?)?;
            let upper = system::source(&root(folder, &ids)?)?;
            let work = system::source(&work(folder, ROOT, &ids)?)?;
            (Base::Image { lower, upper, work }, Vec::new(), Vec::new(), image_texts(image))
        }
    };
    binds.extend(wish.tools.binds.iter().cloned());
    volumes.extend(wish.tools.volumes.iter().cloned());
    binds.extend(system::devices()?);
    if wish.without.contains(&Wall::Root) {
        binds.push(system::bind(Path::new("/etc"), "/host-etc")?);
    }
    Ok(Plan {
        hostname: HOSTNAME.to_owned(),
        ids,
        base,
        links,
        binds,
        files,
        masks: wish.tools.masks.clone(),
        volumes,
        scratch: scratch(wish.image.is_some(), room(wish)),
        network: network(wish.meta.network),
        limits: limits(wish),
        without: wish.without.to_vec(),
    })
}

/// Directories in memory, which is the cage's memory: full ones must leave enough of it to go on with.
/// Files in memory take from the memory a cage may use.
fn room(wish: &Wish<'_>) -> u64 {
    if wish.without.contains(&Wall::Limits) { MEMORY } else { memory(&wish.meta.resources) }
}

fn scratch(image: bool, memory: u64) -> Vec<Scratch> {
    let one = |target: &str, bytes, files, mode| Scratch { target: target.to_owned(), bytes, files, mode };
    let mut all = vec![
        one("/dev", 64 << 10, 64, 0o755),
        one("/dev/shm", (GIB / 4).min(memory / 8), 16_384, 0o1777),
        one("/tmp", (2 * GIB).min(memory / 4), 1 << 19, 0o1777),
        one("/run", (64 << 20).min(memory / 32), 16_384, 0o755),
    ];
    // Without an image, `/var/tmp` leads to `/tmp`: a mount less to build, and nothing less to use.
    if image {
        all.push(one("/var/tmp", GIB.min(memory / 8), 1 << 18, 0o1777));
    }
    all
}

fn network(network: crate::Network) -> Network {
    match network {
        crate::Network::None => Network::default(),
        crate::Network::Proxy => Network { explicit: Some(PROXY_PORT), ..Network::default() },
        crate::Network::Transparent => Network { explicit: Some(PROXY_PORT), transparent: WEB.to_vec(), dns: true },
    }
}

fn limits(wish: &Wish<'_>) -> Limits {
    let resources = &wish.meta.resources;
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let wanted = resources.cpus.map(|thousandths| thousandths.div_ceil(1000).max(1));
    let none = wish.without.contains(&Wall::Limits);
    Limits {
        // A group counts how often it refused, this limit does not: where there is a group, it comes first.
        processes: if none || wish.holds_pids { 1 << 20 } else { pids(resources) },
        open_files: OPEN_FILES,
        file_bytes: if none { u64::MAX } else { resources.disk.unwrap_or(DISK) },
        watched_memory: if none || wish.holds_memory { None } else { Some(memory(resources)) },
        processors: wanted.filter(|wanted| (*wanted as usize) < all),
        three_descriptors: !wish.without.contains(&Wall::Descriptors),
    }
}

pub(super) fn memory(resources: &Resources) -> u64 {
    resources.memory.unwrap_or(MEMORY)
}

pub(super) fn pids(resources: &Resources) -> u64 {
    resources.pids.unwrap_or(PIDS)
}

/// What an image lacks: its own users, with the agent among them, and where names are asked.
fn image_texts(image: &Path) -> Vec<TextFile> {
    let ours = system::texts(HOSTNAME, HOME);
    ours.into_iter()
        .map(|file| {
            let own = image.join(file.target.trim_start_matches('/'));
            // Not through a link: an image must not make the host read something else.
            let plain = fs::symlink_metadata(&own).is_ok_and(|found| found.is_file() && found.len() < 1 << 20);
            match file.target.as_str() {
                "/etc/passwd" | "/etc/group" if plain => {
                    let theirs = fs::read_to_string(&own).unwrap_or_default();
                    let theirs: String =
                        theirs.lines().filter(|line| !is_agent(line)).flat_map(|line| [line, "\n"]).collect();
                    let agent: String =
                        file.text.lines().filter(|line| is_agent(line)).flat_map(|line| [line, "\n"]).collect();
                    TextFile { text: theirs + &agent, ..file }
                }
                _ => file,
            }
        })
        .collect()
}

fn is_agent(line: &str) -> bool {
    let mut fields = line.split(':');
    fields.next() == Some("agent") || fields.nth(1) == Some(AGENT.to_string().as_str())
}
