//! Volumes of a virtual machine: virtio-fs over vhost-user, each served by a `virtiofsd`.
//!
//! A server sees one folder: a mount of the volume of its own, in which root's files are the
//! server's user's, read-only where the machine may only read. It runs as that user, as root of a user
//! namespace: that of a sandbox with the machine's number, where sandboxes have users besides root, so
//! that files of others are theirs too; else the machine's user, and no other is mapped. virtiofsd
//! makes its own mount, PID and network namespaces in that one, takes the folder for its root and
//! confines its system calls. So root of the guest is root of the volume, as it is in a sandbox, and
//! what a guest can make of the server is a process without rights on the host.
//!
//! QEMU gets a connection, and nobody else can make one: the socket is removed at once. A server
//! whose connection ends, ends.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use hivekeep_confine::idmap::user_namespace_of;
use hivekeep_confine::mounts::{done, mount, move_mount, view};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::cgroup::MachineCgroups;
use crate::folders;
use crate::handle::ProcessId;
use crate::host_env::{HostEnv, Newborn};
use crate::options::{self, MachineUser};
use crate::sandbox::SandboxIds;
use crate::spawn::{self, Enclosure, Spawn};
use crate::sweep::TAG_VARIABLE;
use crate::{CapabilitySupport, Error, MachinePlan, Options};

pub(crate) const REMEDY: &str =
    "apt-get install virtiofsd, on Debian 12 apt-get install qemu-system-common";

/// A server that runs, and QEMU's connection to it.
pub(super) struct Server {
    pub(super) process: ProcessId,
    pub(super) device: OwnedFd,
}

/// Whether machines of this host may have volumes.
pub(super) fn support(options: &Options) -> CapabilitySupport {
    if !rustix::process::geteuid().is_root() {
        return CapabilitySupport::no("only root maps the ids of a mount");
    }
    match options::find_program(&options.virtiofsd_path, REMEDY) {
        Ok(_) => CapabilitySupport::Yes,
        Err(missing) => CapabilitySupport::no(missing.to_string()),
    }
}

/// Starts a server for each volume of a plan. `newborn` has those that run, also when one fails.
pub(super) fn start(
    host_env: &HostEnv,
    plan: &MachinePlan,
    user: MachineUser,
    group: &MachineCgroups,
    newborn: &mut Newborn,
) -> Result<Vec<Server>, Error> {
    if plan.volumes.is_empty() {
        return Ok(Vec::new());
    }
    if !user.switch {
        return Err(Error::BadPlan("only root mounts volumes into machines".into()));
    }
    if plan.volumes.iter().any(|volume| volume.owner.is_some()) {
        return Err(Error::BadPlan("folders of the host are for sandboxes alone".into()));
    }
    let ids = host_env.sandbox_ids.as_ref().ok();
    let own = ids.and_then(|ids| Some((*ids, ids.root(plan.slot)?)));
    let (ids, user) = own.map_or((None, user), |(ids, root)| (Some(ids), root));
    let program = options::find_program(&host_env.options.virtiofsd_path, REMEDY)?;
    let mut servers = Vec::with_capacity(plan.volumes.len());
    for volume in &plan.volumes {
        let path = plan.folders.volume_socket();
        let socket = folders::bind(&path)?;
        let export = Export::new(&volume.folder, volume.read_only, (user, ids), &plan.tag());
        let export = export.map_err(Error::io("map the ids of", &volume.folder))?;
        let process = Spawn {
            program: program.clone(),
            args: arguments(socket.as_raw_fd()),
            listen: vec![socket.as_raw_fd()],
            fds: vec![socket],
            user,
            groups: Vec::new(),
            door: group.door_of_server()?,
            enclosure: Some(Enclosure::Export(export)),
            stdout: spawn::append_log(&plan.folders.stderr_log())?,
            stderr: spawn::append_log(&plan.folders.stderr_log())?,
        }
        .start()?;
        newborn.add(process);
        // The socket listens since before the server executed, so this waits for nothing.
        let device = UnixStream::connect(&path).map_err(Error::io("connect to", &path))?.into();
        std::fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        servers.push(Server { process, device });
    }
    Ok(servers)
}

/// Command line in the form that both implementations take: Debian 12's in C, later ones in Rust.
///
/// `cache=auto`: the guest trusts what it knows of a file for a second. Without a cache it could
/// not map files for writing, which databases do.
fn arguments(socket: i32) -> Vec<OsString> {
    let source = format!("source={}", Path::new(FOLDER).display());
    let fd = format!("--fd={socket}");
    let words = [&fd, "-o", &source, "-o", "sandbox=namespace", "-o", "cache=auto"];
    words.map(OsString::from).to_vec()
}

/// Tag by which the guest names the device of a plan's volume number `n`.
pub(super) fn tag(n: usize) -> String {
    format!("{}{n}", crate::VOLUME_TAG)
}

/// Path at which the process finds the folder.
const FOLDER: &str = "/run/volume";
/// virtiofsd keeps a descriptor for each file that its guest knows, which the guest's own memory
/// bounds. This is its own default, which it could not set itself.
const MAX_OPEN_FILES: u64 = 1_000_000;

/// Mount of a folder with an id map, and the user namespace that has the map.
pub(crate) struct Export {
    folder: CString,
    read_only: bool,
    /// Map of the mount.
    map: OwnedFd,
    /// The process's own; without one it is that of the map.
    namespace: Option<OwnedFd>,
    mark: OsString,
}

impl Export {
    /// Id of the machine's user in the user namespace.
    pub(crate) const ID_WITHIN: u32 = 0;

