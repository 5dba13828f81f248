//! The tools over ports of the test's own, and the allow list against real shells.

mod code;
mod fake;
mod lines;

use hivekeep_kernel::ToolError;
use hivekeep_ports::{CommandEnd, CommandStream, ProcessSpan, ProcessState};
use serde_json::{Value, json};

use crate::{Options, codes};
use fake::Stage;

fn stream(text: &str, total_bytes: u64) -> CommandStream {
    CommandStream { bytes: text.into(), total_bytes }
}

fn restricted(allow: &[&str], shell: bool) -> Options {
    let allow = allow.iter().map(|rule| (*rule).to_owned()).collect();
    Options { allow, shell, ..Options::default() }
}

async fn code(stage: &Stage, tool: &str, args: Value) -> String {
    stage.call(tool, args).await.expect_err(tool).code.into_owned()
}

#[tokio::test]
async fn a_program_runs_in_the_place_and_the_end_of_its_output_is_kept() {
    let stage = Stage::new(Options::default()).await;
    stage.fake.ends(CommandEnd {
        exit_code: 3,
        stdout: stream("ö end", 1000),
        stderr: stream("", 0),
        elapsed_ms: 7,
        ..CommandEnd::default()
    });
    let args = json!({
        "command": "make", "args": ["-C", "a b"], "cwd": "sub/dir", "env_additions": { "A": "1" },
        "timeout_secs": 9, "max_output_bytes": 6, "place": "other",
    });
    let ran = stage.call("cmd.run", args).await.expect("another exit code is a result");
    assert_eq!((&ran["exit_code"], &ran["stdout"]), (&json!(3), &json!("ö end")));
    assert_eq!((&ran["stdout_omitted_bytes"], &ran["place"]), (&json!(994), &json!("other")));
    let (spec, limits) = stage.fake.last();
    assert_eq!(spec.argv, ["make", "-C", "a b"]);
    assert_eq!((spec.workdir.as_str(), spec.env["A"].as_str()), ("/root-of-other/sub/dir", "1"));
    assert_eq!((limits.timeout_secs, limits.output_bytes, limits.tail), (9, 6, true));

    stage.call("cmd.run", json!({ "command": "git log --format='%h %s' -1" })).await.expect("ran");
    let (spec, _) = stage.fake.last();
    assert_eq!(spec.argv, ["git", "log", "--format=%h %s", "-1"]);
    assert_eq!(spec.workdir, "/root-of-own");
    for line in ["a && b", "ls *.rs", "cat < x", "a; b", "echo $HOME", "X=1 a", "cat <<E\nx\nE"] {
        let refused = code(&stage, "cmd.run", json!({ "command": line })).await;
        assert_eq!(refused, codes::COMMAND_NEEDS_SHELL.name, "{line}");
    }
    for cwd in ["../up", "a/../b", "/etc", "/root-of-own-not"] {
        let refused = code(&stage, "cmd.run", json!({ "command": "a", "cwd": cwd })).await;
        assert_eq!(refused, codes::INVALID_PATH.name, "{cwd}");
    }
    stage.fake.ends(CommandEnd {
        timed_out: true,
        stdout: stream("part", 4),
        ..Default::default()
    });
    let error = stage.call("cmd.run", json!({ "command": "a" })).await.expect_err("timed out");
    assert_eq!(
        (error.code, &error.details["stdout"]),
        ("command_timed_out".into(), &json!("part"))
    );
}

#[tokio::test]
async fn the_user_of_a_place_is_the_user_of_its_commands() {
    let stage = Stage::new(Options::default()).await;
    stage.fake.ends(CommandEnd::default());
    for (place, user) in [("app@own", Some("app")), ("own", None)] {
        stage.call("cmd.run", json!({ "command": "a", "place": place })).await.expect("ran");
        assert_eq!(stage.fake.last().0.user.as_deref(), user);
        stage.call("bash", json!({ "command": "a", "place": place })).await.expect("ran");
        assert_eq!(stage.fake.last().0.user.as_deref(), user);
        stage.call("process_start", json!({ "command": "a", "place": place })).await.expect("up");
        assert_eq!(stage.fake.started().command.user.as_deref(), user);
    }
}

