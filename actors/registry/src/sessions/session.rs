//! The actor of one session, and the writer of its end.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{Context, Entity, Fault, SessionId, ToolError, session_ended};
use hivekeep_runtime::log::{Decision, LogError};
use hivekeep_store::NewEvent;
use serde_json::json;
use tokio::sync::oneshot;

use super::{
    Attachment, EndReason, SessionShared,
    handle::SessionTable,
    records::{Record, stream},
    state::{Effect, Event, Machine},
};

/// Reply to a caller that waits for a session's end.
type Ender = oneshot::Sender<Result<(), ToolError>>;

/// Messages of a session's actor.
#[derive(Debug)]
pub(crate) enum Msg {
    /// A client comes back.
    Attach(oneshot::Sender<Result<Attachment, ToolError>>),
    /// A client has gone, or may have come or gone unheard.
    Detached,
    /// Answers when this actor takes messages.
    Here(oneshot::Sender<()>),
    /// The session shall end.
    End(EndReason, Option<Ender>),
    /// The timer of this number went off.
    GraceOver(u64),
    /// The end was written, or not.
    EndWritten(Result<(), ToolError>),
    #[cfg(test)]
    Fail,
}

#[derive(Clone)]
pub(crate) struct Args {
    pub(super) table: Arc<SessionTable>,
    pub(super) shared: Arc<SessionShared>,
}

pub(crate) struct Session {
    me: Context<Msg>,
    table: Arc<SessionTable>,
    shared: Arc<SessionShared>,
    machine: Machine,
    enders: Vec<Ender>,
}

impl Entity for Session {
    type Msg = Msg;
    type Args = Args;

    async fn start(Args { table, shared }: Args, me: Context<Msg>) -> Result<Self, Fault> {
        if shared.ended().is_some() {
            me.stop("the session has ended");
        }
        let (machine, effects) = Machine::new(shared.about.name.is_some(), shared.told_attached());
        let mut session = Self { me, table, shared, machine, enders: Vec::new() };
        session.perform(effects);
        session.count_when_heard();
        Ok(session)
    }

    fn handle(&mut self, message: Msg) -> Result<(), Fault> {
        match message {
            Msg::Attach(reply) => self.attach(reply),
            Msg::Detached => self.apply(Event::Counted(self.shared.attached())),
            // The asker may have gone; so everywhere.
            Msg::Here(reply) => drop(reply.send(())),
            Msg::End(reason, ender) => {
                self.enders.extend(ender);
                self.apply(Event::End(reason));
            }
            Msg::GraceOver(timer) => {
                let busy = self.shared.busy();
                self.apply(Event::GraceOver { timer, busy });
            }
            Msg::EndWritten(Ok(())) => self.apply(Event::EndWritten),
            Msg::EndWritten(Err(error)) => {
                // Nobody there: the next incarnation counts whom it finds.
                let _ = self.table.supervisor.send(super::Msg::Stayed(self.shared.id));
                tracing::error!(session = %self.shared.id, %error, "the session's end was not written");
                self.answer(&Err(error));
                self.apply(Event::EndFailed(self.shared.attached()));
            }
            #[cfg(test)]
            Msg::Fail => return Err(Fault::new("told to fail")),
        }
        Ok(())
    }
}

impl Session {
    fn attach(&mut self, reply: oneshot::Sender<Result<Attachment, ToolError>>) {
        if !self.machine.open() {
            drop(reply.send(Err(session_ended(self.shared.id))));
            return;
        }
        drop(reply.send(Ok(Attachment::new(self.shared.clone(), true))));
        self.apply(Event::Attached);
        self.apply(Event::Counted(self.shared.attached()));
    }

    /// Clients that came or went while nobody took messages were not heard:
    /// counts as soon as this incarnation is.
    fn count_when_heard(&self) {
        let address = self.me.address.clone();
        let _detached = self.me.workers.spawn(async move {
            while address.send(Msg::Detached).is_err() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }

    fn apply(&mut self, event: Event) {
        let effects = self.machine.apply(event);
        self.perform(effects);
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::TellResumed => self.tell("session.resumed", true),
                Effect::TellDetached => self.tell("session.detached", false),
                Effect::StartTimer(timer) => self.start_timer(timer),
                Effect::WriteEnd(reason) => self.write_end(reason),
                Effect::Finish(_) => {
                    self.answer(&Ok(()));
                    self.me.stop("the session ended");
                }
            }
        }
    }

    fn tell(&self, kind: &str, attached: bool) {
        self.shared.tell_attached(attached);
        if !self.shared.tells(kind) {
            return;
        }
        let about = &self.shared.about;
        let data = json!({ "door": about.door, "client": about.client });
        let subject = self.shared.id.to_string();
        self.table.events.publish_later(NewEvent { kind: kind.to_owned(), subject, data });
    }

    fn start_timer(&self, timer: u64) {
        let (address, grace) = (self.me.address.clone(), self.table.grace());
        let _detached = self.me.workers.spawn(async move {
            tokio::time::sleep(grace).await;
            // Nobody there: the next incarnation starts its own.
            let _ = address.send(Msg::GraceOver(timer));
        });
    }

    fn write_end(&self, reason: EndReason) {
        let (table, shared, address) =
            (self.table.clone(), self.shared.clone(), self.me.address.clone());
        let _detached = self.me.workers.spawn(async move {
            let written = write_end(&table, &shared, reason).await;
            // Nobody there: the next incarnation finds the shared as it is.
            let _ = address.send(Msg::EndWritten(written));
        });
    }

    fn answer(&mut self, outcome: &Result<(), ToolError>) {
        for ender in self.enders.drain(..) {
            drop(ender.send(outcome.clone()));
        }
    }
}

/// Writes the end of a session. The record and the event are one commit. The session is over for
/// others as soon as that is true, not when its actor hears of it. One that leaves nothing ends by
/// its stream being gone.
pub(super) async fn write_end(
    table: &SessionTable,
    shared: &SessionShared,
    reason: EndReason,
) -> Result<(), ToolError> {
    let at = Utc::now();
    let (id, kind): (SessionId, _) = (shared.id, "session.ended");
    let event = shared.tells(kind).then(|| NewEvent {
        kind: kind.to_owned(),
        subject: id.to_string(),
        data: json!({ "reason": reason, "held": shared.usage().used() }),
    });
    let written = if shared.leaves_something(reason) {
        let mut decision = Decision::record(Record::Ended { reason, at });
        decision = event.into_iter().fold(decision, Decision::event);
        match shared.log.decide(|_| Ok(decision)) {
            Ok(durable) => durable.await,
            Err(refused) => Err(refused),
        }
    } else {
        let stream = stream(id);
        let forgotten = table.journal.forget(&stream).await;
        if let (Some(event), Ok(())) = (event, &forgotten) {
            let _lost_is_counted = table.events.publish_later(event);
        }
        forgotten.map_err(|source| LogError::Journal { stream, source })
    };
    written.map_err(ToolError::from)?;
    shared.end(at, reason);
    Ok(())
}
