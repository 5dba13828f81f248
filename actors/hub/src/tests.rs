//! Who may listen where.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use hivekeep_kernel::{ToolError, User};
use hivekeep_ports::{HubCounts, HubDoor, HubListener, LateTools};
use hivekeep_runtime::ListenerOptions;
use hivekeep_testkit::{FakeUsers, Rig, RigServices};
use serde_json::json;

use crate::{HubFamily, Options, tools::wanted_address};

/// A door that listens where it was first told to.
#[derive(Default)]
struct FakeDoor(Mutex<Option<SocketAddr>>);

#[async_trait]
impl HubDoor for FakeDoor {
    async fn start(&self, address: SocketAddr) -> Result<HubListener, ToolError> {
        let mut held = self.0.lock().expect("no panic");
        let started = held.is_none();
        let address = *held.get_or_insert(address);
        Ok(HubListener { address, url: format!("ws://{address}/ws"), started })
    }

    fn counts(&self) -> HubCounts {
        HubCounts { clients: 2, channels: 3 }
    }
}

#[test]
fn only_an_operator_chooses_an_address_and_only_tls_lets_others_in() {
    let options = ListenerOptions::at("127.0.0.1:9000");
    let ask = |asked, operator| {
        wanted_address(&options, asked, operator)
            .map(|it| it.to_string())
            .map_err(|error| error.code)
    };
    for own in [None, Some(""), Some(":8080"), Some(":9000"), Some("127.0.0.1:9000")] {
        assert_eq!(ask(own, false).as_deref(), Ok("127.0.0.1:9000"), "{own:?}");
    }
    for other in [":9001", "127.0.0.2:9000", "0.0.0.0:9000", "[::1]:9000", "localhost:1"] {
        assert_eq!(ask(Some(other), false), Err("hub_address_refused".into()), "{other}");
    }
    assert_eq!(ask(Some(":9001"), true).as_deref(), Ok("127.0.0.1:9001"));
    assert_eq!(ask(Some("0.0.0.0:9000"), true), Err("hub_address_refused".into()));
    for bad in ["x", ":x", ":70000", "8080", "host.example:80"] {
        assert_eq!(ask(Some(bad), true), Err("invalid_input".into()), "{bad}");
    }
    let (tls_cert, tls_key) = (Some("/c".into()), Some("/k".into()));
    let with_tls = ListenerOptions { tls_cert, tls_key, ..options.clone() };
    assert!(wanted_address(&with_tls, Some("0.0.0.0:9000"), true).is_ok());
    assert!(wanted_address(&with_tls, Some("0.0.0.0:9000"), false).is_err());
}

#[tokio::test]
async fn the_tools_tell_what_the_door_did() {
    let services = |offer: bool| RigServices {
        sessions: Arc::new(FakeUsers::all(User::Uid(7))),
        tools: Arc::new(LateTools::default()),
        offer: Arc::new(move |ports| {
            if offer {
                ports.offer::<dyn HubDoor>(Arc::new(FakeDoor::default()));
            }
        }),
    };
    let early = Rig::<HubFamily>::new(Options::default(), services(false)).await;
    let refused = early.call("ws_start", json!({})).await.expect_err("no door yet");
    assert!(refused.retryable && refused.code == "actor_unavailable");

    let rig = Rig::<HubFamily>::new(Options::default(), services(true)).await;
    let first = rig.call("ws_start", json!({})).await.expect("it starts");
    assert_eq!((&first["success"], &first["addr"]), (&json!(true), &json!("127.0.0.1:8080")));
    assert!(first["message"].as_str().expect("a text").contains("ws://127.0.0.1:8080/ws"));
    let again = rig.call("ws_start", json!({ "addr": ":8080" })).await.expect("it runs");
    assert!(again["message"].as_str().expect("a text").contains("already"), "{again}");
    let info = rig.call("ws_info", json!({})).await.expect("counts");
    assert_eq!(info, json!({ "clients": 2, "channels": 3 }));
}
