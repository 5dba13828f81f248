//! Requests of steps over HTTP, made by the host behind the operator's filter.

use std::{collections::BTreeMap, time::Duration};

use hivekeep_kernel::{Layer, ToolError, view::ToolView};
use hivekeep_plan::resolve::value_text;
use hivekeep_ports::{OutboundAnswer, OutboundRequest, OutboundRequests};
use serde_json::{Map, Value, json};

use super::{RunFold, RunSaga, failure::failed, node_try::NodeTry, outputs::most_bytes};
use crate::codes;

/// Tool whose rules say from where the run's owner may have something fetched.
pub(super) const FETCHER: &str = "web.fetch";
/// Time limit where a step names none, and the longest.
const PATIENCE_SECS: u64 = 30;
const MOST_SECS: u64 = 3_600;
/// Settings that are not here, with what to do instead.
const NOT_HERE: [(&str, &str); 5] = [
    ("form", "send it by `curl` in `run`"),
    ("files", "send them by `curl` in `run`"),
    ("output", "take the step's `stdout` as a file"),
    ("skip_tls_verify", "have the operator trust the server's authority"),
    ("debug", "the run's events have the request"),
];
/// Methods that may be made again when it is not known what became of them.
const REPEATABLE: [&str; 5] = ["GET", "HEAD", "OPTIONS", "PUT", "DELETE"];

/// Request as a step describes it, with its references resolved.
pub(super) struct StepRequest {
    method: String,
    url: String,
    headers: BTreeMap<String, String>,
    body: String,
    pub(super) timeout: Duration,
}

impl StepRequest {
    /// Request of settings.
    ///
    /// # Errors
    /// `step_failed` for settings that are not here.
    pub(super) fn of(with: &Map<String, Value>, method: &str) -> Result<Self, ToolError> {
        let is_set = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
        for (name, instead) in NOT_HERE {
            if with.get(name).is_some_and(is_set) {
                return Err(failed(format!("`with.{name}` is not here: {instead}")));
            }
        }
        let text = |name: &str| with.get(name).map(value_text).unwrap_or_default();
        let texts = |name: &str| -> BTreeMap<String, String> {
            let map = with.get(name).and_then(Value::as_object).into_iter().flatten();
            map.map(|(name, value)| (name.clone(), value_text(value).into_owned())).collect()
        };
        let method = Some(text("method").trim().to_ascii_uppercase())
            .filter(|it| !it.is_empty())
            .unwrap_or_else(|| method.to_owned());
        let mut url = url::Url::parse(text("url").trim())
            .map_err(|error| failed(format!("`with.url` is not a URL: {error}")))?;
        let query = texts("query");
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let secs = match text("timeout").trim() {
            "" => PATIENCE_SECS,
            secs => secs.parse().map_err(|_| {
                failed(format!("`with.timeout` is a number of seconds: {secs:.80}"))
            })?,
        };
        Ok(Self {
            method,
            url: url.into(),
            headers: texts("headers"),
            body: text("body").into_owned(),
            timeout: Duration::from_secs(secs.clamp(1, MOST_SECS)),
        })
    }
}

impl RunSaga {
    /// Makes the request of a step, for the text that it leaves: the body, with status and header fields before it
    /// unless it is `silent`, or all of it as JSON.
    ///
    /// # Errors
    /// `step_failed` for settings that are not here, and where it may have been made before; those of the sender, also
    /// for an answer that is no success.
    pub(super) async fn request(
        &self,
        of: &NodeTry<'_>,
        with: &Map<String, Value>,
    ) -> Result<String, ToolError> {
        let request = StepRequest::of(with, "GET")?;
        if of.resumed && !REPEATABLE.contains(&request.method.as_str()) {
            return Err(failed(format!(
                "the daemon ended during its {} request, and whether that took effect is not known",
                request.method
            )));
        }
        let cancel = self.cancel_of(of.state, of.key);
        let sent = cancel.run_until_cancelled(self.send(of.state, of_key(of), &request)).await;
        let OutboundAnswer { status, headers, body } = sent.ok_or_else(ToolError::cancelled)??;
        let is = |name: &str| with.get(name).is_some_and(|value| value_text(value) == "true");
        let as_json = is("json") || with.get("format").is_some_and(|format| format == "json");
        Ok(match (as_json, is("silent")) {
            (false, true) => body,
            (false, false) => {
                let fields = headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
                format!("{status}\n{}\n{body}", fields.collect::<String>())
            }
            (true, silent) => {
                let body: Value = serde_json::from_str(&body).unwrap_or(Value::String(body));
                match silent {
                    true => json!({ "body": body }),
                    false => json!({ "status_code": status, "headers": headers, "body": body }),
                }
                .to_string()
            }
        })
    }

    /// Sends a request as the run's owner.
    ///
    /// # Errors
    /// `step_failed` where nothing is sent for the owner; those of the sender.
    pub(super) async fn send(
        &self,
        state: &RunFold,
        key: String,
        request: &StepRequest,
    ) -> Result<OutboundAnswer, ToolError> {
        let daemon = &self.shared.daemon;
        let (session, asked) = (Self::session(state)?, json!({ "url": request.url }));
        let known = self.shared.children.tools(session)?;
        let may = known.iter().any(|tool| tool.declared == FETCHER)
            && daemon.tools.allows(session, &ToolView::default(), FETCHER, &asked);
        let sender =
            daemon.ports.find::<dyn OutboundRequests>().filter(|_| may).ok_or_else(|| {
                let message = format!("`{FETCHER}` may not fetch from there for the run's owner");
                ToolError::new(Layer::Policy, codes::STEP_FAILED, message)
                    .next("have somebody run it who may, or have the operator allow it under `web`")
            })?;
        let request = OutboundRequest {
            method: request.method.clone(),
            url: request.url.clone(),
            headers: request.headers.clone(),
            key,
            body: request.body.clone(),
            timeout: request.timeout,
            most_bytes: most_bytes(state),
        };
        sender.send(request).await
    }
}

/// Key of what a try sends.
pub(super) fn of_key(of: &NodeTry<'_>) -> String {
    format!("{}-{}", of.state.begun.id, of.name)
}

/// Status of an answer, also of one that is no success; none where nothing answered this time.
///
/// # Errors
/// Those of a request that is refused.
pub(super) fn status_of(sent: Result<OutboundAnswer, ToolError>) -> Result<Option<u16>, ToolError> {
    match sent {
        Ok(answer) => Ok(Some(answer.status)),
        Err(error) => {
            let status = error.details.get("status").and_then(Value::as_u64);
            match status.and_then(|status| u16::try_from(status).ok()) {
                Some(status) => Ok(Some(status)),
                None if error.retryable => Ok(None),
                None => Err(error),
            }
        }
    }
}
