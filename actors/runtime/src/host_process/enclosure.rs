//! Setup of a program between fork and exec besides bubblewrap's namespaces: a user of its own, its folders
//! where that user reaches them, bounds, and filters of system calls.
//!
//! The kernel lets root of the host write its settings below `/proc/sys`, whatever capabilities and namespaces
//! a process has. So where the daemon is root bubblewrap is started as a user whom nobody else is. The
//! folders stay root's, or whose they are, and are mounted with an id map from their owner to that user below
//! `/tmp` of a mount namespace of the program alone, which the modes of the folders above do not matter for.
//! On file systems that map no ids, as tmpfs before Linux 6.3 and the overlays of containers, that user sees
//! them as they are.
#![allow(unsafe_code)]

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString, OsString},
    fs::{self, Metadata},
    io::{self, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, chown, lchown},
        },
    },
    path::{Path, PathBuf},
    sync::Mutex,
};

use hivekeep_confine::{
    idmap::user_namespace_of,
    mounts::{self, done, mount, move_mount},
    syscalls::{self, FilterSet},
};
use hivekeep_kernel::lock;
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::{FdFlags, fcntl_setfd},
    process::{Resource, Rlimit, setrlimit},
};
use tokio::process::Command;

/// Bounds of a program: of all its processes together where the host has groups for it. Without them those of
/// processes hold where it has a user of its own, for that user as a whole.
#[derive(Debug, Clone, Copy)]
pub struct HostBounds {
    /// Memory, and in any case what each process has for its data; `None`: what the host has.
    pub memory_mb: Option<u64>,
    /// Processes and threads.
    pub processes: u64,
}

/// A folder or a file of the host that the program sees.
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) read_only: bool,
}

/// Number of the program's home among its parts.
const HOME: usize = 0;

/// Resources prepared for the child.
pub(super) struct Enclosure {
    pub(super) parts: Vec<Part>,
    filters: Vec<OwnedFd>,
    own: Option<OwnUser>,
    bounds: HostBounds,
    /// `cgroup.procs` of the group that the child joins.
    group: Option<OwnedFd>,
}

struct OwnUser {
    uid: u32,
    views: Vec<View>,
}

/// A mount that is not attached yet, and its place.
struct View {
    mount: OwnedFd,
    place: CString,
    is_folder: bool,
}

impl Enclosure {
    /// Prepares the enclosure. `uid` is the program's own user, if it gets one. Blocks for some system calls.
    ///
    /// # Errors
    /// Of the kernel.
    pub(super) fn new(
        uid: Option<u32>,
        parts: Vec<Part>,
        filters: FilterSet,
        bounds: HostBounds,
        group: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let own = uid.map(|uid| {
            let views = parts.iter().enumerate();
            let views = views.map(|(number, part)| View::new(number, part, uid));
            Ok::<_, io::Error>(OwnUser { uid, views: views.collect::<io::Result<_>>()? })
        });
        let own = own.transpose()?;
        Ok(Self { parts, filters: filter_files(filters)?, own, bounds, group })
    }

    /// Where bubblewrap finds a part.
    pub(super) fn source(&self, number: usize) -> OsString {
        match self.own {
            Some(_) => place(number).into(),
            None => self.parts[number].path.clone().into(),
        }
    }

    /// Arguments of bubblewrap for the filters.
    pub(super) fn filter_arguments(&self) -> impl Iterator<Item = OsString> {
        let number = |filter: &OwnedFd| filter.as_raw_fd().to_string();
        self.filters.iter().flat_map(move |it| ["--add-seccomp-fd".into(), number(it).into()])
    }

    /// Has a command run in the enclosure.
    pub(super) fn arm(self, command: &mut Command) {
        // SAFETY: between fork and exec `enter` makes system calls alone, on what was allocated before.
        unsafe { command.pre_exec(move || self.enter()) };
    }

    fn enter(&self) -> io::Result<()> {
        if let Some(group) = &self.group {
            rustix::io::write(group, b"0")?;
        }
        for filter in &self.filters {
            fcntl_setfd(filter, FdFlags::empty())?;
        }
        if let Some(memory_mb) = self.bounds.memory_mb {
            limit(Resource::Data, memory_mb.saturating_mul(1024 * 1024))?;
        }
        let Some(own) = &self.own else { return Ok(()) };
        own.mount()?;
        limit(Resource::Nproc, self.bounds.processes)?;
        own.become_it()
    }
}

