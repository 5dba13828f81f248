//! Supervisor of the sources; it serves the tool that lists them.

use std::sync::Arc;

use hivekeep_kernel::{
    Address, Census, ChildEnd, Children, Context, Entity, Fault, RestartPolicy, ToolCall,
    ToolError,
    ports::ForeignSource,
    serve::{self, Reply},
};
use rmcp::model::Implementation;

use crate::{
    link::{SourceLink, SourceShared},
    source::{self, Source},
    tools::{FAMILY, LeftOutTool, SourceList, SourceRow, SourcesListed},
};

/// Path of the supervisor in the tree.
pub(crate) const PATH: &str = "root/sources";

/// Start arguments.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) census: Census,
    pub(crate) sources: Vec<(Arc<SourceShared>, Address<source::Msg>)>,
}

/// The supervisor.
pub(crate) struct Sources {
    me: Context<ToolCall>,
    children: Children,
    sources: Vec<Arc<SourceShared>>,
}

impl Entity for Sources {
    type Msg = ToolCall;
    type Seed = Seed;

    async fn start(seed: Seed, me: Context<ToolCall>) -> Result<Self, Fault> {
        let mut children = Children::new(PATH, seed.census, me.cell.clone());
        let mut sources = Vec::new();
        for (shared, address) in seed.sources {
            let name = shared.name.to_string();
            children.start::<Source>(&name, RestartPolicy::ENTITY, &address, shared.clone())?;
            sources.push(shared);
        }
        Ok(Self { me, children, sources })
    }

    fn handle(&mut self, call: ToolCall) -> Result<(), Fault> {
        let workers = self.me.workers.clone();
        serve::serve(self, &[&FAMILY], &workers, call);
        Ok(())
    }

    fn child(&mut self, end: ChildEnd) -> Result<(), Fault> {
        self.children.handle_end(end).map(drop)
    }
}

impl Sources {
    /// Serves `source_list`.
    #[allow(clippy::unnecessary_wraps)]
    pub(crate) fn list(
        &mut self,
        _: &hivekeep_kernel::CallCx,
        _: SourceList,
    ) -> Result<Reply<SourcesListed>, ToolError> {
        let sources = self.sources.iter().map(|shared| row(shared)).collect();
        Ok(Reply::Now(SourcesListed { sources }))
    }
}

fn row(shared: &SourceShared) -> SourceRow {
    let published = shared.published();
    let mut tools: Vec<_> = published.by_name.keys().map(|name| (*name).to_owned()).collect();
    tools.sort_unstable();
    let left_out = published
        .left_out
        .iter()
        .map(|one| LeftOutTool { name: one.raw_name.clone(), why: one.why.clone() });
    let (mut server, mut protocol) = (None, None);
    if let SourceLink::Up(connection) = &*shared.link.borrow()
        && let Some(info) = connection.peer.peer_info()
    {
        protocol = Some(info.protocol_version.to_string());
        let named = |about: &Implementation| format!("{:.80} {:.40}", about.name, about.version);
        server = info.server_info.as_ref().map(named);
    }
    let state = shared.state();
    SourceRow {
        name: shared.name.to_string(),
        state: state.word(),
        why: state.why(),
        transport: if shared.options.url.is_some() { "http" } else { "stdio" },
        server,
        protocol,
        tools,
        left_out: left_out.collect(),
    }
}
