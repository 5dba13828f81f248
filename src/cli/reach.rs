//! Reaching the daemon: connecting to its socket, and starting it if none runs.

use std::{
    fs::{self, OpenOptions},
    io::{self, BufReader, Write},
    os::unix::{
        fs::{DirBuilderExt, OpenOptionsExt},
        net::UnixStream,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use hivekeep_config::DaemonFolders;
use hivekeep_door_server::{
    hello::{ClientHello, DaemonWelcome, HelloReply, MAX_HELLO_BYTES},
    lines::{BlockingLines, LineOutcome},
};

use crate::daemon::EXIT_ALREADY_RUNNING;

/// Time that a daemon may take to answer a hello.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Pause between attempts while a daemon starts.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(25);
/// Bytes that are kept of the output of earlier daemons.
const STDERR_KEPT_BYTES: u64 = 256 * 1024;

/// The reason why no daemon can be reached.
#[derive(Debug, thiserror::Error)]
pub enum Unreachable {
    /// No daemon runs, and none may be started.
    #[error("no daemon runs at {}: start one with `hivekeep daemon`", .0.display())]
    NotRunning(PathBuf),
    /// A daemon was started and did not come up.
    #[error("the daemon did not start ({how}){output}\nIts log is {}", log.display())]
    DidNotStart {
        /// The exit status, or a note that the start took too long.
        how: String,
        /// The daemon's last output.
        output: String,
        /// The log file.
        log: PathBuf,
    },
    /// The daemon runs and refused the client.
    #[error("the daemon refused: {0}")]
    Refused(#[from] hivekeep_kernel::ToolError),
    /// The daemon runs and does not speak HTTP.
    #[error(
        "the daemon (pid {0}) is of an older version: stop it with the `hivekeep` of its own version, or send it \
         SIGTERM; workspaces go on, and the next daemon takes them up"
    )]
    OlderVersion(i32),
    /// The socket is served by something that does not speak the protocol.
    #[error("the answer at {} is not a daemon's: {what}", socket.display())]
    NotADaemon {
        /// The socket.
        socket: PathBuf,
        /// The fault in the answer.
        what: String,
    },
    /// Anything else.
    #[error("{doing}: {source}")]
    Io {
        /// The step.
        doing: String,
        /// The cause.
        source: io::Error,
    },
}

/// The way to reach the daemon, and to start one.
#[derive(Debug, Clone)]
pub struct DaemonReach {
    /// The daemon's places.
    pub folders: DaemonFolders,
    /// Arguments before `daemon` that make it read the same configuration.
    pub config_args: Vec<std::ffi::OsString>,
}

impl DaemonReach {
    /// Connects to a running daemon.
    ///
    /// # Errors
    /// [`Unreachable::NotRunning`] when nobody listens.
    pub fn connect(&self) -> Result<UnixStream, Unreachable> {
        let socket = &self.folders.socket;
        UnixStream::connect(socket).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                Unreachable::NotRunning(socket.clone())
            }
            _ => Unreachable::Io { doing: format!("connecting to {}", socket.display()), source },
        })
    }

    /// Connects, starting a daemon if none runs. Others may do the same at the
    /// same time: the daemon's lock lets one live, and all connect to it.
    ///
    /// # Errors
    /// When no daemon answers within `patience`.
    pub fn connect_or_start(&self, patience: Duration) -> Result<UnixStream, Unreachable> {
        match self.connect() {
            Err(Unreachable::NotRunning(_)) => {}
            other => return other,
        }
        let until = Instant::now() + patience;
        let mut child = Some(self.start()?);
        loop {
            match self.connect() {
                Err(Unreachable::NotRunning(_)) => {}
                other => return other,
            }
            let ended = match child.as_mut().map(Child::try_wait) {
                Some(Ok(Some(status))) => Some(status),
                _ => None,
            };
            if let Some(status) = ended {
                if status.code() != Some(i32::from(EXIT_ALREADY_RUNNING)) {
                    return Err(self.did_not_start(status.to_string()));
                }
                // Another one is starting; it will listen soon.
                child = None;
            }
            if Instant::now() >= until {
                return Err(
                    self.did_not_start(format!("no answer within {} s", patience.as_secs()))
                );
            }
            std::thread::sleep(ATTEMPT_PAUSE);
        }
    }

    fn start(&self) -> Result<Child, Unreachable> {
        let io = |doing: &str| {
            let doing = doing.to_owned();
            move |source| Unreachable::Io { doing, source }
        };
        let logs = &self.folders.logs;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(logs)
            .map_err(io("the log folder"))?;
        let path = self.stderr_file();
        let kept = fs::metadata(&path).map_or(0, |meta| meta.len());
        let stderr = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(io("the daemon's output file"))?;
        if kept > STDERR_KEPT_BYTES {
            stderr.set_len(0).map_err(io("the daemon's output file"))?;
        }
        let program = std::env::current_exe().map_err(io("finding this program"))?;
        Command::new(program)
            .args(&self.config_args)
            .args(["daemon", "--detached"])
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(io("starting the daemon"))
    }

    fn stderr_file(&self) -> PathBuf {
        self.folders.logs.join("daemon.stderr")
    }

    fn did_not_start(&self, how: String) -> Unreachable {
        let text = fs::read(self.stderr_file()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let mut last: Vec<_> = text.lines().rev().take(8).collect();
        last.reverse();
        let output =
            if last.is_empty() { String::new() } else { format!(":\n{}", last.join("\n")) };
        Unreachable::DidNotStart { how, output, log: self.folders.log_file() }
    }

    /// Says hello and hears the answer. What the daemon sends after it is not
    /// read: the stream is at the first byte of the door's protocol.
    ///
    /// # Errors
    /// When it refuses, or does not answer in time.
    pub fn hello(
        &self,
        stream: &UnixStream,
        hello: &ClientHello,
    ) -> Result<DaemonWelcome, Unreachable> {
        let io = |source| Unreachable::Io { doing: "greeting the daemon".to_owned(), source };
        let mut line = serde_json::to_vec(hello).expect("a hello is plain data");
        line.push(b'\n');
        (&mut &*stream).write_all(&line).map_err(io)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(io)?;
        // The answer is read byte by byte: bytes behind it belong to the caller.
        let reader = BufReader::with_capacity(1, stream);
        let mut lines = BlockingLines::new(reader, MAX_HELLO_BYTES);
        let wrong =
            |what: String| Unreachable::NotADaemon { socket: self.folders.socket.clone(), what };
        let answer = match lines.read().map_err(io)? {
            LineOutcome::Whole(line) => {
                serde_json::from_slice(line).map_err(|error| wrong(error.to_string()))?
            }
            LineOutcome::TooLong => return Err(wrong("too long".to_owned())),
            LineOutcome::End => return Err(io(io::ErrorKind::UnexpectedEof.into())),
        };
        stream.set_read_timeout(None).map_err(io)?;
        match answer {
            HelloReply::Welcome(welcome) => Ok(welcome),
            HelloReply::Refused(error) => Err(error.into()),
        }
    }
}
