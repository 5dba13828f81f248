//! Repositories in a workspace, by its own git.

use serde_json::json;

use crate::house::{House, Kind};

/// A work tree is made from a repository, changed, looked at, committed and pushed to another.
pub fn a_repository_goes_round(house: &mut House) {
    let made = "mkdir -p /srv && cd /srv && git init -q -b main work && cd work && echo one > told && git add . && \
                git -c user.name=a -c user.email=a@b.example commit -qm one && \
                git clone -q --bare . /srv/from.git && git clone -q --bare . /srv/to.git";
    house.exec("w", made);
    let at = |extra: serde_json::Value| {
        let mut args = json!({ "workspace_id": "w", "path": "r" });
        args.as_object_mut().expect("an object").extend(extra.as_object().expect("one").clone());
        args
    };
    let cloned = house.call("git_clone", at(json!({ "url": "file:///srv/from.git" })));
    assert_eq!((&cloned["path"], &cloned["branch"]), (&json!("/workspace/r"), &json!("main")));
    let taken = house.refused("git_clone", at(json!({ "url": "file:///srv/from.git" })));
    assert_eq!(taken.code, "destination_not_empty");
    house.exec("w", "cd r && git mv told 'other name' && echo two >> 'other name' && echo x > -n");
    let status = house.call("git_status", at(json!({})));
    assert_eq!(status["staged"], json!(["other name"]), "{status}");
    assert_eq!(
        (&status["modified"], &status["untracked"]),
        (&json!(["other name"]), &json!(["-n"]))
    );
    assert_eq!((&status["ahead"], &status["dirty"]), (&json!(0), &json!(true)));
    let diff = house.call("git_diff", at(json!({ "file_path": "other name" })));
    assert!(diff["diff"].as_str().is_some_and(|text| text.contains("+two")), "{diff}");
    let author = json!({ "message": "$(id) `id`", "author_name": "An Author", "author_email": "c@d.example" });
    let committed = house.call("git_commit", at(author.clone()));
    assert_eq!(committed["status"], "committed", "{committed}");
    assert_eq!(house.call("git_commit", at(author))["status"], "nothing_to_commit");
    house.exec("w", "git -C r remote set-url origin file:///srv/to.git");
    let pushed = house.call("git_push", at(json!({ "set_upstream": true })));
    assert_eq!((&pushed["status"], &pushed["branch"]), (&json!("pushed"), &json!("main")));
    let there = house.exec("w", "git -C /srv/to.git log -1 --format='%H %an %s'");
    let sha = committed["commit_sha"].as_str().expect("a commit");
    assert_eq!(there, format!("{sha} An Author $(id) `id`\n"));
    house.exec("w", "git -C r -c user.name=b -c user.email=b@c.example commit -q --amend -m other");
    let behind = house.refused("git_push", at(json!({})));
    assert_eq!(behind.code, "non_fast_forward", "{}", behind.text);
    let plain = house.refused("git_status", json!({ "workspace_id": "w", "path": "/srv" }));
    assert_eq!(plain.code, "not_a_repository");
}

/// The way of a credential into a machine, where the daemon's own binary is the askpass and
/// has no other name. What stands in for git's http is a script, which tells what it was told;
/// the real one goes to a real server in `network/https.rs`.
pub fn a_secret_is_asked_for_over_the_link(house: &mut House) {
    let script = "#!/bin/sh\n\
        about='protocol=http\nhost=127.0.0.1:8099'\n\
        told=$(printf '%s\\n\\n' \"$about\" | git credential fill) || exit 128\n\
        word=${told##*password=}\n\
        printf '%s %s' \"${#word}\" \"${told%%password=*}\" | tr '\\n' ' ' > /srv/told\n\
        tr '\\0' '\\n' < /proc/$$/environ > /srv/environ\n\
        [ ${#word} = 18 ] && approve=approve || approve=reject\n\
        printf '%s\\n\\n' \"$told\" | git credential $approve\n\
        exit 1\n";
    let helper = "mkdir -p /srv && git config --global credential.helper store && git --exec-path";
    let folder = house.exec("w", helper);
    let path = format!("{}/git-remote-http", folder.trim());
    let write = json!({ "workspace_id": "w", "path": path, "content": script, "mode": "0755" });
    house.call("file_write", write);
    let clone = |token: Option<&str>, user: &str| {
        let url = "http://127.0.0.1:8099/r.git";
        let mut args = json!({ "workspace_id": "w", "path": "/srv/r", "url": url, "user": user });
        if let Some(token) = token {
            args["credential"] = json!({ "username": "somebody", "token": token });
        }
        house.refused("git_clone", args)
    };
    let refused = clone(None, "root");
    assert_eq!(refused.code, "authentication_required", "{}", refused.text);
    assert_eq!(clone(Some("too-short"), "root").code, "authentication_failed");
    const TOKEN: &str = "0123456789-12345ab";
    house.exec("w", "chmod 777 /srv");
    // A sandbox of another daemon than root's has no other users.
    let has_others = house.kind == Kind::Vm || rustix::process::geteuid().is_root();
    for user in ["root", "4711"].into_iter().take(1 + usize::from(has_others)) {
        let refused = clone(Some(TOKEN), user);
        assert_eq!(refused.code, "git_clone_failed", "{}", refused.text);
        let told = house.exec("w", "cd /srv; cat told; rm -f told; mv environ /tmp || true");
        let is_told = told.starts_with("18 ") && told.contains("username=somebody");
        assert!(is_told, "{user}: {told} {}", refused.text);
    }
    // The keeper of credentials that writes them down was not asked to.
    let look = format!(
        "grep -c ^GIT_ASKPASS= /tmp/environ; grep -rl {TOKEN} /root /run /srv /tmp /workspace; ls /run/hivekeep | grep '^ask-'; true"
    );
    assert_eq!(house.exec("w", &look), "1\n");
    // Nobody is answered when no command runs for which there is something to answer.
    let later = "HIVEKEEP_ASK=/run/hivekeep/ask-1-0 /run/hivekeep/hivekeep-askpass \
                 \"Password for 'http://somebody@127.0.0.1:8099': \" 2>/dev/null; echo $?";
    assert_eq!(house.exec("w", later), "1\n");
}
