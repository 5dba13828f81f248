//! Receive buffer of one call, with the checks of what the guest may send for it. Pure.
//!
//! Bounds: the bytes held never exceed the credit granted, and small frames are joined, so that a
//! guest that sends one byte per frame costs no more memory than one that fills its frames. stdout
//! and stderr are kept apart; their relative order is known only as far as the caller keeps up.

use std::collections::VecDeque;

use hivekeep_protocol::{
    FrameKind, FromGuest, GuestError, Stream,
    limits::{DATA_CHUNK_BYTES, INITIAL_CREDIT_BYTES, STREAM_WINDOW_BYTES},
};

use super::error::Violation;

/// Size below which a frame is joined with the one before: above, a copy costs more than an entry.
const JOIN_BELOW_BYTES: usize = 16 * 1024;

pub(super) type Reply = Result<FromGuest, GuestError>;

/// Kind of data exchange of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exchange {
    /// Request and reply only.
    Plain,
    /// The guest sends stdout and stderr.
    Output,
    /// The guest sends content.
    Download,
    /// The host sends content.
    Upload,
    /// The host sends content, then the guest does.
    Both,
    /// Both send content at once, the host once the guest has granted it credit.
    Stream,
}

impl Exchange {
    /// Number of bytes that the guest may have in flight at first.
    pub(super) fn window(self) -> u32 {
        match self {
            Self::Stream => STREAM_WINDOW_BYTES,
            _ => INITIAL_CREDIT_BYTES,
        }
    }
}

/// Payload of a data frame, its stream byte still in front.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) stream: Stream,
    payload: Vec<u8>,
}

impl Chunk {
    pub(super) fn content(&self) -> &[u8] {
        &self.payload[1..]
    }

    fn takes(&self, more: usize) -> bool {
        more < JOIN_BELOW_BYTES && self.content().len() + more <= DATA_CHUNK_BYTES
    }
}

/// Batch that a caller takes at once: data first, then the reply.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) chunks: Vec<Chunk>,
    pub(super) reply: Option<Reply>,
}

#[derive(Debug)]
pub(super) struct Inbox {
    id: u32,
    exchange: Exchange,
    /// Number of bytes that the guest may still send.
    guest_credit: u64,
    /// Number of bytes that the host may still send.
    host_credit: u64,
    /// Buffers: content or stdout; stderr.
    lanes: [VecDeque<Chunk>; 2],
    reply: Option<Reply>,
    /// True once the guest's half of a stream has ended.
    ended: bool,
    /// True once nobody waits: data is dropped, the reply only closes the call.
    abandoned: bool,
}

impl Inbox {
    pub(super) fn new(id: u32, exchange: Exchange) -> Self {
        let credit = u64::from(INITIAL_CREDIT_BYTES);
        let (guest_credit, host_credit) = match exchange {
            Exchange::Plain => (0, 0),
            Exchange::Output | Exchange::Download => (credit, 0),
            Exchange::Upload => (0, credit),
            Exchange::Both => (credit, credit),
            Exchange::Stream => (u64::from(exchange.window()), 0),
        };
        Self {
            id,
            exchange,
            guest_credit,
            host_credit,
            lanes: [VecDeque::new(), VecDeque::new()],
            reply: None,
            ended: false,
            abandoned: false,
        }
    }

    /// Accepts a data frame of the guest.
    pub(super) fn data(&mut self, payload: Vec<u8>) -> Result<(), Violation> {
        let Some((&stream, content)) = payload.split_first() else {
            return Err(Violation::DataSize(0));
        };
        if content.len() > DATA_CHUNK_BYTES {
            return Err(Violation::DataSize(payload.len()));
        }
        let (stream, lane) = match (Stream::try_from(stream), self.exchange) {
            (Ok(Stream::Content), Exchange::Download | Exchange::Both) => (Stream::Content, 0),
            (Ok(Stream::Content), Exchange::Stream) if !self.ended => (Stream::Content, 0),
            (Ok(Stream::Stdout), Exchange::Output) => (Stream::Stdout, 0),
            (Ok(Stream::Stderr), Exchange::Output) => (Stream::Stderr, 1),
            _ => return Err(Violation::WrongStream(self.id)),
        };
        self.guest_credit = self
            .guest_credit
            .checked_sub(content.len() as u64)
            .ok_or(Violation::CreditOverrun(self.id))?;
        if self.abandoned || content.is_empty() {
            return Ok(());
        }
        match self.lanes[lane].back_mut() {
            Some(last) if last.takes(content.len()) => last.payload.extend_from_slice(content),
            _ => self.lanes[lane].push_back(Chunk { stream, payload }),
        }
        Ok(())
    }

    /// Accepts the guest's reply, which ends the call.
    pub(super) fn answer(&mut self, reply: Reply) {
        if !self.abandoned {
            self.reply = Some(reply);
        }
    }

    /// Accepts the end of the guest's half of a stream.
    pub(super) fn end(&mut self) -> Result<(), Violation> {
        if self.exchange != Exchange::Stream || self.ended {
            return Err(Violation::UnexpectedKind(FrameKind::End));
        }
        self.ended = true;
        Ok(())
    }

    /// True once the guest's half of a stream has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Looks whether a stream is open, which credit says, or refused by the returned reply.
    pub(super) fn opened(&mut self) -> Option<Option<Reply>> {
        if self.host_credit > 0 { Some(None) } else { self.take_reply().map(Some) }
    }

