//! What cannot be kept is refused, and what goes wrong is said.

use hivekeep_network::{NetworkModeChoice, Options};
use hivekeep_ports::{Netdev, Network as _, NetworkMode, NetworkRequest, ReachPolicy, Transport};

use super::super::needs_root;
use super::{Daemon, ids, on_stage, options, request, said, taps, until};

fn internet() -> ReachPolicy {
    ReachPolicy { allow_internet: true, ..ReachPolicy::default() }
}

#[test]
fn user_mode_forwards_ports_and_refuses_the_rest_by_name() {
    on_stage_or_here(|folder| async move {
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::User)).await;
        let network = &daemon.network;
        let [id, other] = ids();
        let mode = network.mode().await.unwrap();
        assert!(matches!(&mode, NetworkMode::User { reason } if reason.contains("network.mode")));
        for refused in [
            internet(),
            ReachPolicy { allow_inter_vm: true, ..ReachPolicy::default() },
            ReachPolicy { egress_allow: vec!["10.0.0.1".into()], ..ReachPolicy::default() },
            ReachPolicy { group: Some("a".parse().unwrap()), ..ReachPolicy::default() },
        ] {
            let error = network.join(id, request(&refused)).await.unwrap_err();
            assert_eq!(error.code, "policy_unavailable", "{error}");
            assert_eq!(network.view(id), None);
        }
        let attachment = network.join(id, NetworkRequest::default()).await.unwrap();
        assert_eq!(attachment.address.octets(), [10, 0, 2, 15]);
        assert_eq!((attachment.gateway.octets(), attachment.dns), ([10, 0, 2, 2], None));
        let second = network.join(other, NetworkRequest::default()).await.unwrap();
        assert_ne!(attachment.mac, second.mac);
        network.settled(id).await.unwrap();
        let refused = network.set_policy(id, request(&internet())).await.unwrap_err();
        assert_eq!(refused.code, "policy_unavailable");
        // The port is held until the machine takes it itself.
        let forward = network.add_forward(id, Transport::Tcp, 80, None).await.unwrap();
        assert!(std::net::TcpListener::bind(forward.host()).is_err());
        let Netdev::User(forwards) = network.cable(id).await.unwrap() else { panic!("a tap") };
        assert_eq!(forwards, [forward]);
        let machine = std::net::TcpListener::bind(forward.host()).unwrap();
        // One that is added while it runs is only tried.
        let later = network.add_forward(id, Transport::Tcp, 81, None).await.unwrap();
        std::net::TcpListener::bind(later.host()).unwrap();
        assert_eq!(daemon.state(), "running, user mode");
        daemon.stop().await;
        // The machine runs on; its ports are its own, and no trouble.
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::User)).await;
        assert_eq!(daemon.network.view(id).unwrap().forwards, [forward, later]);
        assert_eq!(daemon.state(), "running, user mode");
        drop(machine);
        daemon.stop().await;
    });
}

#[test]
fn a_policy_of_another_footing_is_not_in_force_and_its_machine_gets_no_cable() {
    needs_root!();
    on_stage(|folder| async move {
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        let [id] = ids();
        daemon.network.join(id, request(&internet())).await.unwrap();
        daemon.network.settled(id).await.unwrap();
        daemon.stop().await;
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::User)).await;
        let network = &daemon.network;
        assert_eq!(network.view(id).unwrap().policy, ReachPolicy::default());
        for refused in [
            network.cable(id).await.unwrap_err(),
            network.join(id, NetworkRequest::default()).await.unwrap_err(),
        ] {
            assert_eq!(refused.code, "policy_unavailable");
        }
        network.set_policy(id, request(&ReachPolicy::default())).await.unwrap();
        assert!(matches!(network.cable(id).await.unwrap(), Netdev::User(_)));
        daemon.stop().await;
    });
}

#[test]
fn without_a_network_everything_is_refused_and_leaving_is_not() {
    on_stage_or_here(|folder| async move {
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Off)).await;
        let [id] = ids();
        let refused = daemon.network.join(id, NetworkRequest::default()).await.unwrap_err();
        assert_eq!(refused.code, "network_unavailable");
        assert_eq!(daemon.network.cable(id).await.unwrap_err().code, "network_unavailable");
        daemon.network.leave(id).await.unwrap();
        daemon.network.retain(vec![id]).await.unwrap();
        daemon.stop().await;
    });
}

