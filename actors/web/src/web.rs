//! Service of the web tools.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, Layer, Service, ServiceActor, ToolError, ToolGroup};
use hivekeep_runtime::Ports;
use reqwest::dns::Resolve;

use crate::{
    Options, client, codes,
    fetch::Fetcher,
    pages::{PageReader, WholePage},
    policy::EgressPolicy,
    reach::FetchReach,
    search::Searcher,
    tools::{
        self, FailedProvider, FewWebSearch, WebFetch, WebPage, WebResult, WebResults, WebSearch,
    },
};

type Answer<T> = Result<T, ToolError>;

/// The web, as sessions have it.
pub(crate) struct Web {
    enabled: bool,
    for_workspaces_only: bool,
    pages: PageReader,
    searcher: Searcher,
    ports: Ports,
}

impl Service for Web {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[&tools::FAMILY];
}

impl Web {
    /// # Errors
    /// `web_ca_file_refused`.
    pub(crate) fn new(options: &Options, resolver: Arc<dyn Resolve>, ports: Ports) -> Answer<Self> {
        let policy = EgressPolicy::new(options).map_err(|wrong| {
            ToolError::internal(format!("the configuration was not checked: {wrong:?}"))
        })?;
        let policy = Arc::new(policy);
        let for_pages = client::for_pages(options, policy.clone(), resolver.clone())?;
        let for_providers = client::for_providers(options, resolver)?;
        let fetcher = Fetcher::new(for_pages, policy, options.proxy.is_some());
        Ok(Self {
            enabled: options.enabled,
            for_workspaces_only: options.fetch_for_workspaces_only,
            pages: PageReader::new(fetcher, options.max_body_bytes()),
            searcher: Searcher::new(options, &for_providers),
            ports,
        })
    }

    pub(crate) async fn fetch(self: Arc<Self>, cx: CallCx, input: WebFetch) -> Answer<WebPage> {
        self.admit()?;
        if self.for_workspaces_only && input.workspace_id.is_none() {
            let message = "a fetch has to name a workspace, whose network policy judges it";
            return Err(ToolError::new(Layer::Policy, codes::WEB_TARGET_DENIED, message)
                .next("give `workspace_id`, of a workspace that may reach the page"));
        }
        let reach = FetchReach::of(&self.ports, &cx, input.workspace_id.as_deref())?;
        let page = self.pages.read(cx.session, &reach, &input).await?;
        piece(&page, input.offset, input.max_bytes)
    }

    pub(crate) async fn search(self: Arc<Self>, _: CallCx, input: WebSearch) -> Answer<WebResults> {
        self.results(input.query, input.max_results).await
    }

    pub(crate) async fn search_few(
        self: Arc<Self>,
        _: CallCx,
        input: FewWebSearch,
    ) -> Answer<WebResults> {
        self.results(input.query, input.max_results).await
    }

    async fn results(&self, query: String, most: usize) -> Answer<WebResults> {
        self.admit()?;
        let found = self.searcher.search(&query, most).await?;
        let results = found.hits.into_iter().map(|hit| WebResult {
            title: hit.title,
            url: hit.url,
            snippet: hit.snippet,
        });
        let failed = found.failed.into_iter().map(|(provider, failure)| FailedProvider {
            provider,
            code: failure.code.name,
            message: failure.message,
        });
        Ok(WebResults {
            query,
            provider: found.provider,
            results: results.collect(),
            left_out: found.left_out,
            failed: failed.collect(),
        })
    }

    fn admit(&self) -> Answer<()> {
        if self.enabled {
            return Ok(());
        }
        Err(ToolError::new(Layer::Policy, codes::WEB_DISABLED, "sessions may not use the web")
            .next("work without it, or ask the operator for `web.enabled`"))
    }
}

/// A piece of a page, cut at characters.
fn piece(page: &WholePage, offset: usize, most: usize) -> Answer<WebPage> {
    let text = &page.text;
    if offset > text.len() {
        let message = format!("`offset` is beyond the text, which has {} bytes", text.len());
        return Err(ToolError::invalid(message).next("begin at 0"));
    }
    let start = text.ceil_char_boundary(offset);
    let end = text.floor_char_boundary(start.saturating_add(most));
    Ok(WebPage {
        content: text[start..end].to_owned(),
        offset: start,
        next_offset: (end < text.len()).then_some(end),
        ..page.head.clone()
    })
}
