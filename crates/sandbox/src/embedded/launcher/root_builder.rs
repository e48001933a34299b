//! Builds the root file system of a cage in an empty mount, using file descriptors: each path is resolved once,
//! verified, and not resolved again.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, fstat, mkdirat, open, openat, openat2, statat,
    symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, open_tree,
    unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};

use super::super::plan::{CageBind, CagePlan, CageVolume, MountSource, RootBase, ScratchMount, TextFile};
use super::step_error::{StepContext as _, StepError, step_error};
use super::{proc_mount, syscalls};
use crate::isolation_mechanism::IsolationMechanism;

/// Mount attributes, with the values of `mount_setattr`.
const READ_ONLY: u64 = 0x1;
const NO_SUID: u64 = 0x2;
const NO_DEVICES: u64 = 0x4;
const NO_EXEC: u64 = 0x8;

/// Directories that every system has, one of which is the mount point of the new root before it becomes the root.
const STAGING_DIRS: [&str; 4] = ["/tmp", "/mnt", "/run", "/usr"];

/// Builds the root and moves into it. Returns the volumes as directories of the new root.
pub(super) fn build(plan: &CagePlan) -> Result<Vec<File>, StepError> {
    let has = |mechanism: IsolationMechanism| !plan.without.contains(&mechanism);
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).at_step("make mounts private")?;
    // Everything of the host is cloned before anything of it is covered.
    let binds: Vec<_> =
        plan.binds.iter().map(|bind| clone_bind(bind, has(IsolationMechanism::ReadOnly))).collect::<Result<_, _>>()?;
    let volumes: Vec<_> = plan.volumes.iter().map(volume_mount).collect::<Result<_, _>>()?;
    let mut builder = RootBuilder::new(plan)?;
    for (from, to) in &plan.links {
        builder.link(from, to)?;
    }
    // Temporary directories first, then the volumes, and the host's parts last, so that nothing covers those.
    for scratch in &plan.scratch {
        builder.attach(&scratch.target, tmpfs_mount(scratch, plan.ids.agent_outer_id())?, true)?;
    }
    for (volume, mount) in plan.volumes.iter().zip(volumes) {
        builder.attach(&volume.target, mount, true)?;
    }
    for (bind, mount) in plan.binds.iter().zip(binds) {
        builder.attach(&bind.target, mount, bind.source.directory)?;
    }
    builder.mount_devices()?;
    let caps =
        proc_mount::mount(&mut builder, has(IsolationMechanism::ProcMasks), has(IsolationMechanism::NamespaceLimit))?;
    for file in &plan.files {
        builder.write_text_file(file)?;
    }
    if has(IsolationMechanism::Masks) {
        for target in &plan.masks {
            builder.cover(target)?;
        }
    }
    builder.pivot_into_root(has(IsolationMechanism::ReadOnly))?;
    caps.map_or(Ok(()), proc_mount::NamespaceLimits::apply)?;
    proc_mount::check_mounts(&builder.targets)?;
    let open = |volume: &CageVolume| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        open(&volume.target, flags, Mode::empty()).map(File::from).at_step(format_args!("open {}", volume.target))
    };
    plan.volumes.iter().map(open).collect()
}

/// The new root while it is being built.
pub(super) struct RootBuilder {
    root: OwnedFd,
    staging_dir: &'static str,
    agent: u32,
    /// A directory in memory for files that are bound over those of an image.
    text_files: Option<OwnedFd>,
    /// Shared by all covered paths, and on a filesystem that stays: unmounting is the slowest step in building a cage.
    empty_cover: Option<EmptyCover>,
    targets: BTreeSet<PathBuf>,
}

