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
pub mod role;
mod server;

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hivekeep_protocol::{ExecAsked, ExecAsking, GuestError};

use crate::as_user;
use crate::exec;
use crate::files::{io_error, off_thread};
use crate::session::call::RequestContext;
use server::Server;

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
    let done = exec::beside(cx, exec, |scope| server.serve(scope)).await?;
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