    /// Prepares the mount. The user is alone, or the first of its ids. Blocks for some system calls.
    fn new(
        folder: &Path,
        read_only: bool,
        (user, ids): (MachineUser, Option<SandboxIds>),
        tag: &str,
    ) -> io::Result<Self> {
        let (map, namespace) = match ids {
            None => (user_namespace_of((0, 0), user.ids())?, None),
            Some(ids) => (ids.volume_namespace(user)?, Some(ids.servers_namespace(user)?)),
        };
        Ok(Self {
            folder: CString::new(folder.as_os_str().as_bytes())?,
            read_only,
            map,
            namespace,
            mark: format!("{TAG_VARIABLE}={tag}").into(),
        })
    }

    /// Variable of the environment that says whose the process is.
    pub(crate) fn mark(&self) -> &OsStr {
        &self.mark
    }

    /// Mounts and enters the user namespace. Makes system calls on data made before the fork; takes
    /// no lock, allocates nothing.
    #[allow(unsafe_code)]
    pub(crate) fn enter(&self) -> io::Result<()> {
        // Where the kernel allows fewer, the process has what the daemon has.
        let limit = Rlimit { current: Some(MAX_OPEN_FILES), maximum: Some(MAX_OPEN_FILES) };
        let _ = setrlimit(Resource::Nofile, limit);
        // SAFETY: takes no pointers; the child has one thread.
        done(unsafe { libc::unshare(libc::CLONE_NEWNS) }.into())?;
        mount(None, c"/", None, libc::MS_REC | libc::MS_SLAVE)?;
        let folder = view(&self.folder, self.read_only, Some(self.map.as_raw_fd()))?;
        mount(Some(c"tmpfs"), c"/run", Some(c"tmpfs"), libc::MS_NOSUID | libc::MS_NODEV)?;
        // SAFETY: the paths are static C strings.
        unsafe {
            done(libc::chmod(c"/run".as_ptr(), 0o755).into())?;
            done(libc::mkdir(c"/run/volume".as_ptr(), 0o755).into())?;
        }
        move_mount(folder, c"/run/volume")?;
        let namespace = self.namespace.as_ref().unwrap_or(&self.map).as_raw_fd();
        // SAFETY: takes no pointers; the child has one thread.
        done(unsafe { libc::setns(namespace, libc::CLONE_NEWUSER) }.into())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    use rustix::process::{Pid, WaitOptions, waitpid};

    use super::*;
    use crate::sandbox::SandboxIds;

    /// Output of a shell in the server's place.
    fn said(folder: &Path, read_only: bool, out: &Path) -> String {
        let user = MachineUser { uid: 64_779, gid: 64_779, switch: true };
        said_by((user, None), folder, read_only, out)
    }

    fn said_by(
        (user, ids): (MachineUser, Option<SandboxIds>),
        folder: &Path,
        read_only: bool,
        out: &Path,
    ) -> String {
        let export = Export::new(folder, read_only, (user, ids), "hivekeep:tag").unwrap();
        let script = "id -u; stat -c %u:%g /run/volume/file; (echo x > /run/volume/made) \
            2>/dev/null && echo wrote; cat /etc/shadow 2>/dev/null || echo no rights; \
            chown 1:2 /run/volume/file 2>/dev/null || echo one owner; echo $HIVEKEEP_MACHINE";
        let process = Spawn {
            program: "/bin/sh".into(),
            args: ["-c", script].map(OsString::from).to_vec(),
            fds: Vec::new(),
            listen: Vec::new(),
            user,
            groups: Vec::new(),
            door: Default::default(),
            enclosure: Some(Enclosure::Export(export)),
            stdout: spawn::append_log(out).unwrap(),
            stderr: spawn::append_log(out).unwrap(),
        };
        let pid = Pid::from_raw(process.start().unwrap().pid);
        waitpid(pid, WaitOptions::empty()).unwrap();
        let text = fs::read_to_string(out).unwrap();
        fs::remove_file(out).unwrap();
        text
    }

    #[test]
    fn a_server_has_its_folder_as_roots_and_no_right_beyond() {
        if !rustix::process::geteuid().is_root() {
            return hivekeep_skip::skip("only root maps ids");
        }
        let dir = tempfile::tempdir().unwrap();
        let (folder, out) = (dir.path().join("folder"), dir.path().join("out"));
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        let expected = "0\n0:0\nno rights\none owner\nhivekeep:tag\n";
        assert_eq!(said(&folder, true, &out), expected);
        assert!(!folder.join("made").exists());
        assert_eq!(said(&folder, false, &out), expected.replace("no rights", "wrote\nno rights"));
        let made = fs::metadata(folder.join("made")).unwrap();
        assert_eq!((made.uid(), made.gid()), (0, 0), "it is the next machine's too");
        assert!(!Path::new(FOLDER).exists(), "the mount is seen on the host");

        let ids = SandboxIds::find(&Options::default()).expect("ids that nobody has");
        let said = said_by((ids.root(0).unwrap(), Some(ids)), &folder, false, &out);
        assert_eq!(said, "0\n0:0\nwrote\nno rights\nhivekeep:tag\n", "there are other owners");
        let (given, first) = (fs::metadata(folder.join("file")).unwrap(), ids.ranges().1);
        assert_eq!((given.uid(), given.gid()), (first + 1, first + 2), "but none of the host's");
        assert_eq!(fs::metadata(folder.join("made")).unwrap().uid(), 0);
    }

    #[test]
    fn the_command_line_is_what_both_implementations_take() {
        let words = arguments(7);
        let words: Vec<_> = words.iter().map(|word| word.to_str().unwrap()).collect();
        let line = "--fd=7 -o source=/run/volume -o sandbox=namespace -o cache=auto";
        assert_eq!(words.join(" "), line);
    }
}
