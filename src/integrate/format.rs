//! Formats of clients' configurations. A server is put in or taken out, and everything else stays as it is written, comments
//! of JSON too.

use std::path::Path;

use jsonc_parser::{
    ParseOptions,
    cst::{CstInputValue, CstObject, CstRootNode},
};
use toml_edit::{Array, DocumentMut, Item, Table, TableLike, value};

use super::{
    NAME,
    change::{Refused, read},
};

/// Format of a client's configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    /// JSON, with comments where the client has them.
    Json,
    /// TOML, whose comments are kept.
    Toml,
}

impl Format {
    /// The text with the server in it.
    ///
    /// # Errors
    /// When the text is none of this format, or something else stands where the server would.
    pub(super) fn with_server(
        self,
        before: &str,
        servers: &str,
        program: &str,
        fields: &[(&str, &str)],
    ) -> Result<Option<String>, String> {
        let text = match self {
            Self::Json => with_server_in_json(before, [servers, NAME], program, fields),
            Self::Toml => with_server_in_toml(before, [servers, NAME], program),
        };
        text.map(Some)
    }

    /// The text without the server; nothing when nothing else is in it.
    ///
    /// # Errors
    /// As [`Self::with_server`].
    pub(super) fn without_server(
        self,
        before: &str,
        servers: &str,
    ) -> Result<Option<String>, String> {
        match self {
            Self::Json => without_server_in_json(before, [servers, NAME]),
            Self::Toml => without_server_in_toml(before, [servers, NAME]),
        }
    }

    /// True when the server stands in this file.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(super) fn has_server(self, file: &Path, servers: &str) -> Result<bool, Refused> {
        let Some(text) = read(file)? else { return Ok(false) };
        // A text that cannot be parsed counts as one without the server.
        let without = self.without_server(&text, servers).unwrap_or_else(|_| Some(text.clone()));
        Ok(without != Some(text))
    }
}

/// The text with a server that runs `program mcp`. Of one that is there only the program is
/// changed, and arguments that run something else.
fn with_server_in_json(
    before: &str,
    [servers, name]: [&str; 2],
    program: &str,
    fields: &[(&str, &str)],
) -> Result<String, String> {
    let root = parse_json(before)?;
    let object = root.object_value_or_create().ok_or("it is not an object")?;
    let all = object.object_value_or_create(servers);
    let all = all.ok_or_else(|| format!("`{servers}` is not an object"))?;
    let text = |value: &str| CstInputValue::String(value.to_owned());
    let args = || CstInputValue::Array(vec![text("mcp")]);
    if all.get(name).is_none() {
        let mut server: Vec<_> =
            fields.iter().map(|(key, value)| ((*key).to_owned(), text(value))).collect();
        server.push(("command".to_owned(), text(program)));
        server.push(("args".to_owned(), args()));
        all.append(name, CstInputValue::Object(server));
        return Ok(ended(root.to_string()));
    }
    let server =
        all.object_value(name).ok_or_else(|| format!("`{servers}.{name}` is not an object"))?;
    if string(&server, "command").as_deref() != Some(program) {
        set(&server, "command", text(program));
    }
    let first = server.array_value("args").and_then(|args| args.elements().into_iter().next());
    let first = first.and_then(|first| first.as_string_lit()?.decoded_value().ok());
    if first.as_deref() != Some("mcp") {
        set(&server, "args", args());
    }
    Ok(root.to_string())
}

/// The text without the server, and without what is empty then; nothing when all of it is.
fn without_server_in_json(
    before: &str,
    [servers, name]: [&str; 2],
) -> Result<Option<String>, String> {
    let root = parse_json(before)?;
    let Some(object) = root.object_value() else { return Ok(Some(before.to_owned())) };
    let all = object.object_value(servers);
    let Some(server) = all.as_ref().and_then(|all| all.get(name)) else {
        return Ok(Some(before.to_owned()));
    };
    server.remove();
    let bare = |object: &CstObject| object.children().iter().all(|it| !it.is_comment());
    let above = object
        .get(servers)
        .filter(|_| all.as_ref().is_some_and(|all| all.properties().is_empty() && bare(all)));
    if let Some(above) = above {
        above.remove();
    }
    let comments = root.children().iter().any(|it| it.is_comment());
    let empty = object.properties().is_empty() && bare(&object) && !comments;
    Ok((!empty).then(|| root.to_string()))
}

fn parse_json(text: &str) -> Result<CstRootNode, String> {
    CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| error.to_string())
}

fn string(object: &CstObject, key: &str) -> Option<String> {
    object.get(key)?.value()?.as_string_lit()?.decoded_value().ok()
}

fn set(object: &CstObject, key: &str, value: CstInputValue) {
    match object.get(key) {
        Some(property) => property.set_value(value),
        None => drop(object.append(key, value)),
    }
}

/// A file that was made anew ends with its line.
fn ended(text: String) -> String {
    if text.ends_with('\n') { text } else { text + "\n" }
}

/// The text with a server that runs `program mcp`. Of one that is there only the program is
/// changed, and arguments that run something else.
fn with_server_in_toml(
    before: &str,
    [servers, name]: [&str; 2],
    program: &str,
) -> Result<String, String> {
    let mut document = parse_toml(before)?;
    let all = document.entry(servers).or_insert_with(|| {
        let mut table = Table::new();
        // Only the servers in it have a heading.
        table.set_implicit(true);
        Item::Table(table)
    });
    let all = all.as_table_like_mut().ok_or_else(|| format!("`{servers}` is not a table"))?;
    let server = all.entry(name).or_insert_with(|| Item::Table(Table::new()));
    let server =
        server.as_table_like_mut().ok_or_else(|| format!("`{servers}.{name}` is not a table"))?;
    if server.get("command").and_then(Item::as_str) != Some(program) {
        put(server, "command", value(program));
    }
    let first = server.get("args").and_then(|args| args.as_array()?.get(0)?.as_str());
    if first != Some("mcp") {
        put(server, "args", value(Array::from_iter(["mcp"])));
    }
    Ok(document.to_string())
}

/// The text without the server, and without what is empty then; nothing when all of it is.
fn without_server_in_toml(
    before: &str,
    [servers, name]: [&str; 2],
) -> Result<Option<String>, String> {
    let mut document = parse_toml(before)?;
    let Some(all) = document.get_mut(servers).and_then(Item::as_table_like_mut) else {
        return Ok(Some(before.to_owned()));
    };
    if all.remove(name).is_none() {
        return Ok(Some(before.to_owned()));
    }
    if all.is_empty() {
        document.remove(servers);
    }
    let text = document.to_string();
    Ok((!text.trim().is_empty()).then_some(text))
}

fn parse_toml(text: &str) -> Result<DocumentMut, String> {
    text.parse::<DocumentMut>().map_err(|error| error.to_string())
}

/// Keeps the comment beside a key whose value changes.
fn put(table: &mut dyn TableLike, key: &str, item: Item) {
    match table.get_mut(key) {
        Some(there) => *there = item,
        None => drop(table.insert(key, item)),
    }
}
