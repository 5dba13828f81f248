//! Events to 200 subscribers over server-sent events, some of whom never read: what the others get of it,
//! beside the same without those.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};

use super::figure::{Figure, Target, median, round};
use super::http::{BenchDoor, Crowd, OPEN};
use super::http_client::HttpConnection;
use super::{house::BenchDaemon, kit::BenchPrograms};

const SUBSCRIBERS: usize = 200;
/// Of these, those who never read.
const DEAF: usize = 20;
const ROUNDS: usize = 25;
/// Calls at once, of which each is an event. Fewer than a subscriber may be behind.
const BURST: usize = 200;
/// Calls one after the other, each of which is heard by everybody before the next.
const SINGLE: usize = 10;
/// Events that are there before anybody subscribes: more than fits between daemon and subscriber.
const BEFORE: usize = 4_000;
/// Bytes that a subscriber who never reads takes.
const DEAF_BUFFER: usize = 4 * 1024;
/// Time in which events of before have come to everybody.
const SETTLING: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn measure(kit: &BenchPrograms<'_>) -> Result<Vec<Figure>> {
    let mut with = Audience::gather(kit, DEAF)?;
    let mut without = Audience::gather(kit, 0)?;
    let (mut rates, mut lags) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for round in 0..=kit.rounds(ROUNDS) {
        for (side, audience) in [(1, &mut without), (0, &mut with)] {
            let rate = audience.burst()?;
            let lag = audience.single()?;
            // The first round warms up.
            if round > 0 {
                rates[side].push(rate);
                lags[side].extend(lag);
            }
        }
    }
    ensure!(with.deaf_are_behind()?, "those who do not read were not held back");
    let ([rate, alone], [lag, lag_alone]) = (rates, lags);
    Ok(vec![Figure {
        name: "sse_fanout_200",
        unit: "events/s",
        value: median(rate),
        baseline: Some(median(alone)),
        target: Target::AtLeastTimes(0.9),
        remark: format!(
            "{} of {SUBSCRIBERS} subscribers read and {DEAF} never do; the baseline has the first alone; from a call \
             until the last of them has its event {} ms beside {} ms",
            SUBSCRIBERS - DEAF,
            round(median(lag)),
            round(median(lag_alone)),
        ),
    }])
}

/// A daemon and those who hear of its events.
struct Audience {
    readers: Vec<Reader>,
    deaf: Vec<TcpStream>,
    callers: Crowd,
    caller: HttpConnection,
    call: Vec<u8>,
    _house: BenchDaemon,
}

impl Audience {
    fn gather(kit: &BenchPrograms<'_>, deaf: usize) -> Result<Self> {
        let house = BenchDaemon::open(kit, OPEN)?;
        let door = BenchDoor::of(&house)?;
        let mut callers = Crowd::of(&door)?;
        callers.burst(BEFORE)?;
        let ask = |from: &str| {
            let BenchDoor { address, credential } = &door;
            format!(
                "GET /api/events?kind=call.finished{from} HTTP/1.1\r\nHost: {address}\r\n{credential}\r\n"
            )
        };
        let address: SocketAddr = door.address.parse()?;
        let deaf = (0..deaf).map(|_| deaf_one(address, &ask("&from=1"))).collect::<Result<_>>()?;
        let readers = (0..SUBSCRIBERS - DEAF)
            .map(|_| Reader::open(address, &ask("")))
            .collect::<Result<_>>()?;
        let (caller, call) = (door.connect()?, door.call());
        let mut audience = Self { readers, deaf, callers, caller, call, _house: house };
        audience.settle()?;
        Ok(audience)
    }

    /// Passes over what readers are still told of before.
    fn settle(&mut self) -> Result<()> {
        std::thread::sleep(SETTLING);
        for reader in &mut self.readers {
            reader.drain()?;
            (reader.count, reader.heard, reader.wanted) = (Counter::default(), 0, 0);
        }
        Ok(())
    }

    /// Makes a burst of events; events delivered a second, until everybody has all.
    #[expect(clippy::cast_precision_loss, reason = "some ten thousand")]
    fn burst(&mut self) -> Result<f64> {
        let began = Instant::now();
        self.callers.burst(BURST)?;
        self.hear(BURST)?;
        let delivered = BURST * self.readers.len();
        Ok(delivered as f64 / began.elapsed().as_secs_f64())
    }

