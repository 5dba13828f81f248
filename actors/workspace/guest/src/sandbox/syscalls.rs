//! System calls that a sandbox has no use for and a kernel exploit has.

use std::collections::BTreeMap;

use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch,
};

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
    // Other processes' memory, files by handle.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_open_by_handle_at,
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
];

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

/// x86_64's second door to the same calls, for 32-bit pointers.
const X32_BIT: i64 = 0x4000_0000;
/// Personalities that a program may have: the usual one, and the question for it.
const PERSONALITIES: [u64; 2] = [0, 0xffff_ffff];

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

/// Puts the filters in force for this process and everything it starts.
pub(super) fn deny() -> Result<(), Error> {
    for program in [refused()?, unknown()?] {
        seccompiler::apply_filter(&program)?;
    }
    Ok(())
}

/// Calls that are answered "operation not permitted".
fn refused() -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for call in DENIED.iter().chain(DENIED_HERE) {
        rules.insert(*call, vec![]);
        rules.insert(*call | X32_BIT, vec![]);
    }
    let (dword, qword) = (SeccompCmpArgLen::Dword, SeccompCmpArgLen::Qword);
    let namespaces = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let mut clones = Vec::new();
    for flag in namespaces {
        let flag = u64::from(flag.cast_unsigned());
        let set = SeccompCondition::new(0, qword.clone(), SeccompCmpOp::MaskedEq(flag), flag)?;
        clones.push(SeccompRule::new(vec![set])?);
    }
    let others = PERSONALITIES
        .into_iter()
        .map(|usual| SeccompCondition::new(0, dword.clone(), SeccompCmpOp::Ne, usual))
        .collect::<Result<Vec<_>, _>>()?;
    let personality = SeccompRule::new(others)?;
    // Terminal input faked by ioctl, against whoever looks at that terminal.
    let fake = [libc::TIOCSTI, libc::TIOCLINUX]
        .into_iter()
        .map(|request| {
            let is = SeccompCondition::new(1, dword.clone(), SeccompCmpOp::Eq, request)?;
            SeccompRule::new(vec![is])
        })
        .collect::<Result<Vec<_>, _>>()?;
    for bit in [0, X32_BIT] {
        rules.insert(libc::SYS_clone | bit, clones.clone());
        rules.insert(libc::SYS_personality | bit, vec![personality.clone()]);
        rules.insert(libc::SYS_ioctl | bit, fake.clone());
    }
    program(rules, libc::EPERM)
}

/// Calls that are answered as if the kernel did not know them: clone3's flags are
/// in memory, where a filter cannot see them, and libraries fall back to clone.
fn unknown() -> Result<BpfProgram, BackendError> {
    let rules = [libc::SYS_clone3, libc::SYS_clone3 | X32_BIT].map(|call| (call, vec![]));
    program(BTreeMap::from(rules), libc::ENOSYS)
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> Result<BpfProgram, BackendError> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let answer = SeccompAction::Errno(errno.cast_unsigned());
    SeccompFilter::new(rules, SeccompAction::Allow, answer, arch)?.try_into()
}