    /// Accepts credit of the guest, which lets the host send more.
    pub(super) fn credit(&mut self, bytes: u32) {
        if matches!(self.exchange, Exchange::Upload | Exchange::Both | Exchange::Stream) {
            self.host_credit = self.host_credit.saturating_add(u64::from(bytes));
        }
    }

    /// Grants the guest more credit.
    pub(super) fn grant(&mut self, bytes: u32) {
        self.guest_credit += u64::from(bytes);
    }

    /// Takes up to `want` bytes of credit that the host may use now.
    pub(super) fn take_credit(&mut self, want: u64) -> u64 {
        let got = want.min(self.host_credit);
        self.host_credit -= got;
        got
    }

    /// Takes everything available; `None` when there is nothing.
    pub(super) fn take(&mut self) -> Option<Taken> {
        if self.reply.is_none() && self.lanes.iter().all(VecDeque::is_empty) {
            return None;
        }
        let chunks = self.lanes.iter_mut().flat_map(|lane| lane.drain(..)).collect();
        Some(Taken { chunks, reply: self.reply.take() })
    }

    /// Appends what has come to `chunks`.
    pub(super) fn take_chunks(&mut self, chunks: &mut VecDeque<Chunk>) {
        chunks.append(&mut self.lanes[0]);
    }

    pub(super) fn reply(&self) -> Option<&Reply> {
        self.reply.as_ref()
    }

    pub(super) fn take_reply(&mut self) -> Option<Reply> {
        self.reply.take()
    }

    /// Marks that the caller has gone, and frees what is held.
    pub(super) fn abandon(&mut self) {
        self.abandoned = true;
        self.lanes = [VecDeque::new(), VecDeque::new()];
        self.reply = None;
    }

    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.lanes.iter().flatten().map(|chunk| chunk.content().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(stream: Stream, len: usize) -> Vec<u8> {
        let mut payload = vec![7; len + 1];
        payload[0] = stream as u8;
        payload
    }

    #[test]
    fn data_beyond_the_credit_is_a_violation_until_more_is_granted() {
        let mut inbox = Inbox::new(3, Exchange::Download);
        for _ in 0..INITIAL_CREDIT_BYTES as usize / DATA_CHUNK_BYTES {
            inbox.data(frame(Stream::Content, DATA_CHUNK_BYTES)).unwrap();
        }
        let one = || frame(Stream::Content, 1);
        assert_eq!(inbox.data(one()), Err(Violation::CreditOverrun(3)));
        inbox.grant(1);
        assert_eq!(inbox.data(one()), Ok(()));
    }

    #[test]
    fn data_has_to_belong_to_the_call() {
        for exchange in [Exchange::Plain, Exchange::Upload, Exchange::Output] {
            let mut inbox = Inbox::new(1, exchange);
            assert_eq!(inbox.data(frame(Stream::Content, 1)), Err(Violation::WrongStream(1)));
        }
        let mut inbox = Inbox::new(1, Exchange::Output);
        assert_eq!(inbox.data(vec![]), Err(Violation::DataSize(0)));
        assert_eq!(inbox.data(vec![9, 9]), Err(Violation::WrongStream(1)));
        let huge = frame(Stream::Stdout, DATA_CHUNK_BYTES + 1);
        assert_eq!(inbox.data(huge), Err(Violation::DataSize(DATA_CHUNK_BYTES + 2)));
    }

    #[test]
    fn an_abandoned_call_holds_nothing_and_still_counts_credit() {
        let mut inbox = Inbox::new(1, Exchange::Output);
        inbox.data(frame(Stream::Stdout, 10)).unwrap();
        inbox.abandon();
        inbox.data(frame(Stream::Stdout, 10)).unwrap();
        assert!(inbox.take().is_none());
        let rest = (INITIAL_CREDIT_BYTES as usize - 20) / DATA_CHUNK_BYTES;
        for _ in 0..rest {
            inbox.data(frame(Stream::Stderr, DATA_CHUNK_BYTES)).unwrap();
        }
        let more = inbox.data(frame(Stream::Stderr, DATA_CHUNK_BYTES));
        assert_eq!(more, Err(Violation::CreditOverrun(1)));
    }

    proptest! {
        #[test]
        fn small_frames_cost_few_entries_and_keep_their_order(
            sizes in proptest::collection::vec((any::<bool>(), 0usize..3000), 1..400)
        ) {
            let mut inbox = Inbox::new(1, Exchange::Output);
            let (mut sent, mut counter) = ([Vec::new(), Vec::new()], 0u8);
            let mut total = 0;
            for (err, size) in sizes {
                total += size;
                if total > INITIAL_CREDIT_BYTES as usize { break; }
                let mut payload = vec![if err { 2u8 } else { 1 }];
                payload.extend((0..size).map(|_| { counter = counter.wrapping_add(1); counter }));
                sent[usize::from(err)].extend_from_slice(&payload[1..]);
                inbox.data(payload).unwrap();
            }
            let entries: usize = inbox.lanes.iter().map(VecDeque::len).sum();
            prop_assert!(entries <= 2 * (1 + total / (DATA_CHUNK_BYTES - 3000)));
            let mut got = [Vec::new(), Vec::new()];
            for chunk in inbox.take().map(|taken| taken.chunks).unwrap_or_default() {
                got[usize::from(chunk.stream == Stream::Stderr)].extend_from_slice(chunk.content());
            }
            prop_assert_eq!(got, sent);
        }
    }
}
