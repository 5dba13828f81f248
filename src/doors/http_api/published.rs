//! The published vocabulary of the tool registry: names, fields and closed lists of values, as its clients
//! know them. Additions of this daemon are marked as such.
// The lists are whole: what this daemon has no cause for is in its schemas all the same.
#![allow(dead_code)]

mod decision;
mod descriptor;
mod error;
mod event;
mod reason;
mod result;

pub use decision::{PolicyResult, PublishedMode, ToolAvailability, ToolDecision, ToolVerdict};
pub use descriptor::{
    BackendKind, SourceKind, ToolBackend, ToolDescriptor, ToolRisk, ToolSource, ToolVisibility,
};
pub use error::{AnyErrorBody, PlainErrorBody, ToolErrorBody, ToolErrorCode, ToolErrorPayload};
pub use event::{ToolEventKind, ToolEventPayload};
pub use reason::ToolReason;
pub use result::{
    ResultArtifact, ResultContent, ResultRedaction, ToolInvokeResponse, ToolResultPayload,
};

use serde::Serialize;
use utoipa::ToSchema;

/// A tool: what it is, whether it can be called at all, and whether this caller may.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Tool)]
pub struct ToolPayload {
    pub descriptor: ToolDescriptor,
    pub availability: ToolAvailability,
    pub decision: ToolDecision,
}

/// Tools, by id or by how well they suit a query.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ToolList)]
pub struct ToolsBody {
    pub tools: Vec<ToolPayload>,
}

/// One tool.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ToolResponse)]
pub struct ToolBody {
    pub tool: ToolPayload,
}