impl OwnUser {
    fn mount(&self) -> io::Result<()> {
        // SAFETY: takes no pointers; the child has one thread.
        done(unsafe { libc::unshare(libc::CLONE_NEWNS) }.into())?;
        mount(None, c"/", None, libc::MS_REC | libc::MS_SLAVE)?;
        mount(Some(c"tmpfs"), c"/tmp", Some(c"tmpfs"), libc::MS_NOSUID | libc::MS_NODEV)?;
        // SAFETY: the path is a static C string.
        done(unsafe { libc::chmod(c"/tmp".as_ptr(), 0o755) }.into())?;
        self.views.iter().try_for_each(View::attach)
    }

    /// The C library's `setuid` and its relatives would look for the daemon's threads.
    fn become_it(&self) -> io::Result<()> {
        let (id, none) = (self.uid, std::ptr::null::<libc::gid_t>());
        // SAFETY: takes no pointers that are followed, and changes this process alone.
        unsafe {
            done(libc::syscall(libc::SYS_setgroups, 0, none))?;
            done(libc::syscall(libc::SYS_setresgid, id, id, id))?;
            done(libc::syscall(libc::SYS_setresuid, id, id, id))?;
        }
        Ok(())
    }
}

impl View {
    fn new(number: usize, part: &Part, uid: u32) -> io::Result<Self> {
        let path = &part.path;
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let meta = fs::metadata(path).map_err(named)?;
        let map = user_namespace_of((meta.uid(), meta.gid()), (uid, uid))?;
        let c_path = CString::new(path.as_os_str().as_bytes())?;
        let mount = match mapped_view(&c_path, part.read_only, map.as_raw_fd()) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                match number {
                    HOME => give_home(path, &meta, uid).map_err(named)?,
                    _ => tell(path, &meta, part.read_only, uid),
                }
                mounts::view(&c_path, part.read_only, None)
            }
            mapped => mapped,
        };
        let mount = i32::try_from(mount.map_err(named)?).map_err(io::Error::other)?;
        // SAFETY: the kernel has just given this descriptor, and nobody else has it.
        let mount = unsafe { OwnedFd::from_raw_fd(mount) };
        Ok(Self { mount, place: CString::new(place(number))?, is_folder: meta.is_dir() })
    }

    fn attach(&self) -> io::Result<()> {
        let place = self.place.as_ptr();
        // SAFETY: the path is a C string that lives on.
        done(match self.is_folder {
            true => unsafe { libc::mkdir(place, 0o755) }.into(),
            false => unsafe { libc::mknod(place, libc::S_IFREG | 0o644, 0) }.into(),
        })?;
        move_mount(self.mount.as_raw_fd().into(), &self.place)
    }
}

/// A mount with an id map; `EINVAL` where the file system has none.
fn mapped_view(path: &CStr, read_only: bool, map: RawFd) -> io::Result<libc::c_long> {
    #[cfg(test)]
    if super::tests::maps_no_ids(path) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    mounts::view(path, read_only, Some(map))
}

fn place(number: usize) -> String {
    format!("/tmp/{number}")
}

fn limit(resource: Resource, most: u64) -> io::Result<()> {
    Ok(setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?)
}

/// Files in memory with the filters, which bubblewrap reads.
fn filter_files(set: FilterSet) -> io::Result<Vec<OwnedFd>> {
    let programs = syscalls::programs(set).map_err(io::Error::other)?;
    let file = |program: &_| {
        let mut file = fs::File::from(memfd_create("filter", MemfdFlags::CLOEXEC)?);
        file.write_all(&syscalls::bytes(program))?;
        io::Seek::rewind(&mut file)?;
        Ok(file.into())
    };
    programs.iter().map(file).collect()
}

/// Folders of the operator's of which it was told.
static TOLD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Gives a program's home to its user, with what the daemon has put at the top of it. Blocks.
///
/// # Errors
/// Of the kernel.
fn give_home(home: &Path, was: &Metadata, uid: u32) -> io::Result<()> {
    if was.uid() == uid {
        return Ok(());
    }
    for entry in fs::read_dir(home)? {
        lchown(entry?.path(), Some(uid), Some(uid))?;
    }
    chown(home, Some(uid), Some(uid))
}

/// Tells once of a folder that a program's user may not use; what is there stays whose it is.
fn tell(folder: &Path, is: &Metadata, read_only: bool, uid: u32) {
    let execute = u32::from(is.is_dir());
    let needed = if read_only { 4 | execute } else { 6 | execute };
    let usable = is.mode() & needed == needed || is.uid() == uid;
    let mut told = lock(&TOLD);
    if !usable && told.insert(folder.to_owned()) {
        tracing::warn!(
            folder = %folder.display(), uid,
            "the file system of this folder maps no ids, so a program sees it as a user that may not use it: \
             let that user by `chown`, or put the folder on ext4, xfs or btrfs",
        );
    }
}

#[cfg(test)]
pub(super) fn was_told(folder: &Path) -> bool {
    lock(&TOLD).contains(folder)
}
