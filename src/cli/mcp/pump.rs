//! The two directions of the pump: two threads with blocking reads and writes,
//! because nothing is quicker for one client on one line.

use std::{
    io::{self, BufReader, Write},
    os::unix::net::UnixStream,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use hivekeep_door_server::{
    hello::{ClientHello, DaemonWelcome, ToolNames},
    lines::{BlockingLines, LineOutcome},
    plain,
};
use hivekeep_kernel::{SessionId, lock};
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    link::{Link, Sent},
    memory::{Subscription, answers, is_result},
};
use crate::cli::reach::{DaemonReach, Unreachable};

/// The longest line taken from the daemon; its tools keep their results far below.
const MAX_DAEMON_LINE_BYTES: usize = 256 * 1024 * 1024;
/// A line up to this is copied, to be written with its end in one call; for a longer one the copy
/// costs more than the call.
const ONE_WRITE_BYTES: usize = 64 * 1024;
/// Longest pause between attempts to find a daemon again.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// Time that a lost daemon may take to come back by itself before the pump starts one.
const COMES_BACK: Duration = Duration::from_secs(2);
/// Time that a new daemon may take to answer the replayed handshake.
const REPLAY_TIMEOUT: Duration = Duration::from_secs(15);

/// Options of attaching to a daemon.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) toolset: Option<Vec<String>>,
    pub(super) tool_names: ToolNames,
    pub(super) output_schemas: bool,
    pub(super) resume: Option<SessionId>,
    pub(super) spawn: bool,
    /// Time that a daemon may take to start.
    pub(super) start_patience: Duration,
    /// Time that a waiting client waits for a lost daemon.
    pub(super) reconnect_patience: Duration,
    /// Time to wait for answers after the client's last message.
    pub(super) drain_patience: Duration,
    pub(super) max_line_bytes: usize,
}

/// The client's side: standard input and output, or a test's pipes.
type Output = Arc<Mutex<dyn Write + Send>>;

/// Pumps until the client is done.
///
/// # Errors
/// When no daemon can be reached.
pub(super) fn run(
    reach: DaemonReach,
    terms: Terms,
    input: impl io::Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> Result<(), Unreachable> {
    let stream = match terms.spawn {
        true => reach.connect_or_start(terms.start_patience)?,
        false => reach.connect()?,
    };
    let welcome = reach.hello(&stream, &hello(&terms, terms.resume))?;
    if terms.resume.is_some() && !welcome.resumed {
        eprintln!("hivekeep: that session is over; this is a new one");
    }
    let stream = Arc::new(stream);
    let (link, output) = (Arc::new(Link::default()), Arc::new(Mutex::new(output)) as Output);
    link.restore(stream.clone());
    {
        let (link, output, terms) = (link.clone(), output.clone(), terms.clone());
        std::thread::spawn(move || upward(input, &link, &output, &terms));
    }
    Down { reach, terms, link, output, welcome }.run(stream)
}

fn hello(terms: &Terms, resume: Option<SessionId>) -> ClientHello {
    ClientHello::Mcp {
        toolset: terms.toolset.clone(),
        tool_names: terms.tool_names,
        output_schemas: terms.output_schemas,
        resume,
    }
}

fn write(output: &Output, line: &[u8]) -> io::Result<()> {
    let mut output = lock(output);
    if line.len() > ONE_WRITE_BYTES {
        output.write_all(line)?;
        output.write_all(b"\n")?;
    } else {
        let mut whole = Vec::with_capacity(line.len() + 1);
        whole.extend_from_slice(line);
        whole.push(b'\n');
        output.write_all(&whole)?;
    }
    output.flush()
}

fn upward(input: impl io::Read, link: &Link, output: &Output, terms: &Terms) {
    let mut lines =
        BlockingLines::new(BufReader::with_capacity(64 * 1024, input), terms.max_line_bytes);
    loop {
        match lines.read() {
            Ok(LineOutcome::Whole(line)) => {
                let client_gone = match link.send(line) {
                    Sent::Done => false,
                    Sent::Lost(answer) => write(output, &answer).is_err(),
                    Sent::Over => return,
                };
                if client_gone {
                    break;
                }
            }
            Ok(LineOutcome::TooLong) => {
                let answer = format!(
                    r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":-32600,"message":"a message above {} MiB was dropped"}}}}"#,
                    terms.max_line_bytes / 1024 / 1024
                );
                if write(output, answer.as_bytes()).is_err() {
                    break;
                }
            }
            Ok(LineOutcome::End) => break,
            Err(error) => {
                eprintln!("hivekeep: reading from the client: {error}");
                break;
            }
        }
    }
    link.finish(terms.drain_patience);
}

/// Reads from the daemon's socket, waiting in `poll`. The kernel wakes a thread
/// that waits in `read` also when the daemon takes a request out of the other
/// direction, which is once a call for nothing, while the daemon works on it.
struct Polled<'s>(&'s UnixStream);