impl RootBuilder {
    fn new(plan: &CagePlan) -> Result<Self, StepError> {
        let agent = plan.ids.agent_outer_id();
        let (mount, texts) = match &plan.base {
            RootBase::Empty => {
                let root = ScratchMount { target: "/".to_owned(), bytes: 4 << 20, files: 4096, mode: 0o755 };
                (tmpfs_mount(&root, 0)?, None)
            }
            RootBase::Image { lower, upper, work } => {
                let root = overlay_mount("/", std::slice::from_ref(lower), upper, work)?;
                let texts = ScratchMount { target: "texts".to_owned(), bytes: 4 << 20, files: 4096, mode: 0o755 };
                (root, Some(tmpfs_mount(&texts, 0)?))
            }
        };
        let found = STAGING_DIRS.iter().find(|path| Path::new(path).is_dir()).copied();
        let place =
            found.ok_or_else(|| step_error("place the new root", "none of /tmp, /mnt, /run and /usr exists"))?;
        move_mount(&mount, "", CWD, place, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at_step("place the new root")?;
        // Opened by its path, so that mounts below it are visible from here.
        let root = open(place, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let root = root.at_step("open the new root")?;
        Ok(Self {
            root,
            staging_dir: place,
            agent,
            text_files: texts,
            empty_cover: None,
            targets: BTreeSet::from([PathBuf::from("/")]),
        })
    }

    /// Opens the parent directory of a target, creating missing ones, and returns it with the last name.
    fn open_parent<'a>(&self, target: &'a str) -> Result<(OwnedFd, &'a str), StepError> {
        let step = || format!("prepare {target}");
        let mut names: Vec<&str> = target.split('/').filter(|name| !name.is_empty()).collect();
        if names.iter().any(|name| matches!(*name, "." | "..")) {
            return Err(step_error(step(), "the path is not plain"));
        }
        let last = names.pop().ok_or_else(|| step_error(step(), "the root is not a valid target"))?;
        // The whole path at once, which nearly always works; one by one where a directory has to be created.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let whole = if names.is_empty() { ".".to_owned() } else { names.join("/") };
        match openat2(&self.root, whole, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH) {
            Err(Errno::NOENT) => (),
            opened => return Ok((opened.at_step(step())?, last)),
        }
        let mut here = self.root.try_clone().at_step(step())?;
        for name in names {
            here = open_or_make_dir(&here, name, self.agent).at_step(step())?;
        }
        Ok((here, last))
    }

    pub(super) fn attach(&mut self, target: &str, mount: impl AsFd, directory: bool) -> Result<(), StepError> {
        let step = format!("mount {target}");
        let (parent, name) = self.open_parent(target)?;
        let point = if directory {
            open_or_make_dir(&parent, name, self.agent).at_step(&step)?
        } else {
            // Created only if nothing exists, and a link is not followed.
            match openat(&parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
                Err(Errno::NOENT) => {
                    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                    openat(&parent, name, flags, Mode::from_raw_mode(0o644)).at_step(&step)?
                }
                opened => opened.at_step(&step)?,
            }
        };
        if rustix::fs::FileType::from_raw_mode(fstat(&point).at_step(&step)?.st_mode).is_symlink() {
            return Err(step_error(step, "there is a symbolic link at this path"));
        }
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        move_mount(mount.as_fd(), "", &point, "", flags).at_step(&step)?;
        self.targets.insert(PathBuf::from(target));
        Ok(())
    }

    /// Clones a part of the new root, to be attached over itself with fewer rights.
    pub(super) fn clone_mount(&self, target: &str) -> Result<Option<(OwnedFd, bool)>, StepError> {
        let step = format!("clone {target}");
        let (parent, name) = self.open_parent(target)?;
        let point = match openat(&parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT | Errno::ACCESS) => return Ok(None),
            point => point.at_step(&step)?,
        };
        let directory = rustix::fs::FileType::from_raw_mode(fstat(&point).at_step(&step)?.st_mode).is_dir();
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let flags = if directory { flags | OpenTreeFlags::AT_RECURSIVE } else { flags };
        Ok(Some((open_tree(&point, "", flags).at_step(&step)?, directory)))
    }

    pub(super) fn read_only(&mut self, target: &str) -> Result<(), StepError> {
        let Some((mount, directory)) = self.clone_mount(target)? else { return Ok(()) };
        let rights = READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC;
        syscalls::set_mount_attributes(mount.as_fd(), rights, directory)
            .at_step(format_args!("make {target} read-only"))?;
        self.attach(target, mount, directory)
    }

