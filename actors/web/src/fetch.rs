//! Page fetcher: follows redirects by hand, so that each hop passes the policy and robots.txt.

use std::sync::Arc;

use hivekeep_kernel::{Layer, ToolError};
use reqwest::{
    Client, Response, StatusCode,
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, LOCATION},
};
use url::Url;

use crate::{
    client, codes,
    policy::{EgressPolicy, address_refused},
    reach::FetchReach,
    robots::RobotsCache,
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
    client: Client,
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
    pub(crate) async fn unruled(
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

    fn admit(&self, reach: &FetchReach, url: &Url) -> Result<(), ToolError> {
        self.policy.admit(url)?;
        reach.admit(url)
    }

    async fn get(&self, reach: &FetchReach, url: &Url) -> Result<Response, ToolError> {
        self.admit(reach, url)?;
        let request = self.client.get(url.clone()).header(ACCEPT, READABLE);
        let response = request.send().await.map_err(|error| client::failure(&error))?;
        // The resolver handed on allowed addresses only; this holds should that ever fail.
        let peer = response.remote_addr().filter(|_| !self.proxied);
        let host = url.host_str().unwrap_or_default();
        match peer.filter(|peer| !self.policy.allows(host, peer.ip())) {
            Some(_) => Err(address_refused(host)),
            None => Ok(response),
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
