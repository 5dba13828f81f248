//! The line to the daemon, shared by the two threads of the pump.

use std::{
    io::Write,
    os::unix::net::UnixStream,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use hivekeep_kernel::lock;

use super::memory::{Loss, Memory, Subscription, Upward};

/// The line, up or down, and what is remembered of the conversation.
#[derive(Debug, Default)]
pub(super) struct Link {
    inside: Mutex<Inside>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inside {
    stream: Option<Arc<UnixStream>>,
    memory: Memory,
    /// The client waits to send since then, and there is no line.
    wanted_since: Option<Instant>,
    /// The client has said its last.
    client_done: bool,
    /// The stream was closed from this side, for good.
    hung_up: bool,
    /// No daemon will answer any more.
    over: bool,
}

/// The fate of a line of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The line is on its way, or needs no delivery.
    Done,
    /// The daemon went away while the line was written; these bytes are for the client.
    Lost(Vec<u8>),
    /// There will be no daemon.
    Over,
}

impl Link {
    /// Sends a line of the client, waiting for a daemon if there is none now.
    ///
    /// The message is noted and the stream chosen under one lock, and written
    /// without it: a full socket must not keep the other direction from running.
    /// A write that fails reached nobody, because a line without its end is no
    /// message: it is repeated to the next daemon.
    pub(super) fn send(&self, line: &[u8]) -> Sent {
        let mut whole = Vec::with_capacity(line.len() + 1);
        whole.extend_from_slice(line);
        whole.push(b'\n');
        let mut broken = None;
        loop {
            let (mut inside, stream) = self.await_stream(broken.take());
            let Some(stream) = stream else { return Sent::Over };
            if inside.memory.upward(line) == Upward::Drop {
                return Sent::Done;
            }
            drop(inside);
            if (&mut &*stream).write_all(&whole).is_err() {
                broken = Some(stream);
                continue;
            }
            let mut inside = lock(&self.inside);
            let still_there = inside.stream.as_ref().is_some_and(|now| Arc::ptr_eq(now, &stream));
            if still_there || inside.hung_up {
                inside.memory.written();
                return Sent::Done;
            }
            match inside.memory.written_in_vain() {
                Some(answer) => return Sent::Lost(answer),
                None => broken = Some(stream),
            }
        }
    }

    /// A stream other than the broken one; None when there will be none.
    fn await_stream(
        &self,
        broken: Option<Arc<UnixStream>>,
    ) -> (MutexGuard<'_, Inside>, Option<Arc<UnixStream>>) {
        let mut inside = lock(&self.inside);
        loop {
            let fresh = inside
                .stream
                .clone()
                .filter(|stream| broken.as_ref().is_none_or(|broken| !Arc::ptr_eq(stream, broken)));
            if inside.over || fresh.is_some() {
                let fresh = fresh.filter(|_| !inside.over);
                return (inside, fresh);
            }
            inside.wanted_since.get_or_insert_with(Instant::now);
            self.changed.notify_all();
            inside = self.changed.wait(inside).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Notes a line of the daemon.
    pub(super) fn received(&self, line: &[u8]) {
        let mut inside = lock(&self.inside);
        inside.memory.downward(line);
        // [`Link::finish`] waits for the last answer.
        if inside.client_done {
            self.changed.notify_all();
        }
    }

    /// The stream ended. None when that was wanted.
    pub(super) fn lose(&self) -> Option<Loss> {
        let mut inside = lock(&self.inside);
        inside.stream = None;
        (!inside.hung_up).then(|| inside.memory.lose())
    }

    /// The handshake to be replayed to a new daemon.
    pub(super) fn handshake(&self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let inside = lock(&self.inside);
        let (initialize, initialized) = inside.memory.handshake()?;
        Some((initialize.to_owned(), initialized.map(<[u8]>::to_owned)))
    }

    /// The client's subscriptions, for a new daemon.
    pub(super) fn subscriptions(&self) -> Vec<Subscription> {
        lock(&self.inside).memory.subscriptions()
    }

    /// A new stream: the client may go on.
    pub(super) fn restore(&self, stream: Arc<UnixStream>) {
        let mut inside = lock(&self.inside);
        inside.stream = Some(stream);
        inside.wanted_since = None;
        self.changed.notify_all();
    }

    /// Waits a while between attempts, less if the client begins to wait.
    pub(super) fn pause(&self, at_most: Duration) {
        let inside = lock(&self.inside);
        let idle = inside.wanted_since.is_none() && !inside.client_done;
        let _woken = self
            .changed
            .wait_timeout_while(inside, at_most, |inside| {
                idle == (inside.wanted_since.is_none() && !inside.client_done)
            })
            .unwrap_or_else(PoisonError::into_inner);
    }

    /// Time that the client has waited for a daemon.
    pub(super) fn wanted_for(&self) -> Option<Duration> {
        lock(&self.inside).wanted_since.map(|since| since.elapsed())
    }

    /// True when the client has ended its input.
    pub(super) fn client_done(&self) -> bool {
        lock(&self.inside).client_done
    }

    /// The client has said its last: waits until its requests are answered, then
    /// hangs up.
    pub(super) fn finish(&self, at_most: Duration) {
        let mut inside = lock(&self.inside);
        inside.client_done = true;
        self.changed.notify_all();
        let (mut inside, _) = self
            .changed
            .wait_timeout_while(inside, at_most, |inside| inside.memory.waits() && !inside.over)
            .unwrap_or_else(PoisonError::into_inner);
        inside.hung_up = true;
        if let Some(stream) = &inside.stream {
            let _closed_already = stream.shutdown(std::net::Shutdown::Both);
        }
    }

    /// There will be no daemon: answers for everything that waits.
    pub(super) fn give_up(&self) -> Vec<Vec<u8>> {
        let mut inside = lock(&self.inside);
        inside.over = true;
        inside.stream = None;
        self.changed.notify_all();
        inside.memory.give_up()
    }
}
