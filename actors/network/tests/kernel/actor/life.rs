//! Members come, change and go.

use std::net::SocketAddrV4;
use std::sync::Arc;

use hivekeep_kernel::WorkspaceId;
use hivekeep_network::NetworkModeChoice;
use hivekeep_ports::{
    ForwardedPort, Netdev, Network as _, NetworkRequest, ReachPolicy, Transport, WorkspacePorts,
};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::super::needs_root;
use super::guests::Guests;
use super::{Daemon, ids, on_stage, options, request, said, taps, until};

fn internet() -> ReachPolicy {
    ReachPolicy { allow_internet: true, ..ReachPolicy::default() }
}

#[test]
fn a_member_joins_gets_its_cable_settles_and_leaves_nothing() {
    needs_root!();
    on_stage(|folder| async move {
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        let network = &daemon.network;
        let [id] = ids();
        assert_eq!(taps(), Vec::<String>::new());
        let attachment = network.join(id, request(&internet())).await.unwrap();
        assert_eq!(attachment.prefix_len, 16);
        assert_eq!(attachment.dns, Some(attachment.gateway));
        let Netdev::Tap(cable) = network.cable(id).await.unwrap() else { panic!("no tap") };
        let taken = network.cable(id).await.unwrap_err();
        assert_eq!(taken.code, "cable_taken");
        network.settled(id).await.unwrap();
        let view = network.view(id).unwrap();
        assert_eq!((view.attachment, &view.policy), (attachment, &internet()));
        assert_eq!(taps().len(), 1);
        let rules = said("nft list ruleset");
        assert!(rules.contains(&attachment.address.to_string()), "{rules}");
        assert!(rules.contains("dport 53 goto names"), "names are not served: {rules}");
        // Again, and with another request, it stays where it is.
        let again = network.join(id, NetworkRequest::default()).await.unwrap();
        assert_eq!(again, attachment);
        assert_eq!(daemon.state(), "running, bridge");
        drop(cable);
        network.leave(id).await.unwrap();
        network.leave(id).await.unwrap();
        assert_eq!(network.view(id), None);
        assert_eq!(network.settled(id).await.unwrap_err().code, "not_in_network");
        until("its tap is gone", || taps().is_empty()).await;
        assert!(!said("nft list ruleset").contains(&attachment.address.to_string()));
        network.take_down().await;
        assert_eq!(said("nft list tables"), "");
        assert!(!said("ip link show").contains("test-br"));
        daemon.stop().await;
    });
}

#[test]
fn many_who_join_together_cost_one_turn_more_not_one_each() {
    needs_root!();
    on_stage(|folder| async move {
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        let [first] = ids();
        daemon.network.join(first, NetworkRequest::default()).await.unwrap();
        daemon.network.settled(first).await.unwrap();
        let before = daemon.handled();
        let joins = ids::<20>().map(|id| {
            let network = daemon.network.clone();
            async move {
                network.join(id, NetworkRequest::default()).await.unwrap();
                network.settled(id).await.unwrap();
            }
        });
        futures::future::join_all(joins).await;
        assert_eq!(taps().len(), 21);
        // Twenty joins and twenty questions; the rest are turns of the journal and the kernel.
        let turns = daemon.handled() - before - 40;
        println!("{turns} turns");
        assert!(turns <= 8, "{turns}");
        daemon.stop().await;
    });
}

#[test]
fn a_restart_finds_everything_and_takes_away_what_no_workspace_has() {
    needs_root!();
    on_stage(|folder| async move {
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        let [kept, gone] = ids();
        let wished = ReachPolicy {
            allow_inter_vm: true,
            allowed_ports: vec![80],
            egress_allow: vec!["a.example:443/tcp".into()],
            ..ReachPolicy::default()
        };
        for id in [kept, gone] {
            daemon.network.join(id, request(&wished)).await.unwrap();
        }
        let tcp = Transport::Tcp;
        let forward = daemon.network.add_forward(kept, tcp, 80, None).await.unwrap();
        assert!(std::net::TcpListener::bind(forward.host()).is_err(), "the port is not held");
        let before = daemon.network.view(kept).unwrap();
        let (rules, links) = (said("nft list ruleset"), taps());
        assert!(rules.contains(&format!("dport {}", forward.host_port)), "{rules}");
        daemon.stop().await;
        assert_eq!((said("nft list ruleset"), taps()), (rules.clone(), links.clone()));

        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        daemon.network.settled(kept).await.unwrap();
        assert_eq!(daemon.network.view(kept).unwrap(), before);
        assert_eq!(taps(), links);
        assert!(std::net::TcpListener::bind(forward.host()).is_err(), "the port is not held");
        daemon.network.retain(vec![kept]).await.unwrap();
        assert_eq!(daemon.network.view(gone), None);
        until("one tap is left", || taps().len() == 1).await;
        daemon.stop().await;

        // And those who are gone stay gone.
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        assert_eq!(daemon.network.view(gone), None);
        daemon.network.retain(Vec::new()).await.unwrap();
        daemon.stop().await;
        let nothing = || said("nft list tables").is_empty() && !said("ip link").contains("test-br");
        assert!(nothing(), "a stop without members leaves something");

        // What a killed daemon without members left.
        said("nft add table inet hivekeep-test");
        said("nft add chain inet hivekeep-test crossing");
        said("ip link add test-br type bridge");
        assert!(!nothing());
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        until("a start without members removes it all", nothing).await;
        daemon.stop().await;
    });
}

