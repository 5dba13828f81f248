//! Page fetcher: follows redirects by hand, so that each hop passes the policy and robots.txt (RFC 9309), of
//! which servers' rules are kept.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Layer, ToolError};
use moka::sync::Cache;
use reqwest::{
    Client, Response, StatusCode,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, LOCATION},
};
use robotstxt::DefaultMatcher;
use tokio::sync::Semaphore;
use url::Url;

use crate::{
    client, codes,
    egress::{EgressPolicy, FetchReach, address_refused},
};

/// Redirects in a row.
const MAX_REDIRECTS: usize = 10;
/// Types that can be read, best first.
const READABLE: &str = "text/html,application/xhtml+xml,text/markdown;q=0.9,text/plain;q=0.9,\
    application/json;q=0.9,*/*;q=0.1";

/// Response to a request, whose body is not read yet.
pub(crate) struct Fetched {
    pub(crate) url: Url,
    /// URLs that led to `url`.
    pub(crate) redirects: Vec<Url>,
    /// Where the answer points on, if it is a redirect that was not followed.
    pub(crate) location: Option<Url>,
    pub(crate) response: Response,
}

impl Fetched {
    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Value of Content-Type as it was sent.
    pub(crate) fn content_type(&self) -> Option<String> {
        let value = self.response.headers().get(CONTENT_TYPE)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    }

    /// Reads the body, up to a number of bytes.
    ///
    /// # Errors
    /// `web_type_refused` for a coding that was not asked for, and as [`client::read`].
    pub(crate) async fn body(self, most: usize) -> Result<Vec<u8>, ToolError> {
        // The client has removed the header of a body that it decodes.
        let coding = self.response.headers().get(CONTENT_ENCODING);
        if let Some(coding) =
            coding.filter(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"identity"))
        {
            let message = format!("the body is coded as {coding:?}, which was not asked for");
            return Err(ToolError::new(Layer::Result, codes::WEB_TYPE_REFUSED, message));
        }
        client::read(self.response, most).await
    }
}

/// Fetcher of pages.
pub(crate) struct Fetcher {
    pub(crate) client: Client,
    policy: Arc<EgressPolicy>,
    robots: RobotsCache,
    /// True if a proxy connects in this process's place.
    proxied: bool,
}

impl Fetcher {
    pub(crate) fn new(client: Client, policy: Arc<EgressPolicy>, proxied: bool) -> Self {
        Self { client, policy, robots: RobotsCache::default(), proxied }
    }

    /// Fetches a page.
    ///
    /// # Errors
    /// One of the codes of the web. A status is none.
    pub(crate) async fn page(
        &self,
        reach: &FetchReach,
        url: Url,
        follow: bool,
    ) -> Result<Fetched, ToolError> {
        let most = if follow { MAX_REDIRECTS } else { 0 };
        let (mut url, mut redirects) = (url, Vec::new());
        loop {
            self.admit(reach, &url)?;
            self.robots.admit(self, reach, &url).await?;
            let response = self.get(reach, &url).await?;
            match points_on(&response, &url)? {
                Some(next) if follow => go_on(&mut redirects, &mut url, next, most)?,
                location => return Ok(Fetched { url, redirects, location, response }),
            }
        }
    }

    /// Fetches the rules of a server, to which no rules apply.
    ///
    /// # Errors
    /// As [`Self::page`].
    async fn unruled(
        &self,
        reach: &FetchReach,
        url: Url,
        most: usize,
    ) -> Result<Response, ToolError> {
        let (mut url, mut redirects) = (url, Vec::new());
        loop {
            let response = self.get(reach, &url).await?;
            match points_on(&response, &url)? {
                Some(next) => go_on(&mut redirects, &mut url, next, most)?,
                None => return Ok(response),
            }
        }
    }

    pub(crate) fn admit(&self, reach: &FetchReach, url: &Url) -> Result<(), ToolError> {
        self.policy.admit(url)?;
        reach.admit(url)
    }

    async fn get(&self, reach: &FetchReach, url: &Url) -> Result<Response, ToolError> {
        self.admit(reach, url)?;
        let request = self.client.get(url.clone()).header(ACCEPT, READABLE);
        let response = request.send().await.map_err(|error| client::failure(&error))?;
        self.check_peer(&response, url)?;
        Ok(response)
    }

    /// Refuses an answer from an address that the policy does not let be reached.
    ///
    /// # Errors
    /// `web_address_refused`.
    pub(crate) fn check_peer(&self, response: &Response, url: &Url) -> Result<(), ToolError> {
        // The resolver handed on allowed addresses only; this holds should that ever fail.
        let peer = response.remote_addr().filter(|_| !self.proxied);
        let host = url.host_str().unwrap_or_default();
        match peer.filter(|peer| !self.policy.allows(host, peer.ip())) {
            Some(_) => Err(address_refused(host)),
            None => Ok(()),
        }
    }
}

