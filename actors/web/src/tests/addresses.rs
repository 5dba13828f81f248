//! The classifier of addresses beside a table of ranges that was written apart from it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use hivekeep_runtime::egress::is_global;

/// First and last address of what is not global in IPv4.
const SPECIAL_V4: [(&str, &str); 15] = [
    ("0.0.0.0", "0.255.255.255"),
    ("10.0.0.0", "10.255.255.255"),
    ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"),
    ("169.254.0.0", "169.254.255.255"),
    ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"),
    ("192.0.2.0", "192.0.2.255"),
    ("192.88.99.0", "192.88.99.255"),
    ("192.168.0.0", "192.168.255.255"),
    ("198.18.0.0", "198.19.255.255"),
    ("198.51.100.0", "198.51.100.255"),
    ("203.0.113.0", "203.0.113.255"),
    ("224.0.0.0", "239.255.255.255"),
    ("240.0.0.0", "255.255.255.255"),
];

/// The same of IPv6, all of it.
const SPECIAL_V6: [(&str, &str); 6] = [
    ("::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
];

fn bits(text: &str) -> u128 {
    match text.parse().expect("an address") {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn is_special(table: &[(&str, &str)], address: u128) -> bool {
    table.iter().any(|(first, last)| (bits(first)..=bits(last)).contains(&address))
}

/// Addresses beside and at the ends of ranges.
fn near(table: &'static [(&'static str, &'static str)]) -> impl Strategy<Value = u128> {
    (0..table.len(), any::<bool>(), 0..5u128).prop_map(|(row, first, off)| {
        let end = bits(if first { table[row].0 } else { table[row].1 });
        end.saturating_add(off).saturating_sub(2)
    })
}

proptest! {
    #[test]
    fn only_global_addresses_pass_of_ipv4(
        address in prop_oneof![any::<u32>(), near(&SPECIAL_V4).prop_map(|bits| bits as u32)]
    ) {
        let special = is_special(&SPECIAL_V4, address.into());
        prop_assert_eq!(is_global(Ipv4Addr::from_bits(address).into()), !special);
    }

    #[test]
    fn only_global_addresses_pass_of_ipv6(
        address in prop_oneof![any::<u128>(), near(&SPECIAL_V6), (bits("2000::")..bits("4000::"))]
    ) {
        let special = is_special(&SPECIAL_V6, address);
        prop_assert_eq!(is_global(Ipv6Addr::from_bits(address).into()), !special);
    }

    #[test]
    fn no_form_of_ipv4_in_ipv6_passes(address in any::<u32>()) {
        let low = u128::from(address);
        let forms = [
            ("mapped", bits("::ffff:0:0") | low),
            ("compatible", low),
            ("nat64", bits("64:ff9b::") | low),
            ("local nat64", bits("64:ff9b:1::") | low),
            ("6to4", bits("2002::") | (low << 80)),
            ("teredo", bits("2001::") | low),
        ];
        for (form, bits) in forms {
            prop_assert!(!is_global(Ipv6Addr::from_bits(bits).into()), "{}", form);
        }
    }
}

#[test]
fn hosts_of_the_internet_pass() {
    for address in ["1.1.1.1", "8.8.8.8", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::1"]
    {
        assert!(is_global(address.parse().expect("an address")), "{address}");
    }
}
