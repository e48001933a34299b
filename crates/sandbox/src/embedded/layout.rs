//! Decides where the parts of a sandbox are on the host, and writes the plan of its cage.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, chown};
use std::path::{Path, PathBuf};

use super::plan::{
    AGENT_ID, CageLimits, CageNetwork, CagePlan, CageVolume, IdMapping, RootBase, ScratchMount, TextFile,
};
use super::toolchains::ToolchainMounts;
use super::visible_host_paths::{self, HostSystem};
use super::{EXCHANGE, HOME, WORKSPACE};
use crate::SandboxLimits;
use crate::isolation_mechanism::IsolationMechanism;
use crate::sandbox_dirs::SandboxMeta;

/// The agent's user id on the host when ralph runs as root: one that no package and no person uses.
const AGENT_HOST_ID: u32 = 65_533;

pub(super) const HOSTNAME: &str = "ralph";
pub(super) const PROXY_PORT: u16 = 3128;
const WEB_PORTS: [u16; 2] = [80, 443];

const GIB: u64 = 1 << 30;
const DEFAULT_MEMORY: u64 = 8 * GIB;
pub(super) const DEFAULT_DISK: u64 = 20 * GIB;
const DEFAULT_PIDS: u64 = 4096;
const OPEN_FILES: u64 = 65_536;
/// The processes that process 1 and the first command supervisors need in addition to the commands.
pub(super) const RESERVED_PIDS: u64 = 4;

/// The volumes of every sandbox: their path inside, and their folder on the host.
pub(super) const VOLUMES: [(&str, &str); 3] = [(WORKSPACE, "workspace"), (HOME, "home"), (EXCHANGE, "exchange")];
/// The volumes that a snapshot contains.
pub(super) const SNAPSHOT_VOLUMES: [&str; 2] = ["workspace", "home"];
const WORK_DIR: &str = "work";
/// The directory for changes to the files of an image.
const IMAGE_UPPER_DIR: &str = "root";

/// Everything that determines the plan of a cage.
#[derive(Debug, Clone)]
pub(super) struct CageRequest<'a> {
    pub(super) meta: &'a SandboxMeta,
    pub(super) folder: &'a Path,
    /// Where snapshots are stored.
    pub(super) layers: &'a Path,
    pub(super) system: &'a HostSystem,
    pub(super) image: Option<PathBuf>,
    pub(super) tools: &'a ToolchainMounts,
    pub(super) cgroup_limits_memory: bool,
    pub(super) cgroup_limits_pids: bool,
    pub(super) disabled_mechanisms: &'a [IsolationMechanism],
}

/// Creates the volumes in a sandbox's folder.
pub(super) fn create_volumes(folder: &Path, ids: &IdMapping) -> io::Result<()> {
    for part in VOLUMES.map(|(_, part)| part) {
        create_agent_dir(&folder.join(part), ids)?;
    }
    Ok(())
}

/// Creates and returns the overlay work directory of a part, which only sandboxes with layers or an image need.
fn overlay_work_dir(folder: &Path, part: &str, ids: &IdMapping) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder.join(WORK_DIR))?;
    let path = folder.join(WORK_DIR).join(part);
    if !path.exists() {
        create_agent_dir(&path, ids)?;
    }
    Ok(path)
}

/// Creates the directory for changes to the files of an image.
fn image_upper_dir(folder: &Path, ids: &IdMapping) -> io::Result<PathBuf> {
    let path = folder.join(IMAGE_UPPER_DIR);
    if !path.exists() {
        create_agent_dir(&path, ids)?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    }
    Ok(path)
}

/// Creates a directory that the agent owns.
pub(super) fn create_agent_dir(path: &Path, ids: &IdMapping) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        // Created by a process that died before it changed the owner.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => (),
        made => made?,
    }
    chown_to_agent(path, ids)
}

fn chown_to_agent(path: &Path, ids: &IdMapping) -> io::Result<()> {
    if ids.agent_differs() { chown(path, Some(ids.agent_uid), Some(ids.agent_gid)) } else { Ok(()) }
}

/// Decides the user ids of ralph and the agent from the user that ralph runs as.
pub(super) fn detect_ids() -> IdMapping {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let map = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
    let has_agent_id = uid == 0
        && visible_host_paths::is_id_mapped(&map("uid_map"), AGENT_HOST_ID)
        && visible_host_paths::is_id_mapped(&map("gid_map"), AGENT_HOST_ID);
    if has_agent_id {
        IdMapping { uid, gid, agent_uid: AGENT_HOST_ID, agent_gid: AGENT_HOST_ID }
    } else {
        IdMapping { uid, gid, agent_uid: uid, agent_gid: gid }
    }
}

