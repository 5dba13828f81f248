//! Places in the network: taken, kept, given back.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::SeqCst},
};

use hivekeep_link::fake::RequestBehaviour;
use hivekeep_machine::{Error, ExitHow, Isolation, ReattachError};
use hivekeep_ports::{GroupChange, Network as _, NetworkMode, NetworkRequest};
use hivekeep_protocol::{FromGuest, NetworkSet, Quiesced, Reidentified, SetNetwork, ToGuest};
use serde_json::{Value, json};

use crate::{
    network::reach::later,
    workspaces::tests::{
        stage::{Stage, guest},
        wires::Wires,
    },
};

/// What the guest's interface is not as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Flaw {
    Nothing,
    Address,
    Mac,
    Dns,
    Gateway,
}

/// A stage with a network, and what is wrong with its guests.
pub(crate) async fn open(mode: NetworkMode) -> (Stage, Arc<Wires>, Arc<AtomicU8>) {
    let (wires, flaw) = (Wires::new(mode), Arc::new(AtomicU8::new(Flaw::Nothing as u8)));
    let has = flaw.clone();
    let script = move |request: &ToGuest| match request {
        ToGuest::SetNetwork(it) => {
            RequestBehaviour::Reply(Ok(FromGuest::SetNetwork(set(it, has.load(SeqCst)))))
        }
        ToGuest::Quiesce(it) => RequestBehaviour::Reply(Ok(FromGuest::Quiesce(Quiesced {
            frozen: it.freeze_ms.is_some(),
        }))),
        ToGuest::Reidentify(it) => {
            RequestBehaviour::Reply(Ok(FromGuest::Reidentify(Reidentified {
                hostname: it.hostname.clone(),
                machine_id: it.machine_id.clone(),
                instance_id: it.instance_id.clone(),
                clock_unix_ms: i64::try_from(it.clock_unix_ms).unwrap(),
                clock_step_ms: 0,
                entropy_bytes: 64,
            })))
        }
        other => guest(other),
    };
    (Stage::with(wires.clone(), script).await, wires, flaw)
}

fn set(asked: &SetNetwork, flaw: u8) -> NetworkSet {
    let SetNetwork { mut mac, mut address, prefix_len, gateway, mut dns } = *asked;
    let has = |one: Flaw| flaw == one as u8;
    mac[5] ^= u8::from(has(Flaw::Mac));
    address[3] ^= u8::from(has(Flaw::Address));
    dns = dns.filter(|_| !has(Flaw::Dns));
    let gateway_answers = !has(Flaw::Gateway);
    let interface = "eth0".to_owned();
    NetworkSet { interface, mac, address, prefix_len, gateway, dns, gateway_answers }
}

fn user() -> NetworkMode {
    NetworkMode::User { reason: "no rights".to_owned() }
}

/// What the network was asked since, without the looks.
fn since(wires: &Wires, seen: usize) -> Vec<String> {
    wires.calls().split_off(seen)
}

