//! Answering git's questions for a password while one command runs.
//!
//! ```text
//! git ── starts ──► askpass (this binary) ── prompt ──► socket of the command ──► daemon
//!  ▲                    │                                   │ of that command's containment?
//!  └──── password ──────┴──────────── password ◄────────────┘ for that origin?
//! ```
//! The credential is in no file, argument or environment: those hold the socket's name. The socket exists
//! while the command runs, for the command's user alone. git's credential helpers are replaced by the same
//! program, so that the daemon learns when the server refused a credential. Whatever runs as part of the
//! command, such as a hook, can ask too.

pub mod prompt;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hivekeep_protocol::{Credential, ExecAsked, ExecAsking, GuestError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

use crate::as_user::{self, Identity};
use crate::contain::ProcessSet;
use crate::exec;
use crate::files::{io_error, off_thread};
use crate::session::call::RequestContext;
use crate::sys::descriptors;

/// The name by which git calls this binary.
pub const PROGRAM: &str = "hivekeep-askpass";
/// The variable that names the socket.
pub const SOCKET_VARIABLE: &str = "HIVEKEEP_ASK";

/// Answers [`ExecAsking`].
///
/// # Errors
/// As [`exec::run`], and when there can be no socket.
pub async fn run(cx: &RequestContext, asking: ExecAsking) -> Result<ExecAsked, GuestError> {
    let ExecAsking { mut exec, credential } = asking;
    let run_dir = &cx.agent.settings.run_dir;
    let user = as_user::resolve(&mut exec).await?;
    let program = match &user {
        Some(_) => {
            let run_dir = run_dir.clone();
            off_thread(move || copied_program(&run_dir)).await
        }
        None => program(run_dir),
    };
    let program = program.map_err(|error| io_error(&error, "the askpass program"))?;
    let server = Server::open(run_dir, credential, user.as_ref())
        .map_err(|error| io_error(&error, "the askpass socket"))?;
    exec.env.extend(environment(&program, server.path()));
    let done = exec::beside(&exec::OutputSink::Call(cx), exec, |scope| server.serve(scope)).await?;
    let heard = server.close();
    Ok(ExecAsked {
        done,
        answered: heard.answered,
        unanswered: heard.unanswered,
        rejected: heard.rejected,
    })
}

/// Environment of git on top of what the host asked for.
fn environment(program: &Path, socket: &Path) -> Vec<(String, String)> {
    let program = program.to_string_lossy();
    let socket = socket.to_string_lossy();
    // An empty helper removes those of all files; `useHttpPath` would put paths in prompts.
    let config = [
        ("credential.helper", ""),
        ("credential.helper", &*program),
        ("credential.useHttpPath", "false"),
    ];
    let mut env = vec![
        ("GIT_ASKPASS".to_owned(), program.clone().into_owned()),
        (SOCKET_VARIABLE.to_owned(), socket.into_owned()),
        ("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned()),
        // Prompts are read by a program.
        ("LC_ALL".to_owned(), "C".to_owned()),
        // Traces of git stay without credentials.
        ("GIT_TRACE_REDACT".to_owned(), "1".to_owned()),
        ("GIT_TRACE_CURL".to_owned(), "0".to_owned()),
        ("GIT_CONFIG_COUNT".to_owned(), config.len().to_string()),
    ];
    for (index, (key, value)) in config.iter().enumerate() {
        env.push((format!("GIT_CONFIG_KEY_{index}"), (*key).to_owned()));
        env.push((format!("GIT_CONFIG_VALUE_{index}"), (*value).to_owned()));
    }
    env
}

/// A name for the running daemon's own binary, which may have no other: a machine's is
/// in the initramfs that was left at boot.
fn program(run_dir: &Path) -> io::Result<PathBuf> {
    let link = run_dir.join(PROGRAM);
    let target = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    if std::fs::read_link(&link).is_ok_and(|there| there == target) {
        return Ok(link);
    }
    match std::fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(target, &link)?;
    Ok(link)
}

/// Copy of the binary, made once: users other than the daemon's may not follow a link to its process. Blocks.
fn copied_program(run_dir: &Path) -> io::Result<PathBuf> {
    static COPIED: Mutex<bool> = Mutex::new(false);
    let (copy, part) =
        (run_dir.join(format!("user-{PROGRAM}")), run_dir.join(format!("{PROGRAM}.part")));
    // The lock makes concurrent calls wait for the whole copy, which one of them makes.
    let mut copied = COPIED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*copied {
        std::fs::copy("/proc/self/exe", &part)?;
        std::fs::set_permissions(&part, PermissionsExt::from_mode(0o755))?;
        std::fs::rename(&part, &copy)?;
        *copied = true;
    }
    Ok(copy)
}

/// Longest question.
const MAX_QUESTION_BYTES: usize = 4096;
/// Message in place of a prompt: the server refused the credential that was answered.
const REJECTED: &[u8] = b"\0rejected";
/// Questions of one command that are looked at; git asks twice for each server.
const MAX_QUESTIONS: u32 = 64;
/// Time for one question and its answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Record of the questions asked while the command ran.
#[derive(Debug, Default)]
struct AskRecord {
    answered: u32,
    unanswered: Option<String>,
    rejected: bool,
}

/// A socket that answers while [`Server::serve`] is polled; gone when this is dropped.
#[derive(Debug)]
struct Server {
    listener: UnixListener,
    path: PathBuf,
    credential: Option<Credential>,
    /// Held for a note or the last look only.
    heard: Mutex<AskRecord>,
}

impl Server {
    /// Listens for processes of `user`; without one, of the daemon's own.
    fn open(
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

    fn path(&self) -> &Path {
        &self.path
    }

    /// Answers processes of `scope`, and no others.
    async fn serve(&self, scope: ProcessSet) {
        let mut questions = 0;
        while questions < MAX_QUESTIONS {
            let Ok((stream, _)) = self.listener.accept().await else { return };
            let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
            // Looked at in this order: a process that still is there has had its id all along.
            if pid.is_some_and(|pid| scope.holds(pid)) && !descriptors::has_ended(&stream) {
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
    fn close(self) -> AskRecord {
        std::mem::take(&mut *self.note())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The daemon answers at once or not at all.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

/// Prints the answer, if there is one.
pub fn askpass(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let prompt = words.next().unwrap_or_default();
    let question = match prompt.as_encoded_bytes() {
        // Nothing is kept, so there is nothing to look up or to keep.
        b"get" | b"store" => return ExitCode::SUCCESS,
        b"erase" => REJECTED,
        prompt => prompt,
    };
    match ask(question) {
        Ok(answer) if answer.is_empty() && question != REJECTED => ExitCode::FAILURE,
        Ok(answer) => match io::stdout().write_all(&answer) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            crate::say!("askpass: {error}");
            ExitCode::FAILURE
        }
    }
}

fn ask(question: &[u8]) -> io::Result<Vec<u8>> {
    let socket = std::env::var_os(SOCKET_VARIABLE).ok_or(io::ErrorKind::NotFound)?;
    let mut stream = net::UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
    stream.write_all(&question[..question.len().min(MAX_QUESTION_BYTES)])?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
    Ok(answer)
}
