//! File tools on workspaces, and the workspace of a session's own.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    thread,
};

use serde_json::{Value, json};

use super::crash::die_at;
use crate::{house::House, leaks};

/// Names of the workspaces there are.
fn names(house: &House) -> Vec<String> {
    let name = |row: &Value| row["name"].as_str().expect("a name").to_owned();
    house.list().iter().map(name).collect()
}

/// Waits for the session's own workspace; its name.
fn own(house: &House) -> String {
    let found = names(house).into_iter().find(|name| name.starts_with("session-"));
    let name = found.expect("it was made");
    house.wait_state(&name, "running");
    name
}

pub fn every_file_tool_works_in_a_workspace(house: &mut House) {
    let call = |tool: &str, mut args: Value| {
        args["place"] = json!("w");
        let answer = house.call(tool, args);
        assert_eq!(answer["place"], "w", "{tool}: {answer}");
        answer
    };
    let write = json!({ "path": "src/main.rs", "content": "fn main() {}\n" });
    assert_eq!(call("fs.write", write)["path"], "/workspace/src/main.rs");
    assert_eq!(house.exec("w", "cat /workspace/src/main.rs"), "fn main() {}\n");
    let large = "0123456789abcde\n".repeat(200_000);
    call("fs.write", json!({ "path": "/var/tmp/large", "content": large }));
    let read = call("fs.read", json!({ "path": "/var/tmp/large", "limit": 4_194_304 }));
    assert!(read["content"] == json!(large), "three megabytes come back");
    call("fs.create_dir", json!({ "path": "out/deep" }));
    let edit = json!({ "path": "src/main.rs", "target_content": "{}", "replacement_content": "{ run() }" });
    assert_eq!(call("fs.edit", edit)["applied"], 1);
    let edits = json!([{ "target_content": "main", "replacement_content": "start" }, { "target_content": "run", "replacement_content": "go" }]);
    call("fs.multi_edit", json!({ "path": "src/main.rs", "edits": edits }));
    let grep = json!({ "path": ".", "pattern": r"go\(\)", "gitignore": true });
    let found = call("fs.grep", grep);
    assert_eq!(found["matches"], json!(["/workspace/src/main.rs:1:fn start() { go() }"]));
    let glob = call("fs.glob", json!({ "path": "/workspace", "pattern": "**/*.rs" }));
    assert_eq!(glob["paths"], json!(["/workspace/src/main.rs"]));
    assert_eq!(call("fs.list", json!({ "path": "." }))["total"], 2);
    let moved = json!({ "oldPath": "src/main.rs", "newPath": "src/lib.rs" });
    assert_eq!(call("file_rename", moved)["newPath"], "/workspace/src/lib.rs");
    assert_eq!(call("file_exists", json!({ "path": "src/main.rs" }))["exists"], false);
    assert_eq!(call("dir_list", json!({ "path": "src" }))["entries"][0]["name"], "lib.rs");
    call("dir_create", json!({ "path": "src/bin" }));
    let lines = call("read", json!({ "path": "src/lib.rs" }));
    assert_eq!(lines["content"], "     1\tfn start() { go() }\n");
    let patch = json!({ "path": "src/lib.rs", "operation": "replace", "old_string": "go", "new_string": "on" });
    assert_eq!(call("patch", patch)["lines"], 1);
    call("file_delete", json!({ "path": "src/bin" }));
    call("fs.delete", json!({ "path": "src", "recursive": true }));
    assert_eq!(house.exec("w", "ls /workspace").trim(), "out");
    // Nothing waits for what is no file, and absolute links lead where they lead in the guest.
    house.exec("w", "mkfifo /workspace/pipe; echo of the guest > /etc/hk; ln -s /etc/hk /workspace/link; ln -s /dev/zero /workspace/zero");
    for path in ["pipe", "zero", "/dev/null"] {
        let args = json!({ "place": "w", "path": path });
        assert_eq!(house.refused("fs.read", args).code, "not_a_file", "{path}");
    }
    assert_eq!(call("fs.read", json!({ "path": "link" }))["content"], "of the guest\n");
    let kernel = call("fs.glob", json!({ "path": "/", "pattern": "kcore" }));
    assert!(kernel["unreadable_count"].as_u64() >= Some(1) && kernel["count"] == 0, "{kernel}");
    let search = json!({ "path": "/etc", "pattern": "root", "limit": 5 });
    assert!(call("fs.grep", search)["count"].as_u64() > Some(0));
    // Another session has neither this workspace nor the first one's own.
    let other = house.attach();
    let refused = other.call("dir_list", json!({ "place": "w", "path": "." }));
    let refused = refused.expect_err("it is another session's");
    assert!(format!("{refused:?}").contains("not_owner"), "{refused:?}");
}

