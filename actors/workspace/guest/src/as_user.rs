//! User switch: becomes a user of this root for good, then the program to run.
//!
//! `hivekeep-guest as USER[:GROUP] PROGRAM ...`: names and numbers as container images have them, looked up
//! in this root's own `/etc/passwd` and `/etc/group`. A name that is not there is an error; a number need not
//! be. The process has no thread besides this one. The daemon looks a user up before it starts the role, so
//! that its caller gets an error code.
//!
//! What its work begins with is given to the user before: standard streams and the working folder.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use hivekeep_protocol::{Argv, FindUser, GuestCode, GuestError, RunCommand, UserFound};
use rustix::fs::{FileType, Gid, Mode, OFlags, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::files::{io_error, off_thread};

/// Exit status when the user cannot be taken on, as `docker exec` and `env` have it.
const REFUSED: u8 = 126;
/// Exit status when the program is not there.
const NOT_FOUND: u8 = 127;
const FILE_BYTES: u64 = 4 << 20;

/// Whom a program runs as, or files are reached as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
    name: String,
    pub(crate) home: String,
}

/// Runs the role; returns only when it failed.
pub fn run(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let (Some(user), Some(program)) = (words.next(), words.next()) else {
        crate::say!("as: USER PROGRAM ...");
        return ExitCode::from(REFUSED);
    };
    let user = user.to_string_lossy();
    let become_it = || -> Result<Identity, String> {
        let identity = Identity::of(&user)?;
        streams(&identity);
        give_home(&identity);
        identity.take_on().map_err(|error| format!("becoming user {user}: {error}"))?;
        Ok(identity)
    };
    let identity = match become_it() {
        Ok(identity) => identity,
        Err(why) => {
            crate::say!("{why}");
            return ExitCode::from(REFUSED);
        }
    };
    let mut command = Command::new(&program);
    command.args(words);
    // The guest's own defaults are root's; what a call or the image says stays.
    for (name, roots, own) in [
        ("HOME", "/root", &identity.home),
        ("USER", "root", &identity.name),
        ("LOGNAME", "root", &identity.name),
    ] {
        if std::env::var_os(name).is_none_or(|value| value == roots) {
            command.env(name, own);
        }
    }
    let error = command.exec();
    crate::say!("{}: {error}", program.to_string_lossy());
    let missing = error.kind() == ErrorKind::NotFound;
    ExitCode::from(if missing { NOT_FOUND } else { REFUSED })
}

/// Refuses a command that is to run as a user whom there is not. Blocks for some small files.
///
/// # Errors
/// `UnknownUser`.
pub fn check(argv: &Argv) -> Result<(), GuestError> {
    let Argv::Direct(words) = argv else { return Ok(()) };
    let [program, role, user, ..] = words.as_slice() else { return Ok(()) };
    if [program.as_str(), role.as_str()] != Argv::AS_USER {
        return Ok(());
    }
    find(user).map(drop)
}

/// Finds a user of this machine. Blocks for some small files.
///
/// # Errors
/// `UnknownUser`.
pub(crate) fn find(user: &str) -> Result<Identity, GuestError> {
    let refused = |why| GuestError::new(GuestCode::UnknownUser, why);
    let identity = Identity::of(user).map_err(refused)?;
    for (map, id) in [("uid_map", identity.uid), ("gid_map", identity.gid)] {
        let map = std::fs::read_to_string(format!("/proc/self/{map}"));
        if !is_mapped(&map.map_err(|error| io_error(&error, "/proc/self"))?, id) {
            return Err(refused(format!("id {id} of user {user} is none of this machine's")));
        }
    }
    Ok(identity)
}

/// Answers [`FindUser`].
///
/// # Errors
/// `UnknownUser`.
pub(crate) async fn tell(asked: FindUser) -> Result<UserFound, GuestError> {
    let Identity { uid, gid, home, .. } = off_thread(move || find(&asked.user)).await?;
    let home = if home.starts_with('/') { home } else { "/".to_owned() };
    Ok(UserFound { uid, gid, home })
}