    /// Mounts an empty file or directory over a target, if it exists.
    pub(super) fn cover(&mut self, target: &str) -> Result<(), StepError> {
        let (parent, name) = self.open_parent(target)?;
        let found = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT | Errno::ACCESS) => return Ok(()),
            found => found.at_step(format_args!("look at {target}"))?,
        };
        let directory = rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir();
        let from = match &self.empty_cover {
            Some(nothing) => nothing,
            // It must not be written into an image's root; with an image there is the directory of text files.
            None => self.empty_cover.insert(make_empty_cover(self.text_files.as_ref().unwrap_or(&self.root))?),
        };
        let from = if directory { &from.directory } else { &from.file };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let mount = open_tree(from, "", flags).at_step(format_args!("cover {target}"))?;
        let rights = READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC;
        syscalls::set_mount_attributes(mount.as_fd(), rights, false).at_step(format_args!("cover {target}"))?;
        self.attach(target, mount, directory)
    }

    fn link(&mut self, from: &str, to: &str) -> Result<(), StepError> {
        let (parent, name) = self.open_parent(from)?;
        match symlinkat(to, &parent, name) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(errno) => Err(errno).at_step(format_args!("link {from}")),
        }
    }

    /// Writes a file of ralph's: into the root itself, or, with an image, into a separate directory and bound over the
    /// target.
    fn write_text_file(&mut self, file: &TextFile) -> Result<(), StepError> {
        let step = format!("write {}", file.target);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let write = |fd: OwnedFd| -> io::Result<()> {
            rustix::fs::fchmod(&fd, mode)?;
            File::from(fd).write_all(file.text.as_bytes())
        };
        let (parent, name) = self.open_parent(&file.target)?;
        let Some(texts) = &self.text_files else {
            return openat(&parent, name, flags, mode).map_err(io::Error::from).and_then(write).at_step(step);
        };
        let own = file.target.replace('/', "-");
        openat(texts, &own, flags, mode).map_err(io::Error::from).and_then(write).at_step(&step)?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let mount = open_tree(texts, &own, flags).at_step(&step)?;
        syscalls::set_mount_attributes(mount.as_fd(), READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC, false)
            .at_step(&step)?;
        // An image may have a link here, most often `resolv.conf`; it is replaced in the upper layer.
        let found = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_symlink()) {
            rustix::fs::unlinkat(&parent, name, AtFlags::empty()).at_step(&step)?;
        }
        self.attach(&file.target, mount, false)
    }

    /// Mounts the cage's own terminals, and creates the links in `/dev` that every program expects.
    fn mount_devices(&mut self) -> Result<(), StepError> {
        let pts = FilesystemContext::new("devpts", NO_SUID | NO_EXEC)?;
        pts.set("ptmxmode", "0666")?.set("mode", "0620")?.flag("newinstance")?;
        self.attach("/dev/pts", pts.mount()?, true)?;
        for (name, to) in [
            ("/dev/ptmx", "pts/ptmx"),
            ("/dev/fd", "/proc/self/fd"),
            ("/dev/stdin", "/proc/self/fd/0"),
            ("/dev/stdout", "/proc/self/fd/1"),
            ("/dev/stderr", "/proc/self/fd/2"),
        ] {
            self.link(name, to)?;
        }
        // The last step for `/dev`: from here on nothing can be added to it.
        if let Some((mount, _)) = self.open_mounted("/dev")? {
            syscalls::set_mount_attributes(mount.as_fd(), READ_ONLY | NO_SUID | NO_EXEC, false)
                .at_step("close /dev")?;
        }
        Ok(())
    }

    /// Opens the mount at a target itself, not a clone.
    fn open_mounted(&self, target: &str) -> Result<Option<(OwnedFd, bool)>, StepError> {
        let (parent, name) = self.open_parent(target)?;
        match openat(&parent, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => Ok(None),
            fd => Ok(Some((fd.at_step(format_args!("open {target}"))?, true))),
        }
    }

    /// Returns the path of a target before the new root is the root. Only for files that no image can contain.
    pub(super) fn staging_path(&self, target: &str) -> PathBuf {
        Path::new(self.staging_dir).join(target.trim_start_matches('/'))
    }

    /// Creates a directory that the agent owns, in a mount that is already attached.
    pub(super) fn make_agent_dir(&self, target: &str) -> Result<(), StepError> {
        let (parent, name) = self.open_parent(target)?;
        let agent = self.agent;
        open_or_make_dir(&parent, name, self.agent)
            .and_then(|_| chmod(&parent, name, 0o700))
            .and_then(|()| {
                let (uid, gid) = (Uid::from_raw(agent), Gid::from_raw(agent));
                Ok(chownat(&parent, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
            })
            .at_step(format_args!("make {target}"))
    }

    /// Moves into the new root and unmounts the old one.
    fn pivot_into_root(&mut self, read_only: bool) -> Result<(), StepError> {
        self.make_agent_dir("/run/user/1000")?;
        if self.empty_cover.take().is_some() {
            let place = self.text_files.as_ref().unwrap_or(&self.root);
            rustix::fs::unlinkat(place, EMPTY_FILE, AtFlags::empty()).at_step("hide the empty file")?;
            rustix::fs::unlinkat(place, EMPTY_DIRECTORY, AtFlags::REMOVEDIR).at_step("hide the empty directory")?;
        }
        fchdir(&self.root).at_step("enter the new root")?;
        pivot_root(".", ".").at_step(format_args!("swap roots at {}", self.staging_dir))?;
        unmount(".", UnmountFlags::DETACH).at_step("unmount the host's root")?;
        chdir("/").at_step("enter the new root")?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open("/", flags, Mode::empty()).at_step("open the root")?;
        // An image's root stays writable: writes go to its upper layer.
        let rights = NO_SUID | NO_DEVICES | if read_only && self.text_files.is_none() { READ_ONLY } else { 0 };
        syscalls::set_mount_attributes(root.as_fd(), rights, false).at_step("close the root")?;
        self.text_files = None;
        Ok(())
    }
}

/// Opens a directory by one name, without following a link that an image may have put there.
fn open_or_make_dir(here: &OwnedFd, name: &str, agent: u32) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(here, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            mkdirat(here, name, Mode::from_raw_mode(0o755))?;
            chmod(here, name, 0o755)?;
            // It may be in the agent's own home; elsewhere the owner does not matter, because the root is read-only.
            let (uid, gid) = (Uid::from_raw(agent), Gid::from_raw(agent));
            chownat(here, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(openat(here, name, flags, Mode::empty())?)
        }
        opened => Ok(opened?),
    }
}

