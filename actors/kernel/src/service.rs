//! A stateless service: an actor whose tools are async functions, each call run beside the mailbox.
//!
//! It decides nothing in its handler, so that nothing can hold it up; what has to be decided in
//! order needs an [`Entity`] of its own.

use std::sync::Arc;

use crate::{
    CallCx, Context, Entity, Fault, Reply, Tool, ToolCall, ToolError, ToolGroup,
    serve::{dispatch, serve},
};

/// What a service's functions work with. It outlives restarts of its actor.
pub trait Service: Send + Sync + Sized + 'static {
    /// The tools it serves, of `tools! { … for service Self … }`.
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>];
}

/// The actor of a service.
pub struct ServiceActor<S: Service> {
    me: Context<ToolCall>,
    service: Arc<S>,
}

impl<S: Service> Entity for ServiceActor<S> {
    type Msg = ToolCall;
    type Seed = Arc<S>;

    async fn start(service: Arc<S>, me: Context<ToolCall>) -> Result<Self, Fault> {
        Ok(Self { me, service })
    }

    fn handle(&mut self, call: ToolCall) -> Result<(), Fault> {
        let workers = self.me.workers.clone();
        serve(self, S::TOOLS, &workers, call);
        Ok(())
    }
}

/// Runs a service's function for a call. It ends with the call: when that is cancelled or its time
/// is over, the function is dropped where it waits.
///
/// # Errors
/// As [`dispatch`].
pub fn run<S: Service, T: Tool, F>(
    actor: &mut ServiceActor<S>,
    cx: &CallCx,
    args: serde_json::Value,
    function: impl FnOnce(Arc<S>, CallCx, T) -> F,
) -> Result<Reply<serde_json::Value>, ToolError>
where
    F: Future<Output = Result<T::Output, ToolError>> + Send + 'static,
{
    dispatch(actor, cx, args, |actor, cx, input: T| {
        let work = function(actor.service.clone(), cx.clone(), input);
        let cx = cx.clone();
        Ok(Reply::later(async move { cx.guard(work).await }))
    })
}
