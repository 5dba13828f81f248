//! QEMU's command line. Pure: the tests hold it to the letter.

use std::ffi::OsString;
use std::os::fd::RawFd;

use crate::driver::facts::AcceleratorKind;
use crate::driver::plan::{Carrier, Plan};

/// Name of the virtio-serial port that the guest daemon looks for.
pub(super) const PORT_NAME: &str = "hivekeep.0";
/// `-append` under emulation. In order: no calibration (it would hang), no self-tests of ciphers
/// (a second of boot), no mitigations: the emulator's translated code is what speculates, so the
/// guest's own count for nothing here.
const TCG_KERNEL: &str = "tsc=reliable cryptomgr.notests mitigations=off \
    initcall_blacklist=init_kprobe_trace,crypto_kdf108_init,load_system_certificate_list,init_encrypted";
/// `-append` under KVM: the guest's clock is KVM's, and its mitigations are real.
const KVM_KERNEL: &str = "cryptomgr.notests";
/// No new programs, no new privileges, no obsolete system calls.
const SECCOMP: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// The numbers of the descriptors that QEMU inherits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fds {
    pub(super) qmp: RawFd,
    pub(super) console: RawFd,
    pub(super) disk: RawFd,
    pub(super) base: RawFd,
    pub(super) kernel: RawFd,
    pub(super) initrd: RawFd,
    /// A listening socket, `/dev/vhost-vsock`, or a connection to `vhost-device-vsock`.
    pub(super) link: RawFd,
}

/// What the command line needs besides the plan.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) accelerator: AcceleratorKind,
    pub(super) tsc_khz: u64,
    /// The disk's file system takes `O_DIRECT`.
    pub(super) direct: bool,
    pub(super) fds: Fds,
}

/// The whole command line, without the program.
pub(super) fn command_line(plan: &Plan, machine: &Machine) -> Vec<OsString> {
    let mut line = Line::default();
    base(&mut line, plan, machine);
    storage(&mut line, machine);
    link(&mut line, plan, &machine.fds);
    // `/proc/self/fd` opens the file anew whatever the path's folders permit.
    line.pair("-kernel", format!("/proc/self/fd/{}", machine.fds.kernel));
    line.pair("-initrd", format!("/proc/self/fd/{}", machine.fds.initrd));
    line.pair("-append", kernel_arguments(plan, machine));
    line.pair("-sandbox", SECCOMP);
    line.0
}

fn base(line: &mut Line, plan: &Plan, machine: &Machine) {
    let Fds { qmp, console, .. } = machine.fds;
    line.flags(&["-nodefaults", "-no-user-config", "-no-reboot"]);
    line.pair("-display", "none");
    line.pair("-name", format!("guest={}", comma_safe(&plan.tag())));
    line.pair("-uuid", plan.uuid.to_string());
    line.pair("-machine", "microvm,memory-backend=ram,usb=off");
    let (accelerator, processor) = match machine.accelerator {
        AcceleratorKind::Kvm => ("kvm", "host"),
        // arat: without it an idle guest keeps ticking at 250 Hz.
        AcceleratorKind::Tcg | AcceleratorKind::Namespaces => {
            ("tcg,thread=multi,tb-size=64", "qemu64,+arat")
        }
    };
    line.pair("-accel", accelerator);
    line.pair("-cpu", processor);
    line.pair("-smp", plan.vcpus.to_string());
    line.pair("-m", plan.memory_mb.to_string());
    // share=on, not only for vhost-user, which needs it: a private mapping of a memfd keeps a page
    // that was read and then written twice, up to double the machine's memory.
    let memory_mb = plan.memory_mb;
    line.pair("-object", format!("memory-backend-memfd,id=ram,size={memory_mb}M,share=on"));
    line.pair("-chardev", format!("socket,id=qmp,fd={qmp},server=on,wait=off"));
    line.pair("-mon", "chardev=qmp,mode=control");
    line.pair("-chardev", format!("socket,id=console,fd={console},server=on,wait=off"));
    line.pair("-serial", "chardev:console");
    line.pair("-object", "rng-random,id=rng,filename=/dev/urandom");
    line.pair("-device", "virtio-rng-device,rng=rng");
}

/// The backing file is given as a node, so QEMU opens no path that the overlay names.
///
/// The overlay is written past the host's page cache where that is possible: the cache would count
/// as the machine's memory, and cgroup v1 kills a machine for pages that it cannot write back in
/// time. The guest has a cache of its own; the base is read by many and stays cached.
fn storage(line: &mut Line, machine: &Machine) {
    let fds = &machine.fds;
    let direct = if machine.direct { ",cache.direct=on" } else { "" };
    let disk_file =
        format!("driver=file,node-name=disk-file,filename=/dev/fdset/1,discard=unmap{direct}");
    line.pair("-add-fd", format!("fd={},set=1", fds.disk));
    line.pair("-add-fd", format!("fd={},set=2", fds.base));
    for node in [
        "driver=file,node-name=base-file,filename=/dev/fdset/2,read-only=on",
        "driver=raw,node-name=base,file=base-file,read-only=on",
        disk_file.as_str(),
        "driver=qcow2,node-name=disk,file=disk-file,backing=base,discard=unmap",
    ] {
        line.pair("-blockdev", node);
    }
    line.pair("-device", "virtio-blk-device,drive=disk");
}

