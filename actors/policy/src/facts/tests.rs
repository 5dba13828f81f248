use std::{collections::BTreeSet, os::unix::fs::PermissionsExt, path::Path, process::Command};

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn paths_are_found_at_any_depth_and_begin_where_the_place_does() {
    let paths = |args: Value| {
        let mut paths = CallFacts::of(Some(&args)).paths();
        paths.sort_unstable();
        paths
    };
    let deep =
        json!({ "tasks": [{ "workdir": "/w" }], "volumes": [{ "path": "/v" }], "newPath": "/n" });
    assert_eq!(paths(deep), ["/n", "/v", "/w"]);
    for (place, found) in [
        ("w", &["/a", "/b"][..]),
        ("volume:work", &["/a", "/b"]),
        ("app@w:/srv", &["/b", "/srv", "/srv/a"]),
        ("w:~/x", &["/b", "~/x", "~/x/a"]),
    ] {
        assert_eq!(paths(json!({ "place": place, "paths": ["a", "/b"] })), found, "{place}");
    }
}

#[test]
fn hosts_are_those_that_are_asked() {
    for (address, expected) in [
        ("https://Example.org:8443/x", Some("example.org")),
        ("https://good.org@evil.org/", Some("evil.org")),
        ("https://good.org:x@evil.org:1/", Some("evil.org")),
        ("git@github.com:a/b.git", Some("github.com")),
        ("http://[::1]:80/", Some("::1")),
        ("https://example.org.?x", Some("example.org")),
        ("https:///x", None),
        ("nothing", None),
    ] {
        assert_eq!(host(address).as_deref(), expected, "{address}");
    }
}

fn clear(args: Value) -> Vec<Vec<String>> {
    let commands = commands_of(&args);
    let judged = commands.judged().unwrap_or_else(|what| panic!("{args}: {what}"));
    judged.into_iter().map(<[String]>::to_vec).collect()
}

#[test]
fn every_command_of_a_line_is_found() {
    let line = json!({ "command": "cd /x && git push origin main | tee 'a b'; rm -rf x" });
    let words = [
        &["cd", "/x"][..],
        &["git", "push", "origin", "main"],
        &["tee", "a b"],
        &["rm", "-rf", "x"],
    ];
    assert_eq!(clear(line), words);
    for line in ["git \\\n  push", "git\\\n push", "git \\\npush", "git push # \\\n"] {
        assert_eq!(clear(json!({ "command": line })), [["git", "push"]], "{line:?}");
    }
    assert_eq!(clear(json!({ "command": "a 'b\\\nc'" })), [["a", "b\\\nc"]]);
    let argv = json!({ "command": "git", "args": ["push", "a && b"] });
    assert_eq!(clear(argv), [["git", "push", "a && b"]]);
    let tasks = json!({ "tasks": [{ "name": "a", "command": "cargo" }, { "command": "ls; pwd" }] });
    assert_eq!(clear(tasks), [["cargo"], ["ls"], ["pwd"]]);
    let content = json!({ "task_id": "1", "command": "git push" }).to_string();
    let sent = json!({ "message_type": "task_assignment", "content": content });
    assert_eq!(clear(sent), [["git", "push"]]);
    assert_eq!(clear(json!({ "path": "x", "content": content })), Vec::<Vec<String>>::new());
    assert_eq!(clear(json!({ "command": "find . -name x" }))[0][0], "find");
}

#[test]
fn what_hides_a_command_is_unclear() {
    for line in [
        "sh -c 'rm x'",
        "echo 'rm x' | sh",
        "/usr/bin/env rm x",
        "sudo rm x",
        "$(rm x)",
        "X=1 rm x",
        "rm x `pwd`",
        "f() { rm x; }",
        "xargs rm",
        "r* x",
        "touch push; git pus?",
        "git [p]ush",
        "echo \"$HOME\"",
        "a <<E\nE",
        "timeout 5 rm x",
        "busybox sh -c 'git push'",
        "find . -exec git push {} +",
        "python3.11 -c x",
        "lua5.4 x",
        "awk 'BEGIN { system(\"x\") }'",
        "make push",
        "! ! git push",
        "dd of=~/x",
        "git ''\\push",
        "git pu\\\nsh",
        "gi\\\nt push",
        "git \"pu\\\nsh\"",
        "git push \\ ",
        "ok\n\\\nok",
        "true;\\\n\\\ngit push",
    ] {
        let commands = commands_of(&json!({ "command": line }));
        assert!(commands.judged().is_err(), "{line}: {commands:?}");
    }
    for args in [
        json!({ "command": "bash", "args": ["-c", "rm x"] }),
        json!({ "command": "script:tidy" }),
        json!({ "command": "x", "entrypoint": true }),
        json!({ "message_type": "task_assignment", "content": "rm x" }),
        json!({ "message_type": "task_assignment", "content": "{\"command\": \"sh -c 'rm x'\"}" }),
    ] {
        assert!(commands_of(&args).judged().is_err(), "{args}");
    }
}

