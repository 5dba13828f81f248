//! The words for each end, and what a saved state asks for.

use super::super::*;

fn attachment() -> InterfaceSettings {
    InterfaceSettings {
        mac: [2, 0x68, 10, 213, 0, 2],
        address: [10, 213, 0, 2].into(),
        prefix_len: 16,
        gateway: [10, 213, 0, 1].into(),
        dns: None,
    }
}

fn plan(end: Option<NicEnd>) -> MachinePlan {
    let mut plan = crate::fake::plan("ws_net", "/r".as_ref());
    plan.nic = end.map(|end| Nic { mac: attachment().mac, end });
    plan
}

fn user_end() -> NicEnd {
    let forward = ForwardedPort {
        transport: Transport::Udp,
        host_ip: Ipv4Addr::LOCALHOST,
        host_port: 8080,
        guest_port: 80,
    };
    NicEnd::User { attachment: attachment(), forwards: vec![forward] }
}

fn a_file() -> NicEnd {
    NicEnd::Tap(Arc::new(std::fs::File::open("/dev/null").unwrap().into()))
}

#[test]
fn each_end_to_the_letter() {
    let of = |end| words(&Nic { mac: attachment().mac, end }, 7);
    let (cable, device) = of(user_end());
    assert_eq!(
        cable,
        "user,id=net,restrict=on,ipv6=off,net=10.213.0.0/16,host=10.213.0.1,\
         dhcpstart=10.213.0.2,dns=10.213.0.3,hostfwd=udp:127.0.0.1:8080-10.213.0.2:80"
    );
    let same = "virtio-net-device,guest_announce=off,id=nic,netdev=net,mac=02:68:0a:d5:00:02";
    assert_eq!(device, same);
    assert_eq!(of(NicEnd::Unplugged), ("hubport,id=net,hubid=0".into(), same.into()));
    assert_eq!(of(a_file()), ("tap,id=net,fd=7,vhost=off".into(), same.into()));
}

#[test]
fn a_saved_state_decides_whether_there_is_an_interface() {
    let fits = |end, saved| fit(&plan(end), saved).map(|plan| plan.nic.map(|nic| nic.end));
    assert!(matches!(fits(Some(user_end()), SavedNic::None), Ok(None)));
    assert!(matches!(fits(None, SavedNic::Plain), Ok(Some(NicEnd::Unplugged))));
    for end in [user_end(), a_file()] {
        assert!(fits(Some(end), SavedNic::Plain).unwrap().is_some());
    }
    assert!(matches!(fits(Some(a_file()), SavedNic::Tap), Ok(Some(NicEnd::Tap(_)))));
    let refused = fits(Some(user_end()), SavedNic::Tap);
    assert!(matches!(refused, Err(Error::ShapeDiffers { .. })), "{refused:?}");
}
