//! The prompts and resources that the suite asks for by fixed names, through the ports of the daemon.

use async_trait::async_trait;
use hivekeep_door_server::prompts::{PromptAttachment, PromptParameter, PromptTemplate};
use hivekeep_kernel::{ToolError, codes};
use hivekeep_runtime::documents::{
    Changed, Document, DocumentBody, DocumentListing, Documents, Page, Refusal, Stamp, StampResult,
    Template,
};
use serde_json::{Map, Value};
use tokio::sync::broadcast;

const fn argument(name: &'static str) -> PromptParameter {
    PromptParameter { name, description: "A text.", kind: None, otherwise: None }
}

/// The resource that is no text.
const BINARY: &str = "test://static-binary";
/// A PNG of one red pixel, in base64.
pub const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

/// The suite's prompts.
pub const PROMPTS: &[PromptTemplate] = &[
    PromptTemplate {
        name: "test_simple_prompt",
        title: "A text",
        description: "A prompt without arguments.",
        parameters: &[],
        tools: &[],
        attachments: &[],
        text: "This is a simple prompt for testing.",
    },
    PromptTemplate {
        name: "test_prompt_with_embedded_resource",
        title: "A resource and a text",
        description: "A prompt with a document.",
        parameters: &[argument("resourceUri")],
        tools: &[],
        attachments: &[PromptAttachment { before: "", parameter: Some("resourceUri") }],
        text: "Please process the embedded resource {{resourceUri}} above.",
    },
    PromptTemplate {
        name: "test_prompt_with_image",
        title: "An image and a text",
        description: "A prompt with an image.",
        parameters: &[],
        tools: &[],
        attachments: &[PromptAttachment { before: BINARY, parameter: None }],
        text: "Please analyze the image above.",
    },
    PromptTemplate {
        name: "test_input_required_result_prompt",
        title: "A text that needs something",
        description: "A prompt that asks for its context.",
        parameters: &[argument("context")],
        tools: &[],
        attachments: &[],
        text: "The context: {{context}}",
    },
    PromptTemplate {
        name: "test_prompt_with_arguments",
        title: "A text with places",
        description: "A prompt with two arguments.",
        parameters: &[argument("arg1"), argument("arg2")],
        tools: &[],
        attachments: &[],
        text: "Prompt with arguments: arg1='{{arg1}}', arg2='{{arg2}}'",
    },
];

/// The text of a resource, or its bytes in base64; `None` for one that is not there.
pub fn text(uri: &str) -> Option<String> {
    match uri {
        "test://static-text" => Some("This is the content of the static text resource.".to_owned()),
        "test://example-resource" => Some("Embedded resource content for testing.".to_owned()),
        BINARY => Some(PIXEL.to_owned()),
        "test://watched-resource" => Some("This is watched.".to_owned()),
        _ => {
            let id = uri.strip_prefix("test://template/")?.strip_suffix("/data")?;
            Some(format!(r#"{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}"#))
        }
    }
}

/// The suite's resources, read by a tool like any other.
pub struct TestResources(pub broadcast::Sender<Changed>);

impl Documents for TestResources {
    fn tool(&self) -> &'static str {
        "test_read_resource"
    }

    fn enabled(&self) -> bool {
        true
    }

    fn template(&self) -> Template {
        Template {
            uri: "test://{+path}",
            name: "test resource",
            title: "Resources of the suite",
            description: "A resource that the suite asks for",
            mime_type: "text/plain",
            variables: &[],
        }
    }

    fn listing(&self) -> Option<&dyn DocumentListing> {
        Some(self)
    }

    fn read_args(&self, uri: &str) -> Result<Map<String, Value>, ToolError> {
        Ok(Map::from_iter([("uri".to_owned(), uri.into())]))
    }

    fn body(&self, uri: &str, answer: Value) -> Result<DocumentBody, ToolError> {
        let text = answer["text"].as_str().unwrap_or_default().to_owned();
        Ok(match uri {
            BINARY => DocumentBody::Binary { base64: text, mime_type: "image/png".to_owned() },
            _ => text.into(),
        })
    }

    fn refusal(&self, error: &ToolError) -> Refusal {
        if error.is(codes::NOT_FOUND) { Refusal::Missing } else { Refusal::Failed }
    }
}

#[async_trait]
impl DocumentListing for TestResources {
    fn list_tool(&self) -> &'static str {
        "test_simple_text"
    }

    fn list_args(&self, _: Option<&str>, _: usize) -> Map<String, Value> {
        Map::new()
    }

    fn listed(&self, _: Value) -> Result<Page, ToolError> {
        let document = |uri: &str| Document {
            uri: uri.to_owned(),
            name: uri.to_owned(),
            mime_type: "text/plain",
            size: text(uri).map_or(0, |text| text.len() as u64),
        };
        let documents = ["test://static-text", "test://watched-resource"].map(document).into();
        Ok(Page { documents, next: None })
    }

    fn changes(&self) -> broadcast::Receiver<Changed> {
        self.0.subscribe()
    }

    async fn stamps(&self, uris: Vec<String>) -> Result<Vec<StampResult>, ToolError> {
        Ok(uris.iter().map(|uri| Ok(text(uri).map(|_| Stamp([0; 4])))).collect())
    }
}