fn go_on(redirects: &mut Vec<Url>, url: &mut Url, next: Url, most: usize) -> Result<(), ToolError> {
    if redirects.len() == most {
        let message = format!("more than {most} redirects in a row, the last one to {next}");
        return Err(ToolError::new(Layer::Actor, codes::WEB_REDIRECT_FAILED, message));
    }
    redirects.push(std::mem::replace(url, next));
    Ok(())
}

/// Target of a redirect.
fn points_on(response: &Response, url: &Url) -> Result<Option<Url>, ToolError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
    let target = std::str::from_utf8(location.as_bytes()).ok();
    match target.and_then(|target| url.join(target).ok()) {
        Some(next) => Ok(Some(next)),
        None => {
            let message = format!("{url} redirects to {location:?}, which is not a valid URL");
            Err(ToolError::new(Layer::Actor, codes::WEB_REDIRECT_FAILED, message))
        }
    }
}

/// Name that the rules of a robots.txt call this program by.
const PRODUCT: &str = "hivekeep";
/// Size of a robots.txt that the RFC wants to be read; what is beyond it is not looked at.
const MAX_ROBOTS_BYTES: usize = 500 * 1024;
/// Redirects to a robots.txt that the RFC wants to be followed.
const MAX_ROBOTS_REDIRECTS: usize = 5;
/// Time that the rules of a server are kept; the RFC allows a day.
const ROBOTS_KEPT: Duration = Duration::from_secs(3600);
/// Size of the rules of all servers that are kept.
const MAX_ROBOTS_CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// Files of rules that are matched at a time; a hostile one takes a while.
const MOST_MATCHED: usize = 2;

/// Rules of servers, by scheme, host and port.
struct RobotsCache {
    rules: Cache<String, Arc<str>>,
    matching: Arc<Semaphore>,
}

impl Default for RobotsCache {
    fn default() -> Self {
        let weigh = |server: &String, rules: &Arc<str>| {
            u32::try_from(server.len() + rules.len() + 256).unwrap_or(u32::MAX)
        };
        let rules = Cache::builder()
            .weigher(weigh)
            .max_capacity(MAX_ROBOTS_CACHE_BYTES)
            .time_to_live(ROBOTS_KEPT)
            .build();
        Self { rules, matching: Arc::new(Semaphore::new(MOST_MATCHED)) }
    }
}

impl RobotsCache {
    /// Judges a URL by its server's rules.
    ///
    /// # Errors
    /// `web_robots_denied`, and as [`Fetcher::page`] when the server cannot be reached.
    async fn admit(
        &self,
        fetcher: &Fetcher,
        reach: &FetchReach,
        url: &Url,
    ) -> Result<(), ToolError> {
        let server = url.origin().ascii_serialization();
        let rules = match self.rules.get(&server) {
            Some(rules) => rules,
            None => {
                let rules = rules_of(fetcher, reach, url).await?;
                self.rules.insert(server, rules.clone());
                rules
            }
        };
        if rules.is_empty() {
            return Ok(());
        }
        let permit = self.matching.clone().acquire_owned().await.ok();
        let asked = url.to_string();
        let judged = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            DefaultMatcher::default().one_agent_allowed_by_robots(&rules, PRODUCT, &asked)
        });
        match judged.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(denied(format!("robots.txt of the server excludes {url}"))),
            Err(panic) => Err(ToolError::internal(format!("robots.txt: {panic}"))),
        }
    }
}

/// Rules of a server: none where there is no such file.
async fn rules_of(fetcher: &Fetcher, reach: &FetchReach, url: &Url) -> Result<Arc<str>, ToolError> {
    let at = url.join("/robots.txt").map_err(|error| ToolError::internal(error.to_string()))?;
    let mut response = fetcher.unruled(reach, at, MAX_ROBOTS_REDIRECTS).await?;
    let status = response.status();
    if status.is_server_error() || status.as_u16() == 429 {
        // The RFC takes this for "everything is excluded". It is not remembered.
        return Err(
            denied(format!("robots.txt of the server was answered with {status}")).retryable()
        );
    }
    if !status.is_success() {
        return Ok(Arc::default());
    }
    let mut file = Vec::new();
    while file.len() < MAX_ROBOTS_BYTES {
        match response.chunk().await.map_err(|error| client::failure(&error))? {
            Some(chunk) => file.extend_from_slice(&chunk),
            None => break,
        }
    }
    file.truncate(MAX_ROBOTS_BYTES);
    Ok(String::from_utf8_lossy(&file).into())
}

fn denied(message: String) -> ToolError {
    ToolError::new(Layer::Policy, codes::WEB_ROBOTS_DENIED, message).next("use another source")
}
