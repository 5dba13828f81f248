//! A port for documents: what MCP calls resources, listed, read and subscribed to by URI.
//!
//! Listing and reading are calls of the family's own tool, made in the client's session, so that
//! what holds for the tool holds for them: toolset, policy, rates, redaction, audit. The family says
//! what to call it with, and reads the answer.

use async_trait::async_trait;
use hivekeep_kernel::ToolError;
use serde_json::{Map, Value};
use tokio::sync::broadcast;

/// One document in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// In its standard form.
    pub uri: String,
    /// For people.
    pub name: String,
    /// Such as `text/markdown`.
    pub mime_type: &'static str,
    /// In bytes.
    pub size: u64,
}

/// A part of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// In the order of the list.
    pub documents: Vec<Document>,
    /// What [`Documents::list_args`] goes on after; `None` at the end.
    pub next: Option<String>,
}

/// How URIs are made (RFC 6570), for clients that make their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    /// Such as `vault:///{+path}`.
    pub uri: &'static str,
    /// What one is called.
    pub name: &'static str,
    /// What they are called, for people.
    pub title: &'static str,
    /// For people and models.
    pub description: &'static str,
    /// Such as `text/markdown`.
    pub mime_type: &'static str,
}

/// Tells one state of a document from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(pub [i64; 4]);

/// The state of one document.
pub type StampResult = Result<Option<Stamp>, ToolError>;

/// The family has changed a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Which, in its standard form.
    pub uri: String,
    /// It came or went, so that a list is another one.
    pub listed: bool,
}

/// Why a document is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is none of this URI.
    Missing,
    /// The URI, or what it names, is not one of a document.
    Invalid,
    /// Anything else.
    Failed,
}

/// The documents of a family.
#[async_trait]
pub trait Documents: Send + Sync {
    /// The tool that lists and reads them. Who is not shown it is offered none of them.
    fn tool(&self) -> &'static str;

    /// Whether there are any, by configuration.
    fn enabled(&self) -> bool;

    /// How URIs are made. What stands before its first variable begins every URI.
    fn template(&self) -> Template;

    /// The tool's arguments for at most so many documents, in a stable order.
    fn list_args(&self, after: Option<&str>, limit: usize) -> Map<String, Value>;

    /// What the tool answered to [`Self::list_args`].
    ///
    /// # Errors
    /// `internal`, for an answer of another shape.
    fn listed(&self, answer: Value) -> Result<Page, ToolError>;

    /// The tool's arguments that read one.
    ///
    /// # Errors
    /// When it is not the URI of a document, there or not.
    fn read_args(&self, uri: &str) -> Result<Map<String, Value>, ToolError>;

    /// What the tool answered to [`Self::read_args`]: the document's text.
    ///
    /// # Errors
    /// `internal`, for an answer of another shape.
    fn text(&self, answer: Value) -> Result<String, ToolError>;

    /// What an error of [`Self::read_args`] or of its call says of the document.
    fn refusal(&self, error: &ToolError) -> Refusal;

    /// What the family changes from now on. Changes by other programs need not be among it.
    fn changes(&self) -> broadcast::Receiver<Changed>;

    /// The present state of each of these documents, whoever made it: `None` for one that is not
    /// there, an error for one that cannot be looked at.
    ///
    /// # Errors
    /// As [`Self::read_args`] for the first bad URI; or the family's own when nothing can be looked at.
    async fn stamps(&self, uris: Vec<String>) -> Result<Vec<StampResult>, ToolError>;
}
