//! Network backend of this host: the policies and forwards that it can promise.

use hivekeep_kernel::ToolError;
use hivekeep_ports::{InterfaceSettings, NetworkMode};

use crate::error;
use crate::plan::{AddressLease, Forward, MemberPolicy, Subnet, UserMode};
use crate::selftest::{NetworkProperty, SelfTestReport};

/// Without these there is no bridge: nothing could be promised on it.
pub(super) const ESSENTIAL: [NetworkProperty; 4] = [
    NetworkProperty::GuestsApart,
    NetworkProperty::SendersAreTrue,
    NetworkProperty::HostIsClosed,
    NetworkProperty::PolicyChanges,
];

/// Kind of the machines' connection, chosen once for the daemon's whole life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Backend {
    /// A bridge; what was not proven on this kernel is refused.
    Bridge { report: SelfTestReport },
    /// QEMU's own network.
    User { reason: String },
    /// Machines without a network, for this reason.
    Off { reason: String },
}

impl Backend {
    pub(super) fn mode(&self) -> NetworkMode {
        match self {
            Self::Bridge { .. } => NetworkMode::Bridge,
            Self::User { reason } => NetworkMode::User { reason: reason.clone() },
            Self::Off { reason } => NetworkMode::Off { reason: reason.clone() },
        }
    }

    /// Settings that a guest needs for its interface.
    pub(super) fn attachment(&self, lease: AddressLease, subnet: Subnet) -> InterfaceSettings {
        let mac = lease.mac.0;
        match self {
            Self::Bridge { .. } => InterfaceSettings {
                mac,
                address: lease.address,
                prefix_len: subnet.prefix_len(),
                gateway: subnet.gateway(),
                dns: Some(subnet.gateway()),
            },
            // Addresses of QEMU's user network, the same for every guest; cut off, it answers no names.
            Self::User { .. } | Self::Off { .. } => InterfaceSettings {
                mac,
                address: [10, 0, 2, 15].into(),
                prefix_len: 24,
                gateway: [10, 0, 2, 2].into(),
                dns: None,
            },
        }
    }

    /// Checks that a policy can be kept here.
    ///
    /// # Errors
    /// `network_unavailable`, or `policy_unavailable` with the request and the reason.
    pub(super) fn keeps(&self, policy: &MemberPolicy) -> Result<(), ToolError> {
        match self {
            Self::Bridge { .. } => {
                let requests = [
                    (policy.allow_inter_vm, "allow_inter_vm", NetworkProperty::InterVm),
                    (policy.group.is_some(), "group", NetworkProperty::Groups),
                    (policy.allow_internet, "allow_internet", NetworkProperty::Internet),
                    (policy.allow_internet, "allow_internet", NetworkProperty::PrivateNetworks),
                    (
                        !policy.egress_allow.is_empty(),
                        "egress_allow",
                        NetworkProperty::PrivateNetworks,
                    ),
                    (
                        policy.names().next().is_some(),
                        "egress_allow",
                        NetworkProperty::AllowedNames,
                    ),
                ];
                let mut asked = requests.into_iter().filter(|(asked, ..)| *asked);
                asked.try_for_each(|(_, request, property)| self.proven(request, property))
            }
            Self::User { reason } => match UserMode::of(policy, &[]) {
                Ok(_) => Ok(()),
                Err(cannot) => {
                    Err(error::policy_unavailable(format!("{cannot}; there is none: {reason}")))
                }
            },
            Self::Off { reason } => Err(error::off(reason)),
        }
    }

    /// Checks that forwards work here.
    ///
    /// # Errors
    /// As [`Backend::keeps`].
    pub(super) fn forwards(&self) -> Result<(), ToolError> {
        match self {
            Self::Bridge { .. } => self.proven("a port forward", NetworkProperty::Forwards),
            Self::User { .. } => Ok(()),
            Self::Off { reason } => Err(error::off(reason)),
        }
    }

    fn proven(&self, request: &str, property: NetworkProperty) -> Result<(), ToolError> {
        let Self::Bridge { report } = self else { return Ok(()) };
        let Some(finding) = report.findings.iter().find(|f| f.property == property && !f.holds)
        else {
            return Ok(());
        };
        let (why, name) = (finding.reason(), format!("{property:?}"));
        let refused = match finding.unknown {
            true => error::policy_unproven(format!("{request} is not yet proven: {name}: {why}")),
            false => error::policy_unavailable(format!(
                "{request} is not promised: the self-test found that {name} fails: {why}"
            )),
        };
        Err(refused.detail("property", name))
    }

