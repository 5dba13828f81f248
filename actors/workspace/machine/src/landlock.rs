//! Landlock support of this host's kernel, by its ABI version.
#![allow(unsafe_code)]

use serde::Serialize;

/// Features that sandboxes ask for (`hivekeep-guest`, `sandbox/confine.rs`), with the first ABI
/// that has each.
const ASKED: [(u32, &str); 3] = [
    (1, "the denial of every mount operation"),
    (5, "the denial of device ioctls"),
    (6, "the denial of signals and abstract sockets to the outside"),
];

/// How much of what is asked for is enforced.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LandlockExtent {
    /// All of it.
    Full,
    /// Some of it: the kernel is older.
    Partial,
    /// Nothing: the kernel has no Landlock, or was booted without.
    None,
}

/// Landlock, as sandboxes have it on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, serde::Deserialize, schemars::JsonSchema)]
pub struct Landlock {
    /// How much of what sandboxes ask for is enforced.
    pub enforced: LandlockExtent,
    /// The kernel's version of it; 0 without.
    pub abi: u32,
    /// What sandboxes ask for and this kernel does not have.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub missing: Vec<String>,
}

impl Landlock {
    /// Support of the running kernel.
    pub fn here() -> Self {
        // SAFETY: a null attribute of size 0 with this flag only asks for the version.
        let abi = unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, 1u32)
        };
        Self::of(u32::try_from(abi).unwrap_or_default())
    }

    pub(super) fn of(abi: u32) -> Self {
        let lacking = ASKED.iter().filter(|(since, _)| abi < *since);
        let missing: Vec<_> = lacking.map(|(_, what)| (*what).to_owned()).collect();
        let enforced = match (abi, missing.is_empty()) {
            (_, true) => LandlockExtent::Full,
            (0, _) => LandlockExtent::None,
            _ => LandlockExtent::Partial,
        };
        Self { enforced, abi, missing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_follows_from_the_abi() {
        let of = |abi| (Landlock::of(abi).enforced, Landlock::of(abi).missing.len());
        assert_eq!(of(0), (LandlockExtent::None, 3));
        assert_eq!(of(4), (LandlockExtent::Partial, 2));
        assert_eq!(of(5), (LandlockExtent::Partial, 1));
        assert_eq!(of(6), (LandlockExtent::Full, 0));
        assert_eq!(of(99), (LandlockExtent::Full, 0));
    }
}
