//! Tool dispatch inside an actor: from a routed call to the handler of its type; and stateless services, actors
//! whose tools are async functions, each call run beside the mailbox.
//!
//! The mailbox handler of a service decides nothing, so that nothing can hold it up; decisions that need an
//! order belong in an [`Entity`] of their own.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use serde::Serialize;
use serde_json::Value;
use tracing::Instrument;

use crate::{
    Address, CallCx, Context, Entity, Fault, Responder, Tool, ToolError, ToolInfo, ToolSpec,
    entity::Workers, mailbox::ActorUnavailable,
};

/// Call on its way to the actor that serves it.
#[derive(Debug)]
pub struct ToolCall {
    /// Declaration of the tool.
    pub tool: &'static ToolSpec,
    /// Context of the call.
    pub cx: CallCx,
    /// Input that passed the schema.
    pub args: Value,
    /// Where the answer goes. Dropped unanswered, it answers by itself.
    pub reply: Responder,
}

/// Mailbox that takes tool calls.
pub trait Target: Send + Sync {
    /// Puts the call into the mailbox.
    ///
    /// # Errors
    /// Fails when no actor is there; the call is dropped and its caller gets an error.
    fn deliver(&self, call: ToolCall) -> Result<(), ActorUnavailable>;
    /// Key under which the registry counts calls.
    fn key(&self) -> &str;
    /// True while an actor is there.
    fn is_up(&self) -> bool;
}

impl<M: From<ToolCall> + Send + 'static> Target for Address<M> {
    fn deliver(&self, call: ToolCall) -> Result<(), ActorUnavailable> {
        self.send(M::from(call))
    }
    fn key(&self) -> &str {
        self.probe().path()
    }
    fn is_up(&self) -> bool {
        self.is_occupied()
    }
}

/// Lookup of the actors of one kind by the value of an input field.
pub trait ActorDirectory: Send + Sync {
    /// Finds the target of an id or a unique name.
    ///
    /// # Errors
    /// Returns a `..._not_found` error that says how to list the existing ones.
    fn find(&self, id_or_name: &str) -> Result<Arc<dyn Target>, ToolError>;
}

