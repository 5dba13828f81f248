//! Service of the web tools.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{
    CallCx, Layer, Service, ServiceActor, SessionId, ToolError, ToolGroup,
};
use moka::sync::Cache;
use reqwest::dns::Resolve;
use tokio::sync::Semaphore;
use url::Url;

use crate::{
    Options, client, codes,
    document::{self, PageText},
    fetch::{Fetched, Fetcher},
    policy::EgressPolicy,
    search::Searcher,
    tools::{self, FailedProvider, FewWebSearch, WebFetch, WebPage, WebResult, WebResults, WebSearch},
};

type Answer<T> = Result<T, ToolError>;

/// Pages that are converted at a time. A conversion cannot be cut short, so its permit stays with it.
const MOST_CONVERTED: usize = 2;
/// Time that a page is kept for the call that goes on in it.
const PAGE_KEPT: Duration = Duration::from_secs(300);
/// Size of all pages that are kept.
const MAX_PAGES_BYTES: u64 = 32 * 1024 * 1024;

/// What a page was asked for by: the session, the URL, and whether as Markdown and with redirects.
type PageKey = (SessionId, String, bool, bool);

/// The web, as sessions have it.
pub(crate) struct Web {
    enabled: bool,
    max_body_bytes: usize,
    fetcher: Fetcher,
    searcher: Searcher,
    converting: Arc<Semaphore>,
    /// Whole pages, for calls that go on in them.
    pages: Cache<PageKey, Arc<WebPage>>,
}

impl Service for Web {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = &[&tools::FAMILY];
}

impl Web {
    /// # Errors
    /// `web_ca_file_refused`.
    pub(crate) fn new(options: &Options, resolver: Arc<dyn Resolve>) -> Answer<Self> {
        let policy = EgressPolicy::new(options).map_err(|wrong| {
            ToolError::internal(format!("the configuration was not checked: {wrong:?}"))
        })?;
        let policy = Arc::new(policy);
        let pages = client::for_pages(options, policy.clone(), resolver.clone())?;
        let providers = client::for_providers(options, resolver)?;
        let weigh = |key: &PageKey, page: &Arc<WebPage>| {
            u32::try_from(key.1.len() + page.content.len() + 1024).unwrap_or(u32::MAX)
        };
        let kept = Cache::builder().weigher(weigh).max_capacity(MAX_PAGES_BYTES);
        Ok(Self {
            enabled: options.enabled,
            max_body_bytes: options.max_body_bytes(),
            fetcher: Fetcher::new(pages, policy, options.proxy.is_some()),
            searcher: Searcher::new(options, &providers),
            converting: Arc::new(Semaphore::new(MOST_CONVERTED)),
            pages: kept.time_to_live(PAGE_KEPT).build(),
        })
    }

    pub(crate) async fn fetch(self: Arc<Self>, cx: CallCx, input: WebFetch) -> Answer<WebPage> {
        self.admit()?;
        let key = (cx.session, input.url.clone(), input.to_markdown, input.follow_redirects);
        let kept = self.pages.get(&key).filter(|_| input.offset > 0);
        let page = match kept {
            Some(page) => page,
            None => {
                let limit = Duration::from_secs(input.timeout_secs);
                let page = tokio::time::timeout(limit, self.whole(&input)).await;
                let page = Arc::new(page.map_err(|_| timed_out(input.timeout_secs))??);
                self.pages.insert(key, page.clone());
                page
            }
        };
        piece(&page, input.offset, input.max_bytes)
    }

    /// Fetches the whole text of a page.
    async fn whole(&self, input: &WebFetch) -> Answer<WebPage> {
        let url = Url::parse(&input.url).map_err(|error| {
            ToolError::new(Layer::Actor, codes::WEB_URL_REFUSED, format!("`{}`: {error}", input.url))
                .next("give an absolute http or https URL")
        })?;
        let fetched_at = Utc::now();
        let fetched = self.fetcher.page(url, input.follow_redirects).await?;
        let (url, status) = (fetched.url.to_string(), fetched.status());
        let content_type = fetched.content_type();
        let redirects = fetched.redirects.iter().map(Url::to_string).collect();
        let location = fetched.location.as_ref().map(Url::to_string);
        let text = self.text(fetched, content_type.as_deref(), input.to_markdown).await?;
        Ok(WebPage {
            url,
            status: status.as_u16(),
            ok: status.is_success(),
            content_type,
            format: text.format,
            title: text.title,
            size_bytes: text.text.len(),
            content: text.text,
            offset: 0,
            next_offset: None,
            encoding: text.encoding,
            malformed: text.malformed,
            redirects,
            location,
            fetched_at,
        })
    }

    async fn text(
        &self,
        fetched: Fetched,
        content_type: Option<&str>,
        to_markdown: bool,
    ) -> Answer<PageText> {
        let kind = match document::text_type(content_type) {
            Ok(kind) => kind,
            // The status is what counts; its picture is not.
            Err(_) if !fetched.status().is_success() => return Ok(PageText::default()),
            Err(refused) => return Err(refused),
        };
        let url = fetched.url.to_string();
        let body = fetched.body(self.max_body_bytes).await?;
        let permit = self.converting.clone().acquire_owned().await.ok();
        let converted = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            document::read(&body, &kind, to_markdown, &url)
        });
        converted.await.map_err(|panic| ToolError::internal(format!("a page: {panic}")))?
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
fn piece(page: &WebPage, offset: usize, most: usize) -> Answer<WebPage> {
    let text = &page.content;
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
        ..page.clone()
    })
}

fn timed_out(seconds: u64) -> ToolError {
    let message = format!("the page was not there within {seconds} s");
    ToolError::new(Layer::Actor, codes::WEB_TIMED_OUT, message)
        .retryable()
        .next("repeat it with a larger `timeout_secs`")
}