#[tokio::test]
async fn a_shell_runs_what_is_granted_and_judged() {
    let stage = Stage::new(Options { shell: true, ..Options::default() }).await;
    let ran = stage.call("cmd.run", json!({ "command": "a && b > c" })).await.expect("granted");
    assert_eq!(ran["shell"], true);
    assert_eq!(stage.fake.last().0.argv, ["/bin/sh", "-c", "a && b > c"]);

    let stage = Stage::new(restricted(&["git status", "wc"], true)).await;
    stage.call("cmd.run", json!({ "command": "git status -s | wc -l" })).await.expect("judged");
    assert_eq!(stage.fake.last().0.argv[2], "'git' 'status' '-s' | 'wc' '-l'");
    for (tool, args) in [
        ("cmd.run", json!({ "command": "git push && git status" })),
        ("cmd.run", json!({ "command": "git", "args": ["push"] })),
        ("cmd.run", json!({ "command": "/usr/bin/wc" })),
        ("bash", json!({ "command": "wc x\nrm x" })),
        ("process_start", json!({ "command": "sh", "args": ["-c", "wc"] })),
    ] {
        assert_eq!(code(&stage, tool, args.clone()).await, "command_not_allowed", "{args}");
    }
    for line in ["wc $(rm x)", "wc `rm`", "wc <(rm x)", "wc <<< x", "wc() { rm x; }; wc"] {
        assert_eq!(code(&stage, "bash", json!({ "command": line })).await, "command_not_judged");
    }
    let stage = Stage::new(restricted(&["wc"], false)).await;
    assert_eq!(code(&stage, "bash", json!({ "command": "wc x" })).await, "command_needs_shell");
    assert!(stage.fake.was_idle(), "nothing that was refused has run");
}

#[tokio::test]
async fn allowed_commands_get_the_variables_that_the_operator_names() {
    let allow_variables = vec!["LC_*".to_owned()];
    let options = Options { allow_variables, ..restricted(&["git status", "python3"], false) };
    let stage = Stage::new(options).await;
    stage.fake.ends(CommandEnd::default());
    let run = |name: &str| json!({ "command": "git status", "env_additions": { name: "1" } });
    stage.call("cmd.run", run("LC_ALL")).await.expect("it is named");
    let spec = stage.fake.last().0;
    assert!(spec.inherits("LC_TIME") && !spec.inherits("GIT_CONFIG_COUNT"), "by set_env neither");
    assert_eq!(code(&stage, "cmd.run", run("GIT_CONFIG_COUNT")).await, "command_not_allowed");
    let args =
        |env: &str| json!({ "command": "git", "args": ["status"], "env": [env], "pty": true });
    stage.call("process_start", args("LC_ALL=C")).await.expect("it is named");
    assert_eq!(code(&stage, "process_start", args("GIT_PAGER=x")).await, "command_not_allowed");
    let args = |name: &str| json!({ "code": "", "env": { name: "1" } });
    stage.call("run_code", args("LC_ALL")).await.expect("it is named");
    assert_eq!(code(&stage, "run_code", args("PYTHONSTARTUP")).await, "command_not_allowed");
}