/// Writes the plan of a cage.
pub(super) fn plan(request: &CageRequest<'_>, ids: IdMapping) -> io::Result<CagePlan> {
    let folder = request.folder;
    let mut volumes = Vec::new();
    for (target, part) in VOLUMES {
        let layered = SNAPSHOT_VOLUMES.contains(&part) && !request.meta.layers.is_empty();
        let lower = request
            .meta
            .layers
            .iter()
            .filter(|_| layered)
            .map(|layer| visible_host_paths::mount_source(&request.layers.join(layer).join(part)));
        volumes.push(CageVolume {
            target: target.to_owned(),
            upper: visible_host_paths::mount_source(&folder.join(part))?,
            lower: lower.collect::<io::Result<_>>()?,
            work: if layered {
                Some(visible_host_paths::mount_source(&overlay_work_dir(folder, part, &ids)?)?)
            } else {
                None
            },
        });
    }
    let (base, mut binds, links, files) = match &request.image {
        None => (RootBase::Empty, request.system.binds.clone(), request.system.links.clone(), Vec::new()),
        Some(image) => {
            let lower = visible_host_paths::mount_source(&visible_host_paths::canonical_path(image)?)?;
            let upper = visible_host_paths::mount_source(&image_upper_dir(folder, &ids)?)?;
            let work = visible_host_paths::mount_source(&overlay_work_dir(folder, IMAGE_UPPER_DIR, &ids)?)?;
            (RootBase::Image { lower, upper, work }, Vec::new(), Vec::new(), image_text_files(image))
        }
    };
    binds.extend(request.tools.binds.iter().cloned());
    volumes.extend(request.tools.volumes.iter().cloned());
    binds.extend(visible_host_paths::devices()?);
    if request.disabled_mechanisms.contains(&IsolationMechanism::Root) {
        binds.push(visible_host_paths::bind(Path::new("/etc"), "/host-etc")?);
    }
    Ok(CagePlan {
        hostname: HOSTNAME.to_owned(),
        ids,
        base,
        links,
        binds,
        files,
        masks: request.tools.masks.clone(),
        volumes,
        scratch: scratch(request.image.is_some(), scratch_memory(request)),
        network: network(request.meta.network),
        limits: limits(request),
        without: request.disabled_mechanisms.to_vec(),
    })
}

/// Returns the memory that bounds the directories in memory. They take from the memory of the cage, and must leave
/// enough of it for commands even when they are full.
fn scratch_memory(request: &CageRequest<'_>) -> u64 {
    if request.disabled_mechanisms.contains(&IsolationMechanism::Limits) {
        DEFAULT_MEMORY
    } else {
        memory_limit(&request.meta.resources)
    }
}

fn scratch(image: bool, memory: u64) -> Vec<ScratchMount> {
    let one = |target: &str, bytes, files, mode| ScratchMount { target: target.to_owned(), bytes, files, mode };
    let mut all = vec![
        one("/dev", 64 << 10, 64, 0o755),
        one("/dev/shm", (GIB / 4).min(memory / 8), 16_384, 0o1777),
        one("/tmp", (2 * GIB).min(memory / 4), 1 << 19, 0o1777),
        one("/run", (64 << 20).min(memory / 32), 16_384, 0o755),
    ];
    // Without an image, `/var/tmp` is a link to `/tmp`, which saves a mount.
    if image {
        all.push(one("/var/tmp", GIB.min(memory / 8), 1 << 18, 0o1777));
    }
    all
}

fn network(network: crate::SandboxNetwork) -> CageNetwork {
    match network {
        crate::SandboxNetwork::None => CageNetwork::default(),
        crate::SandboxNetwork::Proxy => CageNetwork { explicit: Some(PROXY_PORT), ..CageNetwork::default() },
        crate::SandboxNetwork::Transparent => {
            CageNetwork { explicit: Some(PROXY_PORT), transparent: WEB_PORTS.to_vec(), dns: true }
        }
    }
}

fn limits(request: &CageRequest<'_>) -> CageLimits {
    let resources = &request.meta.resources;
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let wanted = resources.cpus.map(|thousandths| thousandths.div_ceil(1000).max(1));
    let none = request.disabled_mechanisms.contains(&IsolationMechanism::Limits);
    CageLimits {
        // A control group counts how often it refused a process, this limit does not: where there is a group, it has to
        // apply first.
        processes: if none || request.cgroup_limits_pids { 1 << 20 } else { pids_limit(resources) },
        open_files: OPEN_FILES,
        file_bytes: if none { u64::MAX } else { resources.disk.unwrap_or(DEFAULT_DISK) },
        watched_memory: if none || request.cgroup_limits_memory { None } else { Some(memory_limit(resources)) },
        processors: wanted.filter(|wanted| (*wanted as usize) < all),
        three_descriptors: !request.disabled_mechanisms.contains(&IsolationMechanism::Descriptors),
    }
}

pub(super) fn memory_limit(resources: &SandboxLimits) -> u64 {
    resources.memory.unwrap_or(DEFAULT_MEMORY)
}

pub(super) fn pids_limit(resources: &SandboxLimits) -> u64 {
    resources.pids.unwrap_or(DEFAULT_PIDS)
}

/// Returns the files that an image lacks: its users with the agent added, and the name server.
fn image_text_files(image: &Path) -> Vec<TextFile> {
    let ours = visible_host_paths::identity_files(HOSTNAME, HOME);
    ours.into_iter()
        .map(|file| {
            let own = image.join(file.target.trim_start_matches('/'));
            // Links are not followed: an image must not make the host read another file.
            let plain = fs::symlink_metadata(&own).is_ok_and(|found| found.is_file() && found.len() < 1 << 20);
            match file.target.as_str() {
                "/etc/passwd" | "/etc/group" if plain => {
                    let theirs = fs::read_to_string(&own).unwrap_or_default();
                    let theirs: String =
                        theirs.lines().filter(|line| !is_agent_line(line)).flat_map(|line| [line, "\n"]).collect();
                    let agent: String =
                        file.text.lines().filter(|line| is_agent_line(line)).flat_map(|line| [line, "\n"]).collect();
                    TextFile { text: theirs + &agent, ..file }
                }
                _ => file,
            }
        })
        .collect()
}

fn is_agent_line(line: &str) -> bool {
    let mut fields = line.split(':');
    fields.next() == Some("agent") || fields.nth(1) == Some(AGENT_ID.to_string().as_str())
}