#[test]
fn one_daemon_has_a_tag_and_a_subnet_and_the_next_says_what_is_in_its_way() {
    needs_root!();
    on_stage(|folder| async move {
        let first = Daemon::start(&folder.join("a"), options(NetworkModeChoice::Bridge)).await;
        let [id] = ids();
        first.network.join(id, NetworkRequest::default()).await.unwrap();
        first.network.settled(id).await.unwrap();
        let same = Daemon::start(&folder.join("b"), options(NetworkModeChoice::Auto)).await;
        let NetworkMode::User { reason } = same.network.mode().await.unwrap() else { panic!() };
        assert!(reason.contains("tag `test`"), "{reason}");
        assert!(same.state().starts_with("degraded, user mode: no bridge"), "{}", same.state());
        until("it is told", || same.events() == ["network.degraded"]).await;
        same.stop().await;
        let subnet = Some("10.213.0.0/16".parse().unwrap());
        let tag = Some("other".parse().unwrap());
        let other = Options { tag, subnet, ..options(NetworkModeChoice::Auto) };
        let third = Daemon::start(&folder.join("c"), other.clone()).await;
        let NetworkMode::User { reason } = third.network.mode().await.unwrap() else { panic!() };
        assert!(reason.contains("another daemon has the subnet 10.213.0.0/16"), "{reason}");
        third.stop().await;
        let elsewhere = Options { subnet: Some("10.214.0.0/24".parse().unwrap()), ..other };
        let fourth = Daemon::start(&folder.join("d"), elsewhere).await;
        assert_eq!(fourth.network.mode().await.unwrap(), NetworkMode::Bridge);
        fourth.network.join(id, NetworkRequest::default()).await.unwrap();
        fourth.network.settled(id).await.unwrap();
        fourth.stop().await;
        first.stop().await;
    });
}

#[test]
fn a_second_daemon_takes_the_next_free_subnet_and_stays_there() {
    needs_root!();
    on_stage(|folder| async move {
        let tagged = |tag: &str| Options {
            tag: Some(tag.parse().unwrap()),
            ..options(NetworkModeChoice::Auto)
        };
        // Neither has a member yet, so neither has a bridge to be seen.
        let first = Daemon::start(&folder.join("a"), options(NetworkModeChoice::Auto)).await;
        // A network that the host reaches by a router of its own.
        said("ip route add 10.214.8.0/24 dev up0");
        let second = Daemon::start(&folder.join("b"), tagged("other")).await;
        let [id] = ids();
        for (daemon, subnet) in [(&first, [10, 213]), (&second, [10, 215])] {
            assert_eq!(daemon.network.mode().await.unwrap(), NetworkMode::Bridge);
            let attachment = daemon.network.join(id, NetworkRequest::default()).await.unwrap();
            daemon.network.settled(id).await.unwrap();
            assert_eq!(attachment.address.octets()[..2], subnet);
            assert_eq!(daemon.state(), "running, bridge");
        }
        let before = second.network.view(id).unwrap();
        second.stop().await;
        first.stop().await;
        // Alone now, it stays where its workspaces are.
        let second = Daemon::start(&folder.join("b"), tagged("other")).await;
        second.network.settled(id).await.unwrap();
        assert_eq!(second.network.view(id).unwrap(), before);
        second.stop().await;
    });
}

