//! A request to a provider with its retries, run beside the mailbox.

use std::{sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use chrono::Utc;
use hivekeep_kernel::Address;
use hivekeep_ports::RelayRequest;
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    AnsweredQuestion, LastFailure, Msg, Outcome, ProviderJob, ProviderShared, ServerState, Work,
};
use crate::{
    ModelProviderKind,
    backend::{Backend, ModelQuestion},
    failure::{FailureKind, WireFailure},
    transport::{RelaySink, RelayedAnswer},
    wire::Sink,
};

const SHORTEST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// Notice that the work has ended, also when it panicked or was dropped.
pub(super) struct EndNotice {
    address: Address<Msg>,
    outcome: Outcome,
}

impl EndNotice {
    pub(super) fn new(address: Address<Msg>) -> Self {
        Self { address, outcome: Outcome::default() }
    }

    fn tells<T>(&mut self, result: &Result<T, WireFailure>) {
        self.outcome.works = match result {
            Ok(_) => Some(true),
            Err(failure) if failure.kind.blames_provider() => Some(false),
            // A refusal is an answer too.
            Err(failure)
                if matches!(failure.kind, FailureKind::Invalid | FailureKind::RateLimited) =>
            {
                Some(true)
            }
            Err(_) => None,
        };
        if let Err(failure) = result
            && failure.kind != FailureKind::Cancelled
        {
            let message = failure.message.clone();
            self.outcome.failure = Some(LastFailure { at: Utc::now(), message });
        }
    }
}

impl Drop for EndNotice {
    fn drop(&mut self) {
        // If the actor is gone, the next incarnation counts anew.
        let _ = self.address.send(Msg::Ended(std::mem::take(&mut self.outcome)));
    }
}

/// Runs a request to its end.
pub(super) async fn run(
    shared: Arc<ProviderShared>,
    backend: Arc<Backend>,
    job: Box<ProviderJob>,
    mut notice: EndNotice,
) {
    let ProviderJob { work, deadline } = *job;
    match work {
        Work::Question { question, deltas, mut reply } => {
            let began = Instant::now();
            let mut sink = Sink::new(deltas);
            let asked = ask(&shared, &backend, &question, &mut sink, deadline);
            let answered = tokio::select! {
                answered = asked => answered,
                () = reply.closed() => Err(WireFailure::cancelled()),
            };
            notice.tells(&answered);
            notice.outcome.first_piece = sink.first.map(|first| first - began);
            let _the_asker_may_have_gone = reply.send(answered.map(|mut answered| {
                (answered.text, answered.calls) = (sink.text, sink.calls);
                answered
            }));
        }
        Work::Texts { model, texts, mut reply } => {
            let embedded = tokio::select! {
                embedded = embed(&shared, &backend, &model, &texts, deadline) => embedded,
                () = reply.closed() => Err(WireFailure::cancelled()),
            };
            notice.tells(&embedded);
            let _the_asker_may_have_gone = reply.send(embedded);
        }
        Work::Relay { request, pieces, mut reply } => {
            let began = Instant::now();
            let mut sink = RelaySink::new(pieces);
            let relayed = tokio::select! {
                relayed = relay(&shared, &backend, &request, &mut sink, deadline) => relayed,
                () = reply.closed() => Err(WireFailure::cancelled()),
            };
            let told = match &relayed {
                Ok(RelayedAnswer { refused: Some(failure), .. }) | Err(failure) => {
                    Err(failure.clone())
                }
                Ok(_) => Ok(()),
            };
            notice.tells(&told);
            notice.outcome.first_piece = sink.first.map(|first| first - began);
            let bytes = sink.bytes;
            let relayed = relayed.map(|answer| (answer, bytes)).map_err(|failure| (failure, bytes));
            let _the_asker_may_have_gone = reply.send(relayed);
        }
    }
}

