//! Target of writes: a server of 1.x or 2.x, over HTTP.

use std::{error::Error, path::Path, path::PathBuf, sync::Arc, time::Duration};

use hivekeep_kernel::ToolError;
use reqwest::{Client, RequestBuilder, StatusCode, redirect::Policy};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};
use url::Url;

use crate::InfluxOptions;

/// Bytes of an answer that are read, to say why something was refused.
const MOST_ANSWER: usize = 4 * 1024;

/// A write that did not happen.
#[derive(Debug)]
pub(crate) enum WriteFailure {
    /// The server will not take it, however often it is sent.
    Refused(String),
    /// It may take it later.
    Away(String),
}

#[derive(Debug)]
enum Credential {
    None,
    Token(PathBuf),
    Password { user: String, file: PathBuf },
}

/// Server, and how to write to it.
#[derive(Debug)]
pub(crate) struct InfluxTarget {
    pub(super) measurement: String,
    pub(super) batch_points: usize,
    client: Client,
    url: Url,
    credential: Credential,
}

impl InfluxTarget {
    /// The target of the options, if they name one. They were checked.
    ///
    /// # Errors
    /// When the certificates cannot be used.
    pub(crate) async fn of(options: &InfluxOptions) -> Result<Option<Self>, ToolError> {
        let Some(base) = &options.url else { return Ok(None) };
        let wrong = |why: String| ToolError::internal(format!("metrics.influx: {why}"));
        let ca_file = options.ca_file.clone();
        let tls = tokio::task::spawn_blocking(move || tls(ca_file.as_deref())).await;
        let tls = tls.map_err(|error| wrong(error.to_string()))?.map_err(wrong)?;
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(Policy::none())
            .no_proxy()
            .timeout(Duration::from_secs(options.timeout_secs))
            .build()
            .map_err(|error| wrong(chain(&error)))?;
        let credential = match (&options.token_file, &options.user, &options.password_file) {
            (Some(file), ..) => Credential::Token(file.clone()),
            (None, Some(user), Some(file)) => {
                Credential::Password { user: user.clone(), file: file.clone() }
            }
            _ => Credential::None,
        };
        let mut url = Url::parse(base).map_err(|error| wrong(error.to_string()))?;
        let root = url.path().trim_end_matches('/').to_owned();
        match (&options.database, &options.org, &options.bucket) {
            (Some(database), ..) => {
                url.set_path(&format!("{root}/write"));
                url.query_pairs_mut().append_pair("db", database);
            }
            (None, Some(org), Some(bucket)) => {
                url.set_path(&format!("{root}/api/v2/write"));
                url.query_pairs_mut().append_pair("org", org).append_pair("bucket", bucket);
            }
            _ => return Err(wrong("it needs a database, or an org and a bucket".to_owned())),
        }
        url.query_pairs_mut().append_pair("precision", "ns");
        let (measurement, batch_points) = (options.measurement.clone(), options.batch_points);
        Ok(Some(Self { measurement, batch_points, client, url, credential }))
    }

    /// Writes lines, once.
    pub(super) async fn write(&self, lines: &str) -> Result<(), WriteFailure> {
        let request = self.client.post(self.url.clone()).body(lines.to_owned());
        let request = self.authorized(request).await.map_err(WriteFailure::Away)?;
        let away = |error: reqwest::Error| WriteFailure::Away(chain(&error.without_url()));
        let mut answer = request.send().await.map_err(away)?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let mut text = Vec::new();
        while text.len() < MOST_ANSWER
            && let Ok(Some(part)) = answer.chunk().await
        {
            text.extend_from_slice(&part[..part.len().min(MOST_ANSWER - text.len())]);
        }
        let why = format!("{status}: {:.300}", String::from_utf8_lossy(&text).trim());
        Err(match status {
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNPROCESSABLE_ENTITY => WriteFailure::Refused(why),
            _ => WriteFailure::Away(why),
        })
    }

    async fn authorized(&self, request: RequestBuilder) -> Result<RequestBuilder, String> {
        let read = async |file: &Path| {
            let text = tokio::fs::read_to_string(file).await;
            let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
            Ok::<_, String>(text.trim().to_owned())
        };
        Ok(match &self.credential {
            Credential::None => request,
            Credential::Token(file) => {
                request.header("authorization", format!("Token {}", read(file).await?))
            }
            Credential::Password { user, file } => {
                request.basic_auth(user, Some(read(file).await?))
            }
        })
    }
}

fn tls(ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        let wrong = |why: String| format!("`ca_file`: {why}");
        let read =
            CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        for certificate in read.map_err(|error| wrong(error.to_string()))? {
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
    }
    let provider = Arc::new(ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|error| format!("TLS: {error}"))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// An error with its causes.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