#[test]
fn a_self_test_that_cannot_look_refuses_for_now_and_is_repeated() {
    needs_root!();
    on_stage(|folder| async move {
        // An nft that dies of one check's rules while it is told to.
        let (nft, dies) = (folder.join("nft"), folder.join("dies"));
        let script = format!(
            "#!/bin/sh\nPATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin\n\
             [ \"$2\" = -f ] || exec nft \"$@\"\nrules=$(cat)\n\
             case $rules in *hivekeep-self*names_ws_*) [ -e {} ] && kill -9 $$;; esac\n\
             printf %s \"$rules\" | nft \"$@\"\n",
            dies.display()
        );
        std::fs::write(&nft, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&nft, mode).unwrap();
        std::fs::write(&dies, "").unwrap();
        let daemon = Daemon::untested(
            &folder,
            Options { nft_path: nft, ..options(NetworkModeChoice::Auto) },
        )
        .await;
        let network = &daemon.network;
        assert_eq!(network.mode().await.unwrap(), NetworkMode::Bridge);
        let [id] = ids();
        let named =
            ReachPolicy { egress_allow: vec!["a.example".into()], ..ReachPolicy::default() };
        let refused = network.join(id, request(&named)).await.unwrap_err();
        assert_eq!((&*refused.code, refused.retryable), ("policy_unproven", true), "{refused}");
        assert!(refused.message.contains("not yet proven: AllowedNames: UNKNOWN"), "{refused}");
        network.join(id, request(&internet())).await.unwrap();
        assert_eq!(daemon.state(), "degraded, bridge: not yet proven: AllowedNames");
        assert!(!folder.join("network-selftest.json").exists(), "half an outcome is kept");
        std::fs::remove_file(&dies).unwrap();
        until("it is proven", || daemon.state() == "running, bridge").await;
        network.set_policy(id, request(&named)).await.unwrap();
        assert!(folder.join("network-selftest.json").exists(), "the outcome is not kept");
        daemon.stop().await;
    });
}

#[test]
fn an_emptied_filter_is_heard_of_and_filled_again() {
    needs_root!();
    on_stage(|folder| async move {
        // Never by the clock.
        let seldom =
            Options { check_interval_secs: 1_000_000, ..options(NetworkModeChoice::Bridge) };
        let daemon = Daemon::start(&folder, seldom).await;
        let [id] = ids();
        daemon.network.join(id, request(&internet())).await.unwrap();
        daemon.network.settled(id).await.unwrap();
        // Together they are in the order in which they were made.
        let rules =
            || ["inet", "bridge"].map(|kind| said(&format!("nft list table {kind} hivekeep-test")));
        let whole = rules();
        let repairs = || daemon.events().iter().filter(|kind| *kind == "network.repaired").count();
        for (line, times) in [("nft flush ruleset", 1), ("nft delete table inet hivekeep-test", 2)]
        {
            said(line);
            until("the rules are as planned", || rules() == whole).await;
            until("it is told", || repairs() == times).await;
        }
        // What others do to their own tables is theirs.
        let before = daemon.events().len();
        said("nft add table inet other");
        said("nft delete table inet other");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        assert_eq!((rules(), daemon.events().len()), (whole, before));
        daemon.stop().await;
    });
}

#[test]
fn what_others_do_to_it_is_mended_and_told_and_a_lost_port_too() {
    needs_root!();
    on_stage(|folder| async move {
        let often = Options { check_interval_secs: 1, ..options(NetworkModeChoice::Bridge) };
        let daemon = Daemon::start(&folder, often.clone()).await;
        let [id] = ids();
        daemon.network.join(id, NetworkRequest::default()).await.unwrap();
        let tcp = Transport::Tcp;
        let forward = daemon.network.add_forward(id, tcp, 80, Some(18_080)).await.unwrap();
        let rules = || said("nft list chain inet hivekeep-test crossing");
        let whole = rules();
        said("nft flush chain inet hivekeep-test crossing");
        assert_ne!(rules(), whole);
        until("the rules are as planned", || rules() == whole).await;
        until("it is told", || daemon.events().contains(&"network.repaired".to_owned())).await;
        daemon.stop().await;

        let thief = std::net::TcpListener::bind(forward.host()).unwrap();
        let daemon = Daemon::start(&folder, often).await;
        assert_eq!(daemon.network.view(id).unwrap().forwards, [forward]);
        until("it is told", || daemon.events().contains(&"network.port_lost".to_owned())).await;
        let told = daemon.state();
        assert!(told.starts_with("degraded") && told.contains("127.0.0.1:18080"), "{told}");
        drop(thief);
        until("it is taken again", || daemon.state() == "running, bridge").await;
        assert!(std::net::TcpListener::bind(forward.host()).is_err());
        until("it is told", || daemon.events().last().unwrap() == "network.recovered").await;
        daemon.stop().await;
    });
}

