//! Identity of this guest, and the change to another.
//!
//! A machine that was started from another one's memory wakes up as that machine: same token, same name, same
//! random numbers to come. The host knows both tokens and has the machine take its own identity. Only the
//! kernel's boot id stays as it was, since nothing can change it; a program that takes two forks with one
//! boot id for one machine should look at `/etc/machine-id`.

mod persona;

use std::io;
use std::path::Path;
use std::time::SystemTime;

use hivekeep_protocol::{GuestCode, GuestError, Reidentified, Reidentify};

pub(crate) use persona::{MACHINE_ID, write_beside};
pub use persona::{Persona, name_in_hosts};

use crate::files::io_error;
use crate::session::call::RequestContext;
use crate::settings::GuestKind;
use crate::sys;
use crate::system;
use persona::Known;

/// Machine id where older programs look for it; mostly a link to [`MACHINE_ID`].
const DBUS_MACHINE_ID: &str = "/var/lib/dbus/machine-id";
const HOSTS: &str = "/etc/hosts";
const MIN_ENTROPY_BYTES: usize = 32;
const MAX_INSTANCE_ID_BYTES: usize = 64;
/// Tolerance of a restored clock, which is set whenever it is off by more.
const CLOCK_TOLERANCE_MS: u64 = 10;

/// Answers [`Reidentify`]. The token is the last to change: a failure leaves a guest that still listens to
/// the host that asked.
///
/// # Errors
/// `Invalid` for values that are none, `Unsupported` in a sandbox, `Internal` where something
/// could not be set.
pub fn reidentify(cx: &RequestContext, asked: Reidentify) -> Result<Reidentified, GuestError> {
    check(&asked)?;
    if cx.agent.settings.place == GuestKind::Sandbox {
        let text = "a sandbox has no identity of its own";
        return Err(GuestError::new(GuestCode::Unsupported, text));
    }
    // Not off the thread, although it writes to files: nothing else is asked of a machine that is
    // not itself yet, and a thread is one more thing that a fork has to make.
    let failed = |what: &'static str| move |error: io::Error| io_error(&error, what);
    // First: the host's time was right when it asked.
    let clock_step_ms =
        system::step_clock(asked.clock_unix_ms, CLOCK_TOLERANCE_MS).map_err(failed("the clock"))?;
    rustix::system::sethostname(asked.hostname.as_bytes())
        .map_err(|error| failed("the host name")(error.into()))?;
    name_in_hosts(Path::new(HOSTS), &asked.hostname).map_err(failed(HOSTS))?;
    set_machine_id(&asked.machine_id).map_err(failed(MACHINE_ID))?;
    let entropy_bytes = sys::add_entropy(&asked.entropy).map_err(failed("the random generator"))?;
    cx.agent.become_of(&asked.machine_id)?;
    let Reidentify { token_hash, instance_id, .. } = asked;
    let persona = &cx.agent.persona;
    persona
        .become_known_as(Known { token_hash, instance_id })
        .map_err(failed("the daemon's own state"))?;
    let machine_id = std::fs::read_to_string(MACHINE_ID).map_err(failed(MACHINE_ID))?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(Reidentified {
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        machine_id: machine_id.trim_end().to_owned(),
        instance_id: persona.instance_id(),
        clock_unix_ms: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
        clock_step_ms,
        entropy_bytes,
    })
}

/// Gives a machine that starts its machine id: always where its disk began as another machine's.
///
/// # Errors
/// As those of [`first_machine_id`].
pub fn machine_id_at_boot(id: &str, is_fork: bool) -> io::Result<()> {
    let file = Path::new(MACHINE_ID);
    if !is_fork || std::fs::read(file).is_ok_and(|there| there.trim_ascii() == id.as_bytes()) {
        return first_machine_id(file, id);
    }
    set_machine_id(id)
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
            format!("{id:?} is not a machine id"),
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

pub(crate) fn is_machine_id(id: &str) -> bool {
    let hex = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    id.len() == 32 && id.bytes().all(hex)
}

fn check(asked: &Reidentify) -> Result<(), GuestError> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
    let instance = asked.instance_id.as_bytes();
    let wrong = if !system::is_label(&asked.hostname) {
        format!("{:?} is not a host name", asked.hostname)
    } else if !is_machine_id(&asked.machine_id) {
        format!("{:?} is not a machine id", asked.machine_id)
    } else if !(1..=MAX_INSTANCE_ID_BYTES).contains(&instance.len())
        || !instance.iter().copied().all(plain)
    {
        format!("{:?} is not an instance id", asked.instance_id)
    } else if asked.entropy.len() < MIN_ENTROPY_BYTES {
        format!("{} random bytes are not enough", asked.entropy.len())
    } else {
        return Ok(());
    };
    Err(GuestError::new(GuestCode::Invalid, wrong))
}

/// Gives a machine whose disk began as another one's the id that is its own. Not synced: each
/// start gives it again.
///
/// # Errors
/// Whatever keeps the file from being written.
fn set_machine_id(id: &str) -> io::Result<()> {
    let line = format!("{id}\n");
    persona::put(Path::new(MACHINE_ID), line.as_bytes(), 0o444)?;
    let dbus = Path::new(DBUS_MACHINE_ID);
    match std::fs::symlink_metadata(dbus) {
        Ok(meta) if meta.is_file() => persona::put(dbus, line.as_bytes(), 0o644),
        _ => Ok(()),
    }
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
}
