//! Outline of an accessibility tree: a pure function from nodes to lines.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;

/// Longest name or value in a line.
const NAME_CHARS: usize = 200;
/// Deepest level that is written.
const MAX_DEPTH: usize = 64;

/// A node as Chrome reports it; unknown fields are ignored.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(crate) struct AxNode {
    node_id: String,
    ignored: bool,
    role: AxText,
    name: AxText,
    value: AxText,
    properties: Vec<AxProperty>,
    parent_id: Option<String>,
    child_ids: Vec<String>,
    #[serde(rename = "backendDOMNodeId")]
    backend_node: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AxText {
    value: Value,
}

impl AxText {
    fn text(&self) -> String {
        match &self.value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AxProperty {
    name: String,
    value: AxText,
}

/// Lines of a tree, with the trees of its frames in their places.
pub(crate) fn outline(root: &[AxNode], frames: &HashMap<u64, Vec<AxNode>>) -> Vec<String> {
    let mut writer = OutlineWriter { frames, lines: Vec::new() };
    writer.tree(root, 0);
    writer.lines
}

struct OutlineWriter<'a> {
    frames: &'a HashMap<u64, Vec<AxNode>>,
    lines: Vec<String>,
}

impl OutlineWriter<'_> {
    fn tree(&mut self, nodes: &[AxNode], depth: usize) {
        let known: HashMap<&str, &AxNode> =
            nodes.iter().map(|node| (node.node_id.as_str(), node)).collect();
        let roots = nodes.iter().filter(|node| node.parent_id.is_none());
        for root in roots.collect::<Vec<_>>() {
            self.children(root, &known, depth, "");
        }
    }

    fn children(
        &mut self,
        node: &AxNode,
        known: &HashMap<&str, &AxNode>,
        depth: usize,
        named: &str,
    ) {
        if depth >= MAX_DEPTH {
            return;
        }
        for child in node.child_ids.iter().filter_map(|id| known.get(id.as_str())) {
            self.node(child, known, depth, named);
        }
    }

    fn node(&mut self, node: &AxNode, known: &HashMap<&str, &AxNode>, depth: usize, named: &str) {
        let (role, name) = (node.role.text(), shown(&node.name.text()));
        match role.as_str() {
            "InlineTextBox" | "LineBreak" | "ListMarker" => return,
            "StaticText" => {
                // The element's name already contains the text.
                if !name.is_empty() && !named.contains(name.as_str()) {
                    self.line(depth, format!("text \"{name}\""));
                }
                return;
            }
            _ => {}
        }
        let plain = matches!(
            role.as_str(),
            "" | "none" | "generic" | "RootWebArea" | "LabelText" | "LayoutTableCell"
        );
        if node.ignored || (plain && name.is_empty()) {
            return self.children(node, known, depth, named);
        }
        let mut line = role.clone();
        if !name.is_empty() {
            line.push_str(&format!(" \"{name}\""));
        }
        if let Some(backend) = node.backend_node {
            line.push_str(&format!(" [e{backend}]"));
        }
        line.push_str(&state(node));
        self.line(depth, line);
        let inner = node.backend_node.filter(|_| role.starts_with("Iframe"));
        if let Some(inner) = inner.and_then(|backend| self.frames.get(&backend)) {
            return self.tree(inner, depth + 1);
        }
        // A text field's content is its value.
        if !matches!(role.as_str(), "textbox" | "searchbox" | "spinbutton") {
            self.children(node, known, depth + 1, &name);
        }
    }

    fn line(&mut self, depth: usize, text: String) {
        self.lines.push(format!("{}- {text}", "  ".repeat(depth)));
    }
}

/// Text of a node's value and properties.
fn state(node: &AxNode) -> String {
    let mut told = String::new();
    let value = shown(&node.value.text());
    if !value.is_empty() {
        told.push_str(&format!(" value=\"{value}\""));
    }
    for AxProperty { name, value } in &node.properties {
        let value = value.text();
        match (name.as_str(), value.as_str()) {
            ("disabled" | "required" | "readonly" | "focused" | "modal", "true") => {
                told.push_str(&format!(" {name}"));
            }
            ("checked" | "selected" | "expanded" | "pressed" | "level", value)
                if !value.is_empty() =>
            {
                told.push_str(&format!(" {name}={value}"));
            }
            ("invalid", value) if !value.is_empty() && value != "false" => {
                told.push_str(" invalid")
            }
            ("url", url) => {
                let url: String = url.chars().take(NAME_CHARS).collect();
                told.push_str(&format!(" url={url}"));
            }
            _ => {}
        }
    }
    told
}

/// A text in one line.
fn shown(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").chars().take(NAME_CHARS).map(|c| if c == '"' { '\'' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tree_is_written_without_what_says_nothing() {
        let node = |id: &str, parent: Option<&str>, children: &[&str], role: &str, name: &str| {
            json!({
                "nodeId": id, "parentId": parent, "childIds": children, "ignored": false,
                "role": { "value": role }, "name": { "value": name }, "backendDOMNodeId": 7,
            })
        };
        let nodes = json!([
            node("1", None, &["2"], "RootWebArea", "Title"),
            node("2", Some("1"), &["3", "5", "9"], "generic", ""),
            node("3", Some("2"), &["4"], "button", "Save \"it\""),
            node("4", Some("3"), &[], "StaticText", "Save"),
            node("5", Some("2"), &[], "StaticText", "Hello\n there"),
            node("9", Some("2"), &[], "Iframe", "")
        ]);
        let nodes: Vec<AxNode> = serde_json::from_value(nodes).expect("nodes");
        let inner = json!([
            node("1", None, &["2"], "RootWebArea", "Inner"),
            node("2", Some("1"), &[], "heading", "Within")
        ]);
        let frames = HashMap::from([(7, serde_json::from_value(inner).expect("nodes"))]);
        let lines = outline(&nodes, &frames);
        let expected = [
            "- button \"Save 'it'\" [e7]",
            "- text \"Hello there\"",
            "- Iframe [e7]",
            "  - heading \"Within\" [e7]",
        ];
        assert_eq!(lines, expected);
    }
}