/// Answer now, or work that produces it beside the mailbox.
pub enum Reply<T> {
    /// Immediate answer.
    Now(T),
    /// Work run beside the mailbox; dropped when the actor ends.
    Later(futures::future::BoxFuture<'static, Result<T, ToolError>>),
}

impl<T> Reply<T> {
    /// Makes an answer of work that produces it.
    pub fn later(work: impl Future<Output = Result<T, ToolError>> + Send + 'static) -> Self {
        Self::Later(Box::pin(work))
    }
}

/// Actor whose tools are its owner's alone, unless their rows say `access: Access::Any`.
pub trait Owned: Entity {
    /// Checks that a call may operate the actor.
    ///
    /// # Errors
    /// `not_owner`, with the way to become the owner.
    fn authorize(&self, cx: &CallCx) -> Result<(), ToolError>;
}

/// Function that decodes and handles one tool; a row of [`ToolGroup`].
pub type Dispatch<E> = fn(&mut E, &CallCx, Value) -> Result<Reply<Value>, ToolError>;

/// Tools that an actor of type `E` serves.
#[derive(Debug)]
pub struct ToolGroup<E: Entity> {
    /// Declarations with their handlers.
    pub rows: &'static [(ToolInfo, Dispatch<E>)],
}

/// Decodes the input and calls the handler; [`tools!`](crate::tools) makes each [`Dispatch`] of
/// this. The handler decides and cannot wait.
///
/// # Errors
/// Refusal of the handler, or `invalid_input`.
pub fn dispatch<E, T: Tool>(
    entity: &mut E,
    cx: &CallCx,
    args: Value,
    handler: impl FnOnce(&mut E, &CallCx, T) -> Result<Reply<T::Output>, ToolError>,
) -> Result<Reply<Value>, ToolError> {
    let input: T = serde_json::from_value(args)
        .map_err(|error| ToolError::invalid(error.to_string()).next("check the tool's schema"))?;
    Ok(match handler(entity, cx, input)? {
        Reply::Now(output) => Reply::Now(encode(output)?),
        Reply::Later(work) => Reply::later(async move { encode(work.await?) }),
    })
}

fn encode<T: Serialize>(output: T) -> Result<Value, ToolError> {
    serde_json::to_value(output).map_err(|error| ToolError::internal(error.to_string()))
}

/// Serves one call from the tools of an actor. Work beside the mailbox that panics is answered as
/// `internal` and affects nothing else.
pub fn serve<E: Entity>(
    entity: &mut E,
    families: &[&ToolGroup<E>],
    workers: &Workers,
    call: ToolCall,
) {
    let ToolCall { tool, cx, args, mut reply } = call;
    reply.begin();
    let name = tool.name;
    let row = families.iter().flat_map(|family| family.rows).find(|row| row.0.spec.name == name);
    let span = cx.span.clone();
    let outcome = span.in_scope(|| match row {
        // The call waited for the actor's start, and nobody waits for it any more.
        Some(_) if cx.cancel.is_cancelled() => Err(ToolError::cancelled()),
        Some(_) if cx.remaining().is_zero() => Err(ToolError::deadline(crate::Layer::Actor, 0)),
        Some((_, dispatch)) => dispatch(entity, &cx, args),
        None => Err(ToolError::internal(format!("`{name}` is routed to an actor without it"))),
    });
    match outcome {
        Ok(Reply::Now(value)) => reply.answer(Ok(value)),
        Err(error) => reply.answer(Err(error)),
        Ok(Reply::Later(work)) => {
            let work = async move {
                let outcome = AssertUnwindSafe(work).catch_unwind().await;
                let panicked = |_| Err(ToolError::internal(format!("`{name}` panicked")));
                reply.answer(outcome.unwrap_or_else(panicked));
            };
            let _detached = workers.spawn(work.instrument(span));
        }
    }
}

/// Declares tools: one row each, which names the handler. Tools of an addressed actor are for its
/// owner alone, unless the row says otherwise ([`Owned`]).
///
/// ```text
/// tools! { pub FAMILY: "execution" for Workspace, addressed workspace by workspace_id;
///     exec: Exec => ExecOutput = Workspace::exec { title: "Run a command", rate: RateClass::Exec };
/// }
/// tools! { pub FAMILY: "metrics" for service Metrics, singleton metrics;
///     metrics_query: Query => Series = Metrics::query { title: "Query", effect: Read };
/// }
/// ```
/// Handlers of an actor decide and cannot wait; those of a [`Service`](crate::Service) are `async
/// fn(Arc<Metrics>, CallCx, Query) -> Result<Series, ToolError>`.
#[macro_export]
macro_rules! tools {
    ($vis:vis $family:ident: $title:literal for service $service:ty, singleton $singleton:ident;
     $($name:ident: $input:ty => $output:ty = $function:path { $($key:ident: $value:expr),+ $(,)? };)+) => {
        $($crate::tools!(@tool $title, $name, $input, $output,
            $crate::Addressing::Singleton(stringify!($singleton)), $crate::Access::Any,
            $($key: $value),+);)+
        $vis const $family: $crate::ToolGroup<$crate::ServiceActor<$service>> = $crate::ToolGroup {
            rows: &[$(($crate::ToolInfo::of::<$input>(), |actor, cx, args| {
                $crate::serve::run::<$service, $input, _>(actor, cx, args, $function)
            })),+],
        };
    };
    ($vis:vis $family:ident: $title:literal for $entity:ty, addressed $kind:ident by $field:ident;
     $($name:ident: $input:ty => $output:ty = $handler:path { $($key:ident: $value:expr),+ $(,)? };)+) => {
        $($crate::tools!(@tool $title, $name, $input, $output,
            $crate::Addressing::Field { kind: stringify!($kind), field: {
                // Compile-time check: the input has the field.
                let _ = |input: &$input| { let _ = &input.$field; };
                stringify!($field)
            } }, $crate::Access::Owner, $($key: $value),+);)+
        $vis const $family: $crate::ToolGroup<$entity> = $crate::ToolGroup {
            rows: &[$(($crate::ToolInfo::of::<$input>(), |entity, cx, args| {
                if let $crate::Access::Owner = <$input as $crate::Tool>::SPEC.access {
                    $crate::serve::Owned::authorize(entity, cx)?;
                }
                $crate::serve::dispatch::<$entity, $input>(entity, cx, args, $handler)
            })),+],
        };
    };
    ($vis:vis $family:ident: $title:literal for $entity:ty, singleton $singleton:ident;
     $($name:ident: $input:ty => $output:ty = $handler:path { $($key:ident: $value:expr),+ $(,)? };)+) => {
        $($crate::tools!(@tool $title, $name, $input, $output,
            $crate::Addressing::Singleton(stringify!($singleton)), $crate::Access::Any,
            $($key: $value),+);)+
        $vis const $family: $crate::ToolGroup<$entity> = $crate::ToolGroup {
            rows: &[$(($crate::ToolInfo::of::<$input>(), |entity, cx, args| {
                $crate::serve::dispatch::<$entity, $input>(entity, cx, args, $handler)
            })),+],
        };
    };
    (@tool $family:literal, $name:ident, $input:ty, $output:ty, $addressing:expr, $access:expr,
     $($key:ident: $value:expr),+) => {
        impl $crate::Tool for $input {
            type Output = $output;
            const SPEC: $crate::ToolSpec = {
                #[allow(unused_imports)]
                use $crate::{Effect::*, RateClass, Risk, Tier};
                let spec = $crate::ToolSpec {
                    name: stringify!($name),
                    title: "",
                    family: $family,
                    source: None,
                    effect: $crate::Effect::Write,
                    concurrency_safe: true,
                    open_world: false,
                    risk: Risk::Low,
                    tier: Tier::User,
                    access: $access,
                    rate: RateClass::Default,
                    rate_of: $crate::tool::rate_as_declared,
                    addressing: $addressing,
                    timeout_secs: 60,
                    limit_secs: $crate::tool::own_timeout,
                    result_budget_bytes: 4 * 1024 * 1024,
                    weight: $crate::tool::one_token,
                    told_by: None,
                    keyed: false,
                    content: $crate::tool::plain_result,
                };
                $crate::ToolSpec { $($key: $value,)+ ..spec }
            };
        }
    };
}

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
    type Args = Arc<S>;

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
