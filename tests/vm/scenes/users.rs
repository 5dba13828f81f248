//! Places in scp's notation: files and processes of a user, and what changes among them.

use std::thread;

use serde_json::{Value, json};

use crate::house::House;

/// A user with a home and a second group, and files that are root's alone.
const MADE: &str = "set -e
echo 'app:x:4711:4711::/srv/app:/bin/sh' >> /etc/passwd
echo 'app:x:4711:' >> /etc/group
echo 'hkmedia:x:4412:app' >> /etc/group
mkdir -p /srv/app /srv/media /srv/closed; chmod 700 /srv/closed
chown 4711:4711 /srv/app
echo secret > /etc/of-root; chmod 600 /etc/of-root
echo shared > /srv/media/f; chown 0:4412 /srv/media/f; chmod 640 /srv/media/f";

fn until(house: &House, id: &Value, wanted: &str) -> Value {
    let (mut from, mut text) = (0, String::new());
    loop {
        let args = json!({ "id": id, "stdout_from": from, "wait_secs": 30 });
        let read = house.call("process_output", args);
        text.push_str(read["output"].as_str().expect("text"));
        if text.contains(wanted) {
            return read;
        }
        assert_eq!(read["status"], "running", "no {wanted:?} in {text:?}");
        assert!(read["stdout_next"].as_u64() > Some(from), "30 s without a word: {text:?}");
        from = read["stdout_next"].as_u64().expect("a cursor");
    }
}

pub fn files_and_processes_are_a_users(house: &mut House) {
    house.exec("w", MADE);
    let app = |place: &str, tool: &str, mut args: Value| {
        args["place"] = json!(place);
        house.call(tool, args)
    };
    // What is made is the user's, with the folders on the way; absolute paths may lack their slash.
    let bytes = json!({ "path": "srv/app/new/f", "content_base64": "AP/D" });
    assert_eq!(app("app@w:/", "fs.put", bytes)["path"], "/srv/app/new/f");
    assert_eq!(house.exec("w", "stat -c %U:%G /srv/app/new /srv/app/new/f"), "app:app\napp:app\n");
    let told = app("w:/srv/app", "fs.stat", json!({ "path": "new/f" }));
    let entry = &told["entries"][0];
    assert_eq!(
        (&entry["owner"], &entry["group"], &entry["bytes"]),
        (&json!("app"), &json!("app"), &json!(3))
    );
    app("app@w:~", "fs.write", json!({ "path": "notes", "content": "mine\n" }));
    app(
        "app@w:~",
        "fs.edit",
        json!({ "path": "notes", "target_content": "mine", "replacement_content": "ours" }),
    );
    assert_eq!(house.exec("w", "stat -c %U /srv/app/notes; cat /srv/app/notes"), "app\nours\n");
    // Groups count, and root's files are root's.
    assert_eq!(app("app@w", "fs.read", json!({ "path": "/srv/media/f" }))["content"], "shared\n");
    for (tool, args) in [
        ("fs.read", json!({ "path": "/etc/of-root" })),
        ("fs.get", json!({ "path": "/etc/of-root" })),
        ("fs.write", json!({ "path": "/etc/new", "content": "x" })),
        ("fs.put", json!({ "path": "/etc/of-root", "content_base64": "eA==" })),
        ("fs.put", json!({ "path": "/etc/of-root", "content_base64": "eA==", "at": 1 })),
        ("fs.delete", json!({ "path": "/etc/of-root" })),
        ("fs.watch", json!({ "path": "/srv/closed" })),
    ] {
        let mut args = args;
        args["place"] = json!("app@w");
        assert_eq!(house.refused(tool, args.clone()).code, "permission_denied", "{tool} {args}");
    }
    assert_eq!(app("w", "fs.read", json!({ "path": "/etc/of-root" }))["content"], "secret\n");
    for tool in ["fs.list", "dir_list"] {
        let args = json!({ "path": "/", "place": "ghost@w" });
        assert_eq!(house.refused(tool, args).code, "user_unknown", "{tool}");
    }
    metadata_come_back_or_are_refused(house);
    let line = "id -un; id -Gn; echo $HOME $USER $LOGNAME; pwd; cat /etc/of-root";
    let ran = app("app@w:~", "cmd.run", json!({ "command": "sh", "args": ["-c", line] }));
    assert_eq!(ran["stdout"], "app\napp hkmedia\n/srv/app app app\n/srv/app\n", "{ran}");
    assert!(ran["exit_code"] != 0, "{ran}");
    let ran =
        app("root@w:/", "cmd.run", json!({ "command": "sh", "args": ["-c", line], "cwd": "/srv" }));
    assert_eq!(ran["stdout"], "root\nroot\n/root root root\n/srv\nsecret\n", "{ran}");
    let ghost = json!({ "command": "true", "place": "ghost@w" });
    assert_eq!(house.refused("cmd.run", ghost).code, "user_unknown");
    changes_are_told(house);
    processes_are_waited_for(house);
}

