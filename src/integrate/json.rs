//! Edits of JSON with comments: a server is put in or taken out, and everything else stays as it is
//! written.

use jsonc_parser::{
    ParseOptions,
    cst::{CstInputValue, CstObject, CstRootNode},
};

/// The text with a server that runs `program mcp`. Of one that is there only the program is
/// changed, and arguments that run something else.
pub(super) fn with_server(
    before: &str,
    [servers, name]: [&str; 2],
    program: &str,
    fields: &[(&str, &str)],
) -> Result<String, String> {
    let root = parse(before)?;
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
pub(super) fn without_server(
    before: &str,
    [servers, name]: [&str; 2],
) -> Result<Option<String>, String> {
    let root = parse(before)?;
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

fn parse(text: &str) -> Result<CstRootNode, String> {
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