/// Finds whom a command runs as, if it has the role, and puts the owner of its repository in place of
/// [`Argv::REPOSITORY_OWNER`]; the role is taken away where that is the daemon's own user.
///
/// # Errors
/// `UnknownUser`.
pub(crate) async fn resolve(command: &mut RunCommand) -> Result<Option<Identity>, GuestError> {
    let Argv::Direct(words) = &mut command.argv else { return Ok(None) };
    let [program, role, user, ..] = words.as_mut_slice() else { return Ok(None) };
    if [program.as_str(), role.as_str()] != Argv::AS_USER {
        return Ok(None);
    }
    if user != Argv::REPOSITORY_OWNER {
        let user = user.clone();
        return off_thread(move || find(&user)).await.map(Some);
    }
    let folder = PathBuf::from(command.workdir.as_deref().unwrap_or("/"));
    let owner = off_thread(move || Ok(owner(&folder))).await?;
    match &owner {
        Some(identity) => *user = identity.uid.to_string(),
        None => drop(words.drain(..3)),
    }
    Ok(owner)
}

/// Owner of the `.git` that git finds from a folder on, or else of the folder. `None` for the daemon's
/// own user and for one that is none of this machine's, whose repositories git itself refuses.
fn owner(folder: &Path) -> Option<Identity> {
    let folder = folder.canonicalize().ok()?;
    let found = folder.ancestors().find_map(|at| at.join(".git").symlink_metadata().ok());
    let uid = found.or_else(|| folder.metadata().ok())?.uid();
    let is_own = uid == rustix::process::geteuid().as_raw();
    if is_own { None } else { find(&uid.to_string()).ok() }
}

impl Identity {
    fn of(user: &str) -> Result<Self, String> {
        Self::find(user, &read("/etc/passwd")?, &read("/etc/group")?)
    }

    fn find(user: &str, passwd: &str, group: &str) -> Result<Self, String> {
        let (user, asked_group) = match user.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (user, None),
        };
        let known = rows::<7>(passwd).find(|row| row[0] == user);
        let by_number = || rows::<7>(passwd).find(|row| row[2] == user);
        let known = known.or_else(by_number);
        let no_user = || format!("user {user:.80?} is not in /etc/passwd");
        let uid = known.map_or(user, |row| row[2]).parse().map_err(|_| no_user())?;
        let own_gid = known.map_or(Ok(0), |row| row[3].parse()).map_err(|_| no_user())?;
        let name = known.map_or(user, |row| row[0]);
        let gid = match asked_group {
            None => own_gid,
            Some(asked) => {
                let row = rows::<4>(group).find(|row| row[0] == asked);
                let no_group = |_| format!("group {asked:.80?} is not in /etc/group");
                row.map_or(asked, |row| row[2]).parse().map_err(no_group)?
            }
        };
        // A group that is asked for is the only one.
        let member = |row: &[&str; 4]| row[3].split(',').any(|member| member == name);
        let others = rows::<4>(group).filter(|row| asked_group.is_none() && member(row));
        let others = others.filter_map(|row| row[2].parse().ok()).take(64);
        let mut groups: Vec<u32> = std::iter::once(gid).chain(others).collect();
        groups.dedup();
        let home = known.map(|row| row[5]).filter(|home| !home.is_empty()).unwrap_or("/");
        Ok(Self { uid, gid, groups, name: name.to_owned(), home: home.to_owned() })
    }

    fn take_on(&self) -> std::io::Result<()> {
        let valid = |id: u32| (id != u32::MAX).then_some(id);
        let no = || std::io::Error::from(ErrorKind::InvalidInput);
        let gid = Gid::from_raw(valid(self.gid).ok_or_else(no)?);
        let uid = Uid::from_raw(valid(self.uid).ok_or_else(no)?);
        let groups: Vec<_> = self.groups.iter().map(|group| Gid::from_raw(*group)).collect();
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        // Capabilities go with it.
        set_thread_res_uid(uid, uid, uid)?;
        Ok(())
    }
}

/// Whether a user namespace with this map has an id inside.
fn is_mapped(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let (Some(Ok(inner)), _, Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        id.checked_sub(inner).is_some_and(|offset| offset < count)
    })
}

/// Rows of a file of that many fields; what is malformed is skipped, as libc does.
fn rows<const FIELDS: usize>(text: &str) -> impl Iterator<Item = [&str; FIELDS]> {
    text.lines().filter_map(|line| line.split(':').collect::<Vec<_>>().try_into().ok())
}

