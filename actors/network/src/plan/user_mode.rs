//! User-mode networking: the part of a member's policy that holds without a bridge.
//!
//! QEMU's own network stack, in the machine's process, needs no rights. It can cut a guest off
//! from everything (`restrict=on`) and still forward ports of the host. It cannot let a guest out
//! without letting it reach the host's loopback and private networks too, and it connects no two
//! machines. What it cannot keep is refused, never half kept.

use std::fmt::Write;

use super::{Forward, MemberPolicy};

/// A network of one guest: nothing but its forwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserMode {
    forwards: Vec<Forward>,
}

/// A part of a policy that user-mode networking cannot keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UserModeUnsupported {
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
    pub fn of(policy: &MemberPolicy, forwards: &[Forward]) -> Result<Self, UserModeUnsupported> {
        match policy {
            MemberPolicy { allow_internet: true, .. } => Err(UserModeUnsupported::Internet),
            MemberPolicy { allow_inter_vm: true, .. } => Err(UserModeUnsupported::InterVm),
            MemberPolicy { group: Some(_), .. } => Err(UserModeUnsupported::Group),
            MemberPolicy { egress_allow, .. } if !egress_allow.is_empty() => {
                Err(UserModeUnsupported::Egress)
            }
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
        let internet = MemberPolicy { allow_internet: true, ..MemberPolicy::default() };
        assert_eq!(of(internet), Err(UserModeUnsupported::Internet));
        let inter_vm = MemberPolicy { allow_inter_vm: true, ..MemberPolicy::default() };
        assert_eq!(of(inter_vm), Err(UserModeUnsupported::InterVm));
        let group = MemberPolicy { group: Some("a".parse().unwrap()), ..MemberPolicy::default() };
        assert_eq!(of(group), Err(UserModeUnsupported::Group));
        let egress_allow = vec!["10.1.2.3".parse().unwrap()];
        let egress = MemberPolicy { egress_allow, ..MemberPolicy::default() };
        assert_eq!(of(egress), Err(UserModeUnsupported::Egress));
    }

    #[test]
    fn a_closed_guest_has_its_forwards() {
        let (host_ip, protocol) = ([127, 0, 0, 1].into(), Protocol::Udp);
        let forward = Forward { host_ip, host_port: 8080, guest_port: 80, protocol };
        let closed = UserMode::of(&MemberPolicy::default(), &[forward]).unwrap();
        let expected = "user,id=net,restrict=on,ipv6=off,hostfwd=udp:127.0.0.1:8080-:80";
        assert_eq!(closed.netdev("net"), expected);
    }
}
