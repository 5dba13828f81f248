use std::{
    fs,
    path::{Path, PathBuf},
};

use super::*;

const PROGRAM: &str = "/opt/bin/hivekeep";

struct User {
    _dir: tempfile::TempDir,
    homes: Homes,
}

impl User {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let home = dir.path().to_owned();
        let homes = Homes { config: home.join(".config"), home, claude: None, codex: None };
        Self { _dir: dir, homes }
    }

    fn connected(&self, client: Client) -> Vec<Change> {
        self.apply(connect(client, &self.homes, Path::new(PROGRAM)))
    }

    fn disconnected(&self, client: Client) -> Vec<Change> {
        self.apply(disconnect(client, &self.homes, Path::new(PROGRAM)))
    }

    fn apply(&self, changes: Result<Vec<Change>, Refused>) -> Vec<Change> {
        let changes = changes.expect("it makes sense");
        changes.iter().for_each(|change| change.apply().expect("written"));
        changes
    }

    /// Every file below the home but backups.
    fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut folders) = (Vec::new(), vec![self.homes.home.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => folders.push(path),
                    false if path.to_string_lossy().ends_with("backup") => {}
                    false => files.push(path),
                }
            }
        }
        files
    }

    fn config(&self, client: Client) -> PathBuf {
        client.place(&self.homes).config
    }

    fn put(&self, client: Client, text: &str) -> PathBuf {
        let path = self.config(client);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(&path, text).expect("written");
        path
    }
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("a file")
}

fn below<'p>(user: &User, path: &'p Path) -> &'p str {
    path.strip_prefix(&user.homes.home).expect("below the home").to_str().expect("UTF-8")
}

/// Each client's files where it documents them, with foreign content that its users have.
const CLIENTS: [(Client, &str, &str, &str); 5] = [
    (
        Client::ClaudeCode,
        ".claude.json",
        "{\n  \"numStartups\": 3,\n  \"mcpServers\": {\n    \"other\": {\n      \"command\": \"x\"\n    }\n  }\n}\n",
        "{\n  \"mcpServers\": {\n    \"hivekeep\": {\n      \"type\": \"stdio\",\n      \"command\": \"/opt/bin/hivekeep\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
    ),
    (
        Client::Codex,
        ".codex/config.toml",
        "# mine\nmodel = \"m\" # the best\n\n[mcp_servers.other]\ncommand = \"x\"\n",
        "[mcp_servers.hivekeep]\ncommand = \"/opt/bin/hivekeep\"\nargs = [\"mcp\"]\n",
    ),
    (
        Client::Cursor,
        ".cursor/mcp.json",
        "{ \"mcpServers\": { \"other\": { \"url\": \"http://x\" } } }",
        "{\n  \"mcpServers\": {\n    \"hivekeep\": {\n      \"command\": \"/opt/bin/hivekeep\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
    ),
    (
        Client::Vscode,
        ".config/Code/User/mcp.json",
        "{\n\t// mine\n\t\"servers\": {\n\t\t\"other\": { \"url\": \"http://x\" }, // kept\n\t},\n\t\"inputs\": []\n}\n",
        "{\n  \"servers\": {\n    \"hivekeep\": {\n      \"type\": \"stdio\",\n      \"command\": \"/opt/bin/hivekeep\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
    ),
    (
        Client::Zed,
        ".config/zed/settings.json",
        "// Zed settings\n{\n  \"theme\": \"One\", /* dark */\n  \"vim_mode\": true,\n}\n",
        "{\n  \"context_servers\": {\n    \"hivekeep\": {\n      \"command\": \"/opt/bin/hivekeep\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
    ),
];

#[test]
fn a_file_is_made_new_stays_as_it_is_a_second_time_and_goes() {
    for (client, path, _, fresh) in CLIENTS {
        let user = User::new();
        let made = user.connected(client);
        assert_eq!(below(&user, &user.config(client)), path);
        assert_eq!(text(&user.config(client)), fresh, "{client:?}");
        assert!(made.iter().all(|change| change.diff().starts_with("--- /dev/null\n+++ ")));
        assert_eq!(user.files().len(), made.len(), "nothing else is written");
        assert_eq!(user.connected(client), [], "{client:?}");
        user.disconnected(client);
        assert!(user.files().is_empty(), "{client:?}");
        assert!(!client.place(&user.homes).skill.exists(), "{client:?}");
        assert_eq!(user.disconnected(client), []);
    }
}

#[test]
fn what_others_wrote_is_kept_byte_for_byte_and_a_copy_is_beside() {
    for (client, _, foreign, _) in CLIENTS {
        let user = User::new();
        let path = user.put(client, foreign);
        let made = user.connected(client);
        let edited = text(&path);
        let diff = made[0].diff();
        // A line that gains a comma, or is broken up, at most.
        let gone = diff.lines().skip(2).filter(|line| line.starts_with('-')).count();
        assert!(gone <= 1, "{diff}");
        for word in foreign.split_whitespace().filter(|word| word.len() > 3) {
            assert!(edited.contains(word.trim_end_matches(',')), "{word} of {edited}");
        }
        assert!(edited.contains(PROGRAM), "{edited}");
        assert_eq!(text(&made[0].backup()), foreign);
        assert_eq!(user.connected(client), []);
        user.disconnected(client);
        let squeezed = |text: &str| text.split_whitespace().collect::<String>().replace(",}", "}");
        assert_eq!(squeezed(&text(&path)), squeezed(foreign), "{client:?}");
        assert_eq!(user.files(), [path], "the skill is gone");
    }
}

