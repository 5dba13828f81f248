//! Next steps for a person, at the end of the demonstration.

use serde_json::json;

use super::{DemoIsolation, DemoPrograms, house::DemoDaemon};

/// The lines for the configuration of an MCP client.
pub(super) fn configuration(programs: &DemoPrograms, isolation: DemoIsolation, whole: bool) {
    let hivekeep = programs.hivekeep.display().to_string();
    // What is built lies in the target folder; the client's daemon has its own home.
    let mut environment = serde_json::Map::new();
    for (name, path) in programs.environment() {
        environment.insert(name.to_owned(), json!(path));
    }
    if isolation != DemoIsolation::Vm {
        environment.insert("HIVEKEEP_WORKSPACE__ISOLATION".to_owned(), json!(isolation.word()));
    }
    let pairs = environment.iter().map(|(name, value)| {
        format!(" --env {}", quoted(&format!("{name}={}", value.as_str().unwrap_or_default())))
    });
    let pairs: String = pairs.collect();
    let server = json!({ "command": hivekeep, "args": ["mcp"], "env": environment });
    println!("\nAttach your own client. Claude Code:\n");
    println!("    claude mcp add hivekeep{pairs} -- {} mcp", quoted(&hivekeep));
    println!("\nClaude Desktop, Cursor and others (VS Code calls `mcpServers` `servers`):\n");
    println!("{:#}", json!({ "mcpServers": { "hivekeep": server } }));
    if !whole {
        println!(
            "\nThis daemon has the tools that were played with. All of them: \
             `cargo build --release` in this checkout, a quarter of an hour or more."
        );
    }
}

/// Ways to reach the workspace that was kept, and to end it.
pub(super) fn kept(house: &DemoDaemon) {
    let hivekeep = house.hivekeep();
    println!("\nKept in {}. Look at it with", house.folder().display());
    println!("\n    export HIVEKEEP_HOME={}", house.folder().display());
    println!("    {hivekeep} ps");
    println!("\nand end it with\n");
    println!("    {hivekeep} stop --stop-workspaces; rm -r {}", house.folder().display());
}

/// For a shell, where it has to be.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_where_a_shell_would_take_it_apart() {
        assert_eq!(quoted("A_B=/opt/x-1.2/y"), "A_B=/opt/x-1.2/y");
        assert_eq!(quoted("/opt/my tools"), "'/opt/my tools'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