#[tokio::test]
async fn an_entry_point_is_judged_with_the_arguments_of_the_call() {
    let stage = Stage::new(restricted(&["/tini /app serve", "/tini /app --help"], false)).await;
    stage.fake.ends(CommandEnd::default());
    let with = |more: Value| {
        let mut args = json!({ "command": "", "entrypoint": true });
        args.as_object_mut().expect("one").extend(more.as_object().expect("one").clone());
        args
    };
    for (more, argv, workdir) in [
        (json!({}), &["/tini", "/app", "--help"][..], "/srv"),
        (json!({ "args": [] }), &["/tini", "/app", "--help"], "/srv"),
        (json!({ "command": "serve" }), &["/tini", "/app", "serve"], "/srv"),
        (json!({ "args": ["serve", "a b"] }), &["/tini", "/app", "serve", "a b"], "/srv"),
    ] {
        let ran = stage.call("cmd.run", with(more.clone())).await.expect("allowed");
        let (spec, _) = stage.fake.last();
        assert_eq!((&ran["argv"], &ran["shell"]), (&json!(argv), &json!(false)), "{more}");
        assert_eq!(
            (spec.argv, &*spec.workdir),
            (argv.iter().map(|it| (*it).to_owned()).collect(), workdir),
            "{more}"
        );
        stage.call("process_start", with(more.clone())).await.expect("allowed");
        let spec = stage.fake.started().command;
        assert_eq!((spec.argv.len(), &*spec.workdir), (argv.len(), workdir), "{more}");
    }
    stage
        .call("cmd.run", with(json!({ "command": "serve --port 80", "cwd": "sub" })))
        .await
        .expect("ran");
    let (spec, _) = stage.fake.last();
    assert_eq!(spec.argv, ["/tini", "/app", "serve", "--port", "80"]);
    assert_eq!(spec.workdir, "/root-of-own/sub");
    for (tool, more, refused) in [
        ("cmd.run", json!({ "command": "rm" }), "command_not_allowed"),
        ("process_start", json!({ "command": "rm" }), "command_not_allowed"),
        ("cmd.run", json!({ "command": "serve; rm x" }), "invalid_input"),
        ("cmd.run", json!({ "command": "script:my tool" }), "invalid_input"),
        ("cmd.run", json!({ "cwd": "/etc" }), "invalid_path"),
        ("process_start", json!({ "dir": "../up" }), "invalid_path"),
        ("cmd.run", json!({ "entrypoint": false }), "invalid_input"),
        ("process_start", json!({ "entrypoint": false }), "invalid_input"),
        // What is listed is the line, not the program that a call names.
        (
            "cmd.run",
            json!({ "command": "/tini", "args": ["/app", "serve"] }),
            "command_not_allowed",
        ),
    ] {
        assert_eq!(code(&stage, tool, with(more.clone())).await, refused, "{tool} {more}");
    }
}

#[tokio::test]
async fn a_script_of_the_library_is_put_into_the_place_and_run_by_its_interpreter() {
    let stage = Stage::new(Options::default()).await;
    stage.fake.ends(CommandEnd::default());
    let args = json!({ "command": "script:my tool", "args": ["a b"], "script_version": 1 });
    let ran = stage.call("cmd.run", args).await.expect("ran");
    assert_eq!((&ran["script_version"], &ran["shell"]), (&json!(1), &json!(false)));
    let (place, path, text) = stage.fake.programs().remove(0);
    assert_eq!((&*place, &*text), ("own", "#!/usr/bin/env python3\n1"));
    assert_eq!(stage.fake.last().0.argv, ["/usr/bin/env", "python3", &path, "a b"]);

    let ran = stage.call("cmd.run", json!({ "command": "script:my tool" })).await.expect("ran");
    assert_eq!(ran["script_version"], 2);
    let newest = stage.fake.programs().remove(1).1;
    assert_ne!(newest, path);
    assert_eq!(stage.fake.last().0.argv, ["/bin/sh", &newest]);

    for (args, refused) in [
        (json!({ "command": "script:other" }), "script_not_found"),
        (json!({ "command": "script:my tool", "script_version": 3 }), "script_not_found"),
        (json!({ "command": "true", "script_version": 1 }), "invalid_input"),
    ] {
        assert_eq!(code(&stage, "cmd.run", args.clone()).await, refused, "{args}");
    }
    let stage = Stage::new(restricted(&["python3"], true)).await;
    let refused = code(&stage, "cmd.run", json!({ "command": "script:my tool" })).await;
    assert_eq!(refused, "command_not_allowed");
    assert!(stage.fake.programs().is_empty() && stage.fake.was_idle());
}

