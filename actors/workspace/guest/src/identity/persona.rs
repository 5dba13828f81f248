//! Identity that the host gave this guest, as it is kept over starts of the daemon.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::small;
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
        small::put(&self.file, &text, 0o600)?;
        *self.current() = known;
        Ok(())
    }
}