impl io::Read for Polled<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        poll(&mut [PollFd::new(self.0, PollFlags::IN)], None)?;
        self.0.read(buffer)
    }
}

struct Down {
    reach: DaemonReach,
    terms: Terms,
    link: Arc<Link>,
    output: Output,
    welcome: DaemonWelcome,
}

/// The reason why one run of the pump ended.
enum Ended {
    Lost,
    ClientGone,
}

impl Down {
    fn run(mut self, mut stream: Arc<UnixStream>) -> Result<(), Unreachable> {
        loop {
            if let Ended::ClientGone = self.pump(&stream) {
                return Ok(());
            }
            let Some(loss) = self.link.lose() else { return Ok(()) };
            if loss.answers.iter().any(|answer| write(&self.output, answer).is_err()) {
                return Ok(());
            }
            if self.link.client_done() {
                return Ok(());
            }
            eprintln!("hivekeep: the daemon is gone; attaching again when it is back");
            stream = match self.attach_again(&loss.again) {
                Ok(Some(stream)) => stream,
                Ok(None) => return Ok(()),
                Err(error) => {
                    for answer in self.link.give_up() {
                        let _client_gone = write(&self.output, &answer);
                    }
                    return Err(error);
                }
            };
        }
    }

    fn pump(&self, stream: &UnixStream) -> Ended {
        let reader = BufReader::with_capacity(64 * 1024, Polled(stream));
        let mut lines = BlockingLines::new(reader, MAX_DAEMON_LINE_BYTES);
        loop {
            match lines.read() {
                Ok(LineOutcome::Whole(line)) => {
                    // To the client first: what is noted as answered was answered.
                    if write(&self.output, line).is_err() {
                        return Ended::ClientGone;
                    }
                    self.link.received(line);
                }
                Ok(LineOutcome::TooLong) => {
                    eprintln!("hivekeep: dropped a line too long to be true")
                }
                Ok(LineOutcome::End) | Err(_) => return Ended::Lost,
            }
        }
    }