#[tokio::test]
async fn bash_answers_in_its_shape_and_says_when_it_was_sh() {
    let stage = Stage::new(Options::default()).await;
    let long = "ä".repeat(150_000);
    stage.fake.ends(CommandEnd {
        exit_code: 2,
        stdout: stream(&long, long.len() as u64),
        stderr: stream("oops", 4),
        ..CommandEnd::default()
    });
    let ran = stage.call("bash", json!({ "command": "x" })).await.expect("a result");
    assert_eq!((&ran["is_error"], &ran["shell"]), (&json!(true), &json!("bash")));
    let output = ran["output"].as_str().expect("text");
    assert_eq!(output.chars().filter(|c| *c == 'ä').count(), 100_000);
    assert!(output.ends_with("of 300000 bytes]\nSTDERR:\noops") && ran["truncated"] == true);
    assert_eq!(stage.fake.last().1.timeout_secs, 120);

    stage.fake.has_no("bash");
    stage.fake.ends(CommandEnd::default());
    let ran =
        stage.call("bash", json!({ "command": "x", "timeout": 600 })).await.expect("a result");
    assert_eq!((&ran["shell"], &ran["output"]), (&json!("sh"), &json!("(no output)")));
    assert_eq!((&ran["is_error"], stage.fake.last().0.argv[0].as_str()), (&json!(false), "sh"));
}

#[tokio::test]
async fn a_thought_is_a_durable_event_of_the_session() {
    let stage = Stage::new(Options::default()).await;
    let told =
        stage.call("think", json!({ "thought": "first look, then cut" })).await.expect("told");
    let seq = hivekeep_store::Seq::new(told["event"].as_u64().expect("a number"));
    let page = stage.rig.daemon.journal.events().read(seq, 1).expect("read");
    assert_eq!(page.events[0].kind, "session.thought");
    assert_eq!(page.events[0].data["thought"], "first look, then cut");
    assert_eq!(page.events[0].subject, stage.rig.session.to_string());
}

#[tokio::test]
async fn processes_are_started_written_to_read_and_ended() {
    let stage = Stage::new(Options::default()).await;
    let args = json!({
        "command": "python3", "args": ["-i"], "dir": "app", "env": ["A=b=c"], "pty": true, "rows": 30,
    });
    let started = stage.call("process_start", args).await.expect("started");
    let spec = stage.fake.started();
    assert_eq!(
        (spec.command.env["A"].as_str(), spec.command.env["TERM"].as_str()),
        ("b=c", "xterm-256color")
    );
    assert_eq!(spec.terminal.map(|size| (size.rows, size.cols)), Some((30, 80)));
    assert_eq!((&started["pid"], &started["args"]), (&json!(42), &json!(["-i"])));
    assert!(started["startedAt"].is_string());
    let id = started["id"].clone();
    assert_eq!(
        code(&stage, "process_start", json!({ "command": "a", "env": ["A"] })).await,
        "invalid_input"
    );

    let sent =
        stage.call("process_input", json!({ "id": id, "input": "12345" })).await.expect("sent");
    assert_eq!((&sent["success"], &sent["written_bytes"]), (&json!(false), &json!(3)));
    assert_eq!(
        code(&stage, "process_input", json!({ "id": id, "input": "" })).await,
        "invalid_input"
    );

    let span =
        |from, bytes: &[u8], end| ProcessSpan { from, bytes: bytes.into(), end, total_bytes: end };
    stage.fake.wrote(span(10, "a\u{e4}".as_bytes().split_at(2).0, 20), span(0, b"err", 3));
    let read =
        stage.call("process_output", json!({ "id": id, "stdout_from": 4 })).await.expect("read");
    assert_eq!((&read["output"], &read["stderr"]), (&json!("aerr"), &json!("err")));
    assert_eq!((&read["stdout_next"], &read["stdout_lost"]), (&json!(11), &json!(6)));
    assert_eq!((&read["more"], &read["status"]), (&json!(true), &json!("running")));

    stage.fake.is(ProcessState::Signalled(9));
    let ended = stage.call("process_stop", json!({ "id": id })).await.expect("stopped");
    assert_eq!(
        (&ended["success"], &ended["status"], &ended["signal"]),
        (&json!(true), &json!("killed"), &json!(9))
    );
    assert_eq!(stage.fake.grace_secs(), 10);
    stage.call("process_kill", json!({ "id": id })).await.expect("killed");
    assert_eq!(stage.fake.grace_secs(), 0);

    for (state, status) in [
        (ProcessState::Exited(4), "exited"),
        (ProcessState::Interrupted, "interrupted"),
        (ProcessState::Unknown("down".to_owned()), "unknown"),
        (ProcessState::Running, "running"),
    ] {
        let may_run = matches!(status, "unknown" | "running");
        stage.fake.is(state);
        let listed = stage.call("process_list", json!({})).await.expect("listed");
        let row = &listed["processes"][0];
        assert_eq!((&row["status"], &row["dir"]), (&json!(status), &json!("/root-of-own/app")));
        assert!(row["duration"].as_u64().is_some());
        let only =
            stage.call("process_list", json!({ "running_only": true })).await.expect("listed");
        assert_eq!(only["total"], usize::from(may_run), "{status}");
    }
    let elsewhere = stage.call("process_list", json!({ "place": "other" })).await.expect("listed");
    assert_eq!(elsewhere["total"], 0);
}

