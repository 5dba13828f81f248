//! Client of InfluxDB 3's SQL endpoint, at the operator's addresses alone.

use std::time::Duration;

use hivekeep_kernel::{Layer, ToolError};
use hivekeep_runtime::http;
use reqwest::{
    Client,
    header::{CONTENT_TYPE, HeaderValue},
};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use crate::{StatusOptions, codes, transport};

/// Time of a query.
const QUERY_LIMIT: Duration = Duration::from_secs(10);
/// Largest answer.
const ANSWER_BYTES: usize = 1024 * 1024;
/// Most characters of a server's own text.
const TOLD_CHARS: usize = 200;

/// Rows of a query.
pub(crate) type Rows = Vec<Map<String, Value>>;

/// The databases that may be asked.
pub(crate) struct Influx {
    options: StatusOptions,
}

/// A database that was chosen, with its token.
pub(crate) struct InfluxDatabase {
    client: Client,
    url: String,
    name: String,
    token: Option<HeaderValue>,
}

impl Influx {
    pub(crate) fn new(options: StatusOptions) -> Self {
        Self { options }
    }

    /// A database at an address of the configuration.
    ///
    /// # Errors
    /// `ml_status_refused` for an address that is not configured.
    pub(crate) async fn database(
        &self,
        url: &str,
        name: &str,
    ) -> Result<InfluxDatabase, ToolError> {
        let plain = |url: &str| url.trim_end_matches('/').to_owned();
        let known: Vec<_> = self.options.influx_urls.iter().map(|url| plain(url)).collect();
        let url = plain(url);
        if !known.contains(&url) {
            let message = format!("`{url:.100}` is not one of `model.status.influx_urls`");
            return Err(ToolError::new(Layer::Actor, codes::ML_STATUS_REFUSED, message)
                .next("use one of those in `details.known`, or ask the operator to configure it")
                .detail("key", "model.status.influx_urls")
                .detail("known", known));
        }
        let failed = |why: String| ToolError::new(Layer::Actor, codes::ML_STATUS_FAILED, why);
        let key =
            transport::key(self.options.token_file.as_deref(), self.options.token_env.as_deref());
        let token = key.await.map_err(failed)?.map(|key| {
            let mut value = HeaderValue::try_from(format!("Bearer {}", key.expose()))?;
            value.set_sensitive(true);
            Ok::<_, reqwest::header::InvalidHeaderValue>(value)
        });
        let token = token.transpose().map_err(|_| failed("the token is not valid".to_owned()))?;
        let builder = http::client_builder(None).await.map_err(failed)?;
        let client = builder.build().map_err(|error| failed(error.to_string()))?;
        Ok(InfluxDatabase { client, url, name: name.to_owned(), token })
    }
}

impl InfluxDatabase {
    /// Rows of a query.
    ///
    /// # Errors
    /// The reason, for people.
    pub(crate) async fn query(&self, sql: &str) -> Result<Rows, String> {
        let asked = timeout(QUERY_LIMIT, self.ask(sql)).await;
        asked.unwrap_or_else(|_| Err(format!("no answer within {} s", QUERY_LIMIT.as_secs())))
    }

    async fn ask(&self, sql: &str) -> Result<Rows, String> {
        let body = json!({ "db": self.name, "q": sql }).to_string();
        let request = self.client.post(format!("{}/api/v3/query_sql", self.url));
        let mut request = request.header(CONTENT_TYPE, "application/json").body(body);
        if let Some(token) = &self.token {
            request = request.header("authorization", token.clone());
        }
        let sent = request.send().await;
        let mut response = sent.map_err(|error| transport::unreachable(&error).message)?;
        let status = response.status();
        let read = transport::read(&mut response, ANSWER_BYTES).await;
        let body = read.map_err(|failure| failure.message)?;
        if !status.is_success() {
            let said = String::from_utf8_lossy(&body);
            let said: String = said.chars().filter(|c| !c.is_control()).take(TOLD_CHARS).collect();
            return Err(format!("it answered with {}: {said}", status.as_u16()));
        }
        hivekeep_runtime::json_text::from_slice(&body)
            .map_err(|error| format!("its answer makes no sense: {error}"))
    }
}
