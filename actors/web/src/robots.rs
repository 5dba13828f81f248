//! Robots exclusion (RFC 9309): a cache of servers' rules.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{Layer, ToolError};
use moka::sync::Cache;
use robotstxt::DefaultMatcher;
use tokio::sync::Semaphore;
use url::Url;

use crate::{client, codes, fetch::Fetcher, reach::FetchReach};

/// Name that rules call this program by.
const PRODUCT: &str = "hivekeep";
/// Size of a file that the RFC wants to be read; what is beyond it is not looked at.
const MAX_FILE_BYTES: usize = 500 * 1024;
/// Redirects that the RFC wants to be followed.
const MAX_REDIRECTS: usize = 5;
/// Time that rules are kept; the RFC allows a day.
const KEPT: Duration = Duration::from_secs(3600);
/// Size of all rules that are kept.
const MAX_CACHE_BYTES: u64 = 16 * 1024 * 1024;
/// Files that are matched at a time; a hostile one takes a while.
const MOST_MATCHED: usize = 2;

/// Rules of servers, by scheme, host and port.
pub(crate) struct RobotsCache {
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
            .max_capacity(MAX_CACHE_BYTES)
            .time_to_live(KEPT)
            .build();
        Self { rules, matching: Arc::new(Semaphore::new(MOST_MATCHED)) }
    }
}

impl RobotsCache {
    /// Judges a URL by its server's rules.
    ///
    /// # Errors
    /// `web_robots_denied`, and as [`Fetcher::page`] when the server cannot be reached.
    pub(crate) async fn admit(
        &self,
        fetcher: &Fetcher,
        reach: &FetchReach,
        url: &Url,
    ) -> Result<(), ToolError> {
        let server = url.origin().ascii_serialization();
        let rules = match self.rules.get(&server) {
            Some(rules) => rules,
            None => {
                let rules = fetch(fetcher, reach, url).await?;
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
async fn fetch(fetcher: &Fetcher, reach: &FetchReach, url: &Url) -> Result<Arc<str>, ToolError> {
    let at = url.join("/robots.txt").map_err(|error| ToolError::internal(error.to_string()))?;
    let mut response = fetcher.unruled(reach, at, MAX_REDIRECTS).await?;
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
    while file.len() < MAX_FILE_BYTES {
        match response.chunk().await.map_err(|error| client::failure(&error))? {
            Some(chunk) => file.extend_from_slice(&chunk),
            None => break,
        }
    }
    file.truncate(MAX_FILE_BYTES);
    Ok(String::from_utf8_lossy(&file).into())
}

fn denied(message: String) -> ToolError {
    ToolError::new(Layer::Policy, codes::WEB_ROBOTS_DENIED, message).next("use another source")
}
