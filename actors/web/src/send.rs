//! Requests of the daemon to addresses that others wrote down, by the filter that fetches pass.

use async_trait::async_trait;
use hivekeep_kernel::{Layer, ToolError};
use hivekeep_ports::{OutboundAnswer, OutboundRequest, OutboundRequests};
use reqwest::{
    Method,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use url::Url;

use crate::{client, codes, egress::FetchReach, tools::Web};

/// Header fields that are the client's.
const OWN_FIELDS: [&str; 5] =
    ["host", "content-length", "transfer-encoding", "connection", "idempotency-key"];

#[async_trait]
impl OutboundRequests for Web {
    async fn send(&self, request: OutboundRequest) -> Result<OutboundAnswer, ToolError> {
        let refused = |why: String| ToolError::new(Layer::Actor, codes::WEB_URL_REFUSED, why);
        let url = Url::parse(&request.url)
            .map_err(|_| refused("it is not a valid URL".to_owned()).next("mend the address"))?;
        let fetcher = &self.pages.fetcher;
        fetcher.admit(&FetchReach::default(), &url)?;
        let method = Method::from_bytes(request.method.as_bytes());
        let method = method.map_err(|_| refused("it is not a valid method".to_owned()))?;
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in &request.headers {
            let field = (HeaderName::try_from(name), HeaderValue::from_str(value));
            match field {
                (Ok(field), Ok(value)) if !OWN_FIELDS.contains(&field.as_str()) => {
                    headers.insert(field, value);
                }
                _ => {
                    let why = format!("the header field `{name:.80}` cannot be sent");
                    return Err(refused(why).next("mend it, or leave it out"));
                }
            }
        }
        let mut asked = fetcher.client.request(method.clone(), url.clone()).headers(headers);
        asked = asked.header("idempotency-key", &request.key).timeout(request.timeout);
        if method != Method::GET {
            asked = asked.body(request.body);
        }
        let mut response = asked.send().await.map_err(|error| client::failure(&error))?;
        fetcher.check_peer(&response, &url)?;
        let (status, mut body) = (response.status(), Vec::new());
        let field = |(name, value): (&HeaderName, &HeaderValue)| {
            Some((name.to_string(), value.to_str().ok()?.to_owned()))
        };
        let headers = response.headers().iter().filter_map(field).collect();
        while body.len() < request.most_bytes {
            match response.chunk().await.map_err(|error| client::failure(&error))? {
                Some(chunk) => body.extend_from_slice(&chunk),
                None => break,
            }
        }
        body.truncate(request.most_bytes);
        let body = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() {
            return Ok(OutboundAnswer { status: status.as_u16(), headers, body });
        }
        let told = ToolError::new(
            Layer::Result,
            codes::WEB_STATUS_FAILED,
            format!("the server answered with {status}"),
        )
        .detail("status", status.as_u16())
        .next("look at the server, or mend the request");
        let passes = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429);
        Err(if passes { told.retryable() } else { told })
    }
}
