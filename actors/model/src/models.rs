//! Supervisor of the providers; it serves the tools, whose work runs beside its mailbox.

use std::sync::Arc;

use hivekeep_kernel::{
    Address, CallCx, Census, ChildEnd, Children, Context, Entity, Fault, RestartPolicy, ToolCall,
    ToolError,
    serve::{self, Reply},
};

use crate::{
    influx::Influx,
    provider::{self, Provider, ProviderShared},
    service::LanguageModels,
    tools::GROUPS,
};

/// Path of the supervisor in the tree.
pub(crate) const PATH: &str = "root/models";

/// Start arguments.
#[derive(Clone)]
pub(crate) struct Args {
    pub(crate) census: Census,
    pub(crate) providers: Vec<(Arc<ProviderShared>, Address<provider::Msg>)>,
    pub(crate) shared: Arc<ModelsShared>,
}

/// State that the tools work with.
pub(crate) struct ModelsShared {
    pub(crate) models: LanguageModels,
    pub(crate) influx: Influx,
}

/// Supervisor of the providers.
pub(crate) struct ModelsActor {
    me: Context<ToolCall>,
    children: Children,
    shared: Arc<ModelsShared>,
}

impl Entity for ModelsActor {
    type Msg = ToolCall;
    type Args = Args;

    async fn start(args: Args, me: Context<ToolCall>) -> Result<Self, Fault> {
        let mut children = Children::new(PATH, args.census.clone(), me.cell.clone());
        for (shared, address) in args.providers {
            let name = shared.name.to_string();
            let path = format!("{PATH}/{name}");
            let args = provider::Args { shared, census: args.census.clone(), path };
            children.start::<Provider>(&name, RestartPolicy::ENTITY, &address, args)?;
        }
        Ok(Self { me, children, shared: args.shared })
    }

    fn handle(&mut self, call: ToolCall) -> Result<(), Fault> {
        let workers = self.me.workers.clone();
        serve::serve(self, &GROUPS, &workers, call);
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        self.children.handle_end(end).map(drop)
    }
}

impl ModelsActor {
    /// Starts work that only waits for a model. The provider has a queue, so the call gives its slot back.
    pub(crate) fn wait<T, F>(
        &self,
        cx: &CallCx,
        work: impl FnOnce(Arc<ModelsShared>, CallCx) -> F,
    ) -> Result<Reply<T>, ToolError>
    where
        F: Future<Output = Result<T, ToolError>> + Send + 'static,
    {
        cx.slot.give_back();
        self.work(cx, work)
    }

    /// Work beside the mailbox, dropped when the call is cancelled or its time is over.
    #[allow(clippy::unnecessary_wraps)]
    pub(crate) fn work<T, F>(
        &self,
        cx: &CallCx,
        work: impl FnOnce(Arc<ModelsShared>, CallCx) -> F,
    ) -> Result<Reply<T>, ToolError>
    where
        F: Future<Output = Result<T, ToolError>> + Send + 'static,
    {
        let work = work(self.shared.clone(), cx.clone());
        let cx = cx.clone();
        Ok(Reply::later(async move { cx.guard(work).await }))
    }
}