    /// Makes events one by one; milliseconds from each call until the last reader has its event.
    fn single(&mut self) -> Result<Vec<f64>> {
        let mut taken = Vec::new();
        for _ in 0..SINGLE {
            let began = Instant::now();
            self.caller.send(&self.call)?;
            self.caller.receive()?;
            self.hear(1)?;
            taken.push(began.elapsed().as_secs_f64() * 1e3);
        }
        Ok(taken)
    }

    /// Reads until each reader has so many events more.
    fn hear(&mut self, events: usize) -> Result<()> {
        let began = Instant::now();
        for reader in &mut self.readers {
            reader.wanted += events;
        }
        loop {
            let mut open: Vec<_> =
                self.readers.iter_mut().filter(|reader| reader.heard < reader.wanted).collect();
            if open.is_empty() {
                return Ok(());
            }
            ensure!(began.elapsed() < PATIENCE, "{} readers wait for events", open.len());
            let ready: Vec<_> = {
                let wait = Timespec { tv_sec: 1, tv_nsec: 0 };
                let mut polled: Vec<_> =
                    open.iter().map(|reader| PollFd::new(&reader.stream, PollFlags::IN)).collect();
                poll(&mut polled, Some(&wait))?;
                polled.iter().map(|one| !one.revents().is_empty()).collect()
            };
            for (reader, _) in open.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                reader.read()?;
            }
        }
    }

    /// True when everybody who never read still has a stream that begins with its first event. Nobody took
    /// anything of it, and [`BEFORE`] events are more than lies between: the daemon was held back by each.
    fn deaf_are_behind(&mut self) -> Result<bool> {
        let mut behind = true;
        for stream in &mut self.deaf {
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            let mut begin = [0; 2_048];
            stream.read_exact(&mut begin).context("what was sent first")?;
            let text = String::from_utf8_lossy(&begin);
            behind &= text.starts_with("HTTP/1.1 200 ") && text.contains("event: call.finished");
        }
        Ok(behind)
    }
}

/// A subscriber with little room who asks and never reads.
fn deaf_one(address: SocketAddr, ask: &str) -> Result<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    sockopt::set_socket_recv_buffer_size(&socket, DEAF_BUFFER)?;
    connect(&socket, &address)?;
    let mut stream = TcpStream::from(socket);
    stream.write_all(ask.as_bytes())?;
    Ok(stream)
}

/// A subscriber who reads.
struct Reader {
    stream: TcpStream,
    count: Counter,
    heard: usize,
    wanted: usize,
}

impl Reader {
    /// Subscribes, and waits for the head of the answer.
    fn open(address: SocketAddr, ask: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(ask.as_bytes())?;
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).context("the head of an answer")?;
            head.push(byte[0]);
        }
        ensure!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
        stream.set_nonblocking(true)?;
        Ok(Self { stream, count: Counter::default(), heard: 0, wanted: 0 })
    }

    fn drain(&mut self) -> Result<()> {
        let mut buffer = [0; 64 * 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => anyhow::bail!("a stream of events ended"),
                Ok(read) => self.count.take(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn read(&mut self) -> Result<()> {
        self.drain()?;
        ensure!(!self.count.missed, "a reader has lost events");
        self.heard = self.count.events;
        Ok(())
    }
}

/// Counts events in a stream that comes in parts.
#[derive(Default)]
struct Counter {
    /// The beginning of the line, as far as it tells what it is.
    line: Vec<u8>,
    events: usize,
    missed: bool,
}

impl Counter {
    fn take(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'\n' => {
                    self.events += usize::from(self.line == b"event: call.finished");
                    self.missed |= self.line == b"event: missed";
                    self.line.clear();
                }
                byte if self.line.len() < 32 => self.line.push(*byte),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_across_parts_and_lost_ones_seen() {
        let mut count = Counter::default();
        for part in ["id: 1\nevent: call.fin", "ished\ndata: {}\n\n: event: call.finished\n"] {
            count.take(part.as_bytes());
        }
        assert_eq!((count.events, count.missed), (1, false));
        count.take(b"event: missed\n");
        assert!(count.missed);
    }
}
