//! A process without rights is told what it lacks.

use hivekeep_network::capability::{ConnectionMeans, detect};
use hivekeep_network::{Error, HostAccess, Namespace, selftest};
use rustix::thread::CapabilitySet;

use super::{block_on, needs_root};

/// Runs work on a thread that may not change networks; its children inherit that.
fn without_rights<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let body = || {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        let lost = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
        sets.effective.remove(lost);
        sets.permitted.remove(lost);
        rustix::thread::set_capabilities(None, sets).unwrap();
        work()
    };
    std::thread::spawn(body).join().unwrap()
}

#[test]
fn what_is_missing_is_named_and_user_mode_is_what_remains() {
    needs_root!();
    let found = without_rights(|| block_on(detect(&HostAccess::default())));
    assert_eq!(found.means, ConnectionMeans::UserMode);
    assert!(found.missing.iter().any(|what| what.contains("CAP_NET_ADMIN")), "{found:?}");
    let no_nft = HostAccess { nft_path: "/no/such/nft".into(), ..HostAccess::default() };
    let found = block_on(detect(&no_nft));
    assert_eq!((found.means, found.nft), (ConnectionMeans::UserMode, None));
    assert!(found.missing[0].contains("install nftables"), "{:?}", found.missing);
    let found = block_on(detect(&HostAccess::default()));
    assert_eq!(found.means, ConnectionMeans::Bridge);
    assert!(found.nft.unwrap().contains("nftables"));
}

#[test]
fn what_is_not_permitted_is_refused_as_that() {
    needs_root!();
    let refused = without_rights(Namespace::new).unwrap_err();
    let needs = matches!(refused, Error::NotPermitted { needs: "CAP_SYS_ADMIN", .. });
    assert!(needs, "{refused}");
    let refused = without_rights(|| block_on(selftest::run(HostAccess::default()))).unwrap_err();
    assert!(matches!(refused, Error::NotPermitted { .. }), "{refused}");
}
