//! Deferred call: its records, in the stream `deferred/<id>`, and the state machine that this
//! daemon holds.
//!
//! ```text
//! held ─┬─▶ answered          by the one answer that its client waits for
//!       ├─▶ answers first     it asks a person, which its client hears as that answer
//!       └─▶ handed out ─▶ over
//! ```

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use hivekeep_kernel::{ApprovalId, CallId, DeferredId, SessionId, ToolError, User, lock};
use hivekeep_ports::{UserQuestion, UserReply};
use hivekeep_runtime::log::Sourced;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::DeferredOptions;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(super) enum DeferredRecord {
    /// Written before the call is made.
    Begun { session: SessionId, user: User, tool: String, limit_secs: u64, at: DateTime<Utc> },
    /// Written after the call, or at the next start.
    Ended { end: DeferredEnd, at: DateTime<Utc> },
}

/// Outcome of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub(super) enum DeferredEnd {
    /// The call ended by itself.
    Answered {
        call: CallId,
        result: Result<Value, ToolError>,
        /// True where the result is another MCP server's, whole.
        #[serde(default)]
        from_source: bool,
        notices: Vec<String>,
        duration_ms: u64,
    },
    /// The session cancelled the call.
    Cancelled,
    /// The daemon ended before the call did.
    Lost { error: ToolError },
}

/// A call as its records tell it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Recorded {
    pub(super) session: SessionId,
    pub(super) user: User,
    pub(super) tool: String,
    pub(super) limit_secs: u64,
    pub(super) begun_at: DateTime<Utc>,
    pub(super) end: Option<DeferredEnd>,
    pub(super) ended_at: Option<DateTime<Utc>>,
}

impl Sourced for Recorded {
    const KIND: &'static str = "deferred";
    // An end with its result may be larger than what the journal takes at once.
    const PIECE_BYTES: Option<usize> = Some(64 * 1024);
    type Record = DeferredRecord;

    fn begin(record: DeferredRecord) -> Result<Self, DeferredRecord> {
        let DeferredRecord::Begun { session, user, tool, limit_secs, at } = record else {
            return Err(record);
        };
        Ok(Self { session, user, tool, limit_secs, begun_at: at, end: None, ended_at: None })
    }

    /// The first end counts.
    fn apply(&mut self, record: DeferredRecord) -> Result<(), DeferredRecord> {
        match record {
            DeferredRecord::Ended { end, at } if self.end.is_none() => {
                (self.end, self.ended_at) = (Some(end), Some(at));
                Ok(())
            }
            record => Err(record),
        }
    }
}

/// The longest word on how far a call is, in bytes.
const MESSAGE_BYTES: usize = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Held,
    AnswersFirst,
    Answered,
    HandedOut,
    Over,
}

/// A question that a call waits for.
#[derive(Debug)]
struct OpenQuestion {
    question: UserQuestion,
    replied: oneshot::Sender<Option<UserReply>>,
}

/// A deferred call, as long as it is known.
#[derive(Debug)]
pub(super) struct HeldCall {
    pub(super) id: DeferredId,
    pub(super) session: SessionId,
    pub(super) user: User,
    pub(super) tool: String,
    pub(super) limit: Duration,
    pub(super) begun_at: DateTime<Utc>,
    pub(super) cancel: CancellationToken,
    live: Mutex<Live>,
}

#[derive(Debug)]
struct Live {
    phase: Phase,
    message: Option<String>,
    changed_at: DateTime<Utc>,
    questions: BTreeMap<ApprovalId, OpenQuestion>,
    /// Its session has cancelled it.
    stopped: bool,
}

impl HeldCall {
    pub(super) fn new(
        id: DeferredId,
        session: SessionId,
        user: User,
        tool: impl Into<String>,
        limit: Duration,
        begun_at: DateTime<Utc>,
    ) -> Self {
        let live = Live {
            phase: Phase::Held,
            message: None,
            changed_at: begun_at,
            questions: BTreeMap::new(),
            stopped: false,
        };
        let (tool, cancel) = (tool.into(), CancellationToken::new());
        Self { id, session, user, tool, limit, begun_at, cancel, live: Mutex::new(live) }
    }

    /// Hands the call out to its client; false when it has an answer, or is about to.
    pub(super) fn hand_out(&self) -> bool {
        let mut live = lock(&self.live);
        let held = live.phase == Phase::Held;
        if held {
            live.phase = Phase::HandedOut;
        }
        held
    }

    /// Keeps the call, which is about to ask its client, from being handed out; false when it is already.
    pub(super) fn answer_first(&self) -> bool {
        let mut live = lock(&self.live);
        if live.phase == Phase::Held {
            live.phase = Phase::AnswersFirst;
        }
        live.phase == Phase::AnswersFirst
    }

    /// The work has ended: true when its client waits for the answer.
    pub(super) fn answer(&self) -> bool {
        let mut live = lock(&self.live);
        let waits = matches!(live.phase, Phase::Held | Phase::AnswersFirst);
        if waits {
            live.phase = Phase::Answered;
        }
        waits
    }

    /// Notes that the end is durable.
    pub(super) fn end(&self, at: DateTime<Utc>) {
        let mut live = lock(&self.live);
        (live.phase, live.changed_at) = (Phase::Over, at);
        live.questions.clear();
    }

    /// Notes how far the call is.
    pub(super) fn note(&self, message: &str) {
        if message.is_empty() {
            return;
        }
        let mut live = lock(&self.live);
        live.message = Some(message[..message.floor_char_boundary(MESSAGE_BYTES)].to_owned());
        live.changed_at = Utc::now();
    }

