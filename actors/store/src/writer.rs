//! Group commit: the one thread that writes to the database.
//!
//! The thread takes what is queued, up to a limit, makes one commit of it, and answers every
//! caller. While a commit runs the queue fills, so the more callers there are, the more of them
//! share an fsync.
//!
//! Callers that append again once they are answered come back a moment after their commit, too late
//! for the next one: they would form two groups that take turns, each waiting for the other's
//! fsync. So the thread waits a small part of a commit's time for as many as it saw together.
//!
//! # When a commit fails
//!
//! After a failure the database may hold the batch in its log, or a part, or nothing, and a later
//! flush could still write it. Nobody was told that it is durable, and nobody can be told that it
//! is not. So the thread answers every waiting caller with the error, closes the database and ends.
//! Reopening recovers the batch whole or not at all. A caller that repeats its append after an
//! error may therefore find it twice: records need an id where that matters.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

use chrono::Utc;
use tokio::sync::OwnedSemaphorePermit;

use crate::commit::Committer;
use crate::compact::Compacting;
use crate::database::panic_text;
use crate::event::{CommittedEvent, LOST_KIND};
use crate::index::JournalIndex;
use crate::pending_commit::{KeyChanges, PendingCommit, RequestOutcome};
use crate::queue::{QueueReceiver, WriterWake};
use crate::request::{ReplyPath, WriteOperation, WriteRequest};
use crate::reserve::Reserve;
use crate::shared::{JournalShared, StopReason};
use crate::{Error, NewEvent, Options, Seq};

/// Delay after which an idle writer reports lost events.
const IDLE_TICK: Duration = Duration::from_millis(500);

pub(crate) struct JournalWriter {
    pub(crate) committer: Committer,
    pub(crate) index: JournalIndex,
    pub(crate) reserve: Reserve,
    pub(crate) options: Options,
    pub(crate) shared: Arc<JournalShared>,
    pub(crate) intake: QueueReceiver,
    pub(crate) group: CallerEstimate,
    pub(crate) compacting: Compacting,
}

/// Divisor of the last commit's time that limits the wait for returning callers; [`LONGEST_GATHER`]
/// limits it too.
const GATHER_PART: u32 = 4;
const LONGEST_GATHER: Duration = Duration::from_millis(1);

/// Estimate of the concurrent callers: those of the last commit and those that queued meanwhile. A
/// single caller is never waited for.
#[derive(Debug, Default)]
pub(crate) struct CallerEstimate {
    callers: usize,
    patience: Duration,
}

/// Answer that waits for the commit.
struct Waiting {
    reply: Option<ReplyPath>,
    answer: Result<Seq, Error>,
    _room: OwnedSemaphorePermit,
}

impl JournalWriter {
    /// Runs until closed or failed, then closes the database and reports the reason.
    pub(crate) fn run(mut self) {
        let ended = catch_unwind(AssertUnwindSafe(|| self.work()));
        let stopped = match ended {
            Ok(Ok(())) => StopReason::Closed,
            Ok(Err(error)) => StopReason::Poisoned { cause: error.to_string() },
            Err(panic) => StopReason::Poisoned { cause: format!("panic: {}", panic_text(&*panic)) },
        };
        if let StopReason::Poisoned { cause } = &stopped {
            tracing::error!(%cause, "the journal stopped");
        }
        let JournalWriter { committer, shared, intake, compacting, .. } = self;
        compacting.stop();
        let live = shared.take_live();
        drop(committer);
        if let Some(live) = live {
            live.close();
        }
        // Once the end is visible, nothing can be queued any more.
        intake.close();
        shared.stop(stopped);
    }

    fn work(&mut self) -> Result<(), Error> {
        loop {
            let (first, ended) = match self.intake.wait(self.compacting.tick(IDLE_TICK)) {
                WriterWake::Asked(first) => (Some(first), false),
                WriterWake::Look => (None, false),
                WriterWake::Ended => (None, true),
            };
            // Events published before a request are committed before it.
            let mut batch = Vec::new();
            for event in self.intake.later() {
                if batch.len() == self.options.commit_max_records {
                    self.commit(std::mem::take(&mut batch))?;
                }
                batch.push(event);
            }
            self.gather(first, &mut batch);
            let closing = batch.iter().any(|request| matches!(request.work, WriteOperation::Close));
            self.commit(batch)?;
            self.reserve.keep();
            if closing || ended {
                return Ok(());
            }
            self.compact()?;
        }
    }

