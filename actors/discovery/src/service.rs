//! Service of discovery: queries of the catalogue as the view of a call narrows it.

use std::{collections::BTreeSet, sync::Arc};

use arc_swap::ArcSwap;
use hivekeep_kernel::{
    CallCx, Effect, Layer, Service, ServiceActor, ToolError, ToolGroup, view::same_family,
};
use hivekeep_ports::{SessionToolsets, ToolSearch, Tools};
use hivekeep_runtime::{
    Daemon,
    tool_catalogue::{CataloguedTool, ToolCatalogue},
};

use crate::{
    codes,
    index::ToolIndex,
    tools::{
        self, FoundTool, ToolDescribe, ToolDescribed, ToolsFound, ToolsList, ToolsListed,
        ToolsSearch, ToolsetLoad, ToolsetLoaded, ToolsetRow,
    },
};

type Answer<T> = Result<T, ToolError>;

/// Names that a refusal suggests.
const SUGGESTED: usize = 3;

/// The tools of one moment with their index.
struct Indexed {
    tools: Arc<Vec<CataloguedTool>>,
    index: ToolIndex,
}

impl Indexed {
    fn of(tools: Arc<Vec<CataloguedTool>>) -> Arc<Self> {
        Arc::new(Self { index: ToolIndex::new(&tools), tools })
    }
}

/// The catalogue with its index.
pub(crate) struct Discovery {
    catalogue: Arc<dyn ToolCatalogue>,
    indexed: ArcSwap<Indexed>,
    sessions: Arc<dyn SessionToolsets>,
    calls: Arc<dyn Tools>,
}

impl Service for Discovery {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[&tools::FAMILY];
}

impl ToolSearch for Discovery {
    fn search(&self, query: &str) -> Vec<&'static str> {
        let Indexed { tools, index } = &*self.indexed();
        index.search(query).into_iter().map(|at| tools[at].spec.name).collect()
    }
}

/// Tools that a caller sees: the view of its call, and the tools that its session has loaded.
struct Visible<'a> {
    all: &'a [CataloguedTool],
    cx: &'a CallCx,
    calls: &'a dyn Tools,
    loaded: BTreeSet<String>,
}

impl<'a> Visible<'a> {
    /// The tool at a place, if the caller may call it.
    fn tool(&self, at: usize) -> Option<&'a CataloguedTool> {
        let may = |tool: &&CataloguedTool| {
            let CallCx { session, view, .. } = self.cx;
            view.shows(tool.spec) && self.calls.may_call(*session, view, tool.spec)
        };
        self.all.get(at).filter(may)
    }

    fn tools(&self) -> impl Iterator<Item = &'a CataloguedTool> {
        (0..self.all.len()).filter_map(|at| self.tool(at))
    }

    fn lists(&self, tool: &CataloguedTool) -> bool {
        self.cx.view.lists(tool.spec, &self.loaded)
    }

    fn name(&self, tool: &CataloguedTool) -> String {
        self.cx.view.name(tool.spec).into_owned()
    }

    /// Toolsets in the order of the catalogue.
    fn toolsets(&self) -> Vec<ToolsetRow> {
        let mut rows: Vec<ToolsetRow> = Vec::new();
        for tool in self.tools() {
            let name = tool.spec.family;
            let at = rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
                rows.push(ToolsetRow { name, tools: 0, listed: 0 });
                rows.len() - 1
            });
            rows[at].tools += 1;
            rows[at].listed += usize::from(self.lists(tool));
        }
        rows
    }

    /// Declared name of a toolset that the caller may call.
    fn toolset(&self, wanted: &str) -> Answer<&'static str> {
        let toolsets: Vec<_> = self.toolsets().into_iter().map(|row| row.name).collect();
        let found = toolsets.iter().copied().find(|name| same_family(name, wanted));
        found.ok_or_else(|| {
            ToolError::not_found(Layer::Actor, codes::TOOLSET_NOT_FOUND, "toolset", wanted)
                .next(format!("use one of: {}", toolsets.join(", ")))
                .detail("toolsets", toolsets)
        })
    }

    fn row(&self, tool: &CataloguedTool, whole: bool) -> FoundTool {
        let description = tool.tool["description"].as_str().unwrap_or_default();
        let first = description.split_inclusive(". ").next().unwrap_or_default();
        FoundTool {
            name: self.name(tool),
            description: if whole { description } else { first.trim_end() }.to_owned(),
            source: if tool.server.is_some() { "mcp" } else { "builtin" },
            skip_judge: tool.spec.effect == Effect::Read,
            toolset: tool.spec.family,
            listed: self.lists(tool),
        }
    }
}

impl Discovery {
    pub(crate) fn new(daemon: &Daemon) -> Answer<Self> {
        let catalogue = daemon.ports.need::<dyn ToolCatalogue>()?;
        let indexed = ArcSwap::new(Indexed::of(catalogue.tools()));
        let sessions = daemon.ports.need::<dyn SessionToolsets>()?;
        Ok(Self { catalogue, indexed, sessions, calls: daemon.tools.clone() })
    }

