//! Edits of TOML: a server is put in or taken out, and everything else stays as it is written.

use toml_edit::{Array, DocumentMut, Item, Table, TableLike, value};

/// The text with a server that runs `program mcp`. Of one that is there only the program is
/// changed, and arguments that run something else.
pub(super) fn with_server(
    before: &str,
    [servers, name]: [&str; 2],
    program: &str,
) -> Result<String, String> {
    let mut document = parse(before)?;
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
pub(super) fn without_server(
    before: &str,
    [servers, name]: [&str; 2],
) -> Result<Option<String>, String> {
    let mut document = parse(before)?;
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

fn parse(text: &str) -> Result<DocumentMut, String> {
    text.parse::<DocumentMut>().map_err(|error| error.to_string())
}

/// Keeps the comment beside a key whose value changes.
fn put(table: &mut dyn TableLike, key: &str, item: Item) {
    match table.get_mut(key) {
        Some(there) => *there = item,
        None => drop(table.insert(key, item)),
    }
}
