//! The daemon's end: one socket for each command, one question at a time.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hivekeep_protocol::Credential;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use super::prompt;
use crate::as_user::Identity;
use crate::contain::ProcessSet;
use crate::sys::peer;

/// Longest question.
pub(super) const MAX_QUESTION_BYTES: usize = 4096;
/// Message in place of a prompt: the server refused the credential that was answered.
pub(super) const REJECTED: &[u8] = b"\0rejected";
/// Questions of one command that are looked at; git asks twice for each server.
const MAX_QUESTIONS: u32 = 64;
/// Time for one question and its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Record of the questions asked while the command ran.
#[derive(Debug, Default)]
pub(super) struct AskRecord {
    pub(super) answered: u32,
    pub(super) unanswered: Option<String>,
    pub(super) rejected: bool,
}

/// A socket that answers while [`Server::serve`] is polled; gone when this is dropped.
#[derive(Debug)]
pub(super) struct Server {
    listener: UnixListener,
    path: PathBuf,
    credential: Option<Credential>,
    /// Held for a note or the last look only.
    heard: Mutex<AskRecord>,
}

impl Server {
    /// Listens for processes of `user`; without one, of the daemon's own.
    pub(super) fn open(
        run_dir: &Path,
        credential: Option<Credential>,
        user: Option<&Identity>,
    ) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = run_dir.join(format!("ask-{}-{number}", std::process::id()));
        // The socket may be left by an earlier daemon with the same process id.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        let server = Self { listener, path, credential, heard: Mutex::default() };
        std::fs::set_permissions(&server.path, PermissionsExt::from_mode(0o600))?;
        if let Some(user) = user {
            std::os::unix::fs::chown(&server.path, Some(user.uid), None)?;
        }
        Ok(server)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Answers processes of `scope`, and no others.
    pub(super) async fn serve(&self, scope: ProcessSet) {
        let mut questions = 0;
        while questions < MAX_QUESTIONS {
            let Ok((stream, _)) = self.listener.accept().await else { return };
            let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
            // Looked at in this order: a process that still is there has had its id all along.
            if pid.is_some_and(|pid| scope.holds(pid)) && !peer::has_ended(&stream) {
                questions += 1;
                // Errors and timeouts concern only the process that connected.
                let _ = timeout(PATIENCE, self.answer(stream)).await;
            }
        }
    }

    async fn answer(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut question = Vec::new();
        (&mut stream).take(MAX_QUESTION_BYTES as u64).read_to_end(&mut question).await?;
        if question == REJECTED {
            self.note().rejected = true;
            return Ok(());
        }
        let asked = std::str::from_utf8(&question).ok().and_then(prompt::parse);
        let Some((wanted, origin)) = asked else { return Ok(()) };
        let known = self.credential.as_ref();
        match known.and_then(|credential| prompt::answer(credential, wanted, &origin)) {
            Some(answer) => {
                self.note().answered += 1;
                stream.write_all(answer.as_bytes()).await?;
                stream.write_all(b"\n").await
            }
            None => {
                self.note().unanswered = Some(origin);
                Ok(())
            }
        }
    }

    fn note(&self) -> std::sync::MutexGuard<'_, AskRecord> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the socket; returns the record of its questions.
    pub(super) fn close(self) -> AskRecord {
        std::mem::take(&mut *self.note())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
