//! MCP servers that others wrote, as sources: npm's `server-everything` and `server-filesystem`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{error, quick, ready, text};
use crate::{
    home::{Home, wait_until},
    wire::Wire,
};

fn home(packages: &Path, data: &Path) -> Home {
    let home = quick();
    let node = std::env::var_os("TEST_HIVEKEEP_NODE")
        .map_or_else(|| "/usr/bin/node".into(), PathBuf::from);
    let runtime = node.parent().and_then(Path::parent).expect("a folder above its own");
    let modules = packages.join("node_modules/@modelcontextprotocol");
    let everything = modules.join("server-everything/dist/index.js");
    let filesystem = modules.join("server-filesystem/dist/index.js");
    let config = format!(
        "[policy]\nsource_default = \"allow\"\n\
         [source.servers.everything]\ncommand = [{node:?}, {everything:?}, \"stdio\"]\n\
         folders = [\"{0}:ro\", \"{2}:ro\"]\ntimeout_secs = 20\n\
         [source.servers.files]\ncommand = [{node:?}, {filesystem:?}, {data:?}]\n\
         folders = [\"{0}:ro\", \"{2}:ro\", \"{1}\"]\n",
        packages.display(),
        data.display(),
        runtime.display(),
    );
    std::fs::write(home.path("config.toml"), config).expect("writes");
    home
}

#[test]
#[ignore = "needs packages of npm: `cargo xtask test --only sources`"]
fn servers_of_others_are_sources_like_any() {
    let packages = PathBuf::from(std::env::var_os("TEST_HIVEKEEP_NPM").expect("the step sets it"));
    let data = tempfile::tempdir().expect("a folder");
    std::fs::write(data.path().join("note"), "of the host").expect("writes");
    let home = home(&packages, data.path());
    let daemon = home.daemon();
    for name in ["everything", "files"] {
        let row = ready(&home, name);
        assert_eq!(row["left_out"], json!([]), "{row}");
    }
    let mut wire = Wire::mcp(&home);
    let echo = wire.call(1, "mcp__everything__echo", json!({ "message": "hello" }));
    assert!(text(&echo).contains("hello"), "{echo}");
    let image = wire.call(2, "mcp__everything__get_tiny_image", json!({}));
    let content = image["result"]["content"].as_array().unwrap_or_else(|| panic!("{image}"));
    let is_image = |block: &Value| block["type"] == "image" && block["data"].is_string();
    assert!(content.iter().any(is_image), "{image}");
    let place = json!({ "location": "Chicago" });
    let weather = wire.call(3, "mcp__everything__get_structured_content", place);
    assert!(weather["result"]["structuredContent"].is_object(), "{weather}");

    let path = data.path().join("note");
    let read = wire.call(4, "mcp__files__read_text_file", json!({ "path": path }));
    assert_eq!(text(&read), "of the host", "{read}");
    let written = data.path().join("made");
    let args = json!({ "path": written, "content": "by the source" });
    let made = wire.call(5, "mcp__files__write_file", args);
    assert_ne!(made["result"]["isError"], true, "{made}");
    assert_eq!(std::fs::read_to_string(&written).expect("reads"), "by the source");
    let passwd = json!({ "path": "/etc/passwd" });
    let outside = error(&wire.call(6, "mcp__files__read_text_file", passwd));
    assert_eq!(outside["code"], "source_tool_failed", "{outside}");

    // Killed, they come back.
    for pid in node_processes(&packages) {
        let pid = rustix::process::Pid::from_raw(pid).expect("a process");
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    }
    wait_until("both are back", || {
        let calls = [
            ("mcp__everything__echo", "{\"message\":\"x\"}"),
            ("mcp__files__list_allowed_directories", "{}"),
        ];
        calls.iter().all(|(tool, args)| home.run(&["call", tool, "--json", args]).status.success())
    });
    drop(daemon);
    wait_until("nothing of them is left", || node_processes(&packages).is_empty());
}

/// Processes of the host that run a script of these packages.
fn node_processes(packages: &Path) -> Vec<i32> {
    let mark = packages.to_string_lossy().into_owned();
    let all = std::fs::read_dir("/proc").expect("processes").flatten();
    let pid = |entry: std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).into_owned();
        (line.contains("node") && !line.starts_with("bwrap") && line.contains(&mark))
            .then_some(())?;
        entry.file_name().to_str()?.parse().ok()
    };
    all.filter_map(pid).collect()
}
