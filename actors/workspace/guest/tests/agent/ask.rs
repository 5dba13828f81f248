//! A command that asks for a password, and who is told it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::{fs::PermissionsExt, net::UnixStream};
use std::path::PathBuf;

use hivekeep_protocol::*;

use crate::client::{Host, shell};
use crate::guest::{Guest, eventually, ways};

const SECRET: &str = "tok-5f1d0c77aa";

fn asking(line: &str) -> ExecAsking {
    let credential = Credential {
        origin: "https://example.org".into(),
        username: "somebody".into(),
        secret: Secret::new(SECRET.into()),
    };
    ExecAsking { exec: shell(line), credential: Some(credential) }
}

async fn run(host: &Host, asking: ExecAsking) -> (ExecAsked, String) {
    let mut call = host.call(asking.into_wire()).await;
    let (reply, output) = call.content().await;
    let reply = ExecAsking::reply_of(reply.expect("it ran")).expect("of its kind");
    (reply, String::from_utf8(output).expect("text"))
}

/// Asks as git does.
fn ask(what: &str, url: &str) -> String {
    format!("\"$GIT_ASKPASS\" \"{what} for '{url}': \"; echo \"status $?\"")
}

#[tokio::test]
async fn a_command_is_told_its_own_secret_and_nobody_elses() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let line = [
            ask("Username", "https://example.org"),
            ask("Password", "https://somebody@example.org"),
            ask("Password", "https://somebody@evil.example.org"),
            ask("Password", "http://example.org"),
        ];
        let (asked, output) = run(&host, asking(&line.join("; "))).await;
        assert_eq!(
            output,
            format!("somebody\nstatus 0\n{SECRET}\nstatus 0\nstatus 1\nstatus 1\n"),
            "{way:?}"
        );
        assert_eq!((asked.answered, asked.rejected), (2, false));
        assert_eq!(asked.unanswered.as_deref(), Some("http://example.org"));

        let none = ExecAsking { credential: None, ..asking(&line[0]) };
        let (asked, output) = run(&host, none).await;
        assert_eq!(output, "status 1\n");
        assert_eq!((asked.answered, asked.unanswered.as_deref()), (0, Some("https://example.org")));

        // As git's keeper of credentials: nothing is there, and a refusal is heard.
        let keeper = "h=$GIT_CONFIG_VALUE_1; echo x | $h get; echo x | $h store; echo x | $h erase";
        let (asked, output) = run(&host, asking(keeper)).await;
        assert_eq!((output.as_str(), asked.rejected, asked.answered), ("", true, 0));
    }
}

#[tokio::test]
async fn nothing_of_it_is_in_the_environment_or_the_run_folder() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let line = format!(
            "{}; env; tr '\\0' '\\n' < /proc/$$/environ; cat /proc/[0-9]*/cmdline | tr '\\0' ' '; \
             grep -r tok-5f1d0c {} ; ls -l {}",
            ask("Username", "https://example.org"),
            guest.dir.path().display(),
            guest.dir.path().join("run").display(),
        );
        // The word that is looked for stands in the line itself, cut short.
        let (asked, output) = run(&host, asking(&line)).await;
        assert_eq!(asked.answered, 1);
        assert!(output.contains("GIT_ASKPASS=") && !output.contains(SECRET), "{output}");
        assert_eq!(sockets(&guest).len(), 0, "the socket outlived the command");
    }
}

#[tokio::test]
async fn a_process_that_is_not_of_the_command_is_told_nothing() {
    for way in ways() {
        let guest = Guest::start(way);
        let host = Host::to(&guest).await;
        let stop = guest.dir.path().join("stop");
        let wait = format!("while [ ! -e {} ]; do sleep 0.02; done", stop.display());
        let line = format!("{wait}; {}", ask("Password", "https://example.org"));
        let mut call = host.call(asking(&line).into_wire()).await;
        eventually("there is a socket", || sockets(&guest).len() == 1);
        let socket = sockets(&guest).remove(0);
        let path = socket.clone();
        let steal = move || {
            let mut stream = UnixStream::connect(path).expect("it listens");
            let _ = stream.write_all(b"Password for 'https://example.org': ");
            let _ = stream.shutdown(Shutdown::Write);
            let mut told = String::new();
            let _ = stream.read_to_string(&mut told);
            told
        };
        // This test is no descendant of the daemon, and another command is not that command.
        let told = tokio::task::spawn_blocking(steal).await.expect("it asked");
        assert_eq!(told, "", "{way:?}");
        let other = format!(
            "export HIVEKEEP_ASK={}; {} \"Password for 'https://example.org': \"; echo \"status $?\"",
            socket.display(),
            guest.dir.path().join("run/hivekeep-askpass").display()
        );
        assert_eq!(host.sh(&other).await.stdout, b"status 1\n", "{way:?}");
        std::fs::write(&stop, "").expect("written");
        let (reply, output) = call.content().await;
        assert_eq!(output, format!("{SECRET}\nstatus 0\n").as_bytes());
        let asked = ExecAsking::reply_of(reply.expect("it ran")).expect("of its kind");
        assert_eq!((asked.answered, asked.unanswered), (1, None));
    }
}

#[tokio::test]
async fn a_user_of_a_command_is_told_its_secret() {
    if !rustix::process::geteuid().is_root() {
        hivekeep_skip::skip("only root's guest has other users");
        return;
    }
    for way in ways() {
        let guest = Guest::start(way);
        std::fs::set_permissions(guest.dir.path(), PermissionsExt::from_mode(0o755)).expect("set");
        let host = Host::to(&guest).await;
        let line = format!(
            "id -u; {}; stat -c '%u %a' \"$HIVEKEEP_ASK\"",
            ask("Username", "https://example.org")
        );
        let as_user = |user: &str, workdir: Option<&str>| {
            let mut asking = asking(&line);
            asking.exec.argv = asking.exec.argv.as_user(user);
            asking.exec.workdir = workdir.map(str::to_owned);
            asking
        };
        let told = |id| format!("{id}\nsomebody\nstatus 0\n{id} 600\n");
        assert_eq!(run(&host, as_user("4711", None)).await.1, told(4711), "{way:?}");

        // The nearest `.git` says who the owner of a repository is, however one gets there.
        let made = "mkdir -p r/.git r/sub; chown 4712 r/.git; ln -s r/sub link; pwd";
        let made = format!("cd {}; {made}", guest.dir.path().display());
        let folder = String::from_utf8(host.sh(&made).await.stdout).expect("text");
        for (name, id) in [("r", 4712), ("r/sub", 4712), ("link", 4712), (".", 0)] {
            let asking =
                as_user(Argv::REPOSITORY_OWNER, Some(&format!("{}/{name}", folder.trim())));
            assert_eq!(run(&host, asking).await.1, told(id), "{way:?} {name}");
        }
    }
}

/// Sockets of commands that run.
fn sockets(guest: &Guest) -> Vec<PathBuf> {
    let run = std::fs::read_dir(guest.dir.path().join("run")).expect("the run folder");
    run.flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("ask-"))
        .map(|entry| entry.path())
        .collect()
}
