//! Groups: joined and left, also by a daemon that is killed meanwhile.

use std::net::SocketAddrV4;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hivekeep_kernel::WorkspaceId;
use hivekeep_network::selftest::talk::{self, PATIENCE, QUIET, TestServer};
use hivekeep_network::selftest::test_network::TestNetwork;
use hivekeep_network::{HostAccess, NetworkModeChoice, Options};
use hivekeep_ports::{GroupChange, Network as _, NetworkGroup, NetworkRequest};

use super::super::needs_root;
use super::flow::plug;
use super::{Daemon, ids, on_stage, options, said};

fn group(name: &str) -> Option<NetworkGroup> {
    Some(name.parse().unwrap())
}

fn joins(name: &str) -> NetworkRequest {
    let group = group(name).map(GroupChange::Join);
    NetworkRequest { group, ..NetworkRequest::default() }
}

fn leaves() -> NetworkRequest {
    NetworkRequest { group: Some(GroupChange::Leave), ..NetworkRequest::default() }
}

/// The kernel's set of a group; empty where there is none.
fn kept(name: &str) -> String {
    said(&format!("nft list set inet hivekeep-test group_{name}"))
}

#[test]
fn a_member_is_in_one_group_until_it_leaves_and_over_restarts() {
    needs_root!();
    on_stage(|folder| async move {
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        let network = &daemon.network;
        let [one, other] = ids();
        let of = |daemon: &Daemon, id| daemon.network.view(id).unwrap().policy.group;
        let at = network.join(one, joins("a")).await.unwrap().address.to_string();
        let beside = network.join(other, joins("a-b")).await.unwrap().address.to_string();
        network.settled(other).await.unwrap();
        assert_eq!([of(&daemon, one), of(&daemon, other)], [group("a"), group("a-b")]);
        assert!(kept("a").contains(&at) && !kept("a").contains(&beside), "{}", kept("a"));
        assert!(kept("a-b").contains(&beside) && !kept("a-b").contains(&at), "{}", kept("a-b"));
        // A request that does not speak of it leaves it.
        let request = NetworkRequest { allow_inter_vm: Some(true), ..NetworkRequest::default() };
        assert_eq!(network.set_policy(other, request).await.unwrap().group, group("a-b"));
        assert_eq!(network.set_policy(other, joins("a")).await.unwrap().group, group("a"));
        assert!(kept("a").contains(&beside), "{}", kept("a"));
        assert_eq!(kept("a-b"), "", "the set of a group without members stays");
        daemon.stop().await;

        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        daemon.network.settled(other).await.unwrap();
        assert_eq!([of(&daemon, one), of(&daemon, other)], [group("a"), group("a")]);
        assert_eq!(daemon.network.set_policy(one, leaves()).await.unwrap().group, None);
        assert!(kept("a").contains(&beside) && !kept("a").contains(&at), "{}", kept("a"));
        daemon.network.leave(other).await.unwrap();
        daemon.network.settled(one).await.unwrap();
        assert_eq!(kept("a"), "");
        daemon.stop().await;
    });
}

/// The folder of a daemon that is going to be killed.
const VICTIM: &str = "TEST_HIVEKEEP_GROUP_VICTIM";
/// Whether its last change is one into the group.
const JOINS: &str = "TEST_HIVEKEEP_GROUP_JOINS";
/// When it is killed: `before` or `after` the kernel is told.
const WHEN: &str = "TEST_HIVEKEEP_GROUP_WHEN";
/// Its members.
const MEMBERS: &str = "TEST_HIVEKEEP_GROUP_MEMBERS";

