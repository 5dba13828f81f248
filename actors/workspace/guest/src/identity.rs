//! Who this guest is, and becoming someone else.
//!
//! A machine that was started from another one's memory wakes up as that machine: same token, same
//! name, same random numbers to come. The host knows both tokens and has it become itself. Only
//! the kernel's boot id stays as it was, since nothing can change it; a program that takes two
//! forks with one boot id for one machine should look at `/etc/machine-id`.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use hivekeep_protocol::{GuestCode, GuestError, Reidentified, Reidentify};
use serde::{Deserialize, Serialize};

use crate::agent::{Place, Settings};
use crate::files::{io_error, off_thread};
use crate::session::call::CallCx;
use crate::sys::ioctl;
use crate::system;

pub(crate) const MACHINE_ID: &str = "/etc/machine-id";
/// Older programs look here; mostly a link to the other.
const DBUS_MACHINE_ID: &str = "/var/lib/dbus/machine-id";
const HOSTS: &str = "/etc/hosts";
/// Debian's address for a host's own name.
const OWN_ADDRESS: &str = "127.0.1.1";
/// A larger `/etc/hosts` is left alone.
const HOSTS_BYTES: u64 = 1 << 20;
const MIN_ENTROPY_BYTES: usize = 32;
const MAX_INSTANCE_ID_BYTES: usize = 64;
/// A restored clock is set whenever it is off by more.
const CLOCK_TOLERANCE_MS: u64 = 10;

/// What the host knows this guest by. Kept in the run folder, which is gone after a reboot, as is
/// what it overrides: the options that init starts the daemon with.
#[derive(Debug)]
pub struct Persona {
    file: PathBuf,
    /// Held for a read or a replacement, never across an await.
    current: Mutex<Known>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    token_hash: [u8; 32],
    instance_id: String,
}

impl Persona {
    /// As last told by the host, or as the daemon was started.
    pub fn read(settings: &Settings, boot_id: &str) -> Self {
        let file = settings.run_dir.join("persona.json");
        let told = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let current = told.unwrap_or_else(|| Known {
            token_hash: settings.token_hash,
            instance_id: boot_id.to_owned(),
        });
        Self { file, current: Mutex::new(current) }
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Known> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// BLAKE3 of the token that a host must have.
    pub fn token_hash(&self) -> [u8; 32] {
        self.current().token_hash
    }

    /// For [`hivekeep_protocol::Welcome::boot_id`].
    pub fn instance_id(&self) -> String {
        self.current().instance_id.clone()
    }

    /// For this daemon and its successors.
    fn become_known_as(&self, known: Known) -> io::Result<()> {
        replace(&self.file, &serde_json::to_vec(&known)?, 0o600)?;
        *self.current() = known;
        Ok(())
    }
}

/// Answers [`Reidentify`]. The token is the last to change: a failure leaves a guest that still
/// listens to who asked.
///
/// # Errors
/// `Invalid` for values that are none, `Unsupported` in a sandbox, `Internal` where something
/// could not be set.
pub async fn reidentify(cx: &CallCx, asked: Reidentify) -> Result<Reidentified, GuestError> {
    check(&asked)?;
    if cx.agent.settings.place == Place::Sandbox {
        let text = "a sandbox has no identity of its own";
        return Err(GuestError::new(GuestCode::Unsupported, text));
    }
    let agent = cx.agent.clone();
    off_thread(move || {
        let failed = |what: &'static str| move |error: io::Error| io_error(&error, what);
        // First: the host's time was right when it asked.
        let clock_step_ms = system::step_clock(asked.clock_unix_ms, CLOCK_TOLERANCE_MS)
            .map_err(failed("the clock"))?;
        rustix::system::sethostname(asked.hostname.as_bytes())
            .map_err(|error| failed("the host name")(error.into()))?;
        name_in_hosts(Path::new(HOSTS), &asked.hostname).map_err(failed(HOSTS))?;
        set_machine_id(&asked.machine_id).map_err(failed(MACHINE_ID))?;
        let entropy_bytes =
            ioctl::add_entropy(&asked.entropy).map_err(failed("the random generator"))?;
        let Reidentify { token_hash, instance_id, .. } = asked;
        agent
            .persona
            .become_known_as(Known { token_hash, instance_id })
            .map_err(failed("the daemon's own state"))?;
        let machine_id = std::fs::read_to_string(MACHINE_ID).map_err(failed(MACHINE_ID))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Reidentified {
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            machine_id: machine_id.trim_end().to_owned(),
            instance_id: agent.persona.instance_id(),
            clock_unix_ms: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
            clock_step_ms,
            entropy_bytes,
        })
    })
    .await
}

/// Gives a machine that never had one its machine id, as systemd would; one that has one keeps
/// it. Not synced: the same id is given again by the next start.
///
/// # Errors
/// `InvalidInput` for an id that is none; whatever keeps the file from being written.
pub fn first_machine_id(file: &Path, id: &str) -> io::Result<()> {
    if !is_machine_id(id) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{id:?} is no machine id"),
        ));
    }
    match std::fs::read(file) {
        Ok(there) if !there.trim_ascii().is_empty() && there != b"uninitialized\n" => Ok(()),
        Ok(_) => std::fs::write(file, format!("{id}\n")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            std::fs::write(file, format!("{id}\n"))
        }
        Err(error) => Err(error),
    }
}

