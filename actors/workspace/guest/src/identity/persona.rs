//! Identity that the host gave this guest, as it is kept over starts of the daemon, and the small files
//! that hold it, `/etc/hosts` among them.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::settings::{AgentSettings, GuestKind};

/// Path of a machine's id.
pub(crate) const MACHINE_ID: &str = "/etc/machine-id";
/// Size of the persona's file, whatever is in it, so that it can be overwritten.
const PERSONA_BYTES: usize = 512;

/// Identity by which the host knows this guest. Kept in the run folder; it overrides the options that init
/// starts the daemon with and, like them, is gone after a reboot.
#[derive(Debug)]
pub struct Persona {
    file: PathBuf,
    /// Held for a read or a replacement, never across an await.
    current: Mutex<Known>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) token_hash: [u8; 32],
    pub(super) instance_id: String,
}

impl Persona {
    /// Reads the identity that the host gave last, or else takes the one that the daemon was started with.
    pub fn read(settings: &AgentSettings, boot_id: &str) -> Self {
        let file = settings.run_dir.join("persona.json");
        let told = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let current = told.unwrap_or_else(|| Known {
            token_hash: settings.token_hash,
            instance_id: boot_id.to_owned(),
        });
        let persona = Self { file, current: Mutex::new(current.clone()) };
        // The file exists before any snapshot, so that a fork has only to overwrite it.
        if settings.place == GuestKind::Vm
            && let Err(error) = persona.become_known_as(current)
        {
            crate::say!("{}: {error}", persona.file.display());
        }
        persona
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Known> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// BLAKE3 of the token that a host must have.
    pub fn token_hash(&self) -> [u8; 32] {
        self.current().token_hash
    }

    /// Instance id, for [`hivekeep_protocol::GuestWelcome::boot_id`].
    pub fn instance_id(&self) -> String {
        self.current().instance_id.clone()
    }

    /// Sets the identity of this daemon and its successors.
    pub(super) fn become_known_as(&self, known: Known) -> io::Result<()> {
        let mut text = serde_json::to_vec(&known)?;
        text.resize(PERSONA_BYTES.max(text.len()), b' ');
        put(&self.file, &text, 0o600)?;
        *self.current() = known;
        Ok(())
    }
}

/// Debian's address for a host's own name.
const OWN_ADDRESS: &str = "127.0.1.1";
/// A larger `/etc/hosts` is left alone.
const HOSTS_BYTES: u64 = 1 << 20;
/// Width of the name, the maximum of a host name: the line keeps its length and can be overwritten.
const NAME_WIDTH: usize = 63;

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
    if named == text { Ok(()) } else { put(hosts, named.as_bytes(), 0o644) }
}

fn with_own_name(text: &str, hostname: &str) -> String {
    let own = format!("{OWN_ADDRESS}\t{hostname:<NAME_WIDTH$}\n");
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

/// Gives a file its content, of at most a page. Where it had as many bytes, they are overwritten by
/// one write: making and renaming another file costs a fresh fork, whose emulated CPU has to
/// translate the code of a file system first. Otherwise it appears with its new content, or stays
/// as it was.
///
/// Never synced: what is put here is put again by the next start, and a flush of the disk is what
/// a fork would wait for.
///
/// # Errors
/// As those of open(2), write(2) and rename(2).
pub(super) fn put(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    if let Ok(file) = File::options().write(true).custom_flags(libc::O_NOFOLLOW).open(path) {
        let meta = file.metadata()?;
        if meta.is_file() && meta.len() == content.len() as u64 {
            return file.write_all_at(content, 0);
        }
    }
    let temp = write_beside(path, content, mode)?;
    std::fs::rename(temp, path)
}

/// A new file in the same folder, to be renamed.
pub(crate) fn write_beside(path: &Path, content: &[u8], mode: u32) -> io::Result<PathBuf> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temp = path.with_file_name(format!(".{name}.hivekeep"));
    let mut file = File::create(&temp)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(temp)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn lines(text: &str) -> Vec<&str> {
        text.lines().map(str::trim_end).collect()
    }

    #[test]
    fn the_own_name_is_in_hosts_once_and_nothing_else_changes() {
        let image = "127.0.0.1\tlocalhost\n::1\tlocalhost\n";
        let named = with_own_name(image, "one");
        assert_eq!(lines(&named), ["127.0.0.1\tlocalhost", "::1\tlocalhost", "127.0.1.1\tone"]);
        assert_eq!(with_own_name(&named, "one"), named);
        let twice = format!("127.0.1.1 x\n{named}# end");
        let two = with_own_name(&twice, "two");
        assert_eq!(lines(&two)[..2], ["127.0.1.1\ttwo", "127.0.0.1\tlocalhost"]);
        assert_eq!(lines(&two)[3..], ["# end"]);
        assert_eq!(lines(&with_own_name("", "a")), ["127.0.1.1\ta"]);
    }

    #[test]
    fn another_name_does_not_change_the_length() {
        let one = with_own_name("127.0.0.1\tlocalhost\n", "a");
        let long = "b".repeat(63);
        assert_eq!(with_own_name(&one, &long).len(), one.len());
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

    #[test]
    fn a_content_of_the_same_length_is_written_in_place_and_another_is_exchanged() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, far) = (dir.path().join("file"), dir.path().join("far"));
        let inode = || std::fs::symlink_metadata(&path).expect("there").ino();
        put(&path, b"one\n", 0o444).expect("made");
        let first = inode();
        put(&path, b"two\n", 0o444).expect("overwritten");
        assert_eq!(
            (std::fs::read(&path).expect("read").as_slice(), inode()),
            (&b"two\n"[..], first)
        );
        put(&path, b"three\n", 0o444).expect("exchanged");
        assert_eq!(std::fs::read(&path).expect("read"), b"three\n");
        assert_eq!(std::fs::metadata(&path).expect("there").mode() & 0o777, 0o444);

        // The target of a link is left alone.
        std::fs::write(&far, "other\n").expect("written");
        std::fs::remove_file(&path).expect("gone");
        std::os::unix::fs::symlink(&far, &path).expect("linked");
        put(&path, b"mine!\n", 0o644).expect("exchanged");
        assert_eq!(std::fs::read(&far).expect("read"), b"other\n");
        assert_eq!(std::fs::read(&path).expect("read"), b"mine!\n");
        assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 2, "nothing is left");
    }
}
