//! Supervised adapter of the journal: the actor that a supervisor watches in place of the writer
//! thread.
//!
//! The writer is a thread, which no supervisor sees. This actor opens the journal and fails with
//! the reason when the writer stops other than by order. Restarting it reopens the journal. Older
//! handles answer [`Error::Poisoned`] from then on: take a new one with [`Msg::Handle`].

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{Error, Journal, JournalStats, Options, Recovered, StopReason};

/// Actor of the journal. Its argument is the journal's [`Options`].
#[derive(Debug, Clone, Copy, Default)]
pub struct JournalActor;

/// Messages of the journal's actor.
#[derive(Debug)]
pub enum Msg {
    /// Get a handle on the journal, and what its opening found.
    Handle(RpcReplyPort<(Journal, Recovered)>),
    /// Get the journal's statistics.
    Stats(RpcReplyPort<JournalStats>),
    /// Commit what is queued and close; answers when the directory is free. The actor then stops in
    /// order.
    Close(RpcReplyPort<StopReason>),
    /// Notice that the writer stopped. Sent by the actor's own watcher.
    WriterStopped(StopReason),
}

/// State of the actor: the open journal.
#[derive(Debug)]
pub struct JournalState {
    journal: Journal,
    recovered: Recovered,
    watcher: JoinHandle<()>,
    closing: Option<RpcReplyPort<StopReason>>,
}

impl Actor for JournalActor {
    type Msg = Msg;
    type State = JournalState;
    type Arguments = Options;

    async fn pre_start(
        &self,
        myself: ActorRef<Msg>,
        options: Options,
    ) -> Result<JournalState, ActorProcessingErr> {
        let (journal, recovered) = spawn_blocking(move || Journal::open(options)).await??;
        let watched = journal.clone();
        let watcher = tokio::spawn(async move {
            let stopped = watched.stopped().await;
            // Nobody needs the notice if the actor is gone.
            let _ = myself.cast(Msg::WriterStopped(stopped));
        });
        Ok(JournalState { journal, recovered, watcher, closing: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<Msg>,
        message: Msg,
        state: &mut JournalState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Msg::Handle(port) => {
                // A caller that stopped waiting is no error; so below.
                let _ = port.send((state.journal.clone(), state.recovered.clone()));
            }
            Msg::Stats(port) => {
                let journal = state.journal.clone();
                spawn_blocking(move || drop(port.send(journal.stats())));
            }
            Msg::Close(port) => {
                state.closing = Some(port);
                let journal = state.journal.clone();
                tokio::spawn(async move { journal.close().await });
            }
            Msg::WriterStopped(stopped) => {
                if let Some(port) = state.closing.take() {
                    let _ = port.send(stopped.clone());
                }
                match stopped {
                    StopReason::Closed => myself.stop(Some("the journal was closed".into())),
                    StopReason::Poisoned { .. } => return Err(Error::from(stopped).into()),
                }
            }
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<Msg>,
        state: &mut JournalState,
    ) -> Result<(), ActorProcessingErr> {
        state.watcher.abort();
        Ok(())
    }
}
