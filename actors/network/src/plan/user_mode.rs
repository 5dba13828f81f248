//! User-mode networking: the part of a member's policy that holds without a bridge.
//!
//! QEMU's own network stack, in the machine's process, needs no rights. It can cut a guest off
//! from everything (`restrict=on`) and still forward ports of the host. It cannot let a guest out
//! without letting it reach the host's loopback and private networks too, and it connects no two
//! machines. What it cannot keep is refused, never half kept.

use std::fmt::Write;

use super::{Forward, Policy};

/// A network of one guest: nothing but its forwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserMode {
    forwards: Vec<Forward>,
}

/// A part of a policy that user-mode networking cannot keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CannotKeep {
    /// The guest would reach the host's loopback and private networks as well.
    #[error("allow_internet needs a bridge: user-mode networking cannot exclude private networks")]
    Internet,
    /// The guest's connections look like those of the host's own programs.
    #[error("egress_allow needs a bridge: user-mode networking cannot tell destinations apart")]
    Egress,
    /// User-mode networking knows one machine only.
    #[error("allow_inter_vm needs a bridge: user-mode networking connects no machines")]
    InterVm,
    /// User-mode networking knows one machine only.
    #[error("a group needs a bridge: user-mode networking connects no machines")]
    Group,
}

impl UserMode {
    /// # Errors
    /// The first wish that cannot be kept.
    pub fn of(policy: &Policy, forwards: &[Forward]) -> Result<Self, CannotKeep> {
        match policy {
            Policy { allow_internet: true, .. } => Err(CannotKeep::Internet),
            Policy { allow_inter_vm: true, .. } => Err(CannotKeep::InterVm),
            Policy { group: Some(_), .. } => Err(CannotKeep::Group),
            Policy { egress_allow, .. } if !egress_allow.is_empty() => Err(CannotKeep::Egress),
            _ => Ok(Self { forwards: forwards.to_vec() }),
        }
    }

    /// The value of QEMU's `-netdev`. Forwards of a running machine change by QMP instead.
    pub fn netdev(&self, id: &str) -> String {
        let mut value = format!("user,id={id},restrict=on,ipv6=off");
        for Forward { host_ip, host_port, guest_port, protocol } in &self.forwards {
            let rule = format_args!(",hostfwd={protocol}:{host_ip}:{host_port}-:{guest_port}");
            value.write_fmt(rule).expect("a String takes everything");
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Protocol;

    #[test]
    fn what_cannot_be_kept_is_refused_by_name() {
        let of = |policy| UserMode::of(&policy, &[]);
        let internet = Policy { allow_internet: true, ..Policy::default() };
        assert_eq!(of(internet), Err(CannotKeep::Internet));
        let inter_vm = Policy { allow_inter_vm: true, ..Policy::default() };
        assert_eq!(of(inter_vm), Err(CannotKeep::InterVm));
        let group = Policy { group: Some("a".parse().unwrap()), ..Policy::default() };
        assert_eq!(of(group), Err(CannotKeep::Group));
        let egress_allow = vec!["10.1.2.3".parse().unwrap()];
        let egress = Policy { egress_allow, ..Policy::default() };
        assert_eq!(of(egress), Err(CannotKeep::Egress));
    }

    #[test]
    fn a_closed_guest_has_its_forwards() {
        let (host_ip, protocol) = ([127, 0, 0, 1].into(), Protocol::Udp);
        let forward = Forward { host_ip, host_port: 8080, guest_port: 80, protocol };
        let closed = UserMode::of(&Policy::default(), &[forward]).unwrap();
        let expected = "user,id=net,restrict=on,ipv6=off,hostfwd=udp:127.0.0.1:8080-:80";
        assert_eq!(closed.netdev("net"), expected);
    }
}
