//! Supervisor of the sources, and the operator's tool that it serves: the sources as they are.

use std::sync::Arc;

use hivekeep_kernel::{
    Address, CallCx, Census, ChildEnd, Children, Context, Entity, Fault, RestartPolicy, ToolCall,
    ToolError,
    serve::{self, Reply},
    tools,
};
use hivekeep_ports::ForeignSource;
use rmcp::model::Implementation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    link::{SourceLink, SourceShared},
    source::{self, Source},
};

/// Path of the supervisor in the tree.
pub(crate) const PATH: &str = "root/sources";

/// Use this to see which other MCP servers the daemon has as sources of tools, whether each is there, and
/// which of its tools are left out and why.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SourceList {}

/// The sources.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SourcesListed {
    /// Sources, by name.
    pub(crate) sources: Vec<SourceRow>,
}

/// A source.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SourceRow {
    /// Name in `[source.servers]`.
    pub(crate) name: String,
    /// `ready`, `connecting`, `unreachable`, `auth_required`, `auth_expired` or `auth_invalid`.
    pub(crate) state: &'static str,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// `stdio` or `http`.
    pub(crate) transport: &'static str,
    /// Name and version that the server gives itself, while it is connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) server: Option<String>,
    /// Revision of the protocol that is spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) protocol: Option<String>,
    /// Tools that it has, by the names that they are called by. They stay listed while it is down.
    pub(crate) tools: Vec<String>,
    /// Tools that it listed and that are not offered.
    pub(crate) left_out: Vec<LeftOutTool>,
}

/// A tool that is left out.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LeftOutTool {
    /// Name that the server has for it.
    pub(crate) name: String,
    /// The reason.
    pub(crate) why: String,
}

tools! { pub(crate) FAMILY: "sources" for Sources, singleton sources;
    source_list: SourceList => SourcesListed = Sources::list {
        title: "List sources of tools",
        effect: Read,
        tier: Tier::Operator,
    };
}

/// Start arguments.
#[derive(Clone)]
pub(crate) struct Args {
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
    type Args = Args;

    async fn start(args: Args, me: Context<ToolCall>) -> Result<Self, Fault> {
        let mut children = Children::new(PATH, args.census, me.cell.clone());
        let mut sources = Vec::new();
        for (shared, address) in args.sources {
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
    fn list(&mut self, _: &CallCx, _: SourceList) -> Result<Reply<SourcesListed>, ToolError> {
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