async fn ask(
    shared: &ProviderShared,
    backend: &Backend,
    question: &ModelQuestion,
    sink: &mut Sink,
    deadline: Instant,
) -> Result<AnsweredQuestion, WireFailure> {
    let (mut again, mut lost) = (Repetition::new(shared, deadline), 0);
    loop {
        let one = question.ask();
        let asked = async {
            server_ready(shared).await?;
            backend.generate(&shared.options, &one, sink).await
        };
        let end = timeout_at(deadline, asked).await.unwrap_or_else(|_| Err(too_late()));
        let attempts = again.attempts + 1;
        let mut failure = match end {
            Ok(end) => {
                let (text, calls) = Default::default();
                return Ok(AnsweredQuestion { text, calls, end, attempts, lost });
            }
            Err(failure) => failure,
        };
        failure.handed_on = sink.bytes;
        lost += u32::from(failure.kind.may_have_cost());
        failure.lost = lost;
        tokio::select! {
            waited = again.wait(failure) => waited?,
            () = sink.gone() => {
                return Err(WireFailure { attempts, lost, ..WireFailure::cancelled() });
            }
        }
    }
}

/// Passes a program's request on, once: the program repeats it.
async fn relay(
    shared: &ProviderShared,
    backend: &Backend,
    request: &RelayRequest,
    sink: &mut RelaySink,
    deadline: Instant,
) -> Result<RelayedAnswer, WireFailure> {
    let relayed = async {
        server_ready(shared).await?;
        backend.relay(request, sink).await
    };
    timeout_at(deadline, relayed).await.unwrap_or_else(|_| Err(too_late()))
}

async fn embed(
    shared: &ProviderShared,
    backend: &Backend,
    model: &str,
    texts: &[String],
    deadline: Instant,
) -> Result<crate::wire::WireVectors, WireFailure> {
    let options = shared.options.models.get(model).cloned().unwrap_or_default();
    let mut again = Repetition::new(shared, deadline);
    loop {
        let asked = async {
            server_ready(shared).await?;
            backend.embed(model, &options, texts).await
        };
        match timeout_at(deadline, asked).await.unwrap_or_else(|_| Err(too_late())) {
            Ok(vectors) => return Ok(vectors),
            Err(failure) => again.wait(failure).await?,
        }
    }
}

/// Waits for a supervised server that is being started.
///
/// # Errors
/// When it is down, or takes too long.
async fn server_ready(shared: &ProviderShared) -> Result<(), WireFailure> {
    if shared.options.kind != ModelProviderKind::LlamaServer {
        return Ok(());
    }
    let limit = Instant::now() + Duration::from_secs(shared.options.first_token_secs);
    let mut state = shared.server.subscribe();
    let settled =
        state.wait_for(|state| matches!(state, ServerState::Ready | ServerState::Down(_)));
    let down = |why: &str| Err(WireFailure::new(FailureKind::Unavailable, why));
    match timeout_at(limit, settled).await.map(|state| state.map(|state| state.clone())) {
        Ok(Ok(ServerState::Down(why))) => down(&format!("its server is down: {why}")),
        Ok(_) => Ok(()),
        Err(_) => down("its server is not ready yet"),
    }
}

fn too_late() -> WireFailure {
    WireFailure::new(FailureKind::TimedOut, "the time of the request is over")
}

/// Pauses between the attempts of one request.
struct Repetition {
    pauses: backon::ExponentialBackoff,
    deadline: Instant,
    attempts: u32,
}

impl Repetition {
    fn new(shared: &ProviderShared, deadline: Instant) -> Self {
        let pauses = ExponentialBuilder::default()
            .with_min_delay(SHORTEST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_max_times(shared.options.retries)
            .with_jitter()
            .build();
        Self { pauses, deadline, attempts: 0 }
    }

    /// Waits before the next attempt, or returns the failure: it would come again, a part of the answer was
    /// passed on, or there is no time.
    async fn wait(&mut self, failure: WireFailure) -> Result<(), WireFailure> {
        self.attempts += 1;
        let failure = WireFailure { attempts: self.attempts, ..failure };
        if !failure.kind.passes() || failure.handed_on > 0 {
            return Err(failure);
        }
        let Some(pause) = self.pauses.next() else { return Err(failure) };
        let pause = pause.max(failure.retry_after.unwrap_or_default());
        if Instant::now() + pause >= self.deadline {
            return Err(failure);
        }
        sleep(pause).await;
        Ok(())
    }
}
