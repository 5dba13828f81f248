//! Conversion of another MCP server's result into the published one: block by block, nothing left out.

use serde_json::Value;

use crate::doors::http_api::published::ResultContent;

/// Content and structured part of an MCP result.
pub(super) fn parts(mut result: Value) -> (Vec<ResultContent>, Option<Value>) {
    let structured = result.get_mut("structuredContent").map(Value::take);
    let blocks = match result.get_mut("content").map(Value::take) {
        Some(Value::Array(blocks)) => blocks,
        _ => Vec::new(),
    };
    (blocks.into_iter().map(content).collect(), structured)
}

fn content(mut block: Value) -> ResultContent {
    let kind = match block["type"].as_str() {
        Some("text") => "text",
        Some("image") => "image",
        Some("audio") => "audio",
        _ => "mcp",
    };
    let mut text = |key: &str| match block.get_mut(key).map(Value::take) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    match kind {
        "text" => ResultContent { kind, text: text("text"), data: None, mime_type: None },
        "image" | "audio" => {
            let (data, mime_type) = (text("data").map(Value::from), text("mimeType"));
            ResultContent { kind, text: None, data, mime_type }
        }
        _ => ResultContent { kind, text: None, data: Some(block), mime_type: None },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_block_arrives() {
        let result = json!({
            "content": [
                { "type": "text", "text": "hello" },
                { "type": "image", "data": "AAAA", "mimeType": "image/png" },
                { "type": "resource", "resource": { "uri": "x://y", "text": "whole" } },
            ],
            "structuredContent": { "count": 1 },
        });
        let (content, structured) = parts(result);
        assert_eq!(structured, Some(json!({ "count": 1 })));
        let [text, image, other] = content.try_into().expect("three");
        assert_eq!((text.kind, text.text.as_deref()), ("text", Some("hello")));
        assert_eq!((image.kind, image.data), ("image", Some(json!("AAAA"))));
        assert_eq!(image.mime_type.as_deref(), Some("image/png"));
        assert_eq!(other.kind, "mcp");
        let block = other.data.expect("the block");
        assert_eq!(
            (&block["type"], &block["resource"]["text"]),
            (&json!("resource"), &json!("whole"))
        );
    }
}
