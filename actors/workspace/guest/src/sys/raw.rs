//! System calls without the C library, for a process that shares this one's memory:
//! the library would leave its `errno` in this one's.
#![allow(unsafe_code)]

use std::arch::asm;
use std::ffi::c_long;

/// Makes one system call of up to four arguments. Returns what the kernel returns:
/// on failure the negative of the error's number.
///
/// # Safety
/// The arguments must be sound for that call.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) unsafe fn call(number: c_long, args: [usize; 4]) -> isize {
    let [a, b, c, d] = args;
    let returned;
    // SAFETY: as the caller promises; the kernel changes only these registers.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => returned,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("r10") d,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    returned
}

/// As on x86_64.
///
/// # Safety
/// The arguments must be sound for that call.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(super) unsafe fn call(number: c_long, args: [usize; 4]) -> isize {
    let [a, b, c, d] = args;
    let returned;
    // SAFETY: as the caller promises; the kernel changes only this register.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a as isize => returned,
            in("x1") b,
            in("x2") c,
            in("x3") d,
            options(nostack),
        );
    }
    returned
}
