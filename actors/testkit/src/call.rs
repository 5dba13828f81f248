//! Calls as the registry would deliver them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use hivekeep_kernel::{
    AdmissionPermit, CallCx, CallId, Door, Progress, ProgressUpdate, Receipt, ReceiptPad,
    SessionId, ToolCall, ToolError, ToolInfo,
};
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);
/// Number of looks in a minute.
const LOOKS: usize = 12_000;

/// A call that was begun and may not be answered yet.
#[derive(Debug)]
pub struct PendingCall {
    answer: oneshot::Receiver<Result<Value, ToolError>>,
    pad: ReceiptPad,
    /// Cancels the call.
    pub cancel: CancellationToken,
    /// Progress of the call.
    pub progress: mpsc::Receiver<ProgressUpdate>,
}

impl PendingCall {
    /// Waits for the answer, which reaches the caller.
    ///
    /// # Errors
    /// As the tool.
    pub async fn answer(self) -> Result<Value, ToolError> {
        let (answer, pad) = self.held().await?;
        pad.sign();
        Ok(answer)
    }

    /// Waits for the answer, which does not reach the caller.
    ///
    /// # Errors
    /// As the tool.
    pub async fn lost(self) -> Result<Value, ToolError> {
        self.held().await.map(|(answer, _)| answer)
    }

    /// Waits for the answer. It reaches the caller when the pad is signed.
    ///
    /// # Errors
    /// As the tool.
    pub async fn held(self) -> Result<(Value, ReceiptPad), ToolError> {
        let answer = self.answer.await.expect("it answers")?;
        Ok((answer, self.pad))
    }
}

pub(crate) fn of(
    tool: &'static ToolInfo,
    session: SessionId,
    args: Value,
    limit: Duration,
    given_back: Arc<AtomicUsize>,
) -> (ToolCall, PendingCall) {
    let (reply, answer) = oneshot::channel();
    let (progress, told) = Progress::channel(200);
    let mut cx = context(session, tool.spec.name, limit, progress);
    cx.slot = AdmissionPermit::new(move || {
        given_back.fetch_add(1, SeqCst);
    });
    let (pad, receipt) = Receipt::pair();
    cx.receipt = receipt;
    let running = PendingCall { answer, pad, cancel: cx.cancel.clone(), progress: told };
    (ToolCall { tool: &tool.spec, cx, args, reply: reply.into() }, running)
}

/// The context of a call that came through no door.
pub fn context(
    session: SessionId,
    tool: &'static str,
    limit: Duration,
    progress: Progress,
) -> CallCx {
    CallCx {
        id: CallId::new(),
        session,
        tool,
        caller: None,
        door: Door::Internal,
        view: Default::default(),
        deadline: Instant::now() + limit,
        cancel: CancellationToken::new(),
        progress,
        receipt: Receipt::default(),
        reserved: None,
        trace: None,
        client: None,
        effect: None,
        slot: AdmissionPermit::default(),
        span: tracing::Span::none(),
    }
}

/// Waits until the condition holds, for a minute.
///
/// # Panics
/// When the condition does not hold by then.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..LOOKS {
        if is_so().await {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("not within a minute: {what}");
}
