//! The system calls of a sandbox: what it has no use for and a kernel exploit has, is refused.
//!
//! | filter | what does not pass it | is answered |
//! |---|---|---|
//! | [`known`] | what is in no list here, so all that later kernels add | `ENOSYS` |
//! | [`refused`] | [`DENIED`], and new namespaces | `EPERM` |
//! | [`families`] | sockets of other families than [`FAMILIES`] | `EAFNOSUPPORT` |
//! | [`protocols`] | sockets of other protocols than [`PROTOCOLS`] | `EPROTONOSUPPORT` |
//! | [`set_id`], if asked | a file's mode with a set-id bit | `EPERM` |
//! | [`hidden_modes`], if asked | openat2, whose mode is in memory | `ENOSYS` |
//!
//! The answers are those of a kernel that was built without, on which libraries fall back. Of
//! sockets only families and protocols are filtered that a network namespace separates: vsock
//! is one for the whole host.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

/// Families of sockets.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// Protocols of sockets of the internet's families; of netlink's protocols only `NETLINK_ROUTE`.
const PROTOCOLS: [i32; 5] =
    [libc::IPPROTO_IP, libc::IPPROTO_ICMP, libc::IPPROTO_TCP, libc::IPPROTO_UDP, ICMPV6];
/// Number of a system call that libc does not name yet.
const FCHMODAT2: i64 = 452;
const ICMPV6: i32 = libc::IPPROTO_ICMPV6;
/// The type within socket(2)'s second argument, which has flags too.
const TYPE_MASK: u64 = 0xf;
/// AF_PACKET by its old name, a type of AF_INET.
const SOCK_PACKET: i32 = 10;
/// Personalities that a program may have: the usual one, and the question for it.
const PERSONALITIES: [u64; 2] = [0, 0xffff_ffff];
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// The filter could not be put in force.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A filter does not compile.
    #[error("seccomp filter: {0}")]
    Compile(#[from] BackendError),
    /// The kernel refuses it.
    #[error("seccomp: {0}")]
    Apply(#[from] seccompiler::Error),
}

/// Filters of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterSet {
    /// All but the last two of the table.
    Contained,
    /// All. For folders of the host, where a file with such a bit would lend its owner's rights to users of
    /// the host.
    WithoutSetId,
    /// Sockets and modes of files alone: for a program that makes namespaces and filters of its own.
    SocketsAndModes,
}

/// The programs of a set, each of which is to be put in force.
///
/// # Errors
/// When one does not compile.
pub fn programs(set: FilterSet) -> Result<Vec<BpfProgram>, BackendError> {
    let (contained, modes) = match set {
        FilterSet::Contained => (true, false),
        FilterSet::WithoutSetId => (true, true),
        FilterSet::SocketsAndModes => (false, true),
    };
    let mut programs = vec![families()?, protocols()?];
    if contained {
        programs.extend([known()?, refused()?]);
    }
    if modes {
        programs.extend([set_id()?, hidden_modes()?]);
    }
    Ok(programs)
}

/// Puts the filters in force for this process and everything it starts.
///
/// # Errors
/// When one does not compile, or the kernel refuses it.
pub fn confine(set: FilterSet) -> Result<(), Error> {
    programs(set)?.iter().try_for_each(|program| Ok(seccompiler::apply_filter(program)?))
}

/// A program in the form that the kernel takes, `struct sock_filter` after `struct sock_filter`.
pub fn bytes(program: &BpfProgram) -> Vec<u8> {
    let instruction = |it: &seccompiler::sock_filter| {
        let [code, k] = [it.code.to_ne_bytes().to_vec(), it.k.to_ne_bytes().to_vec()];
        [code, vec![it.jt, it.jf], k].concat()
    };
    program.iter().flat_map(instruction).collect()
}

/// An allow list of numbers. Not on it are clone3, whose flags are in memory, where a filter
/// cannot see them, and x86_64's second door to every call, for 32-bit pointers.
fn known() -> Result<BpfProgram, BackendError> {
    // Refused calls pass here: the filter `refused` answers them.
    let calls = (0..=LAST_NUMBER_HERE).chain(NEWER.iter().chain(DENIED).copied());
    let rules = calls.map(|call| (call, vec![])).collect();
    let unknown = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    SeccompFilter::new(rules, unknown, SeccompAction::Allow, arch()?)?.try_into()
}

fn refused() -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        DENIED.iter().chain(DENIED_HERE).map(|call| (*call, vec![])).collect();
    let new = NAMESPACES.map(|flag| all([masked(0, flag.cast_unsigned().into(), flag)]));
    rules.insert(libc::SYS_clone, new.into_iter().collect::<Result<_, _>>()?);
    let other = PERSONALITIES.map(|usual| compare(0, SeccompCmpOp::Ne, usual));
    rules.insert(libc::SYS_personality, vec![all(other)?]);
    // Terminal input faked by ioctl, against whoever looks at that terminal.
    let fake = [libc::TIOCSTI, libc::TIOCLINUX].map(|ioctl| all([compare(1, EQ, ioctl)]));
    rules.insert(libc::SYS_ioctl, fake.into_iter().collect::<Result<_, _>>()?);
    answered(rules, libc::EPERM)
}

fn families() -> Result<BpfProgram, BackendError> {
    let other = FAMILIES.map(|family| isnt(0, family));
    let packet = [is(0, libc::AF_INET), masked(1, TYPE_MASK, SOCK_PACKET)];
    sockets(vec![all(other)?, all(packet)?], libc::EAFNOSUPPORT)
}

