//! Webhooks: requests of strangers, each with a bearer that begins runs of one DAG and opens nothing else.
//!
//! ```text
//! bearer ─▶ place of the bearer's share ─▶ body, bounded ─▶ run, durable ─▶ 202
//!    └ 401            └ 429                    └ 413          └ 404, 409, 422, 429
//! ```

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Extension, Json,
    body::Bytes,
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    middleware::Next,
    response::Response,
};
use hivekeep_door_server::{
    DaemonServices, codes,
    credentials::CredentialRow,
    http::{body::BodyGate, caller, server},
};
use hivekeep_kernel::{Layer, RunId, ToolError};
use hivekeep_ports::{WebhookRefusal, WebhookRequest, WebhookTarget, Webhooks};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    error::ApiError,
    extract::PathOf,
    idempotency,
    published::{AnyErrorBody, ToolErrorBody, ToolReason},
    state::Api,
};

/// Beginning of the paths of webhooks.
pub(super) const PATH: &str = "/api/webhooks/";
/// Longest body. It becomes a variable of commands, of which the kernel takes at most 128 KiB.
const MAX_BODY_BYTES: usize = 100 * 1024;
/// Time after which somebody who was refused for want of a place asks again.
const SOON: Duration = Duration::from_secs(1);

/// Bounds of the bodies of webhooks.
pub(super) fn bodies(core: &DaemonServices) -> BodyGate {
    BodyGate { max_bytes: MAX_BODY_BYTES, ..BodyGate::new(core, 1) }
}

/// Lets a request in whose bearer is of a webhook, before its body is read.
pub(super) async fn admit(
    api: &Api,
    mut request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let shown = caller::bearer_of(request.headers());
    let hook = shown.and_then(|bearer| api.core.credentials.find_webhook(bearer));
    let hook = hook.ok_or(ApiError::Unauthorized { given: shown.is_some() })?;
    let user = hook.0.user();
    let busy = |why: String| ApiError::plain(StatusCode::TOO_MANY_REQUESTS, why);
    let place = api.requests.take(user).map_err(|full| busy(full.to_string()))?;
    request.extensions_mut().insert(hook);
    let weighed = api.webhook_bodies.weigh(user, request).await;
    let request = weighed.map_err(|refused| match refused.status {
        StatusCode::SERVICE_UNAVAILABLE => busy(refused.why),
        status => ApiError::plain(status, refused.why),
    })?;
    Ok(server::hold_place(place, next.run(request).await))
}

/// Run that a request began.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct WebhookAccepted {
    /// Id of the run, which is durable.
    run_id: String,
    /// Name of its DAG.
    name: String,
}

/// Begin a run of a DAG by a webhook.
///
/// The bearer is one that `hivekeep credential create NAME --webhook DAG` makes. The body is the run's
/// `WEBHOOK_PAYLOAD`: the member `payload` of an object, else the whole of it. With `Idempotency-Key` the same request
/// begins one run however often it is made, for as long as that is kept.
#[utoipa::path(
    post, path = "/api/webhooks/{dag}", tag = "hivekeep", operation_id = "beginByWebhook",
    params(
        ("dag" = String, Path, description = "Name of the DAG."),
        ("Idempotency-Key" = Option<String>, Header, description = "Key of the request."),
    ),
    request_body(content = String, description = "JSON or text of at most 100 KiB.", content_type = "application/json"),
    responses(
        (status = 202, description = "The run is begun.", body = WebhookAccepted),
        (status = 400, description = "The request is not valid.", body = ToolErrorBody),
        (status = 404, description = "The bearer is of another DAG, or its file is gone.", body = AnyErrorBody),
        (status = 409, description = "The key was used for another body.", body = ToolErrorBody),
        (status = 422, description = "The DAG cannot be run as it is written.", body = ToolErrorBody),
        (status = 429, description = "As much goes on or waits as may; ask again behind `Retry-After`.", body = AnyErrorBody),
        (status = 500, description = "The daemon has a defect.", body = ToolErrorBody),
    ),
)]
pub(super) async fn begin(
    State(api): State<Arc<Api>>,
    Extension((row, target)): Extension<(CredentialRow, WebhookTarget)>,
    PathOf(dag): PathOf,
    headers: HeaderMap,
    body: Bytes,
) -> Result<(StatusCode, Json<WebhookAccepted>), ApiError> {
    let gone = || ApiError::not_there("webhook", &dag);
    let key = idempotency::key(&headers)?;
    let webhooks = api.core.ports.find::<dyn Webhooks>().filter(|_| target.dag == dag);
    let webhooks = webhooks.ok_or_else(gone)?;
    let body = String::from_utf8(body.into()).map_err(|_| {
        ApiError::invalid(ToolReason::SchemaInvalid, "the body is not text in UTF-8")
    })?;
    let mut fields = BTreeMap::<_, Vec<String>>::new();
    for (name, value) in &headers {
        let known = value.to_str().ok().map(str::to_owned);
        fields.entry(name.as_str().to_owned()).or_default().extend(known);
    }
    let request = WebhookRequest { hook: row.id, target, key, body, headers: fields };
    let begun = webhooks.begin(request).await;
    let run_id: RunId = begun.map_err(|refusal| match refusal {
        WebhookRefusal::NotThere => gone(),
        WebhookRefusal::KeyReused => ApiError::conflict(
            ToolError::new(
                Layer::Door,
                codes::IDEMPOTENCY_KEY_REUSED,
                "the key was used for another body",
            )
            .next("choose another key for each request"),
        ),
        WebhookRefusal::Invalid(error) => ApiError::with(StatusCode::UNPROCESSABLE_ENTITY, error),
        WebhookRefusal::Full(error) => {
            ApiError::with(StatusCode::TOO_MANY_REQUESTS, error.retry_after(SOON))
        }
        WebhookRefusal::Failed(error) => ApiError::from(error),
    })?;
    Ok((StatusCode::ACCEPTED, Json(WebhookAccepted { run_id: run_id.to_string(), name: dag })))
}