fn metadata_come_back_or_are_refused(house: &House) {
    let texts = json!({ "author": "ada" });
    let put =
        json!({ "path": "with", "content_base64": "eA==", "metadata": texts, "place": "app@w:~" });
    match house.try_call("fs.put", put) {
        Ok(_) => {
            let got = house.call("fs.get", json!({ "path": "with", "place": "app@w:~" }));
            assert_eq!(got["metadata"], texts);
        }
        Err(refusal) => {
            assert_eq!(refusal.expect("an answer").code, "metadata_unsupported");
            let there = house.call("file_exists", json!({ "path": "with", "place": "app@w:~" }));
            assert_eq!(there["exists"], false, "nothing was put");
        }
    }
}

fn changes_are_told(house: &House) {
    let begun =
        house.call("fs.watch", json!({ "place": "app@w:~", "path": ".", "recursive": true }));
    assert_eq!(begun["path"], "/srv/app/.");
    let watch = &begun["watch"];
    let read = |after: u64| {
        let args = json!({ "place": "app@w:~", "watch": watch, "after": after, "wait_secs": 30 });
        house.call("fs.changes", args)
    };
    let (mut seen, mut after) = (Vec::new(), 0);
    thread::scope(|scope| {
        // The first read waits before anything has happened.
        let waits = scope.spawn(|| read(0));
        let line = "mkdir -p tree/deep; echo x > tree/deep/f";
        let made = json!({ "place": "app@w:~", "command": "sh", "args": ["-c", line] });
        assert_eq!(house.call("cmd.run", made)["exit_code"], 0);
        house.call("fs.write", json!({ "place": "app@w:~", "path": "tree/whole", "content": "x" }));
        let first = waits.join().expect("read");
        assert_eq!(first["changes"][0]["path"], "tree", "{first}");
    });
    while !seen.contains(&("write".to_owned(), "tree/whole".to_owned())) {
        let told = read(after);
        assert!(told["lost"] == false && told["next"].as_u64() > Some(after), "{told} {seen:?}");
        after = told["next"].as_u64().expect("a number");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let changes = told["changes"].as_array().expect("a list").iter();
        seen.extend(changes.map(|change| (text(&change["kind"]), text(&change["path"]))));
    }
    for path in ["tree", "tree/deep", "tree/deep/f", "tree/whole"] {
        let told = seen.iter().filter(|change| **change == ("create".to_owned(), path.to_owned()));
        assert_eq!(told.count(), 1, "{path}: {seen:?}");
    }
    let ended = json!({ "place": "app@w", "watch": watch });
    assert_eq!(house.call("fs.unwatch", ended.clone())["ended"], true);
    assert_eq!(house.call("fs.unwatch", ended.clone())["ended"], false);
    assert_eq!(house.refused("fs.changes", ended).code, "watch_unknown");
}

fn processes_are_waited_for(house: &House) {
    let start = |mut args: Value| {
        args["place"] = json!("app@w:/");
        house.call("process_start", args)["id"].clone()
    };
    let id = start(json!({ "command": "cat", "dir": "/srv/app" }));
    thread::scope(|scope| {
        let waits =
            scope.spawn(|| house.call("process_output", json!({ "id": id, "wait_secs": 30 })));
        house.call("process_input", json!({ "id": id, "input": "AP8=", "encoding": "base64" }));
        let read = waits.join().expect("read");
        assert!(read["stdout_next"] == 2 && read["status"] == "running", "{read}");
    });
    let bytes = house.call("process_output", json!({ "id": id, "encoding": "base64" }));
    assert_eq!((&bytes["stdout_base64"], &bytes["output"]), (&json!("AP8="), &json!("")));
    thread::scope(|scope| {
        let from = json!({ "id": id, "stdout_from": 2, "wait_secs": 30 });
        let waits = scope.spawn(|| house.call("process_output", from));
        house.call("process_signal", json!({ "id": id, "signal": 15 }));
        let read = waits.join().expect("read");
        assert_eq!((&read["status"], &read["signal"]), (&json!("killed"), &json!(15)));
    });
    let late = house.call("process_signal", json!({ "id": id, "signal": 9 }));
    assert_eq!((&late["sent"], &late["status"]), (&json!(false), &json!("killed")));

    let id = start(
        json!({ "command": "sh", "args": ["-c", "readlink /proc/self/fd/0; cat; id -un"], "stdin": false }),
    );
    until(house, &id, "/dev/null\napp\n");

    let id = start(json!({ "command": "sh", "pty": true, "rows": 30, "cols": 90 }));
    house.call("process_input", json!({ "id": id, "input": "stty size\n" }));
    until(house, &id, "30 90\r\n");
    house.call("process_resize", json!({ "id": id, "rows": 40, "cols": 101 }));
    house.call("process_input", json!({ "id": id, "input": "stty size\n" }));
    until(house, &id, "40 101\r\n");
    house.call("process_kill", json!({ "id": id }));
    let none = house.refused("process_resize", json!({ "id": id, "rows": 1, "cols": 1 }));
    assert_eq!(none.code, "input_closed");
}
