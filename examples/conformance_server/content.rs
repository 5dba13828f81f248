//! The suite's tools whose results are more than JSON.

use hivekeep_kernel::{CallCx, Reply, ToolError, tools};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{fixtures::Fixtures, resources::PIXEL};

/// A WAV of no sample, in base64.
const SILENCE: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

/// Bytes and their kind.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Bytes {
    /// The bytes, in base64, or a text.
    data: String,
    /// MIME type.
    mime_type: String,
}

/// Returns an image.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ImageContent {}

/// Returns a sound.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct AudioContent {}

/// Returns a resource.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct EmbeddedResource {}

/// Returns a text, an image and a resource.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct MultipleContentTypes {}

tools! { pub FAMILY: "content" for Fixtures, singleton fixtures;
    test_image_content: ImageContent => Bytes = Fixtures::on_image {
        title: "Return an image", effect: Read, content: |value| Some(vec![image(value)]),
    };
    test_audio_content: AudioContent => Bytes = Fixtures::on_audio {
        title: "Return a sound", effect: Read, content: |value| Some(vec![block("audio", value)]),
    };
    test_embedded_resource: EmbeddedResource => Bytes = Fixtures::on_resource {
        title: "Return a resource", effect: Read, content: |value| {
            Some(vec![resource("test://embedded-resource", value)])
        },
    };
    test_multiple_content_types: MultipleContentTypes => Bytes = Fixtures::on_several {
        title: "Return several", effect: Read, content: |value| {
            let text = json!({ "type": "text", "text": "Multiple content types test:" });
            let other = json!({ "data": "{\"test\":\"data\",\"value\":123}", "mime_type": "application/json" });
            Some(vec![text, image(value), resource("test://mixed-content-resource", &other)])
        },
    };
}

fn block(kind: &str, value: &Value) -> Value {
    json!({ "type": kind, "data": value["data"], "mimeType": value["mime_type"] })
}

fn image(value: &Value) -> Value {
    block("image", value)
}

fn resource(uri: &str, value: &Value) -> Value {
    let resource = json!({ "uri": uri, "mimeType": value["mime_type"], "text": value["data"] });
    json!({ "type": "resource", "resource": resource })
}

type Answer = Result<Reply<Bytes>, ToolError>;

fn bytes(data: &str, mime_type: &str) -> Answer {
    Ok(Reply::Now(Bytes { data: data.to_owned(), mime_type: mime_type.to_owned() }))
}

impl Fixtures {
    fn on_image(&mut self, _: &CallCx, _: ImageContent) -> Answer {
        bytes(PIXEL, "image/png")
    }

    fn on_audio(&mut self, _: &CallCx, _: AudioContent) -> Answer {
        bytes(SILENCE, "audio/wav")
    }

    fn on_resource(&mut self, _: &CallCx, _: EmbeddedResource) -> Answer {
        bytes("This is an embedded resource content.", "text/plain")
    }

    fn on_several(&mut self, _: &CallCx, _: MultipleContentTypes) -> Answer {
        bytes(PIXEL, "image/png")
    }
}