fn link(line: &mut Line, plan: &Plan, fds: &Fds) {
    let fd = fds.link;
    let cid = plan.cid.unwrap_or_default();
    match plan.carrier {
        Carrier::VirtioSerial | Carrier::Unix => {
            line.pair("-chardev", format!("socket,id=link,fd={fd},server=on,wait=off"));
            line.pair("-device", "virtio-serial-device,max_ports=2");
            line.pair("-device", format!("virtserialport,chardev=link,name={PORT_NAME}"));
        }
        Carrier::Vsock => {
            line.pair("-device", format!("vhost-vsock-device,guest-cid={cid},vhostfd={fd}"));
        }
        Carrier::VhostUserVsock => {
            line.pair("-chardev", format!("socket,id=link,fd={fd}"));
            line.pair("-device", "vhost-user-vsock-device,chardev=link");
        }
    }
}

fn kernel_arguments(plan: &Plan, machine: &Machine) -> String {
    let own = match machine.accelerator {
        AcceleratorKind::Kvm => KVM_KERNEL.to_owned(),
        AcceleratorKind::Tcg | AcceleratorKind::Namespaces => {
            format!("tsc_early_khz={} {TCG_KERNEL}", machine.tsc_khz)
        }
    };
    // In the guest both vsock carriers are the same device.
    let carrier = match plan.carrier {
        Carrier::VhostUserVsock => Carrier::Vsock.as_str(),
        other => other.as_str(),
    };
    // reboot=t: a microvm has no power switch; a triple fault ends QEMU by -no-reboot.
    format!(
        "quiet panic=-1 console=ttyS0 reboot=t {own} hivekeep.carrier={carrier} \
         hivekeep.root=/dev/vda hivekeep.token_hash={}",
        plan.token_hash_hex
    )
}

/// QEMU's option syntax: a comma in a value is written twice.
fn comma_safe(value: &str) -> String {
    value.replace(',', ",,")
}

#[derive(Default)]
struct Line(Vec<OsString>);

impl Line {
    fn flags(&mut self, flags: &[&str]) {
        self.0.extend(flags.iter().map(OsString::from));
    }

    fn pair(&mut self, option: &str, value: impl Into<OsString>) {
        self.0.push(option.into());
        self.0.push(value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::fake::plan;

    const FDS: Fds =
        Fds { qmp: 10, console: 11, disk: 12, base: 13, kernel: 14, initrd: 15, link: 16 };

    fn line(plan: &Plan, accelerator: AcceleratorKind) -> String {
        let machine = Machine { accelerator, tsc_khz: 2_500_000, direct: true, fds: FDS };
        let words = command_line(plan, &machine);
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_emulated_machine_to_the_letter() {
        let plan = plan("ws_golden", std::path::Path::new("/r"));
        let expected = include_str!("args.golden").replace('\n', " ");
        assert_eq!(line(&plan, AcceleratorKind::Tcg), expected.trim_end());
    }

    #[test]
    fn kvm_keeps_the_guests_mitigations_and_its_own_clock() {
        let plan = plan("ws_golden", std::path::Path::new("/r"));
        let line = line(&plan, AcceleratorKind::Kvm);
        assert!(line.contains("-accel kvm -cpu host"), "{line}");
        assert!(!line.contains("mitigations") && !line.contains("tsc"), "{line}");
    }

    #[test]
    fn each_carrier_has_its_device() {
        let mut plan = plan("ws_golden", std::path::Path::new("/r"));
        plan.cid = Some(7);
        plan.carrier = Carrier::Vsock;
        let vsock = line(&plan, AcceleratorKind::Tcg);
        assert!(vsock.contains("-device vhost-vsock-device,guest-cid=7,vhostfd=16"), "{vsock}");
        assert!(vsock.contains("hivekeep.carrier=vsock"));
        plan.carrier = Carrier::VhostUserVsock;
        let vhost = line(&plan, AcceleratorKind::Tcg);
        assert!(vhost.contains("-chardev socket,id=link,fd=16 -device vhost-user-vsock-device"));
        assert!(vhost.contains("share=on") && vhost.contains("hivekeep.carrier=vsock"), "{vhost}");
    }

    #[test]
    fn a_comma_in_a_path_cannot_become_an_option() {
        assert_eq!(comma_safe("a,sandbox=off"), "a,,sandbox=off");
    }
}