    /// Cancels the call for its session.
    pub(super) fn stop(&self) {
        let mut live = lock(&self.live);
        live.stopped |= live.phase != Phase::Over;
        live.questions.clear();
        drop(live);
        self.cancel.cancel();
    }

    /// Asks whoever reads the call; the reply, or none.
    pub(super) async fn ask(&self, id: ApprovalId, question: &UserQuestion) -> Option<UserReply> {
        let (replied, reply) = oneshot::channel();
        {
            let mut live = lock(&self.live);
            let open = OpenQuestion { question: question.clone(), replied };
            live.questions.insert(id, open);
            live.changed_at = Utc::now();
        }
        reply.await.ok().flatten()
    }

    /// Replies to a question that waits.
    pub(super) fn reply(&self, id: ApprovalId, reply: Option<UserReply>) {
        let mut live = lock(&self.live);
        if let Some(open) = live.questions.remove(&id) {
            live.changed_at = Utc::now();
            // A call that does not wait any more needs none.
            let _gone = open.replied.send(reply);
        }
    }

    /// Questions that wait.
    pub(super) fn questions(&self) -> Vec<(ApprovalId, UserQuestion)> {
        let live = lock(&self.live);
        live.questions.iter().map(|(id, open)| (*id, open.question.clone())).collect()
    }

    /// Whether the session may know of the call.
    pub(super) fn is_known(&self) -> bool {
        matches!(lock(&self.live).phase, Phase::HandedOut | Phase::Over)
    }

    /// Whether its end is durable.
    pub(super) fn is_over(&self) -> bool {
        lock(&self.live).phase == Phase::Over
    }

    /// Whether its session has cancelled it.
    pub(super) fn is_stopped(&self) -> bool {
        lock(&self.live).stopped
    }

    /// Last progress message, and time of the last change.
    pub(super) fn last(&self) -> (Option<String>, DateTime<Utc>) {
        let live = lock(&self.live);
        (live.message.clone(), live.changed_at)
    }

    /// How long the call is kept, from its beginning: the time that it may take, or took, and that of an
    /// end.
    pub(super) fn lasts(&self, options: &DeferredOptions) -> Duration {
        let live = lock(&self.live);
        let took = match live.phase {
            Phase::Over => (live.changed_at - self.begun_at).to_std().unwrap_or_default(),
            _ => self.limit,
        };
        took.saturating_add(Duration::from_secs(options.kept_secs))
    }

    /// Whether what is kept of its end is over.
    pub(super) fn expired(&self, options: &DeferredOptions, now: DateTime<Utc>) -> bool {
        let lasts = TimeDelta::from_std(self.lasts(options)).unwrap_or(TimeDelta::MAX);
        self.is_over() && now - self.begun_at > lasts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> HeldCall {
        let (session, limit) = (SessionId::new(), Duration::from_secs(100));
        HeldCall::new(DeferredId::new(), session, User::Uid(1), "exec", limit, Utc::now())
    }

    #[test]
    fn a_call_has_one_answer_a_result_or_a_handle() {
        let quick = call();
        assert!(quick.answer() && !quick.hand_out() && !quick.is_known());
        let slow = call();
        assert!(slow.hand_out() && !slow.answer() && slow.is_known());
        assert!(!slow.answer_first(), "too late to answer with a question");
        let asks = call();
        assert!(asks.answer_first() && !asks.hand_out() && asks.answer());
    }

    #[test]
    fn the_last_message_is_told_and_its_length_is_bounded() {
        let call = call();
        assert_eq!(call.last(), (None, call.begun_at));
        call.note(&"é".repeat(300));
        call.note("");
        let (told, at) = call.last();
        assert!(told == Some("é".repeat(250)) && at >= call.begun_at);
        let end = at + TimeDelta::seconds(3);
        call.end(end);
        call.stop();
        assert!(call.last().1 == end && !call.is_stopped(), "it was over");
    }

    #[test]
    fn the_time_that_it_is_kept_begins_with_its_end() {
        let (call, options) = (call(), DeferredOptions { kept_secs: 10, ..Default::default() });
        assert_eq!(call.lasts(&options), Duration::from_secs(110));
        call.end(call.begun_at + TimeDelta::seconds(7));
        assert_eq!(call.lasts(&options), Duration::from_secs(17));
    }

    #[test]
    fn an_end_expires_and_a_running_call_does_not() {
        let (call, options) = (call(), DeferredOptions { kept_secs: 10, ..Default::default() });
        call.hand_out();
        let at = |secs| call.begun_at + TimeDelta::seconds(secs);
        assert!(!call.expired(&options, at(1_000)));
        call.end(at(50));
        assert!(!call.expired(&options, at(59)) && call.expired(&options, at(61)));
    }

    #[tokio::test]
    async fn a_question_takes_one_reply_and_a_cancelled_call_none() {
        let (call, id) = (call(), ApprovalId::new());
        let question = UserQuestion { question: "Which?".to_owned(), ..Default::default() };
        let reply = || Some(UserReply { selected: vec![1], ..UserReply::default() });
        let (replied, ()) = tokio::join!(call.ask(id, &question), async {
            assert_eq!(call.questions(), [(id, question.clone())]);
            call.reply(ApprovalId::new(), None);
            call.reply(id, reply());
            call.reply(id, None);
        });
        assert_eq!((replied, call.questions().len()), (reply(), 0));
        let (replied, ()) = tokio::join!(call.ask(id, &question), async { call.stop() });
        assert_eq!((replied, call.is_stopped()), (None, true));
    }
}