#[test]
fn rules_that_cannot_work_are_told() {
    use hivekeep_runtime::FamilyOptions as _;
    assert_eq!(Options::default().problems(), []);
    let bad = restricted(&["", "./x", "a/b", "/bin/ls"], true);
    assert_eq!(bad.problems().len(), 3);
}

pub(crate) type Answer<T> = Result<T, ToolError>;

#[tokio::test]
async fn bytes_go_both_ways_and_a_read_waits_in_the_guest() {
    let stage = Stage::new(Options::default()).await;
    let args = json!({ "command": "cat", "stdin": false });
    let id = stage.call("process_start", args).await.expect("started")["id"].clone();
    assert!(!stage.fake.started().input);
    stage.call("process_start", json!({ "command": "cat" })).await.expect("started");
    assert!(stage.fake.started().input);
    let both = json!({ "command": "cat", "stdin": false, "pty": true });
    assert_eq!(code(&stage, "process_start", both).await, "invalid_input");

    let span = |bytes: &[u8]| ProcessSpan { from: 2, bytes: bytes.into(), end: 9, total_bytes: 9 };
    stage.fake.wrote(span(&[0, 255, 195]), span(b"e"));
    let args = json!({ "id": id, "wait_secs": 7, "encoding": "base64", "stdout_from": 2 });
    let read = stage.call("process_output", args).await.expect("read");
    assert_eq!((&read["stdout_base64"], &read["stderr_base64"]), (&json!("AP/D"), &json!("ZQ==")));
    assert_eq!((&read["output"], &read["stdout_next"]), (&json!(""), &json!(5)));
    assert_eq!(stage.fake.waited().as_secs(), 7);
    let read = stage.call("process_output", json!({ "id": id })).await.expect("read");
    assert!(read["stdout_base64"].is_null() && stage.fake.waited().is_zero());

    let sent = json!({ "id": id, "input": "AP/D", "encoding": "base64" });
    let sent = stage.call("process_input", sent).await.expect("sent");
    assert_eq!((&sent["success"], stage.fake.input_was()), (&json!(true), vec![0, 255, 195]));
    for input in ["A", &"AAAA".repeat(22_000)] {
        let args = json!({ "id": id, "input": input, "encoding": "base64" });
        let refused = code(&stage, "process_input", args).await;
        assert_eq!(refused, if input == "A" { "invalid_input" } else { "too_large" });
    }
    let sized = json!({ "id": id, "rows": 40, "cols": 100 });
    stage.call("process_resize", sized).await.expect("resized");
    let sent = stage.call("process_signal", json!({ "id": id, "signal": 2 })).await.expect("sent");
    assert_eq!((&sent["sent"], &sent["status"]), (&json!(true), &json!("running")));
    let (size, signal) = stage.fake.size_and_signal();
    assert_eq!((size.map(|size| (size.rows, size.cols)), signal), (Some((40, 100)), 2));
}