fn protocols() -> Result<BpfProgram, BackendError> {
    let netlink = [is(0, libc::AF_NETLINK), isnt(2, libc::NETLINK_ROUTE)];
    let mut rules = vec![all(netlink)?];
    for family in [libc::AF_INET, libc::AF_INET6] {
        let other = PROTOCOLS.map(|protocol| isnt(2, protocol));
        rules.push(all(other.into_iter().chain([is(0, family)]))?);
    }
    sockets(rules, libc::EPROTONOSUPPORT)
}

/// Calls that take a mode, and which argument it is; as systemd's `RestrictSUIDSGID=` has them. An open has
/// one only with a flag that makes a file: what else is in its place means nothing.
fn set_id() -> Result<BpfProgram, BackendError> {
    let mut calls = vec![
        (libc::SYS_fchmod, 1, None),
        (libc::SYS_fchmodat, 2, None),
        (FCHMODAT2, 2, None),
        (libc::SYS_mkdirat, 2, None),
        (libc::SYS_mknodat, 2, None),
        (libc::SYS_openat, 3, Some(2)),
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        (libc::SYS_chmod, 1, None),
        (libc::SYS_mkdir, 1, None),
        (libc::SYS_mknod, 1, None),
        (libc::SYS_open, 2, Some(1)),
        (libc::SYS_creat, 1, None),
    ]);
    let mut rules = BTreeMap::new();
    for (call, mode, flags) in calls {
        let mut of_call = Vec::new();
        for bit in [libc::S_ISUID, libc::S_ISGID].map(u32::cast_signed) {
            let lends = || masked(mode, bit.cast_unsigned().into(), bit);
            match flags {
                None => of_call.push(all([lends()])?),
                Some(flags) => {
                    for makes in [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY] {
                        let makes = masked(flags, makes.cast_unsigned().into(), makes);
                        of_call.push(all([makes, lends()])?);
                    }
                }
            }
        }
        rules.insert(call, of_call);
    }
    answered(rules, libc::EPERM)
}

/// Callers go on with openat where a kernel has no openat2.
fn hidden_modes() -> Result<BpfProgram, BackendError> {
    answered(BTreeMap::from([(libc::SYS_openat2, vec![])]), libc::ENOSYS)
}

fn sockets(rules: Vec<SeccompRule>, errno: i32) -> Result<BpfProgram, BackendError> {
    let calls = [libc::SYS_socket, libc::SYS_socketpair];
    answered(calls.into_iter().map(|call| (call, rules.clone())).collect(), errno)
}

fn answered(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    errno: i32,
) -> Result<BpfProgram, BackendError> {
    let answer = SeccompAction::Errno(errno.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, answer, arch()?)?.try_into()
}

fn arch() -> Result<TargetArch, BackendError> {
    std::env::consts::ARCH.try_into()
}

type Condition = Result<SeccompCondition, BackendError>;
const EQ: SeccompCmpOp = SeccompCmpOp::Eq;

/// Matches when all conditions do.
fn all(conditions: impl IntoIterator<Item = Condition>) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}

/// The kernel takes these arguments as 32 bits, whatever is above them.
fn compare(argument: u8, how: SeccompCmpOp, with: u64) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, how, with)
}

fn is(argument: u8, value: i32) -> Condition {
    compare(argument, EQ, value.cast_unsigned().into())
}

fn isnt(argument: u8, value: i32) -> Condition {
    compare(argument, SeccompCmpOp::Ne, value.cast_unsigned().into())
}

fn masked(argument: u8, mask: u64, value: i32) -> Condition {
    compare(argument, SeccompCmpOp::MaskedEq(mask), value.cast_unsigned().into())
}

/// The last number that is this architecture's own. From 424 on all number alike.
#[cfg(target_arch = "x86_64")]
const LAST_NUMBER_HERE: i64 = libc::SYS_rseq;
#[cfg(not(target_arch = "x86_64"))]
const LAST_NUMBER_HERE: i64 = libc::SYS_kexec_file_load;

/// Known calls from number 424 on. A call neither here nor refused by name is unknown: clone3 (435),
/// cachestat (451), statmount and listmount (457, 458), the lsm calls (459 to 461), and everything
/// from `open_tree_attr` (467) on.
const NEWER: &[i64] = &[
    libc::SYS_pidfd_send_signal,
    libc::SYS_pidfd_open,
    libc::SYS_close_range,
    libc::SYS_openat2,
    libc::SYS_faccessat2,
    libc::SYS_epoll_pwait2,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_restrict_self,
    libc::SYS_process_mrelease,
    libc::SYS_futex_waitv,
    452, // fchmodat2
    453, // map_shadow_stack
    454, // futex_wake
    455, // futex_wait
    456, // futex_requeue
    462, // mseal
    463, // setxattrat
    464, // getxattrat
    465, // listxattrat
    466, // removexattrat
];

const DENIED: &[i64] = &[
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    // The kernel's programs, keys and events.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_memfd_secret,
    // Other processes' memory and descriptors, files by handle.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_open_by_handle_at,
    libc::SYS_lookup_dcookie,
    // The machine.
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_vhangup,
    libc::SYS_fanotify_init,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    libc::SYS_mbind,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
];

/// Refused calls that only this architecture has.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS_nfsservctl,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_sysfs,
    libc::SYS__sysctl,
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[i64] = &[libc::SYS_nfsservctl];
