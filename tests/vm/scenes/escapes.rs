//! Ways out of a sandbox and of what is mounted into it, tried on each path of each tool that has one there.

#[path = "../../it/escapes/calls.rs"]
#[expect(dead_code, reason = "the rest of the table is for tests/it")]
mod calls;
#[path = "../../it/escapes/trap.rs"]
mod trap;

use std::{collections::BTreeSet, fs, os::unix::fs::chown};

use serde_json::{Value, json};

use super::{
    repositories::{done, hub},
    volumes,
};
use crate::house::House;
use calls::Call;
use trap::{Ended, Trap, paths};

/// What is outside.
pub(crate) const SECRET: &str = "secret outside";
/// Owner of the folder of the host.
const FOLK: u32 = 64_781;

fn ended(house: &House, tool: &str, args: &Value) -> Ended {
    match house.try_call(tool, args.clone()) {
        Ok(answer) => Ended { failed: false, text: answer.to_string() },
        Err(Some(refusal)) => Ended { failed: true, text: refusal.text },
        Err(None) => panic!("the daemon died over {tool} {args}\n{}", house.stderr()),
    }
}

/// Calls each of them; nothing outside is told or changed. Returns the tools that were not refused.
fn try_each(house: &House, trap: &mut Trap, calls: Vec<Call>) -> BTreeSet<&'static str> {
    let each = calls.into_iter().filter_map(|(tool, args)| {
        let (what, ended) = (trap::shown(tool, &args), ended(house, tool, &args));
        trap::tell_nothing(&what, &ended);
        trap.assert_nothing_left(&what);
        (!ended.failed).then_some(tool)
    });
    each.collect()
}

/// Ways out, as a guest lays them in its own tree.
fn lay_in_guest(house: &House, folder: &str, trap: &Trap) {
    let outside = trap.outside.display();
    let links: String =
        trap::LINKS.iter().map(|(name, to)| format!("ln -s {to} {name} && ")).collect();
    let script = format!(
        "mkdir -p {folder} && cd {folder} && rm -rf mine moved new clone sparse d rel file *.md dangling proc cwd loop abs zero pipe ../outside && \
         mkdir -p d ../outside/d && echo of the guest > ../outside/f && echo mine > mine && {links} \
         ln -s {outside} abs && ln -s /dev/zero zero && mkfifo pipe && echo odd > \"$(printf 'odd \\377')\""
    );
    house.exec("w", &script);
}

/// A tree of the host that is no place of anybody's: what a guest's paths may lead to is its own.
fn beside(house: &House) -> Trap {
    Trap::new(house.path().join("beside"))
}

/// A repository whose first commit is the same wherever it is made.
const REPOSITORY: &str = "export GIT_AUTHOR_DATE='@1 +0000' GIT_COMMITTER_DATE='@1 +0000' && cd /workspace && git init -qb main repo && \
    cd repo && git config user.name a && git config user.email a@b.example && echo x > f && git add f && git commit -qm one && \
    git clone -q --bare . /workspace/up.git && git remote add origin /workspace/up.git && git fetch -q";

pub fn no_path_leads_out_of_a_sandbox(house: House) {
    let pid = house.pid();
    for name in ["w", "x"] {
        house.create(name);
        house.exec(name, REPOSITORY);
    }
    house.exec("x", "cd /workspace/repo && echo y > g && git add g && git commit -qm two");
    let mut trap = beside(&house);
    fs::write(house.path().join("state/transfers/mine"), "mine").expect("written");
    let all = |path: &str| {
        let files = [calls::in_place("w", path), calls::in_workspace(path)].concat();
        [files, calls::commands("w", path), calls::git_in_workspace(path)].concat()
    };
    let mut lay = || {
        lay_in_guest(&house, "/workspace", &trap);
        let change =
            format!("cd /workspace && printf '{SECRET}' > mine && date > repo/$(date +%N)");
        house.exec("w", &change);
    };
    trap::assert_each_works(&mut lay, &mut |tool, args| ended(&house, tool, &args), &all);
    for path in paths(&trap.outside) {
        lay_in_guest(&house, "/workspace", &trap);
        try_each(&house, &mut trap, all(&path));
    }
    // The guest exchanges a folder and a link to another process's root while its tools work.
    lay_in_guest(&house, "/workspace", &trap);
    let swap = "cd /workspace; while :; do mv -T swap s && mv -T evil swap && mv -T swap evil && mv -T s swap && \
                echo >> /tmp/swaps || { rm -rf swap s evil; mkdir swap; ln -s /proc/1/root evil; }; done 2>&-";
    let start = json!({ "workspace_id": "w", "action": "start", "command": swap });
    house.call("exec_background", start);
    for path in ["swap/f", "swap/etc/hostname", "swap/new"].repeat(3) {
        try_each(&house, &mut trap, all(path));
    }
    assert_ne!(house.exec("w", "wc -l < /tmp/swaps").trim(), "0", "nothing was swapped");
    assert_eq!(house.exec("w", "echo lives"), "lives\n");
    assert_eq!(house.pid(), pid);
}