#[test]
fn a_server_of_the_name_keeps_what_its_user_added() {
    let user = User::new();
    let mine = "{\"mcpServers\": {\"hivekeep\": {\"command\": \"/old\", \"args\": [\"mcp\", \"--no-spawn\"], \"env\": {\"A\": \"1\"}}}}";
    let path = user.put(Client::Cursor, mine);
    user.connected(Client::Cursor);
    assert_eq!(text(&path), mine.replace("/old", PROGRAM));
    let mine = "[mcp_servers.hivekeep]\ncommand = \"/old\"\nargs = [\"mcp\", \"--no-spawn\"]\nstartup_timeout_sec = 9\n";
    let path = user.put(Client::Codex, mine);
    user.connected(Client::Codex);
    assert_eq!(text(&path), mine.replace("/old", PROGRAM));
}

#[test]
fn what_makes_no_sense_is_refused_and_nothing_is_written() {
    for (client, bad) in [
        (Client::Cursor, "{ \"mcpServers\": "),
        (Client::Cursor, "[]"),
        (Client::Cursor, "{ \"mcpServers\": [] }"),
        (Client::Zed, "{ \"context_servers\": { \"hivekeep\": 1 } }"),
        (Client::Codex, "model = "),
        (Client::Codex, "mcp_servers = 1"),
        (Client::Codex, "mcp_servers.hivekeep = 1"),
    ] {
        let user = User::new();
        let path = user.put(client, bad);
        let refused = connect(client, &user.homes, Path::new(PROGRAM)).expect_err(bad);
        assert!(refused.to_string().contains(path.to_str().expect("UTF-8")), "{refused}");
        assert_eq!((text(&path).as_str(), user.files().len()), (bad, 1));
    }
    let user = User::new();
    let path = user.put(Client::Zed, "{}");
    let target = path.with_extension("dotfile");
    fs::rename(&path, &target).expect("moved");
    std::os::unix::fs::symlink(&target, &path).expect("linked");
    let refused = connect(Client::Zed, &user.homes, Path::new(PROGRAM)).expect_err("a link");
    assert!(refused.to_string().contains("symbolic link"), "{refused}");
}

#[test]
fn a_file_that_changes_meanwhile_is_left_alone() {
    let user = User::new();
    let path = user.put(Client::Zed, "{}");
    let changes = connect(Client::Zed, &user.homes, Path::new(PROGRAM)).expect("it makes sense");
    fs::write(&path, "{ \"theme\": 1 }").expect("written");
    assert!(changes[0].apply().expect_err("changed").to_string().contains("meanwhile"));
    assert_eq!(text(&path), "{ \"theme\": 1 }");
}

#[test]
fn a_shared_skill_stays_while_another_client_has_it() {
    let user = User::new();
    user.connected(Client::Codex);
    user.connected(Client::Zed);
    let skill = user.homes.home.join(".agents/skills/hivekeep/SKILL.md");
    user.disconnected(Client::Codex);
    assert_eq!(text(&skill), SKILL);
    user.disconnected(Client::Zed);
    assert!(!skill.exists());
}

#[test]
fn a_moved_home_of_a_client_is_followed() {
    let mut user = User::new();
    let (claude, codex) = (user.homes.home.join("c"), user.homes.home.join("x"));
    (user.homes.claude, user.homes.codex) = (Some(claude.clone()), Some(codex.clone()));
    user.connected(Client::ClaudeCode);
    user.connected(Client::Codex);
    for file in [claude.join(".claude.json"), codex.join("config.toml")] {
        assert!(text(&file).contains(PROGRAM));
    }
    assert!(claude.join("skills/hivekeep/.claude-plugin/plugin.json").exists());
}

#[test]
fn the_skill_is_one_of_the_open_format_and_the_hooks_call_tools_that_there_are() {
    let (front, body) = SKILL
        .strip_prefix("---\n")
        .and_then(|rest| rest.split_once("\n---\n"))
        .expect("front matter");
    let fields: Vec<_> = front.lines().filter_map(|line| line.split_once(": ")).collect();
    let [("name", name), ("description", description)] = fields[..] else { panic!("{fields:?}") };
    // The limits of the specification.
    assert!(name == NAME && (1..=1024).contains(&description.len()) && !description.contains(": "));
    assert!(body.lines().count() < 500);
    let catalogue = hivekeep_config::families::catalogue();
    let tools: Vec<_> = catalogue.entries().map(|entry| entry.name()).collect();
    let quoted = body.split('`').skip(1).step_by(2);
    let named = quoted.filter(|word| word.contains('_') && !word.contains([' ', '"', ':']));
    for name in named {
        let other = ["setup_commands", "git_url", "merge_strategy", "swarm_id", "task_id"];
        let other = other.contains(&name) || ["task_assignment", "include_memory"].contains(&name);
        assert!(other || tools.contains(&name), "no tool `{name}`");
    }
    let hooks: serde_json::Value = serde_json::from_str(&hooks(PROGRAM)).expect("JSON");
    let before = &hooks["hooks"]["PreToolUse"][0];
    let (matched, call) = (before["matcher"].as_str().expect("a tool"), &before["hooks"][0]);
    assert!(tools.contains(&matched.strip_prefix("mcp__hivekeep__").expect("ours")));
    let entry = catalogue.find(call["tool"].as_str().expect("a tool")).expect("there is one");
    entry.check(&call["input"]).expect("the input fits its schema");
    assert_eq!(call["server"], NAME);
    let after = &hooks["hooks"]["PostToolUse"][0]["hooks"][0];
    assert_eq!(
        (&after["command"], &after["args"]),
        (&PROGRAM.into(), &serde_json::json!(["hook", "inbox"]))
    );
    serde_json::from_str::<serde_json::Value>(PLUGIN).expect("JSON");
}
