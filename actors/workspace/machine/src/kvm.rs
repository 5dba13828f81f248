//! Speed probe of KVM.
//!
//! On some hosts `/dev/kvm` opens, a VM can be made, and then the kernel interprets the guest
//! instruction by instruction. So its presence proves nothing: a small real-mode loop is timed. A
//! forked child does it, since a hanging `KVM_RUN` must not hang the daemon; it is killed at a
//! deadline.
//!
//! Under software emulation the guest reads the host's time stamp counter but has no clock to calibrate it
//! against: its kernel hangs unless it is given the frequency.
#![allow(unsafe_code)]

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use kvm_bindings::kvm_userspace_memory_region;
use kvm_ioctls::{Kvm, VcpuExit, VcpuFd};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use serde::Serialize;

/// Minimum speed, which hardware exceeds by far and interpretation never reaches: 0.03 to 0.23
/// million a second were measured where KVM interprets.
const NEEDED_PER_SEC: u64 = 20_000_000;
/// Time for which the loop runs.
const SPAN: Duration = Duration::from_millis(30);
/// Time after which the child is given up.
const DEADLINE: Duration = Duration::from_secs(2);
/// Code of the loop, `dec ecx; jnz -4; hlt`, in real mode.
const LOOP: [u8; 5] = [0x66, 0x49, 0x75, 0xfc, 0xf4];
const LOOP_ADDRESS: u64 = 0x1000;
const PAGE_BYTES: usize = 4096;

/// Result of the probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KvmVerdict {
    /// True if a guest would run at the hardware's speed.
    pub usable: bool,
    /// Speed of the loop; `None` if it did not run.
    pub iterations_per_sec: Option<u64>,
    /// Reason for people.
    pub reason: String,
}

/// Times KVM. Blocks for about 30 ms where KVM works, for at most about two seconds anywhere.
pub fn probe_kvm() -> KvmVerdict {
    match timed_in_child() {
        Ok(speed) => {
            let usable = speed >= NEEDED_PER_SEC;
            let word = if usable { "KVM runs" } else { "KVM is there but interprets: it runs" };
            let mega = speed as f64 / 1e6;
            let reason = format!("{word} {mega:.2} million loop iterations a second (20 needed)");
            KvmVerdict { usable, iterations_per_sec: Some(speed), reason }
        }
        Err(reason) => KvmVerdict { usable: false, iterations_per_sec: None, reason },
    }
}

fn timed_in_child() -> Result<u64, String> {
    rustix::fs::access("/dev/kvm", rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK)
        .map_err(|error| format!("/dev/kvm: {error}"))?;
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(|error| format!("pipe: {error}"))?;
    // SAFETY: the child only makes system calls and small allocations, which the C library permits
    // after a fork of a threaded program, and leaves by _exit. Should it hang all the same, the
    // parent kills it.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(format!("fork: {}", std::io::Error::last_os_error())),
        0 => {
            let word = speed().unwrap_or(0).to_le_bytes();
            let _ = rustix::io::write(&writer, &word);
            // SAFETY: takes no pointers, does not return.
            unsafe { libc::_exit(0) }
        }
        pid => {
            drop(writer);
            let answer = read_answer(reader);
            end(pid);
            match answer {
                Some(0) => Err("KVM refused to run a minimal guest".into()),
                Some(speed) => Ok(speed),
                None => Err(format!("KVM did not answer within {} s", DEADLINE.as_secs())),
            }
        }
    }
}

fn read_answer(reader: OwnedFd) -> Option<u64> {
    let timeout = rustix::event::Timespec { tv_sec: DEADLINE.as_secs() as i64, tv_nsec: 0 };
    let mut polled = [PollFd::new(&reader, PollFlags::IN)];
    if rustix::event::poll(&mut polled, Some(&timeout)) != Ok(1) {
        return None;
    }
    let mut word = [0; 8];
    std::fs::File::from(reader).read_exact(&mut word).ok()?;
    Some(u64::from_le_bytes(word))
}

/// Kills and reaps the child; leaves it as a zombie at worst if it does not die in time.
fn end(pid: libc::pid_t) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    let Ok(fd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { return };
    let _ = rustix::process::pidfd_send_signal(&fd, Signal::KILL);
    let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
    let _ = rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&second));
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let _ = rustix::process::waitid(WaitId::PidFd(fd.as_fd()), options);
}

