//! Table of calls: each tool with a path in each place where it takes one.

use serde_json::{Value, json};

/// A tool and what it is called with.
pub(crate) type Call = (&'static str, Value);

/// Tools of files, in a place.
pub(crate) fn in_place(place: &str, path: &str) -> Vec<Call> {
    let edit = json!({ "target_content": super::SECRET, "replacement_content": "x" });
    let replaced = json!({ "path": path, "old_string": super::SECRET, "new_string": "x" });
    let mut all = vec![
        ("fs.read", json!({ "path": path })),
        ("fs.write", json!({ "path": path, "content": "x" })),
        ("fs.list", json!({ "path": path })),
        ("fs.create_dir", json!({ "path": path })),
        ("fs.stat", json!({ "path": path, "follow": true })),
        ("fs.stat", json!({ "path": path, "depth": 3 })),
        ("fs.get", json!({ "path": path })),
        ("fs.put", json!({ "path": path, "content_base64": "eA==" })),
        ("fs.put", json!({ "path": path, "content_base64": "eA==", "at": 1 })),
        ("fs.edit", with(edit.clone(), "path", path)),
        ("fs.multi_edit", json!({ "path": path, "edits": [edit] })),
        ("fs.grep", json!({ "path": path, "pattern": "secret" })),
        ("fs.grep", json!({ "path": ".", "pattern": "secret", "glob": path })),
        ("fs.glob", json!({ "path": path, "pattern": "**" })),
        ("fs.glob", json!({ "path": ".", "pattern": path })),
        ("file_read", json!({ "path": path })),
        ("file_write", json!({ "path": path, "content": "x", "mode": "0644" })),
        ("file_edit", replaced.clone()),
        ("file_exists", json!({ "path": path })),
        ("dir_list", json!({ "path": path })),
        ("dir_create", json!({ "path": path })),
        ("read", json!({ "path": path })),
        ("patch", json!({ "path": path, "operation": "create", "content": "x" })),
        ("patch", with(replaced, "operation", "replace")),
        ("patch", json!({ "path": path, "operation": "delete" })),
        ("file_rename", json!({ "oldPath": path, "newPath": "moved", "overwrite": true })),
        ("file_rename", json!({ "oldPath": "mine", "newPath": path, "overwrite": true })),
        ("file_delete", json!({ "path": path })),
        ("fs.delete", json!({ "path": path, "recursive": true })),
    ];
    all.iter_mut().for_each(|(_, args)| args["place"] = json!(place));
    all
}

/// Working directories of commands in a place.
pub(crate) fn commands(place: &str, path: &str) -> Vec<Call> {
    let script = "cat f x/y etc/hostname 2>/dev/null; echo x > new; true";
    let mut all = vec![
        ("cmd.run", json!({ "command": "sh", "args": ["-c", script], "cwd": path })),
        ("process_start", json!({ "command": "sh", "args": ["-c", script], "dir": path })),
    ];
    all.iter_mut().for_each(|(_, args)| args["place"] = json!(place));
    all
}

/// Tools of volumes' files, on the volume `v`.
pub(crate) fn in_volume(path: &str) -> Vec<Call> {
    let mut all = vec![
        ("aegis.file.read", json!({ "path": path })),
        ("aegis.file.list", json!({ "path": path })),
        ("aegis.file.mkdir", json!({ "path": path })),
        ("aegis.file.write", json!({ "path": path, "content": "x" })),
        ("aegis.file.delete", json!({ "path": path })),
    ];
    all.iter_mut().for_each(|(_, args)| args["volume_id"] = json!("v"));
    all
}

/// The vault, and `lang_detect`, which looks at a name alone.
pub(crate) fn in_vault(path: &str) -> Vec<Call> {
    let act = |action: &str, more: Value| ("vault", with(more, "action", action));
    let at = |action: &str| act(action, json!({ "path": path }));
    let new = || json!({ "path": path, "content": "x" });
    vec![
        at("read"),
        act("write", new()),
        act("write", with(new(), "mode", "append")),
        at("list"),
        act("list", json!({ "after": path, "recursive": true })),
        act("list", json!({ "path_prefix": path })),
        act("search", json!({ "query": "secret", "path_prefix": path })),
        act("list", json!({ "as_member": path })),
        act(
            "frontmatter",
            json!({ "path": path, "frontmatter_action": "set", "key": "k", "value": 1 }),
        ),
        act("tags", json!({ "path": path, "tags_action": "add", "tag": "t" })),
        act("replace", json!({ "path": path, "old_string": "secret", "new_string": "x" })),
        act("batch_read", json!({ "paths": [path] })),
        act("move", json!({ "path": path, "new_path": "moved.md", "overwrite": true })),
        act("move", json!({ "path": "mine.md", "new_path": path, "overwrite": true })),
        act("delete", json!({ "path": path, "confirm": true })),
        ("lang_detect", json!({ "path": path })),
    ]
}

/// Names of places, scripts, volumes and images, and an address: nothing of the host is found by them.
pub(crate) fn by_name(path: &str) -> Vec<Call> {
    let mount = |source: String| json!([{ "volume": source, "path": "/data" }]);
    let mut all = vec![
        ("aegis.volume.delete", json!({ "volume_id": path })),
        ("aegis.file.list", json!({ "volume_id": path, "path": "." })),
        ("cmd.run", json!({ "command": format!("script:{path}") })),
        ("aegis.script.get", json!({ "id": path })),
        ("web.fetch", json!({ "url": format!("file://{path}") })),
    ];
    for place in [path.to_owned(), format!("volume:{path}")] {
        all.extend([
            ("cmd.run", json!({ "command": "true", "place": place })),
            ("bash", json!({ "command": "true", "place": place })),
            ("process_start", json!({ "command": "true", "place": place })),
            ("run_code", json!({ "code": "1", "place": place })),
        ]);
        all.extend(in_place(&place, "mine"));
    }
    for source in [path.to_owned(), format!("place:{path}")] {
        let volumes = mount(source);
        all.extend([
            ("workspace_create", json!({ "isolation": "sandbox", "volumes": volumes })),
            ("workspace_start", json!({ "workspace_id": "w", "volumes": volumes })),
        ]);
    }
    for image in ["", "oci:", "docker-archive:", "oci:80/"].map(|kind| format!("{kind}{path}")) {
        all.extend([
            ("workspace_create", json!({ "isolation": "sandbox", "base_image": image })),
            ("workspace_prepare", json!({ "name": "w", "base_image": image })),
        ]);
    }
    all
}

/// Tools of the workspace `w` that take a path in it.
pub(crate) fn in_workspace(path: &str) -> Vec<Call> {
    let absolute = absolute(path);
    let script = "cat f x/y 2>/dev/null; true";
    let mut all = vec![
        ("exec", json!({ "command": script, "workdir": absolute })),
        ("exec_background", json!({ "action": "start", "command": script, "workdir": absolute })),
        ("file_list", json!({ "path": absolute })),
        ("file_read", json!({ "path": absolute })),
        ("file_write", json!({ "path": absolute, "content": "x" })),
        ("file_edit", json!({ "path": absolute, "old_string": super::SECRET, "new_string": "x" })),
        (
            "file_transfer",
            json!({ "direction": "upload", "host_path": "mine", "guest_path": absolute }),
        ),
        (
            "file_transfer",
            json!({ "direction": "download", "host_path": "got", "guest_path": absolute }),
        ),
    ];
    all.iter_mut().for_each(|(_, args)| args["workspace_id"] = json!("w"));
    let both = json!({ "workspace_ids": ["w"], "commands": script, "workdir": absolute });
    all.push(("exec_parallel", both));
    all
}

/// Git of the workspace `w`, whose folder `repo` is a repository, as that of `x` is.
pub(crate) fn git_in_workspace(path: &str) -> Vec<Call> {
    let mut all = vec![
        ("git_clone", json!({ "url": format!("file://{}", absolute(path)), "path": "clone" })),
        ("git_clone", json!({ "url": "file:///workspace/repo", "path": path })),
        (
            "git_clone",
            json!({ "url": "file:///workspace/repo", "path": "sparse", "sparse_paths": [path] }),
        ),
        ("git_fetch", json!({ "path": path })),
        ("git_status", json!({ "path": path })),
        ("git_commit", json!({ "path": path, "message": "m" })),
        ("git_push", json!({ "path": path })),
        ("git_diff", json!({ "path": path })),
        ("git_diff", json!({ "path": "repo", "file_path": path })),
    ];
    all.iter_mut().for_each(|(_, args)| args["workspace_id"] = json!("w"));
    let merge =
        json!({ "source_workspaces": ["x"], "target_workspace": "w", "path": absolute(path) });
    all.push(("workspace_merge", with(merge, "strategy", "sequential")));
    all
}

/// The host's side of transfers of the workspace `w`.
pub(crate) fn of_host(path: &str) -> Vec<Call> {
    let transfer = |direction: &str, guest: &str| {
        let args = json!({ "workspace_id": "w", "direction": direction, "host_path": path });
        ("file_transfer", with(args, "guest_path", guest))
    };
    vec![transfer("upload", "/tmp/uploaded"), transfer("download", "/etc/passwd")]
}

/// Where the volume `v` is mounted: in a new workspace, and in `w`, which is stopped.
pub(crate) fn mounts(path: &str) -> Vec<Call> {
    let volumes = json!([{ "volume": "v", "path": path }]);
    vec![
        ("workspace_create", json!({ "name": "made", "volumes": volumes })),
        ("workspace_start", json!({ "workspace_id": "w", "volumes": volumes })),
    ]
}

/// Repositories on volumes; `hub` is a volume with one, `app` is bound.
pub(crate) fn repositories(path: &str) -> Vec<Call> {
    let clone = |url: &str, label: &str| json!({ "repo_url": url, "label": label });
    let (url, remote) = ("volume://hub/app.git", format!("volume://hub/{path}"));
    vec![
        ("aegis.git.clone", clone(&remote, "other")),
        ("aegis.git.clone", clone(url, path)),
        ("aegis.git.clone", json!({ "repo_url": url, "label": "other", "sparse_paths": [path] })),
        ("aegis.git.diff", json!({ "binding_id": "app", "path": path })),
    ]
}

/// All of the table.
pub(crate) fn all(path: &str) -> Vec<Call> {
    [
        in_place("here", path),
        commands("here", path),
        in_volume(path),
        in_vault(path),
        by_name(path),
        in_workspace(path),
        git_in_workspace(path),
        of_host(path),
        mounts(path),
        repositories(path),
    ]
    .concat()
}

fn absolute(path: &str) -> String {
    match path {
        "" => String::new(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("/workspace/{path}"),
    }
}

fn with(mut args: Value, field: &str, text: &str) -> Value {
    args[field] = json!(text);
    args
}
