//! A stateless service: an actor whose tools are async functions, each call run beside the mailbox.
//!
//! The mailbox handler decides nothing, so that nothing can hold it up; decisions that need an
//! order belong in an [`Entity`] of their own.

use std::sync::Arc;

use crate::{
    CallCx, Context, Entity, Fault, Reply, Tool, ToolCall, ToolError, ToolGroup,
    serve::{dispatch, serve},
};

/// Shared state of a service's functions. Outlives restarts of the actor.
pub trait Service: Send + Sync + Sized + 'static {
    /// Groups of tools, made by `tools! { … for service Self … }`.
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>];
}

/// Actor of a service.
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

/// Runs a service's function for a call. The function is dropped where it waits when the call is
/// cancelled or its time is over.
///
/// # Errors
/// See [`dispatch`].
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