#[tokio::test]
async fn a_place_is_kept_from_creation_to_destruction() {
    let (mut stage, wires, _) = open(NetworkMode::Bridge).await;
    let made = stage.call("workspace_create", json!({ "name": "w", "disk_gb": 1 })).await.unwrap();
    assert_eq!(made["ip"], "10.213.0.11");
    assert_eq!(wires.calls(), ["retain", "join", "cable", "settled"]);
    let id = made["workspace_id"].as_str().unwrap().to_owned();
    let network = stage.info(&id).await["network"].clone();
    assert_eq!(
        (&network["mode"], &network["mac"]),
        (&json!("bridge"), &json!("02:68:0a:d5:00:0b"))
    );
    assert_eq!(network["address"], "10.213.0.11/16");
    let list = stage.call("workspace_list", json!({})).await.unwrap();
    assert_eq!(list["workspaces"][0]["ip"], "10.213.0.11");

    let seen = wires.calls().len();
    stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    let started = stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!(started["ip"], "10.213.0.11");
    assert_eq!(since(&wires, seen), ["cable", "settled"]);
    stage.driver.crash(&id, ExitHow::Signaled { signal: 9 });
    stage.once(&id, |info| info["state"] == "crashed").await;
    stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();

    let seen = wires.calls().len();
    stage.restart().await;
    let info = stage.once(&id, |info| info["state"] == "running").await;
    assert_eq!(
        (&info["ip"], since(&wires, seen)),
        (&json!("10.213.0.11"), vec!["retain".to_owned(), "settled".to_owned()])
    );
    let seen = wires.calls().len();
    stage.call("workspace_destroy", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!((since(&wires, seen), wires.members()), (vec!["leave".to_owned()], vec![]));
}

#[tokio::test]
async fn a_creation_that_the_network_refuses_leaves_nothing() {
    let (stage, wires, _) = open(NetworkMode::Bridge).await;
    for step in ["join", "cable", "settled"] {
        wires.fail_next(step);
        let refused = stage.call("workspace_create", json!({ "name": "w", "disk_gb": 1 })).await;
        assert_eq!(refused.unwrap_err().code, "scripted", "{step}");
        assert_eq!(wires.members(), [], "{step}");
        assert_eq!(stage.daemon.quota.held(), 0, "{step}");
        let list = stage.call("workspace_list", json!({})).await.unwrap();
        let left = list["workspaces"].as_array().unwrap().clone();
        // What was refused before there was a machine has no logs to keep.
        assert_eq!(left.is_empty(), step == "join", "{step}: {list}");
        for failed in left {
            assert_eq!(failed["state"], "failed");
            let id = failed["workspace_id"].as_str().unwrap();
            assert!(!stage.driver.is_running(id));
            stage.call("workspace_destroy", json!({ "workspace_id": id })).await.unwrap();
        }
    }
    assert!(stage.journal.streams("workspace/").unwrap().is_empty());
    stage.create("w").await;
}

#[tokio::test]
async fn a_guest_that_is_not_as_asked_does_not_run() {
    let (stage, wires, flaw) = open(NetworkMode::Bridge).await;
    for (has, word) in [
        (Flaw::Address, "its address is 10.213.0."),
        (Flaw::Mac, "its own address is 02:68:"),
        (Flaw::Dns, "another name server"),
        (Flaw::Gateway, "gateway 10.213.0.1 does not answer"),
    ] {
        flaw.store(has as u8, SeqCst);
        let refused = stage.call("workspace_create", json!({ "disk_gb": 1 })).await.unwrap_err();
        assert_eq!(refused.code, "guest_network_failed", "{has:?}");
        assert!(refused.message.contains(word), "{has:?}: {}", refused.message);
        assert_eq!(wires.members(), []);
    }
    // A start that fails keeps the place: the workspace is still there.
    flaw.store(Flaw::Nothing as u8, SeqCst);
    let id = stage.create("w").await;
    stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    flaw.store(Flaw::Gateway as u8, SeqCst);
    let refused = stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap_err();
    assert_eq!(refused.code, "guest_network_failed");
    assert_eq!(
        (stage.info(&id).await["state"].clone(), wires.members().len()),
        (json!("crashed"), 1)
    );
}

#[tokio::test]
async fn a_machine_without_its_network_is_not_taken_up_again() {
    let (mut stage, _, flaw) = open(NetworkMode::Bridge).await;
    let id = stage.create("w").await;
    flaw.store(Flaw::Address as u8, SeqCst);
    stage.restart().await;
    let info = stage.once(&id, |info| info["state"] == "crashed").await;
    assert!(info["reason"].as_str().unwrap().contains("guest_network_failed"), "{info}");
    assert_eq!(info["process"], "running", "{info}");
}

#[tokio::test]
async fn without_a_network_a_request_for_one_is_refused_and_all_else_works() {
    let mode = NetworkMode::Off { reason: "switched off".to_owned() };
    let (stage, wires, _) = open(mode).await;
    let wanted = json!({ "name": "w", "allow_internet": true });
    let refused = stage.call("workspace_create", wanted).await.unwrap_err();
    assert_eq!(refused.code, "network_unavailable");
    assert!(refused.message.contains("switched off"), "{}", refused.message);
    let wanted = json!({ "name": "w", "disk_gb": 1, "allow_internet": false });
    let made = stage.call("workspace_create", wanted).await.unwrap();
    let id = made["workspace_id"].as_str().unwrap();
    assert_eq!((&made["ip"], wires.calls()), (&Value::Null, vec!["retain".to_owned()]));
    let network = stage.info(id).await["network"].clone();
    assert_eq!((&network["mode"], &network["reason"]), (&json!("off"), &json!("switched off")));
    for (tool, args) in [
        ("network_policy", json!({ "workspace_id": id })),
        ("port_forward", json!({ "workspace_id": id, "action": "add", "guest_port": 80 })),
    ] {
        let refused = stage.call(tool, args).await.unwrap_err();
        assert_eq!(refused.code, "network_unavailable", "{tool}");
    }
}

#[tokio::test]
async fn a_policy_is_shown_and_changed_whether_or_not_it_runs() {
    let (stage, wires, _) = open(NetworkMode::Bridge).await;
    let wanted = json!({ "name": "w", "disk_gb": 1, "allow_internet": true });
    let made = stage.call("workspace_create", wanted).await.unwrap();
    let id = made["workspace_id"].as_str().unwrap().to_owned();
    let policy = |more: Value| {
        let mut args = json!({ "workspace_id": id });
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        stage.call("network_policy", args)
    };
    let shown = policy(json!({})).await.unwrap();
    assert_eq!(
        (&shown["network_policy"]["allow_internet"], &shown["changed"]),
        (&json!(true), &json!(false))
    );
    let set = policy(json!({ "allow_inter_vm": true, "allowed_ports": [80] })).await.unwrap();
    assert_eq!((&set["changed"], &set["verified"]), (&json!(true), &json!(true)));
    let expected = json!({ "allow_internet": true, "allow_inter_vm": true, "allowed_ports": [80], "egress_allow": [] });
    assert_eq!(set["network_policy"], expected);
    assert_eq!(policy(json!({ "allowed_ports": [0] })).await.unwrap_err().code, "invalid_input");
    wires.fail_next("set_policy");
    assert_eq!(policy(json!({ "allow_internet": false })).await.unwrap_err().code, "scripted");
    stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    let set = policy(json!({ "allow_internet": false })).await.unwrap();
    assert_eq!(set["network_policy"]["allow_internet"], false);
    assert_eq!(stage.info(&id).await["network"]["allowed_ports"], json!([80]));
}

#[tokio::test]
async fn forwards_stay_over_stops_and_a_port_has_one_holder() {
    let (stage, wires, _) = open(NetworkMode::Bridge).await;
    let (one, two) = (stage.create("one").await, stage.create("two").await);
    let forward = |id: &str, action: &str, host: Option<u16>| {
        let args =
            json!({ "workspace_id": id, "action": action, "guest_port": 80, "host_port": host });
        stage.call("port_forward", args)
    };
    let added = forward(&one, "add", Some(8080)).await.unwrap();
    assert_eq!((&added["host_port"], &added["guest_port"]), (&json!(8080), &json!(80)));
    let taken = forward(&two, "add", Some(8080)).await.unwrap_err();
    assert_eq!((&*taken.code, &taken.details["workspace"]), ("port_taken", &json!("one")));
    assert!(taken.message.contains("workspace `one`"), "{}", taken.message);
    assert_eq!(forward(&two, "add", Some(80)).await.unwrap_err().code, "invalid_input");
    assert_eq!(forward(&two, "remove", None).await.unwrap_err().code, "forward_not_found");
    stage.call("workspace_stop", json!({ "workspace_id": one })).await.unwrap();
    stage.call("workspace_start", json!({ "workspace_id": one })).await.unwrap();
    let listed = forward(&one, "list", None).await.unwrap();
    assert_eq!(listed["forwards"][0]["host_port"], 8080, "{listed}");
    assert_eq!(stage.info(&one).await["network"]["port_forwards"], listed["forwards"]);
    let removed = forward(&one, "remove", None).await.unwrap();
    assert_eq!(removed["removed"], listed["forwards"]);
    // By the bridge, a machine need not know.
    assert!(!stage.driver.calls().iter().any(|call| call.starts_with("set_forwards")));
    assert_eq!(wires.members().len(), 2);
}

#[tokio::test]
async fn in_user_mode_a_machine_that_runs_is_told_of_its_forwards() {
    let (mut stage, _, flaw) = open(user()).await;
    // Nobody plays a gateway that would have to answer.
    flaw.store(Flaw::Gateway as u8, SeqCst);
    let refused = stage.call("workspace_create", json!({ "allow_internet": true })).await;
    assert_eq!(refused.unwrap_err().code, "policy_unavailable");
    let id = stage.create("w").await;
    let forward = async |stage: &Stage, action: &str| {
        let args =
            json!({ "workspace_id": id, "action": action, "guest_port": 80, "host_port": 8080 });
        stage.call("port_forward", args).await
    };
    let told = |stage: &Stage| {
        let calls = stage.driver.calls().into_iter();
        let told = calls.filter_map(|call| Some(call.strip_prefix("set_forwards ")?.to_owned()));
        told.map(|told| told.replace(&id, "")).collect::<Vec<_>>()
    };
    forward(&stage, "add").await.unwrap();
    forward(&stage, "remove").await.unwrap();
    assert_eq!(told(&stage), [" 127.0.0.1:8080", ""]);
    // What could not be taken from the machine is listed until it can.
    forward(&stage, "add").await.unwrap();
    let broken = || Error::NoInterface { workspace: "w".to_owned() };
    stage.driver.fail_next_forwards(broken());
    let refused = forward(&stage, "remove").await.unwrap_err();
    assert!(refused.next_step.as_ref().is_some_and(|it| it.contains("repeat")), "{refused:?}");
    let listed = forward(&stage, "list").await.unwrap();
    assert_eq!(listed["forwards"][0]["host_port"], 8080, "{listed}");
    forward(&stage, "remove").await.unwrap();
    assert_eq!(told(&stage)[2..], [" 127.0.0.1:8080", "", ""]);
    // And none that the machine could not be given.
    stage.driver.fail_next_forwards(broken());
    forward(&stage, "add").await.unwrap_err();
    assert_eq!(forward(&stage, "list").await.unwrap()["forwards"], json!([]));
    stage.call("workspace_stop", json!({ "workspace_id": id })).await.unwrap();
    forward(&stage, "add").await.unwrap();
    assert_eq!(told(&stage).len(), 6, "a machine that is not there was told");
    stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!(told(&stage).len(), 6, "it is started with them");
    // The daemon may have died between its record and the machine.
    stage.restart().await;
    stage.once(&id, |info| info["state"] == "running").await;
    assert_eq!(told(&stage)[6..], [" 127.0.0.1:8080"]);
}

#[tokio::test]
async fn forks_inherit_the_policy_and_neither_forwards_nor_the_group() {
    let (stage, wires, _) = open(NetworkMode::Bridge).await;
    let wanted = json!({ "name": "w", "disk_gb": 1, "allow_internet": true });
    stage.call("workspace_create", wanted).await.unwrap();
    let source = stage.daemon.shared.directory.card("w").unwrap().id.to_string();
    let add = json!({ "workspace_id": source, "action": "add", "guest_port": 80 });
    stage.call("port_forward", add).await.unwrap();
    assert_eq!(stage.info(&source).await["network"].get("group"), None);
    let group = GroupChange::Join("a-b".parse().unwrap());
    let joins = NetworkRequest { group: Some(group), ..NetworkRequest::default() };
    wires.set_policy(source.parse().unwrap(), joins).await.unwrap();
    assert_eq!(stage.info(&source).await["network"]["group"], "a-b");
    let save =
        json!({ "workspace_id": source, "action": "create", "name": "s", "include_memory": true });
    stage.call("snapshot", save).await.unwrap();
    let fork = |more: Value| {
        let mut args = json!({ "workspace_id": source, "snapshot_name": "s" });
        args.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        stage.call("workspace_fork", args)
    };
    let seen = stage.driver.calls().len();
    let same = fork(json!({})).await.unwrap();
    let id = same["workspace_id"].as_str().unwrap();
    let steps: Vec<_> = stage.driver.calls().split_off(seen);
    // It has let go of the source's address before it is plugged in.
    let order =
        ["prepare", "launch_from", "launch", "resume", "plug"].map(|step| format!("{step} {id}"));
    assert_eq!(steps, order);
    let network = stage.info(id).await["network"].clone();
    assert_eq!((&network["allow_internet"], &network["port_forwards"]), (&json!(true), &json!([])));
    assert_eq!(network.get("group"), None);
    assert_ne!(same["ip"], stage.info(&source).await["ip"]);
    let other =
        json!({ "allow_internet": false, "egress_allow": ["10.1.2.3:5432/tcp"], "count": 3 });
    let forked = fork(other).await.unwrap();
    for worker in forked["workers"].as_array().unwrap() {
        let network = stage.info(worker["workspace_id"].as_str().unwrap()).await["network"].clone();
        assert_eq!(
            (&network["allow_internet"], &network["egress_allow"]),
            (&json!(false), &json!(["10.1.2.3:5432/tcp"]))
        );
    }
    assert_eq!(wires.members().len(), 5);
    let closed = json!({ "workspace_id": source, "allow_internet": false });
    let told = stage.call("network_policy", closed).await.unwrap();
    assert_eq!(told["network_policy"]["group"], "a-b", "a change of something else took it");
}

#[tokio::test]
async fn a_group_needs_a_network_and_a_place_that_is_given_later_is_in_none() {
    let (stage, ..) = open(NetworkMode::Off { reason: "off".to_owned() }).await;
    let of = |group| NetworkRequest { group: Some(group), ..NetworkRequest::default() };
    let joins = of(GroupChange::Join("a".parse().unwrap()));
    let shared = &stage.daemon.shared;
    let refused = shared.check_network(Isolation::Vm, &joins).await.unwrap_err();
    assert_eq!(refused.code, "network_unavailable");
    shared.check_network(Isolation::Vm, &of(GroupChange::Leave)).await.unwrap();
    assert_eq!(later(&joins), NetworkRequest::default());
}

#[tokio::test]
async fn what_was_made_without_a_network_joins_at_its_next_start() {
    let (mut stage, wires, _) = open(NetworkMode::Off { reason: "off".to_owned() }).await;
    let id = stage.create("w").await;
    stage.driver.fail_next_reattach(ReattachError::Ended { pid: 1 });
    let wires_on = Wires::new(NetworkMode::Bridge);
    stage.network = wires_on.clone();
    stage.restart().await;
    stage.once(&id, |info| info["state"] == "crashed").await;
    assert_eq!(wires_on.members(), []);
    let started = stage.call("workspace_start", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!(
        (&started["ip"], wires_on.calls()),
        (
            &json!("10.213.0.11"),
            vec!["retain".to_owned(), "join".to_owned(), "cable".to_owned(), "settled".to_owned()]
        )
    );
    assert_eq!(wires.members(), []);
}

#[tokio::test]
async fn a_launch_that_fails_gives_the_place_back() {
    let (stage, wires, _) = open(NetworkMode::Bridge).await;
    stage.driver.fail_next_launch(Error::BadPlan("by script".to_owned()));
    let refused = stage.call("workspace_create", json!({ "disk_gb": 1 })).await.unwrap_err();
    assert_eq!((&*refused.code, wires.members()), ("machine_plan_invalid", vec![]));
}

#[tokio::test]
async fn a_memory_without_an_interface_gets_no_place() {
    let (mut stage, _, _) = open(NetworkMode::Off { reason: "off".to_owned() }).await;
    let id = stage.create("w").await;
    let save =
        json!({ "workspace_id": id, "action": "create", "name": "s", "include_memory": true });
    stage.call("snapshot", save).await.unwrap();
    let wires = Wires::new(NetworkMode::Bridge);
    stage.network = wires.clone();
    stage.restart().await;
    let info = stage.once(&id, |info| info["state"] == "running").await;
    assert_eq!((&info["ip"], &info["network"]["mode"]), (&Value::Null, &json!("bridge")));
    let why = info["network"]["reason"].as_str().unwrap();
    assert!(why.contains("started without a network"), "{info}");
    let shown = stage.call("network_policy", json!({ "workspace_id": id })).await.unwrap_err();
    assert_eq!(shown.code, "network_unavailable");
    let fork = json!({ "workspace_id": id, "snapshot_name": "s" });
    let forked = stage.call("workspace_fork", fork).await.unwrap();
    assert_eq!((&forked["state"], &forked["ip"]), (&json!("running"), &Value::Null));
    // More than an address was promised.
    let fork = json!({ "workspace_id": id, "snapshot_name": "s", "allow_internet": true });
    let refused = stage.call("workspace_fork", fork).await.unwrap_err();
    assert_eq!((&*refused.code, wires.members()), ("guest_network_failed", vec![]));
}

#[tokio::test]
async fn the_network_is_told_before_it_sleeps_and_when_it_goes_on() {
    let (mut stage, wires, _) = open(user()).await;
    let id = stage.create("w").await;
    let add = json!({ "workspace_id": id, "action": "add", "guest_port": 80 });
    stage.call("port_forward", add).await.unwrap();
    let told = |wires: &Wires| {
        let calls = wires.calls().into_iter();
        calls.filter(|call| ["parked", "awake"].contains(&call.as_str())).collect::<Vec<_>>()
    };
    let forwards = |stage: &Stage| {
        let calls = stage.driver.calls().into_iter();
        let told = calls.filter(|call| call.starts_with("set_forwards "));
        told.map(|call| call.contains("127.0.0.1")).collect::<Vec<_>>()
    };
    // A park that fails is undone there too.
    stage.driver.fail_next_save(Error::HostDiskFull);
    stage.call("workspace_park", json!({ "workspace_id": id })).await.unwrap_err();
    assert_eq!(told(&wires), ["parked", "awake"]);
    assert_eq!(forwards(&stage), [true, false, true]);
    stage.call("workspace_park", json!({ "workspace_id": id })).await.unwrap();
    stage.restart().await;
    stage.once(&id, |info| info["state"] == "parked").await;
    assert_eq!(told(&wires)[2..], ["parked"]);
    stage.call("workspace_resume", json!({ "workspace_id": id })).await.unwrap();
    assert_eq!(told(&wires)[2..], ["parked", "awake"]);
    assert_eq!(forwards(&stage)[3..], [false, true]);
}