/// What a shell runs for a line, of programs that say their name and first argument.
fn runs(shell: &str, line: &str) -> BTreeSet<String> {
    let folder = tempfile::tempdir().expect("a folder");
    let (bin, log) = (folder.path().join("bin"), folder.path().join("log"));
    std::fs::create_dir(&bin).expect("made");
    std::fs::write(&log, "").expect("written");
    for program in ["ok", "bad"] {
        let script = "#!/bin/sh\nprintf '%s %s\\000' \"${0##*/}\" \"$1\" >> \"$LOG\"\n";
        std::fs::write(bin.join(program), script).expect("written");
        let mode = PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(bin.join(program), mode).expect("set");
    }
    let mut command = Command::new(shell);
    command.arg("-c").arg(line).current_dir(folder.path()).stdin(std::process::Stdio::null());
    command.env_clear().env("PATH", &bin).env("LOG", &log);
    let _whatever = command.output().expect("the shell runs");
    let log = std::fs::read_to_string(log).expect("a log");
    log.split_terminator('\0').map(str::to_owned).collect()
}

/// Pieces of lines, most of them meant to be read otherwise than a shell reads them.
fn piece() -> impl Strategy<Value = String> {
    let plain = prop::sample::select(vec![
        "ok", "ok", "bad", "o", "k", "x", "'a b'", "\"c\"", "b\\ad", "''", "{}", "-n", "'", "\"",
        "\\", "\\\n", "\\\n", "\\\n", "\\\\\n", "=", "#", "*", "~", "!",
    ]);
    let joined = prop::sample::select(vec![
        ";", "&&", "||", "|", "&", "\n", "(", ")", "{", "}", "\"", "$", "<", ">", "<<E\n", "E\n",
    ]);
    let tricks = prop::sample::select(vec![
        "$(bad)",
        "`bad`",
        "<(bad)",
        "$'\\'; bad #'",
        "> out bad",
        "2>&1 bad",
        "A=1 bad",
        "eval bad",
        "exec bad",
        "command bad",
        "coproc bad",
        "alias ok=bad\n",
        "trap bad EXIT",
        "# it's\n",
        "time bad",
        "b'a'd",
        "ok() { bad; }",
        "if ok; then bad; fi",
        "\rbad",
        "\u{a0}bad",
        "!bad",
    ]);
    prop_oneof![4 => plain, 2 => joined, 1 => tricks].prop_map(str::to_owned)
}

fn line() -> impl Strategy<Value = String> {
    let gap = prop::sample::select(vec!["", "", " ", " ", "\n"]);
    prop::collection::vec((piece(), gap), 1..9)
        .prop_map(|pieces| pieces.into_iter().map(|(piece, gap)| piece + gap).collect())
}

proptest! {
#![proptest_config(ProptestConfig::with_cases(1000))]
#[test]
fn a_line_that_is_judged_runs_what_it_was_judged_by(line in line()) {
    let commands = commands_of(&json!({ "command": line }));
    let Ok(judged) = commands.judged() else { return Ok(()) };
    let first = |words: &[String]| {
        let argument = words.get(1).map_or("", String::as_str);
        format!("{} {argument}", program_name(&words[0]))
    };
    let judged: BTreeSet<_> = judged.into_iter().map(first).collect();
    for shell in ["/bin/sh", "/bin/bash"].into_iter().filter(|it| Path::new(it).exists()) {
        for ran in runs(shell, &line) {
            prop_assert!(judged.contains(&ran), "{line:?} runs {ran:?} in {shell}: {judged:?}");
        }
    }
}
}