    /// Finds a daemon again: one that comes back by itself, or, when the client
    /// waits for one, a new one. A client that is idle revives nothing, so an
    /// operator's `hivekeep stop` holds. None when the client left meanwhile.
    fn attach_again(&mut self, again: &[Vec<u8>]) -> Result<Option<Arc<UnixStream>>, Unreachable> {
        let lost_at = Instant::now();
        let mut pause = Duration::from_millis(20);
        // Requests to be sent again wait as much as new ones do.
        let owed = (!again.is_empty()).then_some(lost_at);
        loop {
            // A client that has not begun needs no daemon yet, and would only hold a place there.
            if owed.is_none()
                && self.link.handshake().is_none()
                && self.link.wanted_for().is_none()
                && !self.link.client_done()
            {
                self.link.pause(MAX_PAUSE);
                continue;
            }
            let waited = self.link.wanted_for().max(owed.map(|since| since.elapsed()));
            let may_start = self.terms.spawn && waited.is_some() && lost_at.elapsed() > COMES_BACK;
            let attempt = match may_start {
                true => self.reach.connect_or_start(self.terms.start_patience),
                false => self.reach.connect(),
            };
            match attempt.and_then(|stream| self.replay(stream, again)) {
                Ok(stream) => return Ok(Some(stream)),
                Err(error)
                    if waited.is_some_and(|waited| waited > self.terms.reconnect_patience) =>
                {
                    return Err(error);
                }
                Err(error @ Unreachable::Refused(_)) => {
                    eprintln!("hivekeep: {}", plain::lines(&error.to_string()));
                }
                Err(_) => {}
            }
            if self.link.client_done() {
                return Ok(None);
            }
            self.link.pause(pause);
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Resumes the session at a daemon and brings it to where the client is.
    fn replay(
        &mut self,
        stream: UnixStream,
        again: &[Vec<u8>],
    ) -> Result<Arc<UnixStream>, Unreachable> {
        let io = |source| Unreachable::Io { doing: "replaying the handshake".to_owned(), source };
        let welcome = self.reach.hello(&stream, &hello(&self.terms, self.welcome.session))?;
        let handshake = self.link.handshake();
        if let Some((initialize, initialized)) = &handshake {
            send(&stream, initialize).map_err(io)?;
            stream.set_read_timeout(Some(REPLAY_TIMEOUT)).map_err(io)?;
            // Answers are read byte by byte, once per connection: later bytes belong to the pump.
            let mut lines =
                BlockingLines::new(BufReader::with_capacity(1, &stream), MAX_DAEMON_LINE_BYTES);
            loop {
                match lines.read().map_err(io)? {
                    LineOutcome::Whole(line) if answers(initialize, line) => break,
                    LineOutcome::Whole(_) | LineOutcome::TooLong => {}
                    LineOutcome::End => return Err(io(io::ErrorKind::UnexpectedEof.into())),
                }
            }
            if let Some(initialized) = initialized {
                send(&stream, initialized).map_err(io)?;
            }
            self.subscribe_again(&stream, &mut lines).map_err(io)?;
            stream.set_read_timeout(None).map_err(io)?;
        }
        for line in again {
            send(&stream, line).map_err(io)?;
        }
        if !welcome.resumed {
            eprintln!(
                "hivekeep: the session is over; its workspaces can be taken over with workspace_adopt"
            );
        }
        // A new session has loaded nothing of what the client was told of.
        let other = welcome.tools != self.welcome.tools || !welcome.resumed;
        if other && handshake.is_some() {
            let changed = br#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
            write(&self.output, changed).map_err(io)?;
        }
        self.welcome = welcome;
        let stream = Arc::new(stream);
        self.link.restore(stream.clone());
        Ok(stream)
    }
}

impl Down {
    /// Makes the client's subscriptions at a daemon that has not heard of them.
    fn subscribe_again(
        &self,
        stream: &UnixStream,
        lines: &mut BlockingLines<BufReader<&UnixStream>>,
    ) -> io::Result<()> {
        for Subscription { request, updated } in self.link.subscriptions() {
            send(stream, &request)?;
            let held = loop {
                match lines.read()? {
                    LineOutcome::Whole(line) if answers(&request, line) => break is_result(line),
                    // Messages that this daemon sends unasked are for the client.
                    LineOutcome::Whole(line) => write(&self.output, line)?,
                    LineOutcome::TooLong => {}
                    LineOutcome::End => return Err(io::ErrorKind::UnexpectedEof.into()),
                }
            };
            // A subscription that was refused before is refused again.
            if held {
                write(&self.output, &updated)?;
            }
        }
        Ok(())
    }
}

fn send(mut stream: &UnixStream, line: &[u8]) -> io::Result<()> {
    let mut whole = line.to_owned();
    whole.push(b'\n');
    stream.write_all(&whole)
}