    /// Adds waiting requests to the batch, and those that are expected soon.
    fn gather(&mut self, first: Option<WriteRequest>, batch: &mut Vec<WriteRequest>) {
        let until = Instant::now() + self.group.patience;
        let (mut next, mut asked) = (first, 0);
        while let Some(request) = next {
            batch.push(request);
            asked += 1;
            let room = batch.len() < self.options.commit_max_records;
            let expected = (1..self.group.callers).contains(&asked);
            next = if room { self.intake.next(expected.then_some(until)) } else { None };
        }
    }

    fn commit(&mut self, batch: Vec<WriteRequest>) -> Result<(), Error> {
        let began = Instant::now();
        let requests = batch.len() as u64;
        let db = self.committer.db.clone();
        let mut stage = PendingCommit {
            db: &db,
            index: &mut self.index,
            options: &self.options,
            now: Utc::now(),
            changes: KeyChanges::default(),
            events: Vec::new(),
            records: 0,
        };
        let mut waiting = Vec::with_capacity(batch.len());
        let mut failure = None;
        for WriteRequest { work, reply, room } in batch {
            let answer = match stage.apply(work) {
                RequestOutcome::Done(seq) => Ok(seq),
                RequestOutcome::Refused(error) => Err(error),
                RequestOutcome::Failed(error) => {
                    failure = Some(error.clone());
                    Err(error)
                }
            };
            waiting.push(Waiting { reply, answer, _room: room });
        }
        let lost = self.shared.counters.lost_unreported.swap(0, SeqCst);
        if lost > 0 {
            stage.publish(NewEvent {
                kind: LOST_KIND.into(),
                subject: "journal".into(),
                data: serde_json::json!({ "count": lost }),
            });
        }
        if let Some(event) = self.reserve.change_event() {
            stage.publish(event);
        }
        if failure.is_none() {
            failure = stage.trim_events().err();
        }
        let (events, records) = (stage.events, stage.records);
        let changed = !stage.changes.is_empty();
        let done = match failure {
            Some(error) => Err(error),
            None if changed => self.committer.commit(stage.changes),
            None => Ok(()),
        };
        if let Err(error) = done {
            for Waiting { reply, answer, .. } in waiting {
                answer_one(reply, answer.and(Err(error.clone())));
            }
            return Err(error);
        }
        let took = began.elapsed();
        self.group = CallerEstimate {
            // Only callers that wait for an answer come back after it.
            callers: waiting.iter().filter(|one| one.reply.is_some()).count() + self.intake.asked(),
            patience: (took / GATHER_PART).min(LONGEST_GATHER),
        };
        self.count(requests, records, changed.then_some(took));
        self.deliver(events);
        for Waiting { reply, answer, .. } in waiting {
            answer_one(reply, answer);
        }
        if changed { self.committer.settle() } else { Ok(()) }
    }

    /// Hands the events to subscribers. Whoever subscribes from now on finds them by the position of the
    /// last one, which was published before: so nobody misses them where there is nobody now.
    fn deliver(&self, events: Vec<CommittedEvent>) {
        if self.shared.events.receiver_count() == 0 {
            return;
        }
        for event in events {
            match event.into_event() {
                // An error means that there are no subscribers any more.
                Ok(event) => drop(self.shared.events.send(Arc::new(event))),
                // A subscriber sees it as a gap, and reads why.
                Err(error) => tracing::error!(%error, "an event that was just written"),
            }
        }
    }

    /// Publishes the new counters and event positions before anyone is answered.
    fn count(&self, requests: u64, records: u64, took: Option<Duration>) {
        let counters = &self.shared.counters;
        counters.requests.fetch_add(requests, Relaxed);
        counters.records.fetch_add(records, Relaxed);
        counters.streams.store(self.index.streams.len() as u64, Relaxed);
        counters.live_bytes.store(self.committer.live_bytes(), Relaxed);
        if let Some(took) = took {
            counters.commits.fetch_add(1, Relaxed);
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            counters.last_commit_micros.store(micros, Relaxed);
        }
        self.shared.oldest_event.store(self.index.events.oldest.get(), SeqCst);
        self.shared.last_event.store(self.index.events.last.get(), SeqCst);
    }
}

fn answer_one(reply: Option<ReplyPath>, answer: Result<Seq, Error>) {
    if let Some(reply) = reply {
        reply.answer(answer);
    }
}