    /// The tools as they are now. Indexed again where they have changed.
    fn indexed(&self) -> Arc<Indexed> {
        let (last, tools) = (self.indexed.load_full(), self.catalogue.tools());
        if Arc::ptr_eq(&last.tools, &tools) {
            return last;
        }
        let indexed = Indexed::of(tools);
        self.indexed.store(indexed.clone());
        indexed
    }

    fn visible<'a>(&'a self, tools: &'a [CataloguedTool], cx: &'a CallCx) -> Visible<'a> {
        let (calls, loaded) = (&*self.calls, self.sessions.loaded(cx.session));
        Visible { all: tools, cx, calls, loaded }
    }

    pub(crate) async fn list(self: Arc<Self>, cx: CallCx, input: ToolsList) -> Answer<ToolsListed> {
        let Indexed { tools, .. } = &*self.indexed();
        let visible = self.visible(tools, &cx);
        let only = input.toolset.map(|wanted| visible.toolset(&wanted)).transpose()?;
        let within = |tool: &&CataloguedTool| only.is_none_or(|only| tool.spec.family == only);
        let tools = visible.tools().filter(within).skip(input.offset).take(input.limit);
        Ok(ToolsListed {
            tool: tools::FAMILY.rows[0].0.spec.name,
            tools: tools.map(|tool| visible.row(tool, false)).collect(),
            total: visible.tools().filter(within).count(),
            toolsets: visible.toolsets(),
        })
    }

    pub(crate) async fn search(
        self: Arc<Self>,
        cx: CallCx,
        input: ToolsSearch,
    ) -> Answer<ToolsFound> {
        let Indexed { tools, index } = &*self.indexed();
        let visible = self.visible(tools, &cx);
        let only = input.toolset.map(|wanted| visible.toolset(&wanted)).transpose()?;
        let found = index.search(&input.query).into_iter().filter_map(|at| visible.tool(at));
        let within = |tool: &&CataloguedTool| only.is_none_or(|only| tool.spec.family == only);
        let found: Vec<_> = found.filter(within).collect();
        Ok(ToolsFound {
            tool: tools::FAMILY.rows[1].0.spec.name,
            query: input.query,
            total: found.len(),
            tools: found
                .into_iter()
                .take(input.limit)
                .map(|tool| visible.row(tool, true))
                .collect(),
        })
    }

    pub(crate) async fn describe(
        self: Arc<Self>,
        cx: CallCx,
        input: ToolDescribe,
    ) -> Answer<ToolDescribed> {
        let Indexed { tools, index } = &*self.indexed();
        let visible = self.visible(tools, &cx);
        let at = index.find(&input.name, |at| tools[at].spec.name);
        let Some(listing) = at.and_then(|at| visible.tool(at)) else {
            let near = index.nearest(&input.name).into_iter();
            let near = near.filter_map(|at| visible.tool(at)).take(SUGGESTED);
            let near: Vec<_> = near.map(|tool| visible.name(tool)).collect();
            let code = codes::TOOL_NOT_FOUND;
            let error = ToolError::not_found(Layer::Actor, code, "tool", &input.name);
            return Err(error.detail("nearest", near));
        };
        let CataloguedTool { spec, tool, .. } = listing;
        let description = tool["description"].as_str().unwrap_or_default();
        Ok(ToolDescribed {
            name: visible.name(listing),
            title: spec.title,
            description: description.to_owned(),
            toolset: spec.family,
            listed: visible.lists(listing),
            input_schema: tool["inputSchema"].clone(),
            output_schema: input.output.then(|| tool.get("outputSchema").cloned()).flatten(),
            annotations: tool["annotations"].clone(),
        })
    }

    pub(crate) async fn load(
        self: Arc<Self>,
        cx: CallCx,
        input: ToolsetLoad,
    ) -> Answer<ToolsetLoaded> {
        let now = self.indexed();
        let before = self.visible(&now.tools, &cx);
        let wanted = input.toolsets.iter().map(|wanted| before.toolset(wanted));
        let wanted = wanted.collect::<Answer<BTreeSet<_>>>()?;
        let mut loaded = Vec::new();
        // Where everything is listed there is nothing to load.
        if cx.view.listing.is_some() {
            let names = wanted.iter().map(|name| (*name).to_owned()).collect();
            let new = self.sessions.load(cx.session, names).await?;
            loaded.extend(wanted.into_iter().filter(|name| new.contains(*name)));
        }
        let after = self.visible(&now.tools, &cx);
        let added = after.tools().filter(|tool| after.lists(tool) && !before.lists(tool));
        let added: Vec<_> = added.map(|tool| after.name(tool)).collect();
        Ok(ToolsetLoaded {
            loaded,
            list_changed: !added.is_empty(),
            added,
            listed: after.tools().filter(|tool| after.lists(tool)).count(),
        })
    }
}