/// An nft that kills who called it, once it is told to, `before` or `after` the transaction.
fn deadly_nft(folder: &Path) -> PathBuf {
    let (nft, when) = (folder.join("nft"), folder.join("when"));
    let script = format!(
        "#!/bin/sh\nPATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin\n\
         when=never\ncase \"$*\" in *-f*) [ -e {0} ] && when=$(cat {0});; esac\n\
         [ $when = before ] && {{ kill -9 $PPID; exit 1; }}\n\
         nft \"$@\"\ncode=$?\n[ $when = after ] && kill -9 $PPID\nexit $code\n",
        when.display()
    );
    std::fs::write(&nft, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&nft, mode).unwrap();
    nft
}

#[test]
#[ignore = "a helper process, started by a_change_of_a_group_is_whole"]
fn victim() {
    let folder =
        PathBuf::from(std::env::var_os(VICTIM).expect("a_change_of_a_group_is_whole sets it"));
    let [when, members] = [WHEN, MEMBERS].map(|name| std::env::var(name).unwrap());
    let [mate, id] = [0, 1].map(|at| members.split(' ').nth(at).unwrap().parse().unwrap());
    let ends_in = std::env::var_os(JOINS).is_some();
    super::super::block_on(async {
        let nft_path = folder.join("nft");
        let daemon =
            Daemon::start(&folder, Options { nft_path, ..options(NetworkModeChoice::Bridge) })
                .await;
        let (before, after) = if ends_in { ("a-b", joins("a")) } else { ("a", leaves()) };
        daemon.network.join(mate, joins("a")).await.unwrap();
        daemon.network.join(id, joins(before)).await.unwrap();
        daemon.network.settled(id).await.unwrap();
        std::fs::write(folder.join("when"), when).unwrap();
        let answer = daemon.network.set_policy(id, after).await;
        panic!("it was not killed: {answer:?}");
    });
}

/// What is durable when a daemon is killed is in force after the next start, whether or not the
/// kernel had been told.
#[test]
fn a_change_of_a_group_is_whole() {
    needs_root!();
    for (ends_in, when) in [(true, "before"), (true, "after"), (false, "before"), (false, "after")]
    {
        let stage = TestNetwork::new(HostAccess::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        deadly_nft(&path);
        let members: [WorkspaceId; 2] = ids();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "actor::groups::victim", "--ignored", "--nocapture"]);
        command.env(VICTIM, &path).env(WHEN, when);
        command.env(MEMBERS, members.map(|id| id.to_string()).join(" "));
        if ends_in {
            command.env(JOINS, "1");
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let ended = stage.host.run(move || command.status()).unwrap();
        assert_eq!(ended.signal(), Some(9), "{ended}");
        super::super::killed::settle(&stage);
        let told = when == "after";
        stage.host.block_on(move || async move { look(path, members, ends_in, told).await });
    }
}

/// What is there after the kill, and after the next start.
async fn look(folder: PathBuf, [mate, id]: [WorkspaceId; 2], ends_in: bool, told: bool) {
    // The kernel was told, or not yet.
    let mates = kept("a").matches("10.213.").count();
    assert_eq!(mates, if ends_in == told { 2 } else { 1 }, "{}", kept("a"));
    let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
    daemon.network.settled(id).await.unwrap();
    let expected = if ends_in { group("a") } else { None };
    assert_eq!(daemon.network.view(id).unwrap().policy.group, expected);
    assert_eq!(daemon.network.view(mate).unwrap().policy.group, group("a"));
    let (mate, own) = (plug(&daemon, mate).await, plug(&daemon, id).await);
    let packets = tokio::task::spawn_blocking(move || {
        for (from, to) in [(&mate, &own), (&own, &mate)] {
            let at = SocketAddrV4::new(to.lease.address, 7070);
            let server = TestServer::start(&to.inside, at).unwrap();
            let patience = if ends_in { PATIENCE } else { QUIET };
            let answer = talk::tcp(&from.inside, at, patience);
            assert_eq!(answer.is_ok(), ends_in, "{answer:?}");
            assert_eq!(server.received("tcp") > 0, ends_in);
        }
    });
    packets.await.unwrap();
    daemon.stop().await;
}