    /// The part of a policy that holds here, if the policy was given on another backend. A property
    /// that is not yet proven again keeps the policy in force.
    pub(super) fn in_force(&self, policy: &MemberPolicy) -> MemberPolicy {
        match self.keeps(policy) {
            Err(refused) if !refused.retryable => MemberPolicy::default(),
            _ => policy.clone(),
        }
    }
}

/// True when two forwards are led by the same port of the host.
pub(super) fn same_end(forward: &Forward, other: &Forward) -> bool {
    (forward.protocol, forward.host_port) == (other.protocol, other.host_port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selftest::PropertyFinding;

    fn internet() -> MemberPolicy {
        MemberPolicy { allow_internet: true, ..MemberPolicy::default() }
    }

    fn unproven(property: NetworkProperty) -> PropertyFinding {
        PropertyFinding { property, holds: false, unknown: false, evidence: Vec::new() }
    }

    fn on(finding: PropertyFinding) -> Backend {
        Backend::Bridge { report: SelfTestReport { findings: vec![finding] } }
    }

    #[test]
    fn what_was_not_proven_is_refused_with_the_property_and_the_rest_is_kept() {
        let evidence = vec!["ok: a".to_owned(), "BROKEN: b: seen".to_owned()];
        let mut finding = unproven(NetworkProperty::AllowedNames);
        finding.evidence = evidence;
        let backend = on(finding);
        let egress = |text: &str| MemberPolicy {
            egress_allow: vec![text.parse().unwrap()],
            ..MemberPolicy::default()
        };
        let refused = backend.keeps(&egress("a.example")).unwrap_err();
        assert_eq!(refused.code, "policy_unavailable");
        assert!(refused.message.contains("AllowedNames"), "{refused}");
        assert!(refused.message.contains("b: seen"), "{refused}");
        backend.keeps(&egress("10.0.0.0/8")).unwrap();
        let group = MemberPolicy { group: Some("a".parse().unwrap()), ..MemberPolicy::default() };
        backend.keeps(&group).unwrap();
        let backend = on(unproven(NetworkProperty::Groups));
        let refused = backend.keeps(&group).unwrap_err();
        assert!(refused.message.starts_with("group is not promised"), "{refused}");
        backend.keeps(&MemberPolicy { allow_inter_vm: true, ..MemberPolicy::default() }).unwrap();
        let backend = on(unproven(NetworkProperty::InterVm));
        backend.keeps(&group).unwrap();
        backend.keeps(&internet()).unwrap();
        backend.forwards().unwrap();
    }

    #[test]
    fn what_could_not_be_checked_is_refused_for_now_and_stays_in_force() {
        let mut finding = unproven(NetworkProperty::Internet);
        (finding.unknown, finding.evidence) = (true, vec!["UNKNOWN: busy".to_owned()]);
        let backend = on(finding);
        let refused = backend.keeps(&internet()).unwrap_err();
        assert_eq!((&*refused.code, refused.retryable), ("policy_unproven", true));
        assert!(refused.message.contains("not yet proven: Internet: UNKNOWN: busy"), "{refused}");
        assert_eq!(backend.in_force(&internet()), internet());
        let backend = on(unproven(NetworkProperty::Internet));
        assert!(!backend.keeps(&internet()).unwrap_err().retryable);
        assert_eq!(backend.in_force(&internet()), MemberPolicy::default());
    }

    #[test]
    fn user_mode_keeps_closed_guests_and_nothing_else() {
        let backend = Backend::User { reason: "CAP_NET_ADMIN: none".into() };
        backend.keeps(&MemberPolicy::default()).unwrap();
        backend.forwards().unwrap();
        let refused = backend.keeps(&internet()).unwrap_err();
        assert_eq!(refused.code, "policy_unavailable");
        assert!(refused.message.contains("CAP_NET_ADMIN"), "{refused}");
        assert_eq!(backend.in_force(&internet()), MemberPolicy::default());
        let lease = AddressLease::at([10, 213, 3, 4].into());
        let attachment = backend.attachment(lease, Subnet::default());
        assert_eq!(attachment.mac, lease.mac.0);
        assert_eq!(attachment.address.octets(), [10, 0, 2, 15]);
        assert_eq!(attachment.dns, None);
    }

    #[test]
    fn without_a_network_everything_is_refused_as_that() {
        let backend = Backend::Off { reason: "network.mode is off".into() };
        for refused in [backend.keeps(&MemberPolicy::default()), backend.forwards()] {
            assert_eq!(refused.unwrap_err().code, "network_unavailable");
        }
    }
}