pub fn no_path_of_the_host_leads_out_of_where_it_begins(mut house: House) {
    let call_with = |house: &House, trap: &mut Trap, tools: &dyn Fn(&str) -> Vec<Call>| {
        let mut call = |tool: &str, args: Value| {
            let mut ended = ended(house, tool, &args);
            if tool == "file_transfer" && args["direction"] == "upload" && !ended.failed {
                ended.text += &house.exec("w", "cat /tmp/uploaded");
            }
            ended
        };
        trap.try_all(&mut call, tools);
    };
    house.create("w");
    let mut trap = Trap::new(house.path().join("state/transfers"));
    call_with(&house, &mut trap, &calls::of_host);
    // A folder of the host that commands run beside.
    let folder = house.path().join("place/work");
    fs::create_dir_all(&folder).expect("made");
    chown(&folder, Some(FOLK), Some(FOLK)).expect("root gives it away");
    let config = house.path().join("config.toml");
    let text = fs::read_to_string(&config).expect("read");
    let more = format!("[session.places.work]\nfolder = {folder:?}\nread_only = false\n");
    fs::write(&config, text + &more).expect("written");
    house.kill();
    house.start();
    let mut trap = Trap::new(folder);
    call_with(&house, &mut trap, &|path| calls::commands("work", path));
    assert_eq!(house.exec("w", "echo lives"), "lives\n");
}

pub fn no_mount_leads_out_of_a_sandbox(house: House) {
    let size = json!({ "label": "v", "size_limit_bytes": 16 << 20 });
    house.call("aegis.volume.create", size);
    house.create("w");
    let mut trap = beside(&house);
    lay_in_guest(&house, "/trap", &trap);
    house.call("workspace_stop", json!({ "workspace_id": "w" }));
    let mut mounted = BTreeSet::new();
    for path in paths(&trap.outside) {
        for path in [path.clone(), format!("/trap/{path}")] {
            for call in calls::mounts(&path) {
                let undo = match try_each(&house, &mut trap, vec![call]).pop_first() {
                    Some(tool @ "workspace_create") => (tool, "workspace_destroy", "made"),
                    Some(tool) => (tool, "workspace_stop", "w"),
                    None => continue,
                };
                mounted.insert(undo.0);
                house.call(undo.1, json!({ "workspace_id": undo.2 }));
            }
        }
        let names = if path.is_empty() { Vec::new() } else { calls::by_name(&path) };
        assert_eq!(try_each(&house, &mut trap, names), BTreeSet::new(), "{path}");
    }
    assert_eq!(mounted.len(), 2, "what is refused is refused for its path: {mounted:?}");
    house.call("workspace_start", json!({ "workspace_id": "w", "volumes": [] }));
    assert_eq!(house.exec("w", "echo lives"), "lives\n");
    house.call("aegis.volume.delete", json!({ "volume_id": "v" }));
    volumes::nothing_is_left(&house, "mounts");
}

pub fn no_path_leads_out_of_a_repository(house: House) {
    hub(&house);
    let mut trap = beside(&house);
    let outside = trap.outside.display().to_string();
    house.exec("hub", &format!("cd /hub && ln -s {outside} abs && ln -s ../outside rel && ln -s /proc/self/root proc && mkfifo pipe"));
    let app = json!({ "repo_url": "volume://hub/app.git", "label": "app" });
    house.call("aegis.git.clone", app);
    assert_eq!(done(&house, "app")["status"], "ready");
    let mut ready = 0;
    for path in paths(&trap.outside) {
        for (tool, args) in calls::repositories(&path) {
            let label = args["label"].clone();
            let taken = try_each(&house, &mut trap, vec![(tool, args)]);
            if tool == "aegis.git.clone" && !taken.is_empty() {
                let row = done(&house, label.as_str().expect("a label"));
                ready += u32::from(row["status"] == "ready");
                house.call("aegis.git.delete", json!({ "binding_id": label }));
            }
            trap.assert_nothing_left(&path);
        }
    }
    assert!(ready > 0, "what is refused is refused for its path");
    // Whoever has the volume puts links where the tree was, and where the next one is made.
    let volumes = json!([{ "volume": "git-app", "path": "/tree" }]);
    house.call("workspace_create", json!({ "name": "w", "volumes": volumes }));
    for tree in ["/proc/1/root/workspace", outside.as_str(), "/dev/zero"] {
        let lay = format!(
            "cd /tree && rm -rf .app.new && ([ -L app ] || mv app kept) && ln -sfn {tree} app && ln -sfn {tree} .app.new"
        );
        house.exec("w", &lay);
        for tool in ["aegis.git.refresh", "aegis.git.diff", "aegis.git.push", "aegis.git.commit"] {
            let mut args = json!({ "binding_id": "app" });
            if tool == "aegis.git.commit" {
                args["message"] = json!("m");
            }
            try_each(&house, &mut trap, vec![(tool, args)]);
        }
    }
    house.call("workspace_destroy", json!({ "workspace_id": "w" }));
    house.call("aegis.git.delete", json!({ "binding_id": "app" }));
    trap.assert_nothing_left("deleted");
    house.call("workspace_destroy", json!({ "workspace_id": "hub" }));
    volumes::nothing_is_left(&house, "repositories");
}