fn chmod(here: &OwnedFd, name: &str, mode: u32) -> io::Result<()> {
    // The umask is strict, but directories inside have to be accessible.
    Ok(rustix::fs::chmodat(here, name, Mode::from_raw_mode(mode), AtFlags::empty())?)
}

/// Opens a source and makes sure that it is the file that the supervisor saw.
fn open_source(source: &MountSource) -> Result<OwnedFd, StepError> {
    let step = || format!("find {}", source.path.display());
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let fd = openat2(CWD, &source.path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
        .at_step(step())?;
    let found = fstat(&fd).at_step(step())?;
    if (found.st_dev, found.st_ino) == (source.device, source.inode) {
        Ok(fd)
    } else {
        Err(step_error(step(), "it is not the same file any more; it was replaced meanwhile"))
    }
}

/// Clones a part of the host as a separate mount.
fn clone_bind(bind: &CageBind, read_only: bool) -> Result<OwnedFd, StepError> {
    let step = || format!("bind {}", bind.source.path.display());
    let mount = clone_tree(&bind.source)?;
    let rights = NO_SUID
        | if bind.device { NO_EXEC } else { NO_DEVICES }
        | if read_only && !bind.device { READ_ONLY } else { 0 };
    syscalls::set_mount_attributes(mount.as_fd(), rights, bind.source.directory).at_step(step())?;
    Ok(mount)
}

fn clone_tree(from: &MountSource) -> Result<OwnedFd, StepError> {
    let fd = open_source(from)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    // With the mounts below it: otherwise files that a mount covers would become visible.
    let flags = if from.directory { flags | OpenTreeFlags::AT_RECURSIVE } else { flags };
    open_tree(&fd, "", flags).at_step(format_args!("clone {}", from.path.display()))
}

fn volume_mount(volume: &CageVolume) -> Result<OwnedFd, StepError> {
    let mount = match &volume.work {
        Some(work) => overlay_mount(&volume.target, &volume.lower, &volume.upper, work)?,
        None => clone_tree(&volume.upper)?,
    };
    syscalls::set_mount_attributes(mount.as_fd(), NO_SUID | NO_DEVICES, true)
        .at_step(format_args!("close {}", volume.target))?;
    Ok(mount)
}

/// Returns an overlay mount of directories.
fn overlay_mount(
    target: &str,
    lower: &[MountSource],
    upper: &MountSource,
    work: &MountSource,
) -> Result<OwnedFd, StepError> {
    // Held open until the mount is made, and named by their descriptors: no path is looked up again.
    let place = |fd: BorrowedFd<'_>| format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
    let held: Vec<OwnedFd> = lower.iter().map(open_source).collect::<Result<_, _>>()?;
    let (upper, work) = (open_source(upper)?, open_source(work)?);
    let kind = FilesystemContext::new("overlay", NO_SUID | NO_DEVICES)?;
    let kind = kind.flag("userxattr")?;
    let lower: Vec<String> = held.iter().map(|one| place(one.as_fd())).collect();
    if lower.iter().try_for_each(|one| kind.set("lowerdir+", one).map(drop)).is_err() {
        // Kernels before 6.7 take all of them in one value.
        kind.set("lowerdir", &lower.join(":"))?;
    }
    kind.set("upperdir", &place(upper.as_fd()))?.set("workdir", &place(work.as_fd()))?;
    kind.mount().map_err(|fault| StepError { step: format!("mount {target} over its layers: {}", fault.step), ..fault })
}

/// Returns a mount of a new filesystem in memory.
fn tmpfs_mount(scratch: &ScratchMount, owner: u32) -> Result<OwnedFd, StepError> {
    let kind = FilesystemContext::new("tmpfs", NO_SUID | NO_DEVICES)?;
    kind.set("size", &scratch.bytes.to_string())?
        .set("nr_inodes", &scratch.files.to_string())?
        .set("mode", &format!("{:o}", scratch.mode))?
        .set("uid", &owner.to_string())?
        .set("gid", &owner.to_string())?;
    kind.mount()
}

const EMPTY_DIRECTORY: &str = ".empty-directory";
const EMPTY_FILE: &str = ".empty-file";

/// The empty file and directory that cover other ones.
struct EmptyCover {
    file: OwnedFd,
    directory: OwnedFd,
}

/// Creates the empty file and directory. Their names are removed later; mounts made from them stay.
fn make_empty_cover(place: &OwnedFd) -> Result<EmptyCover, StepError> {
    let step = "make an empty file";
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    openat(place, EMPTY_FILE, flags, Mode::from_raw_mode(0o444)).at_step(step)?;
    mkdirat(place, EMPTY_DIRECTORY, Mode::from_raw_mode(0o555)).at_step(step)?;
    chmod(place, EMPTY_DIRECTORY, 0o555).at_step(step)?;
    let open = |name| openat(place, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    Ok(EmptyCover { file: open(EMPTY_FILE).at_step(step)?, directory: open(EMPTY_DIRECTORY).at_step(step)? })
}

/// A filesystem that is about to be mounted.
pub(super) struct FilesystemContext {
    name: &'static str,
    fd: OwnedFd,
    rights: u64,
}

impl FilesystemContext {
    pub(super) fn new(name: &'static str, rights: u64) -> Result<Self, StepError> {
        let fd = fsopen(name, FsOpenFlags::FSOPEN_CLOEXEC).at_step(format_args!("mount {name}"))?;
        Ok(Self { name, fd, rights })
    }

    fn set(&self, key: &str, value: &str) -> Result<&Self, StepError> {
        fsconfig_set_string(&self.fd, key, value).at_step(format_args!("mount {} with {key}", self.name))?;
        Ok(self)
    }

    fn flag(&self, key: &str) -> Result<&Self, StepError> {
        fsconfig_set_flag(&self.fd, key).at_step(format_args!("mount {} with {key}", self.name))?;
        Ok(self)
    }

    pub(super) fn mount(&self) -> Result<OwnedFd, StepError> {
        fsconfig_create(&self.fd).at_step(format_args!("mount {}", self.name))?;
        let mut rights = MountAttrFlags::empty();
        for (bit, flag) in [
            (NO_SUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
            (NO_DEVICES, MountAttrFlags::MOUNT_ATTR_NODEV),
            (NO_EXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        ] {
            if self.rights & bit != 0 {
                rights |= flag;
            }
        }
        fsmount(&self.fd, FsMountFlags::FSMOUNT_CLOEXEC, rights).at_step(format_args!("mount {}", self.name))
    }
}

/// The rights of `/proc`.
pub(super) const PROC_RIGHTS: u64 = NO_SUID | NO_DEVICES | NO_EXEC;
