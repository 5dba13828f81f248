//! Document port: what MCP calls resources, listed, read and subscribed to by URI; and names of things that a
//! session has, which complete what its user types.
//!
//! What has no end of a list, as the files of a machine, is read by URI alone: a client makes the URI from
//! the template.
//!
//! Listing and reading are calls of the family's own tool, made in the client's session, so that
//! the rules of the tool apply to them: toolset, policy, rates, redaction, audit, and nobody is offered what
//! it may not see. The family makes the arguments and decodes the answer.

use async_trait::async_trait;
use hivekeep_kernel::ToolError;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::broadcast;

/// Decodes the answer of a family's own tool.
///
/// # Errors
/// `internal`: the tool answers otherwise than its family thinks.
pub fn decode<T: DeserializeOwned>(answer: Value) -> Result<T, ToolError> {
    serde_json::from_value(answer)
        .map_err(|error| ToolError::internal(format!("the answer of a family's own tool: {error}")))
}

/// Arguments of a tool, written as an object of JSON.
///
/// # Panics
/// With anything else.
pub fn arguments(args: Value) -> Map<String, Value> {
    match args {
        Value::Object(args) => args,
        _ => unreachable!("it is written as an object"),
    }
}

/// Document in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// URI in its standard form.
    pub uri: String,
    /// Name for people.
    pub name: String,
    /// MIME type, such as `text/markdown`.
    pub mime_type: &'static str,
    /// Size in bytes.
    pub size: u64,
}

/// Page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Documents in the order of the list.
    pub documents: Vec<Document>,
    /// Position to continue [`DocumentListing::list_args`] from; `None` at the end.
    pub next: Option<String>,
}

/// URI template (RFC 6570), for clients that make URIs themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    /// Template, such as `vault:///{+path}`.
    pub uri: &'static str,
    /// Name of one document.
    pub name: &'static str,
    /// Title for people.
    pub title: &'static str,
    /// Description for people and models.
    pub description: &'static str,
    /// MIME type, such as `text/markdown`.
    pub mime_type: &'static str,
    /// Its variables that name things, each with the kind of [`Names`] that
    /// completes it.
    pub variables: &'static [(&'static str, &'static str)],
}

impl Template {
    /// Text before the first variable: every URI of the template begins with it.
    pub fn prefix(&self) -> &'static str {
        self.uri.split('{').next().unwrap_or(self.uri)
    }
}

/// Version stamp that tells one state of a document from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp(pub [i64; 4]);

/// Stamp of one document.
pub type StampResult = Result<Option<Stamp>, ToolError>;

/// Notice that the family has changed a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// URI of the document, in its standard form.
    pub uri: String,
    /// True if the document was added or removed, so that lists change.
    pub listed: bool,
}

/// Contents of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentBody {
    /// A text, of the type that the template names.
    Text(String),
    /// Anything else, in base64.
    Binary {
        /// The bytes, in the standard alphabet with padding.
        base64: String,
        /// MIME type, such as `image/png`.
        mime_type: String,
    },
}

impl From<String> for DocumentBody {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Reason why a document is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// No document has this URI.
    Missing,
    /// The URI, or what it names, is not that of a document.
    Invalid,
    /// Any other failure.
    Failed,
}

/// Documents of a family.
pub trait Documents: Send + Sync {
    /// Name of the tool that reads them. Clients that are not shown the tool are offered no documents.
    fn tool(&self) -> &'static str;

    /// True if the configuration enables them.
    fn enabled(&self) -> bool;

    /// Template of the URIs.
    fn template(&self) -> Template;

    /// True for the URIs of the template, of documents that exist or not.
    fn has(&self, uri: &str) -> bool {
        uri.starts_with(self.template().prefix())
    }

    /// The list of them; `None` where they are only read.
    fn listing(&self) -> Option<&dyn DocumentListing> {
        None
    }

    /// Arguments with which the tool reads one document.
    ///
    /// # Errors
    /// Fails for a URI that cannot be one of a document, existing or not.
    fn read_args(&self, uri: &str) -> Result<Map<String, Value>, ToolError>;

    /// Decodes the tool's answer to [`Self::read_args`] of this URI: the document's contents.
    ///
    /// # Errors
    /// `internal`, for an answer of another shape; the family's own for a document that is not read
    /// whole.
    fn body(&self, uri: &str, answer: Value) -> Result<DocumentBody, ToolError>;

    /// Classifies an error of [`Self::read_args`] or of its call.
    fn refusal(&self, error: &ToolError) -> Refusal;
}

/// Documents that are listed, and whose changes clients hear of.
#[async_trait]
pub trait DocumentListing: Send + Sync {
    /// Name of the tool that lists them.
    fn list_tool(&self) -> &'static str;

    /// Arguments with which the tool lists at most `limit` documents after a position, in a stable
    /// order.
    fn list_args(&self, after: Option<&str>, limit: usize) -> Map<String, Value>;

    /// Decodes the tool's answer to [`Self::list_args`].
    ///
    /// # Errors
    /// `internal`, for an answer of another shape.
    fn listed(&self, answer: Value) -> Result<Page, ToolError>;

    /// Subscribes to the family's changes from now on. Changes by other programs may be missing.
    fn changes(&self) -> broadcast::Receiver<Changed>;

    /// Present stamps of these documents, whoever wrote them: `None` for a missing one, an error
    /// for one that cannot be inspected.
    ///
    /// # Errors
    /// Error of [`Documents::read_args`] for the first bad URI; or the family's own when nothing can be
    /// inspected.
    async fn stamps(&self, uris: Vec<String>) -> Result<Vec<StampResult>, ToolError>;
}

/// Names that a source lists at most, where its tool would list more.
pub const MOST_NAMES: usize = 1_000;

/// Names that a session can be offered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownNames {
    /// The names, in no order.
    pub names: Vec<String>,
    /// False if there are more than were listed.
    pub complete: bool,
}

/// Names of one kind of thing.
pub trait Names: Send + Sync {
    /// Kind, as prompts and templates name it: `workspace`.
    fn kind(&self) -> &'static str;

    /// Name of the tool that lists them.
    fn tool(&self) -> &'static str;

    /// Arguments with which the tool lists them.
    fn args(&self) -> Map<String, Value>;

    /// Decodes the tool's answer.
    ///
    /// # Errors
    /// `internal`, for an answer of another shape.
    fn known(&self, answer: Value) -> Result<KnownNames, ToolError>;
}
