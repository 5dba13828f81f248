//! Target of writes: a server of 1.x or 2.x, over HTTP.

use std::{error::Error, path::PathBuf, time::Duration};

use hivekeep_kernel::ToolError;
use hivekeep_runtime::{http::client_builder, read_secret};
use reqwest::{Client, RequestBuilder, StatusCode};
use url::Url;

use crate::InfluxOptions;

/// Bytes of an answer that are read, to say why something was refused.
const MOST_ANSWER: usize = 4 * 1024;

/// A write that did not happen.
#[derive(Debug)]
pub(crate) enum WriteFailure {
    /// The server will not take it, however often it is sent.
    Refused(String),
    /// The server may take the write later.
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
        let client = client_builder(options.ca_file.as_deref())
            .await
            .map_err(wrong)?
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
        Ok(match &self.credential {
            Credential::None => request,
            Credential::Token(file) => {
                request.header("authorization", format!("Token {}", read_secret(file).await?))
            }
            Credential::Password { user, file } => {
                request.basic_auth(user, Some(read_secret(file).await?))
            }
        })
    }
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
