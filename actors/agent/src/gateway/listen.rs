//! Connections of a program to its gateway: a few are waited for, more are served, all in bounds.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{CallCx, SessionId, ToolError, User, WorkspaceId};
use hivekeep_ports::{ByteStream, GuestHttp, GuestHttpHandler, ProgramConnections};
use hivekeep_runtime::saga::SagaHandle;
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::execution::ExecutionSaga;

/// Connections of one program at a time.
const CONNECTIONS: usize = 16;
/// Connections that are waited for at a time.
const WAITED_FOR: usize = 4;
/// Time after which a wait is begun anew.
const WAIT: Duration = Duration::from_secs(600);
/// First pause after a failed wait, and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Time for which failures are waited out: a machine is woken, a link is made anew.
const PATIENCE: Duration = Duration::from_secs(60);

/// A port of a machine, and whoever answers there.
pub(crate) struct ProgramListener {
    pub(crate) session: SessionId,
    pub(crate) user: User,
    pub(crate) workspace: WorkspaceId,
    pub(crate) port: u16,
    pub(crate) connections: Arc<dyn ProgramConnections>,
    pub(crate) records: SagaHandle<ExecutionSaga>,
    pub(crate) http: Arc<dyn GuestHttp>,
    pub(crate) handler: Arc<dyn GuestHttpHandler>,
}

impl ProgramListener {
    /// Serves until the future is dropped.
    ///
    /// # Errors
    /// The reason for which no connection can be taken.
    pub(crate) async fn serve(self) -> ToolError {
        let (this, waits) = (Arc::new(self), Arc::new(Semaphore::new(WAITED_FOR)));
        let mut places = JoinSet::new();
        for _ in 0..CONNECTIONS {
            places.spawn(this.clone().place(waits.clone()));
        }
        match places.join_next().await {
            Some(Ok(error)) => error,
            _ => ToolError::internal("a connection's place panicked"),
        }
    }

    /// Takes connections one after the other.
    async fn place(self: Arc<Self>, waits: Arc<Semaphore>) -> ToolError {
        loop {
            let waiting = waits.acquire().await;
            let stream = match self.accept().await {
                Ok(stream) => stream,
                Err(error) => return error,
            };
            drop(waiting);
            let end = CancellationToken::new();
            let _ends_with_this = end.clone().drop_guard();
            self.http.serve(self.user, stream, self.handler.clone(), end).await;
        }
    }

    async fn accept(&self) -> Result<Box<dyn ByteStream>, ToolError> {
        let (mut pause, mut failing) = (PAUSE, None);
        let mut news = self.records.watch();
        loop {
            // A wait is a use, by which a machine that stands still would go on. The handle keeps it open.
            let _runs: bool = news.wait_for(|view| !view.state.stands_still()).await.is_ok();
            let begun = Instant::now();
            let span = tracing::info_span!("gateway", workspace = %self.workspace);
            let cx = CallCx::internal(self.session, WAIT, CancellationToken::new(), span);
            let error = match self.connections.accept(&cx, self.workspace, self.port).await {
                Ok(stream) => return Ok(stream),
                Err(_) if begun.elapsed() >= WAIT => {
                    (pause, failing) = (PAUSE, None);
                    continue;
                }
                Err(error) => error,
            };
            let until = *failing.get_or_insert(begun + PATIENCE);
            if Instant::now() >= until {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