pub fn a_session_has_one_workspace_of_its_own(mut house: House) {
    thread::scope(|scope| {
        for n in 0..4 {
            let house = &house;
            scope.spawn(move || {
                let args = json!({ "path": format!("f{n}"), "content": "x" });
                let written = house.call("fs.write", args);
                assert_eq!(written["place"], "session");
            });
        }
    });
    let name = own(&house);
    assert_eq!(names(&house), [name.as_str()], "four calls made one");
    assert_eq!(house.exec(&name, "ls /workspace"), "f0\nf1\nf2\nf3\n");
    house.call("workspace_stop", json!({ "workspace_id": name }));
    let read = house.call("file_read", json!({ "path": "f3" }));
    assert_eq!((&read["content"], &read["place"]), (&json!("x"), &json!("session")));
    house.call("workspace_destroy", json!({ "workspace_id": name }));
    // Killed right after its creation, and before that was acknowledged.
    for point in ["places.after_created", "create.before_created"] {
        die_at(&mut house, point, |house| {
            let answer = house.try_call("fs.write", json!({ "path": "f", "content": point }));
            assert!(matches!(answer, Err(None)), "{point}: {answer:?}");
        });
        let left = names(&house);
        house.call("fs.write", json!({ "path": "f", "content": "again" }));
        assert_eq!(names(&house), [name.as_str()], "{point}: it was {left:?}");
        if point == "places.after_created" {
            assert_eq!(left, [name.as_str()], "found again, not made again");
        }
        house.call("workspace_destroy", json!({ "workspace_id": name }));
        leaks::check(&house);
    }
}

/// Owner of the folder in the scene below.
const FOLK: u32 = 64_780;

pub fn commands_run_beside_a_folder_of_the_host(mut house: House) {
    let host = house.path().join("of-the-host");
    let make = |name: &str, owner: u32| {
        let folder = host.join(name);
        fs::create_dir_all(&folder).expect("made");
        chown(&folder, Some(owner), Some(owner)).expect("root gives it away");
        folder
    };
    let (work, roots) = (make("work", FOLK), make("roots", 0));
    fs::write(work.join("secret"), "of root alone").expect("written");
    fs::set_permissions(work.join("secret"), fs::Permissions::from_mode(0o600)).expect("closed");
    let restart_with = |house: &mut House, before: &str, places: &str| {
        fs::write(house.path().join("config.toml"), format!("{before}{places}")).expect("written");
        house.kill();
        house.start();
    };
    let config = fs::read_to_string(house.path().join("config.toml")).expect("read");
    let places = format!(
        "[session]\ndefault_place = \"work\"\n[session.places]\n\
         work = {{ folder = {work:?}, read_only = false }}\nlook = {{ folder = {work:?} }}\n\
         roots = {{ folder = {roots:?}, read_only = false }}\n"
    );
    restart_with(&mut house, &config, &places);
    // Both sides write what the other reads and changes, as the folder's owner.
    house.call("fs.write", json!({ "path": "src/a", "content": "one\n" }));
    let run = |line: &str, place: &str| {
        let args = json!({ "command": "sh", "args": ["-c", line], "place": place });
        house.call("cmd.run", args)
    };
    let ran = run("pwd; echo two >> src/a; echo made > src/b; cat secret", "work");
    assert_eq!((&ran["stdout"], &ran["place"]), (&json!("/work\n"), &json!("work")), "{ran}");
    assert!(ran["stderr"].as_str().is_some_and(|said| said.contains("ermission denied")), "{ran}");
    let read = house.call("fs.read", json!({ "path": "src/a" }));
    assert_eq!(read["content"], "one\ntwo\n");
    for made in ["src", "src/a", "src/b"] {
        let found = fs::metadata(work.join(made)).expect(made);
        assert_eq!((found.uid(), found.gid()), (FOLK, FOLK), "{made}");
    }
    // No file of the host lends its owner's rights, by any call; the sandbox's other files work.
    let lend = "cp /bin/sh x; chmod u+s x; chmod g+s x; install -m 4755 /bin/sh y; mkdir -m 2755 z; \
                mkdir -m 755 d && chmod 755 x && echo plain";
    let ran = run(lend, "work");
    assert_eq!(ran["stdout"], "plain\n", "{ran}");
    for entry in fs::read_dir(&work).expect("read").flatten() {
        let mode = entry.metadata().expect("there").mode();
        assert_eq!(mode & 0o6000, 0, "{:?} {mode:o}", entry.file_name());
    }
    // A place for reading is that for commands too, and root's folder is not given to anybody.
    let ran = run("cat src/b; touch t", "look");
    assert_eq!((&ran["stdout"], ran["exit_code"] == 0), (&json!("made\n"), false), "{ran}");
    let refused = house.refused("cmd.run", json!({ "command": "true", "place": "roots" }));
    assert_eq!(refused.code, "volumes_unsupported");
    assert_eq!(names(&house).len(), 2, "one beside each place");
    // A script of the user's library runs there by its name.
    let script = "#!/bin/sh\necho \"$1 by $0\" | tee src/c";
    house.call("aegis.script.save", json!({ "name": "say", "code": script }));
    let said = house.call("cmd.run", json!({ "command": "script:say", "args": ["a b"] }));
    assert_eq!((&said["exit_code"], &said["script_version"]), (&json!(0), &json!(1)), "{said}");
    let read = house.call("fs.read", json!({ "path": "src/c" }));
    assert!(read["content"].as_str().is_some_and(|text| text.starts_with("a b by /")), "{read}");
    // A folder that is not opened for writing any more is not written at the next start.
    let workspace = json!({ "workspace_id": said["workspace_id"] });
    house.call("workspace_stop", workspace);
    restart_with(&mut house, &config, &places.replace("read_only = false", "read_only = true"));
    let run = |line: &str| {
        house.call("cmd.run", json!({ "command": "sh", "args": ["-c", line], "place": "work" }))
    };
    let ran = run("cat src/c; touch t");
    assert_eq!((ran["exit_code"] == 0, &ran["workspace_id"]), (false, &said["workspace_id"]));
    assert!(!work.join("t").exists());
}
