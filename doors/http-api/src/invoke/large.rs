//! Claim check of the published contract: a result too large for its answer is a success that is truncated,
//! with a preview and where the whole is.

use axum::response::Response;
use hivekeep_artifact::artifact_id;
use hivekeep_door_server::codes;
use hivekeep_kernel::{Layer, ToolError};
use serde_json::{Value, json};

use super::{
    InvokeBody,
    answer::{Beside, CallNote, text, written},
};
use crate::{
    artifacts::download_path,
    published::{
        ResultArtifact, ResultRedaction, ToolEventKind, ToolEventPayload, ToolInvokeResponse,
        ToolReason, ToolResultPayload,
    },
};

/// The dispatcher's account of a result that it has kept, from the details of its refusal.
pub(super) struct LargeAnswer {
    /// Text that says what was done, and how to read the rest.
    told: String,
    preview: String,
    uri: String,
    resource_uri: String,
    mime_type: String,
    bytes: u64,
    sha256: String,
    expires_at: Value,
}

impl LargeAnswer {
    /// `None` for any other refusal, also for a result that could not be kept.
    pub(super) fn of(error: &ToolError) -> Option<Self> {
        if error.layer != Layer::Result || !error.is(codes::RESULT_TOO_LARGE) {
            return None;
        }
        let kept = error.details.get("artifact")?;
        let text = |name: &str| kept[name].as_str().map(str::to_owned);
        let resource_uri = text("uri")?;
        Some(Self {
            told: error.to_text(),
            preview: error.details.get("preview")?.as_str()?.to_owned(),
            uri: download_path(artifact_id(&resource_uri).ok()?),
            resource_uri,
            mime_type: text("mime_type")?,
            bytes: kept["bytes"].as_u64()?,
            sha256: text("sha256")?,
            expires_at: kept["expires_at"].clone(),
        })
    }

    pub(super) fn answer(self, note: CallNote, beside: Beside, body: &InvokeBody) -> Response {
        let tool_id = note.common.tool_id.clone();
        let size = usize::try_from(self.bytes).unwrap_or(usize::MAX);
        let (content, mut metadata) = beside.with(vec![text(self.told)], body);
        metadata.insert("truncated_from_bytes".to_owned(), json!(self.bytes));
        metadata.insert("artifact_resource_uri".to_owned(), json!(self.resource_uri));
        metadata.insert("artifact_expires_at".to_owned(), self.expires_at);
        let completed = ToolEventPayload {
            result_bytes: Some(size),
            result_digest: Some(format!("sha256:{}", self.sha256)),
            truncated: true,
            ..note.ended(ToolEventKind::CallCompleted)
        };
        let cut = ToolEventPayload { kind: ToolEventKind::ResultTruncated, ..completed.clone() };
        let duration_ms = note.duration_ms;
        written(&ToolInvokeResponse {
            result: ToolResultPayload {
                content,
                structured: None,
                preview: Some(self.preview),
                artifacts: vec![ResultArtifact {
                    uri: self.uri,
                    name: Some(format!("{tool_id}.json")),
                    mime_type: Some(self.mime_type),
                    bytes: Some(self.bytes),
                }],
                metadata,
                redactions: vec![ResultRedaction {
                    path: "$".to_owned(),
                    reason: ToolReason::ResultBudgetExceeded,
                    bytes: Some(self.bytes),
                }],
                truncated: true,
                bytes: size,
                duration_ms,
            },
            tool_id,
            status: "completed",
            truncated: true,
            duration_ms,
            events: vec![note.common, completed, cut],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_result_that_is_kept_is_a_success() {
        let artifact = json!({
            "uri": "hivekeep://artifacts/art_0192f0c1a2b37c4d8e5f60718293a4b5", "bytes": 9,
            "mime_type": "application/json", "sha256": "00", "expires_at": "2026-01-01T00:00:00Z",
        });
        let error =
            |layer| ToolError::new(layer, codes::RESULT_TOO_LARGE, "x").detail("preview", "{");
        let kept = LargeAnswer::of(&error(Layer::Result).detail("artifact", artifact.clone()));
        let kept = kept.expect("it is kept");
        assert_eq!(kept.uri, "/api/artifacts/art_0192f0c1a2b37c4d8e5f60718293a4b5");
        let lost = error(Layer::Result).detail("not_kept", json!({ "code": "artifacts_full" }));
        assert!(LargeAnswer::of(&lost).is_none());
        // A tool's own error of this code is a failure.
        assert!(LargeAnswer::of(&error(Layer::Actor).detail("artifact", artifact)).is_none());
    }
}