fn is_machine_id(id: &str) -> bool {
    let hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    id.len() == 32 && id.bytes().all(hex)
}

fn check(asked: &Reidentify) -> Result<(), GuestError> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    let instance = asked.instance_id.as_bytes();
    let wrong = if !system::is_label(&asked.hostname) {
        format!("{:?} is no host name", asked.hostname)
    } else if !is_machine_id(&asked.machine_id) {
        format!("{:?} is no machine id", asked.machine_id)
    } else if !(1..=MAX_INSTANCE_ID_BYTES).contains(&instance.len())
        || !instance.iter().copied().all(plain)
    {
        format!("{:?} is no instance id", asked.instance_id)
    } else if asked.entropy.len() < MIN_ENTROPY_BYTES {
        format!("{} random bytes are not enough", asked.entropy.len())
    } else {
        return Ok(());
    };
    Err(GuestError::new(GuestCode::Invalid, wrong))
}

fn set_machine_id(id: &str) -> io::Result<()> {
    let line = format!("{id}\n");
    replace(Path::new(MACHINE_ID), line.as_bytes(), 0o444)?;
    let dbus = Path::new(DBUS_MACHINE_ID);
    match std::fs::symlink_metadata(dbus) {
        Ok(meta) if meta.is_file() => replace(dbus, line.as_bytes(), 0o644),
        _ => Ok(()),
    }
}

/// Makes the host's own name resolve, as Debian does. Other lines stay as they are.
///
/// # Errors
/// When the file is too large or cannot be replaced.
pub fn name_in_hosts(hosts: &Path, hostname: &str) -> io::Result<()> {
    let text = match std::fs::metadata(hosts) {
        Ok(meta) if meta.len() > HOSTS_BYTES => return Err(io::ErrorKind::FileTooLarge.into()),
        Ok(_) => std::fs::read_to_string(hosts)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let named = with_own_name(&text, hostname);
    if named == text {
        return Ok(());
    }
    // Not synced: each new link sets it again, and a flush of the disk is what a fork waits for.
    let (_, temp) = write_beside(hosts, named.as_bytes(), 0o644)?;
    std::fs::rename(temp, hosts)
}

fn with_own_name(text: &str, hostname: &str) -> String {
    let own = format!("{OWN_ADDRESS}\t{hostname}\n");
    let (mut named, mut found) = (String::with_capacity(text.len() + own.len()), false);
    for line in text.lines() {
        if line.split_ascii_whitespace().next() != Some(OWN_ADDRESS) {
            named.push_str(line);
            named.push('\n');
        } else if !std::mem::replace(&mut found, true) {
            named.push_str(&own);
        }
    }
    if !found {
        named.push_str(&own);
    }
    named
}

/// A small file appears with its new content, synced, or stays as it was.
fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let (file, temp) = write_beside(path, content, mode)?;
    file.sync_all()?;
    std::fs::rename(&temp, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

pub(crate) fn write_beside(path: &Path, content: &[u8], mode: u32) -> io::Result<(File, PathBuf)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temp = path.with_file_name(format!(".{name}.hivekeep"));
    let mut file = File::create(&temp)?;
    file.write_all(content)?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    Ok((file, temp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_id_is_given_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("machine-id");
        let (one, two) = ("1".repeat(32), "2".repeat(32));
        assert!(first_machine_id(&file, "root").is_err());
        first_machine_id(&file, &one).unwrap();
        first_machine_id(&file, &two).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{one}\n"));
        for empty in ["", "\n", "uninitialized\n"] {
            std::fs::write(&file, empty).unwrap();
            first_machine_id(&file, &two).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{two}\n"));
        }
    }

    #[test]
    fn the_own_name_is_in_hosts_once_and_nothing_else_changes() {
        let image = "127.0.0.1\tlocalhost\n::1\tlocalhost\n";
        let named = with_own_name(image, "one");
        assert_eq!(named, format!("{image}127.0.1.1\tone\n"));
        assert_eq!(with_own_name(&named, "one"), named);
        let twice = format!("127.0.1.1 x\n{named}# end");
        assert_eq!(with_own_name(&twice, "two"), format!("127.0.1.1\ttwo\n{image}# end\n"));
        assert_eq!(with_own_name("", "a"), "127.0.1.1\ta\n");
    }

    #[test]
    fn hosts_is_made_and_left_alone_when_right() {
        let dir = tempfile::tempdir().expect("a folder");
        let hosts = dir.path().join("hosts");
        name_in_hosts(&hosts, "one").expect("made");
        let made = std::fs::metadata(&hosts).expect("there").modified().expect("a time");
        name_in_hosts(&hosts, "one").expect("right");
        assert_eq!(std::fs::metadata(&hosts).expect("there").modified().expect("a time"), made);
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1);
    }
}