/// A file of this root, or nothing where there is none.
fn read(path: &str) -> Result<String, String> {
    let mut bytes = Vec::new();
    // Whatever stands there: a pipe is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let opened = rustix::fs::open(path, flags, Mode::empty()).map(File::from);
    let read =
        opened.map_err(std::io::Error::from).and_then(|file| match file.metadata()?.is_file() {
            true => file.take(FILE_BYTES).read_to_end(&mut bytes),
            false => Err(ErrorKind::InvalidData.into()),
        });
    match read {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(format!("{path}: {error}")),
        _ => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// Folder that relative paths begin at.
pub(crate) const HOME: &str = "/workspace";

/// Gives pipes and terminals among the standard streams to the user, who could not open them by their names
/// (`/dev/stdout`) otherwise. A stream that cannot be given is usable all the same.
fn streams(identity: &Identity) {
    let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
    let streams = [std::io::stdin().as_fd(), std::io::stdout().as_fd(), std::io::stderr().as_fd()]
        .map(|stream: BorrowedFd<'_>| stream.try_clone_to_owned());
    for stream in streams.into_iter().flatten() {
        let is_pipe = rustix::fs::fstat(&stream)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo);
        if is_pipe {
            let _ = rustix::fs::fchown(&stream, Some(uid), Some(gid));
        } else if rustix::termios::isatty(&stream) {
            let _ = rustix::fs::fchown(&stream, Some(uid), None);
        }
    }
}

/// Gives the folder that relative paths begin at to the user if it is missing, or is the daemon's own and
/// empty: the first user who works there has it. A volume there is left as it is, for other workspaces have it
/// too. Where that fails, the user may not write in it.
pub(crate) fn give_home(identity: &Identity) {
    let _is_there = std::fs::create_dir(HOME);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(folder) = rustix::fs::open(HOME, flags, Mode::empty()) else { return };
    let (Ok(stat), Ok(root)) = (rustix::fs::fstat(&folder), rustix::fs::stat("/")) else { return };
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_dev == root.st_dev;
    if is_own && std::fs::read_dir(HOME).is_ok_and(|mut entries| entries.next().is_none()) {
        let (uid, gid) = (Uid::from_raw(identity.uid), Gid::from_raw(identity.gid));
        let _ = rustix::fs::fchown(&folder, Some(uid), Some(gid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nbroken\napp:x:1000:1001::/srv/app:\n\
                          7:x:77:78::/seven:/bin/sh\nbad:x:one:1:::\n";
    const GROUP: &str = "root:x:0:\napp:x:1001:\nmedia:x:44:bob,app\nwheel:x:10:apple\n";

    fn find(user: &str) -> Result<(u32, Vec<u32>, String), String> {
        let found = Identity::find(user, PASSWD, GROUP)?;
        Ok((found.uid, found.groups, found.home))
    }

    #[test]
    fn names_and_numbers_are_found_as_container_images_mean_them() {
        let home = |home: &str| home.to_owned();
        assert_eq!(find("app"), Ok((1000, vec![1001, 44], home("/srv/app"))));
        assert_eq!(find("1000"), Ok((1000, vec![1001, 44], home("/srv/app"))));
        assert_eq!(find("app:media"), Ok((1000, vec![44], home("/srv/app"))));
        assert_eq!(find("app:5"), Ok((1000, vec![5], home("/srv/app"))));
        // A name wins over a number, and a number needs no name.
        assert_eq!(find("7"), Ok((77, vec![78], home("/seven"))));
        assert_eq!(find("4711"), Ok((4711, vec![0], home("/"))));
        for nobody in ["ghost", "", "app:ghost", "bad", "-1", "99999999999"] {
            assert!(find(nobody).is_err(), "{nobody}");
        }
    }

    #[test]
    fn ids_inside_of_a_map_are_there() {
        let map = "         0      64100          1\n       100      70000        10\n";
        assert!(is_mapped(map, 0) && is_mapped(map, 109));
        assert!(![1, 99, 110, u32::MAX].iter().any(|id| is_mapped(map, *id)));
    }

    #[test]
    fn only_a_command_of_the_role_is_looked_at() {
        let direct =
            |words: &[&str]| Argv::Direct(words.iter().map(|it| (*it).to_owned()).collect());
        for other in [Argv::Shell("as no-such-user".into()), direct(&["as", "no-such-user", "x"])] {
            assert_eq!(check(&other), Ok(()));
        }
        let ghost = check(&direct(&["/proc/self/exe", "as", "no-such-user", "x"]));
        assert_eq!(ghost.map_err(|error| error.code), Err(GuestCode::UnknownUser));
        assert_eq!(check(&direct(&["/proc/self/exe", "as", "0", "x"])), Ok(()));
    }
}
