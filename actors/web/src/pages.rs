//! Page reader: fetches and converts a page, and keeps it for the calls that go on in it.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use hivekeep_kernel::{Layer, SessionId, ToolError, WorkspaceId};
use moka::sync::Cache;
use tokio::sync::Semaphore;
use url::Url;

use crate::{
    codes,
    document::{self, PageText},
    egress::FetchReach,
    fetch::{Fetched, Fetcher},
    tools::{WebFetch, WebPage},
};

/// Pages that are converted at a time. A conversion cannot be cut short, so its permit stays with it.
const MOST_CONVERTED: usize = 2;
/// Time that a page is kept.
const KEPT: Duration = Duration::from_secs(300);
/// Size of all pages that are kept.
const MAX_KEPT_BYTES: u64 = 32 * 1024 * 1024;

/// Key of a page: the session, the workspace, the URL, and whether as Markdown and with redirects.
type PageKey = (SessionId, Option<WorkspaceId>, String, bool, bool);

/// A whole page.
pub(crate) struct WholePage {
    /// Everything but the text.
    pub(crate) head: WebPage,
    pub(crate) text: String,
}

/// Reader of pages.
pub(crate) struct PageReader {
    pub(crate) fetcher: Fetcher,
    max_body_bytes: usize,
    converting: Arc<Semaphore>,
    kept: Cache<PageKey, Arc<WholePage>>,
}

impl PageReader {
    pub(crate) fn new(fetcher: Fetcher, max_body_bytes: usize) -> Self {
        let weigh = |key: &PageKey, page: &Arc<WholePage>| {
            u32::try_from(key.2.len() + page.text.len() + 1024).unwrap_or(u32::MAX)
        };
        let kept = Cache::builder().weigher(weigh).max_capacity(MAX_KEPT_BYTES);
        Self {
            fetcher,
            max_body_bytes,
            converting: Arc::new(Semaphore::new(MOST_CONVERTED)),
            kept: kept.time_to_live(KEPT).build(),
        }
    }

    /// Reads a whole page. From the start it is fetched; a later piece is of the page that is kept, if it
    /// still is.
    ///
    /// # Errors
    /// One of the codes of the web.
    pub(crate) async fn read(
        &self,
        session: SessionId,
        reach: &FetchReach,
        input: &WebFetch,
    ) -> Result<Arc<WholePage>, ToolError> {
        let url = Url::parse(&input.url).map_err(|error| {
            let message = format!("`{}`: {error}", input.url);
            ToolError::new(Layer::Actor, codes::WEB_URL_REFUSED, message)
                .next("give an absolute http or https URL")
        })?;
        // A kept page was admitted by an earlier policy.
        reach.admit(&url)?;
        let asked = (input.to_markdown, input.follow_redirects);
        let key = (session, reach.workspace(), input.url.clone(), asked.0, asked.1);
        if let Some(page) = self.kept.get(&key).filter(|_| input.offset > 0) {
            return Ok(page);
        }
        let limit = Duration::from_secs(input.timeout_secs);
        let page = tokio::time::timeout(limit, self.fetch(reach, url, input)).await;
        let page = Arc::new(page.map_err(|_| timed_out(input.timeout_secs))??);
        self.kept.insert(key, page.clone());
        Ok(page)
    }

    async fn fetch(
        &self,
        reach: &FetchReach,
        url: Url,
        input: &WebFetch,
    ) -> Result<WholePage, ToolError> {
        let fetched_at = Utc::now();
        let fetched = self.fetcher.page(reach, url, input.follow_redirects).await?;
        let (url, status) = (fetched.url.to_string(), fetched.status());
        let content_type = fetched.content_type();
        let redirects = fetched.redirects.iter().map(Url::to_string).collect();
        let location = fetched.location.as_ref().map(Url::to_string);
        let text = self.text(fetched, content_type.as_deref(), input.to_markdown).await?;
        let head = WebPage {
            url,
            status: status.as_u16(),
            ok: status.is_success(),
            content_type,
            format: text.format,
            title: text.title,
            size_bytes: text.text.len(),
            content: String::new(),
            offset: 0,
            next_offset: None,
            encoding: text.encoding,
            malformed: text.malformed,
            redirects,
            location,
            fetched_at,
        };
        Ok(WholePage { head, text: text.text })
    }

    async fn text(
        &self,
        fetched: Fetched,
        content_type: Option<&str>,
        to_markdown: bool,
    ) -> Result<PageText, ToolError> {
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
}

fn timed_out(seconds: u64) -> ToolError {
    let message = format!("the page was not there within {seconds} s");
    ToolError::new(Layer::Actor, codes::WEB_TIMED_OUT, message)
        .retryable()
        .next("repeat it with a larger `timeout_secs`")
}