#[test]
fn what_the_kernel_does_not_take_is_undone_and_tried_again() {
    needs_root!();
    on_stage(|folder| async move {
        // An nft that can be made to fail.
        let (nft, broken) = (folder.join("nft"), folder.join("broken"));
        let script = format!(
            "#!/bin/sh\n[ -e {} ] && {{ echo broken on purpose >&2; exit 1; }}\n\
             PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin exec nft \"$@\"\n",
            broken.display()
        );
        std::fs::write(&nft, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&nft, mode).unwrap();
        let slow = Options { nft_path: nft, ..options(NetworkModeChoice::Bridge) };
        let daemon = Daemon::start(&folder, slow).await;
        let network = &daemon.network;
        let [id, other] = ids();
        network.join(id, NetworkRequest::default()).await.unwrap();
        network.settled(id).await.unwrap();
        std::fs::write(&broken, "").unwrap();
        let refused = network.set_policy(id, request(&internet())).await.unwrap_err();
        assert_eq!(refused.code, "network_failed");
        assert!(refused.message.contains("broken on purpose"), "{refused}");
        assert_eq!(network.view(id).unwrap().policy, ReachPolicy::default());
        let refused = network.add_forward(id, Transport::Tcp, 80, Some(18_080)).await.unwrap_err();
        assert_eq!(refused.code, "network_failed");
        network.join(other, NetworkRequest::default()).await.unwrap();
        assert_eq!(network.settled(other).await.unwrap_err().code, "network_failed");
        assert!(daemon.state().contains("broken on purpose"), "{}", daemon.state());
        std::fs::remove_file(&broken).unwrap();
        network.settled(other).await.unwrap();
        assert_eq!(daemon.state(), "running, bridge");
        std::net::TcpListener::bind("127.0.0.1:18080").expect("the port is free again");
        assert_eq!(network.view(id).unwrap().policy, ReachPolicy::default());
        assert_eq!(network.view(id).unwrap().forwards, []);
        daemon.stop().await;
        // And it is not in the journal either.
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        assert_eq!(daemon.network.view(id).unwrap().policy, ReachPolicy::default());
        daemon.stop().await;
    });
}

#[test]
fn a_cable_outlives_a_look_that_began_before_its_member_was_in() {
    needs_root!();
    on_stage(|folder| async move {
        // An nft that waits while it is told to.
        let (nft, stall, waits) = (folder.join("nft"), folder.join("stall"), folder.join("waits"));
        let script = format!(
            "#!/bin/sh\nwhile [ -e {} ]; do : >{}; sleep 0.02; done\n\
             PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin exec nft \"$@\"\n",
            stall.display(),
            waits.display()
        );
        std::fs::write(&nft, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&nft, mode).unwrap();
        let daemon =
            Daemon::start(&folder, Options { nft_path: nft, ..options(NetworkModeChoice::Bridge) });
        let daemon = daemon.await;
        let network = &daemon.network;
        network.mode().await.unwrap();
        let [first, second] = ids();
        std::fs::write(&stall, "").unwrap();
        network.join(first, NetworkRequest::default()).await.unwrap();
        until("the first look has begun", || waits.exists()).await;
        network.join(second, NetworkRequest::default()).await.unwrap();
        let go_on = async {
            // Long enough for a cable that does not wait.
            for _ in 0..50 {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                if !taps().is_empty() {
                    break;
                }
            }
            std::fs::remove_file(&stall).unwrap();
        };
        let (cable, ()) = tokio::join!(network.cable(second), go_on);
        let Netdev::Tap(cable) = cable.unwrap() else { panic!("no tap") };
        network.settled(second).await.unwrap();
        assert_eq!(network.cable(second).await.unwrap_err().code, "cable_taken");
        drop(cable);
        daemon.stop().await;
    });
}

/// Needs no rights, and no namespace where there are none.
fn on_stage_or_here<F: Future<Output = ()>>(
    work: impl FnOnce(std::path::PathBuf) -> F + Send + 'static,
) {
    match super::super::obstacle() {
        None => on_stage(work),
        Some(_) => {
            let folder = tempfile::tempdir().unwrap();
            super::super::block_on(work(folder.path().to_owned()));
        }
    }
}