#[test]
fn forwards_are_taken_found_free_and_given_back() {
    needs_root!();
    on_stage(|folder| async move {
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        let network = &daemon.network;
        let [id, other] = ids();
        let tcp = Transport::Tcp;
        for id in [id, other] {
            network.join(id, NetworkRequest::default()).await.unwrap();
        }
        let stranger = network.add_forward(WorkspaceId::new(), tcp, 80, None).await.unwrap_err();
        assert_eq!(stranger.code, "not_in_network");
        let first = network.add_forward(id, tcp, 80, Some(18_080)).await.unwrap();
        let taken = network.add_forward(other, tcp, 80, Some(18_080)).await.unwrap_err();
        assert_eq!((&*taken.code, &taken.details["by"]), ("port_taken", &id.to_string().into()));
        let foreign = std::net::TcpListener::bind("127.0.0.1:18081").unwrap();
        let taken = network.add_forward(other, tcp, 80, Some(18_081)).await.unwrap_err();
        assert_eq!(taken.details["by"], "another program");
        drop(foreign);
        let udp = network.add_forward(other, Transport::Udp, 80, Some(18_080)).await.unwrap();
        assert_eq!(udp.host_port, 18_080);
        let second = network.add_forward(id, tcp, 80, None).await.unwrap();
        assert!((20_000..30_000).contains(&second.host_port));
        assert_eq!(network.view(id).unwrap().forwards, [first, second]);
        let missing = network.remove_forward(id, tcp, 81, None).await.unwrap_err();
        assert_eq!(missing.code, "forward_not_found");
        assert_eq!(network.remove_forward(id, tcp, 80, Some(18_080)).await.unwrap(), [first]);
        std::net::TcpListener::bind(first.host()).expect("it is free again");
        assert!(!said("nft list ruleset").contains("tcp dport 18080"));
        for port in 0..64 {
            let answer = network.add_forward(other, tcp, 1000 + port, None).await;
            assert_eq!(answer.is_ok(), port < 63, "{port}: {answer:?}");
        }
        let many = network.add_forward(other, tcp, 80, None).await.unwrap_err();
        assert_eq!(many.code, "too_many_forwards");
        daemon.stop().await;
    });
}

#[test]
fn connections_to_a_parked_member_are_accepted_here_until_it_goes_on() {
    needs_root!();
    on_stage(|folder| async move {
        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        daemon.ports.offer::<dyn WorkspacePorts>(Arc::<Guests>::default());
        let network = &daemon.network;
        let [id] = ids();
        let tcp = Transport::Tcp;
        network.join(id, NetworkRequest::default()).await.unwrap();
        network.settled(id).await.unwrap();
        let greeting = |at: SocketAddrV4| async move {
            let mut text = String::new();
            TcpStream::connect(at).await?.read_to_string(&mut text).await?;
            std::io::Result::Ok(text)
        };
        let led = |forward: &ForwardedPort| {
            said("nft list ruleset").contains(&format!("dport {} dnat", forward.host_port))
        };
        let first = network.add_forward(id, tcp, 80, None).await.unwrap();
        assert!(led(&first));
        network.set_parked(id, true).await.unwrap();
        assert!(!led(&first));
        assert_eq!(greeting(first.host()).await.unwrap(), format!("{id} 80"));
        // One that comes meanwhile, and one that goes.
        let second = network.add_forward(id, tcp, 81, None).await.unwrap();
        assert!(!led(&second));
        assert_eq!(greeting(second.host()).await.unwrap(), format!("{id} 81"));
        network.remove_forward(id, tcp, 81, None).await.unwrap();
        assert!(greeting(second.host()).await.is_err());
        daemon.stop().await;

        let daemon = Daemon::start(&folder, options(NetworkModeChoice::Bridge)).await;
        daemon.ports.offer::<dyn WorkspacePorts>(Arc::<Guests>::default());
        daemon.network.settled(id).await.unwrap();
        assert!(!led(&first), "forgotten by a restart");
        assert_eq!(greeting(first.host()).await.unwrap(), format!("{id} 80"));
        daemon.network.set_parked(id, false).await.unwrap();
        assert!(led(&first));
        assert!(std::net::TcpListener::bind(first.host()).is_err(), "the port is not held");
        daemon.network.leave(id).await.unwrap();
        daemon.network.set_parked(id, true).await.unwrap();
        daemon.stop().await;
    });
}