/// Measures iterations per second, in the child.
fn speed() -> Option<u64> {
    let vm = Kvm::new().ok()?.create_vm().ok()?;
    // SAFETY: a fresh anonymous mapping that nothing else knows; it lives until the child exits.
    let page = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            PAGE_BYTES,
            rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
            rustix::mm::MapFlags::PRIVATE,
        )
    }
    .ok()?;
    // SAFETY: the loop is shorter than the page just mapped.
    unsafe { std::ptr::copy_nonoverlapping(LOOP.as_ptr(), page.cast::<u8>(), LOOP.len()) };
    let region = kvm_userspace_memory_region {
        slot: 0,
        flags: 0,
        guest_phys_addr: LOOP_ADDRESS,
        memory_size: PAGE_BYTES as u64,
        userspace_addr: page as u64,
    };
    // SAFETY: the region is the mapped page, which stays mapped as long as the VM.
    unsafe { vm.set_user_memory_region(region) }.ok()?;
    let mut vcpu = vm.create_vcpu(0).ok()?;
    let mut special = vcpu.get_sregs().ok()?;
    special.cs.base = 0;
    special.cs.selector = 0;
    vcpu.set_sregs(&special).ok()?;
    time_loop(&mut vcpu)
}

/// Runs the loop in chunks that grow while they are quick, so that a slow KVM is left soon.
fn time_loop(vcpu: &mut VcpuFd) -> Option<u64> {
    let (mut chunk, mut done) = (1_000u32, 0u64);
    let start = Instant::now();
    loop {
        let mut registers = vcpu.get_regs().ok()?;
        registers.rip = LOOP_ADDRESS;
        registers.rcx = u64::from(chunk);
        registers.rflags = 2;
        vcpu.set_regs(&registers).ok()?;
        let begun = Instant::now();
        match vcpu.run().ok()? {
            VcpuExit::Hlt => {}
            _ => return None,
        }
        done += u64::from(chunk);
        let elapsed = start.elapsed();
        if elapsed >= SPAN {
            return Some((done as f64 / elapsed.as_secs_f64()) as u64);
        }
        if begun.elapsed() < Duration::from_millis(2) {
            chunk = chunk.saturating_mul(4).min(10_000_000);
        }
    }
}

/// Long enough that the two clocks' readings, some 100 ns apart, err by a part per million.
const CLOCK_SPAN: Duration = Duration::from_millis(100);

/// Measures the counter against the monotonic clock. Blocks for 100 ms.
pub(super) fn measure_khz() -> u64 {
    let (ticks_from, from) = read_pair();
    std::thread::sleep(CLOCK_SPAN);
    let (ticks_to, to) = read_pair();
    let nanos = to.duration_since(from).as_nanos().max(1);
    (u128::from(ticks_to.wrapping_sub(ticks_from)) * 1_000_000 / nanos) as u64
}

/// Reads both clocks as near together as possible: the tightest of some tries, for this thread may be
/// interrupted between the two readings.
fn read_pair() -> (u64, Instant) {
    let reading = || {
        let before = counter();
        let now = Instant::now();
        let after = counter();
        (after.wrapping_sub(before), before.wrapping_add(after.wrapping_sub(before) / 2), now)
    };
    let best = (0..16).map(|_| reading()).min_by_key(|(width, ..)| *width);
    let (_, ticks, now) = best.unwrap_or_else(reading);
    (ticks, now)
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux leaves it to programs.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_follows_the_measured_speed_and_leaves_no_child() {
        let verdict = probe_kvm();
        eprintln!("{verdict:?}");
        let fast = verdict.iterations_per_sec.is_some_and(|speed| speed >= NEEDED_PER_SEC);
        assert_eq!(verdict.usable, fast, "{verdict:?}");
        assert!(!verdict.reason.is_empty());
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        assert_eq!(children.trim(), "");
    }

    #[test]
    fn two_measurements_agree_and_are_a_processors_frequency() {
        let (one, two) = (measure_khz(), measure_khz());
        assert!((500_000..8_000_000).contains(&one), "{one}");
        assert!(one.abs_diff(two) < one / 1_000, "{one} {two}");
    }
}
