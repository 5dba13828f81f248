//! HTTP clients: HTTP/1.1 over ring's TLS, without cookies, without redirects of their own, and without
//! what the environment says of proxies.

use std::{sync::Arc, time::Duration};

use hivekeep_kernel::{ErrorCode, Layer, ToolError};
use hivekeep_runtime::http::{self, CertificateDer};
use reqwest::{Client, ClientBuilder, Proxy, Response, dns::Resolve, redirect::Policy};
use tokio_rustls::rustls;

use crate::{
    Options, codes,
    egress::{CheckedResolver, EgressPolicy, NoAllowedAddress, address_refused, cause},
};

/// Time for a connection with its handshake.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Time that a connection is kept for the next request.
const IDLE_LIMIT: Duration = Duration::from_secs(10);
/// Most header fields of an answer.
const MAX_HEADERS: usize = 200;

/// Client for pages: connects to what the policy allows.
pub(crate) fn for_pages(
    options: &Options,
    policy: Arc<EgressPolicy>,
    resolver: Arc<dyn Resolve>,
) -> Result<Client, ToolError> {
    // With a proxy it is the proxy's name that is resolved; the proxy judges the others.
    let checked: Arc<dyn Resolve> = match options.proxy {
        Some(_) => resolver,
        None => Arc::new(CheckedResolver { inner: resolver, policy }),
    };
    build(options, checked)
}

/// Client for the providers of searches, which the operator named: they may be anywhere.
pub(crate) fn for_providers(
    options: &Options,
    resolver: Arc<dyn Resolve>,
) -> Result<Client, ToolError> {
    build(options, resolver)
}

fn build(options: &Options, resolver: Arc<dyn Resolve>) -> Result<Client, ToolError> {
    let wrong = |error: reqwest::Error| {
        ToolError::internal(format!("the HTTP client: {}", innermost(&error.without_url())))
    };
    let tls = http::trusting(authorities(options)?).map_err(|why| ca_file_refused(&why))?;
    let mut builder: ClientBuilder = Client::builder()
        .tls_backend_preconfigured(tls)
        .dns_resolver(resolver)
        .redirect(Policy::none())
        .no_proxy()
        .http1_only()
        .http1_max_headers(MAX_HEADERS)
        .connect_timeout(CONNECT_LIMIT)
        .pool_idle_timeout(IDLE_LIMIT)
        .pool_max_idle_per_host(2)
        .user_agent(options.user_agent());
    if let Some(proxy) = &options.proxy {
        builder = builder.proxy(Proxy::all(proxy).map_err(wrong)?);
    }
    builder.build().map_err(wrong)
}

/// Certificates of `web.ca_file`.
///
/// # Errors
/// `web_ca_file_refused`.
pub(crate) fn authorities(options: &Options) -> Result<Vec<CertificateDer<'static>>, ToolError> {
    let Some(path) = &options.ca_file else { return Ok(Vec::new()) };
    http::authorities(path).map_err(|why| ca_file_refused(&why))
}

fn ca_file_refused(why: &str) -> ToolError {
    ToolError::new(Layer::Actor, codes::WEB_CA_FILE_REFUSED, format!("`web.ca_file`: {why}"))
        .next("give a readable file with certificates in PEM, or unset the key")
}

/// Reads a body up to a limit, which holds for what it decompresses to.
///
/// # Errors
/// `web_too_large`, and as [`failure`].
pub(crate) async fn read(mut response: Response, most: usize) -> Result<Vec<u8>, ToolError> {
    let too_large = || {
        let message = format!("the answer is larger than {most} bytes");
        ToolError::new(Layer::Result, codes::WEB_TOO_LARGE, message)
            .detail("limit_bytes", most)
            .next("use a smaller source, or ask the operator for `web.max_body_mb`")
    };
    let announced = response.content_length().and_then(|length| usize::try_from(length).ok());
    if announced.is_some_and(|length| length > most) {
        return Err(too_large());
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failure(&error))? {
        if body.len() + chunk.len() > most {
            return Err(too_large());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// A request's failure by its cause, without its URL and headers.
pub(crate) fn failure(error: &reqwest::Error) -> ToolError {
    if let Some(NoAllowedAddress(host)) = cause::<NoAllowedAddress>(error) {
        return address_refused(host);
    }
    let of = |code: &ErrorCode, what: &str| {
        ToolError::new(Layer::Actor, code, format!("{what}: {}", innermost(error)))
    };
    if cause::<rustls::Error>(error).is_some() {
        return of(codes::WEB_TLS_FAILED, "TLS failed")
            .next("check the name in the URL; a private authority needs `web.ca_file`");
    }
    if error.is_timeout() {
        return of(codes::WEB_TIMED_OUT, "the connection took too long").retryable();
    }
    of(codes::WEB_UNREACHABLE, "the request failed").retryable()
}

/// The innermost cause, which says most.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
