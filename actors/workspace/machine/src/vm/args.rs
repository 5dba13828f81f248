//! QEMU's command line. Pure: the tests hold it to the letter.

use std::ffi::OsString;
use std::os::fd::RawFd;

use super::{nic, volumes};
use crate::facts::AcceleratorKind;
use crate::layer;
use crate::plan::{CarrierKind, MachinePlan};

/// Name of the virtio-serial port that the guest daemon looks for.
pub(super) const PORT_NAME: &str = "hivekeep.0";
/// `-append` under emulation. In order: no calibration (it would hang), no self-tests of ciphers
/// (a second of boot), no mitigations: the emulator's translated code is what speculates, so the
/// guest's own count for nothing here; no random addresses, for code is translated again for each
/// address that it runs at.
const TCG_KERNEL: &str = "tsc=reliable cryptomgr.notests mitigations=off norandmaps \
    initcall_blacklist=init_kprobe_trace,crypto_kdf108_init,load_system_certificate_list,init_encrypted";
/// `-append` under KVM: the guest's clock is KVM's, and its mitigations are real.
const KVM_KERNEL: &str = "cryptomgr.notests";
/// No new programs, no new privileges, no obsolete system calls.
const SECCOMP: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// The numbers of the descriptors that QEMU inherits.
#[derive(Debug, Clone, Default)]
pub(super) struct Fds {
    pub(super) qmp: RawFd,
    pub(super) console: RawFd,
    /// The guest's memory, a memfd.
    pub(super) ram: RawFd,
    /// The disk's writable layer.
    pub(super) top: RawFd,
    /// Frozen layers of the disk, oldest first.
    pub(super) layers: Vec<RawFd>,
    /// The image that the oldest layer stands on.
    pub(super) base: RawFd,
    pub(super) kernel: RawFd,
    pub(super) initrd: RawFd,
    /// A listening socket, `/dev/vhost-vsock`, or a connection to `vhost-device-vsock`.
    pub(super) link: RawFd,
    /// Backend of the network interface, if that is a descriptor.
    pub(super) tap: RawFd,
    /// Connections to the servers of its volumes.
    pub(super) volumes: Vec<RawFd>,
}

/// The emulated processor.
///
/// QEMU before 8.0 computes the flags after CMPXCHG16B from operands instead of flags where it has
/// not written down yet how the ones before were made: an interrupt that comes then restores a
/// pointer as EFLAGS, and the guest's kernel, which allocates memory with that instruction, ends in
/// a double fault. So the processor has none, and the kernel does without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Processor {
    /// Without CMPXCHG16B.
    Current,
    /// With CMPXCHG16B, as earlier daemons booted machines: the memory saved of those uses it.
    WithCx16,
}

/// Inputs of the command line besides the plan.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) accelerator: AcceleratorKind,
    pub(super) processor: Processor,
    pub(super) tsc_khz: u64,
    /// The disk's file system takes `O_DIRECT`.
    pub(super) direct: bool,
    /// Guest memory is the memfd itself, or a private copy-on-write view of it.
    pub(super) shared_ram: bool,
    /// QEMU waits for a command that names the source of its state.
    pub(super) incoming: bool,
    pub(super) fds: Fds,
}

/// The whole command line, without the program.
pub(super) fn command_line(plan: &MachinePlan, machine: &Machine) -> Vec<OsString> {
    let mut line = Line::default();
    base(&mut line, plan, machine);
    storage(&mut line, plan, machine);
    link(&mut line, plan, &machine.fds);
    if let Some(nic) = &plan.nic {
        let (cable, device) = nic::words(nic, machine.fds.tap);
        line.pair("-netdev", cable);
        line.pair("-device", device);
    }
    for (n, fd) in machine.fds.volumes.iter().enumerate() {
        let tag = volumes::tag(n);
        line.pair("-chardev", format!("socket,id={tag},fd={fd}"));
        line.pair("-device", format!("vhost-user-fs-device,chardev={tag},tag={tag}"));
    }
    // `/proc/self/fd` opens the file anew whatever the path's folders permit.
    line.pair("-kernel", format!("/proc/self/fd/{}", machine.fds.kernel));
    line.pair("-initrd", format!("/proc/self/fd/{}", machine.fds.initrd));
    line.pair("-append", kernel_arguments(plan, machine));
    line.pair("-sandbox", SECCOMP);
    if machine.incoming {
        line.pair("-incoming", "defer");
    }
    line.flags(&["-S"]);
    line.0
}

/// The words that decide whether saved memory fits: processor, memory size, devices and their
/// order. Names, paths, descriptors and how the memory is held are the same in all of them.
pub(super) fn shape_words(
    plan: &MachinePlan,
    accelerator: AcceleratorKind,
    processor: Processor,
) -> Vec<OsString> {
    let neutral = MachinePlan {
        uuid: uuid::Uuid::nil(),
        is_fork: false,
        name: String::new(),
        cid: None,
        ..plan.clone()
    };
    let machine = Machine {
        accelerator,
        processor,
        tsc_khz: 0,
        direct: false,
        shared_ram: true,
        incoming: false,
        fds: Fds::default(),
    };
    let mut line = Line::default();
    base(&mut line, &neutral, &machine);
    if let Some(name) = line.0.iter().position(|word| word == "-name") {
        line.0.drain(name..name + 2);
    }
    line.pair("-device", BLOCK_DEVICE);
    link(&mut line, &neutral, &machine.fds);
    if neutral.nic.is_some() {
        line.pair("-device", nic::DEVICE);
    }
    line.0
}

fn base(line: &mut Line, plan: &MachinePlan, machine: &Machine) {
    let Fds { qmp, console, ram, .. } = machine.fds;
    line.flags(&["-nodefaults", "-no-user-config", "-no-reboot"]);
    line.pair("-display", "none");
    line.pair("-name", format!("guest={}", comma_safe(&plan.tag())));
    line.pair("-uuid", plan.uuid.to_string());
    line.pair("-machine", "microvm,memory-backend=ram,usb=off");
    // Devices of virtio 1.0, which virtio-fs needs. The others stay what saved memory knows.
    if !plan.volumes.is_empty() {
        line.pair("-global", "virtio-mmio.force-legacy=off");
    }
    let tcg = "tcg,thread=multi,tb-size=64";
    let (accelerator, processor) = match (machine.accelerator, machine.processor) {
        (AcceleratorKind::Kvm, _) => ("kvm", "host"),
        // arat: without it an idle guest keeps ticking at 250 Hz.
        (_, Processor::Current) => (tcg, "qemu64,+arat,-cx16"),
        (_, Processor::WithCx16) => (tcg, "qemu64,+arat"),
    };
    line.pair("-accel", accelerator);
    line.pair("-cpu", processor);
    line.pair("-smp", plan.vcpus.to_string());
    line.pair("-m", plan.memory_mb.to_string());
    // A machine that booted maps its memory shared, not only for vhost-user, which needs it: a
    // private mapping of a memfd keeps a page that was read and then written twice, up to double
    // the machine's memory. A fork does map privately: what it keeps twice is what it changed.
    let (memory_mb, share) = (plan.memory_mb, if machine.shared_ram { "on" } else { "off" });
    line.pair(
        "-object",
        format!(
            "memory-backend-file,id=ram,size={memory_mb}M,mem-path=/proc/self/fd/{ram},share={share}"
        ),
    );
    line.pair("-chardev", format!("socket,id=qmp,fd={qmp},server=on,wait=off"));
    line.pair("-mon", "chardev=qmp,mode=control");
    line.pair("-chardev", format!("socket,id=console,fd={console},server=on,wait=off"));
    line.pair("-serial", "chardev:console");
    line.pair("-object", "rng-random,id=rng,filename=/dev/urandom");
    line.pair("-device", "virtio-rng-device,rng=rng");
}

/// The disk's device; its node is replaced when the disk is given a new top.
const BLOCK_DEVICE: &str = "virtio-blk-device";

/// Each layer's backing file is given as a node, so QEMU opens no path that a layer names.
///
/// The top is written past the host's page cache where that is possible: the cache would count
/// as the machine's memory, and cgroup v1 kills a machine for pages that it cannot write back in
/// time. The guest has a cache of its own; base and frozen layers are read by many and stay cached.
fn storage(line: &mut Line, plan: &MachinePlan, machine: &Machine) {
    let fds = &machine.fds;
    let disk = plan.disk();
    line.pair("-add-fd", format!("fd={},set=1", fds.base));
    line.pair("-blockdev", "driver=file,node-name=base-file,filename=/dev/fdset/1,read-only=on");
    line.pair("-blockdev", "driver=raw,node-name=base,file=base-file,read-only=on");
    let mut below = "base".to_owned();
    for (index, (path, fd)) in disk.layers.iter().zip(&fds.layers).enumerate() {
        let (node, set) = (layer::node(path), index + 3);
        line.pair("-add-fd", format!("fd={fd},set={set}"));
        line.pair(
            "-blockdev",
            format!("driver=file,node-name={node}-file,filename=/dev/fdset/{set},read-only=on"),
        );
        line.pair(
            "-blockdev",
            format!("driver=qcow2,node-name={node},file={node}-file,backing={below},read-only=on"),
        );
        below = node;
    }
    let direct = if machine.direct { ",cache.direct=on" } else { "" };
    let node = layer::node(&disk.top);
    line.pair("-add-fd", format!("fd={},set=2", fds.top));
    line.pair(
        "-blockdev",
        format!("driver=file,node-name={node}-file,filename=/dev/fdset/2,discard=unmap{direct}"),
    );
    line.pair(
        "-blockdev",
        format!("driver=qcow2,node-name={node},file={node}-file,backing={below},discard=unmap"),
    );
    line.pair("-device", format!("{BLOCK_DEVICE},drive={node}"));
}

fn link(line: &mut Line, plan: &MachinePlan, fds: &Fds) {
    let fd = fds.link;
    let cid = plan.cid.unwrap_or_default();
    match plan.carrier {
        CarrierKind::VirtioSerial | CarrierKind::Unix => {
            line.pair("-chardev", format!("socket,id=link,fd={fd},server=on,wait=off"));
            line.pair("-device", "virtio-serial-device,max_ports=2");
            line.pair("-device", format!("virtserialport,chardev=link,name={PORT_NAME}"));
        }
        CarrierKind::Vsock => {
            line.pair("-device", format!("vhost-vsock-device,guest-cid={cid},vhostfd={fd}"));
        }
        CarrierKind::VhostUserVsock => {
            line.pair("-chardev", format!("socket,id=link,fd={fd}"));
            line.pair("-device", "vhost-user-vsock-device,chardev=link");
        }
    }
}

fn kernel_arguments(plan: &MachinePlan, machine: &Machine) -> String {
    let own = match machine.accelerator {
        AcceleratorKind::Kvm => KVM_KERNEL.to_owned(),
        AcceleratorKind::Tcg | AcceleratorKind::Namespaces => {
            format!("tsc_early_khz={} {TCG_KERNEL}", machine.tsc_khz)
        }
    };
    // In the guest both vsock carriers are the same device.
    let carrier = match plan.carrier {
        CarrierKind::VhostUserVsock => CarrierKind::Vsock.as_str(),
        other => other.as_str(),
    };
    // reboot=t: a microvm has no power switch; a triple fault ends QEMU by -no-reboot.
    format!(
        "quiet panic=-1 console=ttyS0 reboot=t {own} hivekeep.carrier={carrier} \
         hivekeep.root=/dev/vda hivekeep.token_hash={} \
         hivekeep.machine_id={}{}{}",
        plan.token_hash_hex,
        plan.uuid.simple(),
        if plan.is_fork { " hivekeep.fork" } else { "" },
        if plan.volumes.is_empty() { "" } else { " hivekeep.volumes" }
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
    use crate::fake::plan;
    use crate::{Nic, NicEnd};

    fn fds(layers: &[RawFd]) -> Fds {
        let layers = layers.to_vec();
        Fds {
            qmp: 10,
            console: 11,
            ram: 17,
            top: 12,
            layers,
            base: 13,
            kernel: 14,
            initrd: 15,
            link: 16,
            tap: 18,
            volumes: Vec::new(),
        }
    }

    fn line(plan: &MachinePlan, accelerator: AcceleratorKind) -> String {
        let machine = Machine {
            accelerator,
            processor: Processor::Current,
            tsc_khz: 2_500_000,
            direct: true,
            shared_ram: true,
            incoming: false,
            fds: fds(&[]),
        };
        text(&command_line(plan, &machine))
    }

    fn text(words: &[OsString]) -> String {
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
        plan.carrier = CarrierKind::Vsock;
        let vsock = line(&plan, AcceleratorKind::Tcg);
        assert!(vsock.contains("-device vhost-vsock-device,guest-cid=7,vhostfd=16"), "{vsock}");
        assert!(vsock.contains("hivekeep.carrier=vsock"));
        plan.carrier = CarrierKind::VhostUserVsock;
        let vhost = line(&plan, AcceleratorKind::Tcg);
        assert!(vhost.contains("-chardev socket,id=link,fd=16 -device vhost-user-vsock-device"));
        assert!(vhost.contains("share=on") && vhost.contains("hivekeep.carrier=vsock"), "{vhost}");
    }

    #[test]
    fn a_fork_stands_on_frozen_layers_and_maps_memory_privately() {
        let mut plan = plan("ws_golden", std::path::Path::new("/r"));
        let (old, new, top) = ("/r/old".into(), "/r/new".into(), "/r/top".into());
        plan.disk = Some(crate::Disk { layers: vec![old, new], top });
        let machine = Machine {
            accelerator: AcceleratorKind::Tcg,
            processor: Processor::Current,
            tsc_khz: 2_500_000,
            direct: true,
            shared_ram: false,
            incoming: true,
            fds: fds(&[20, 21]),
        };
        let line = text(&command_line(&plan, &machine));
        let [old, new, top] = ["/r/old", "/r/new", "/r/top"].map(|path| layer::node(path.as_ref()));
        for part in [
            "mem-path=/proc/self/fd/17,share=off".to_owned(),
            format!("driver=file,node-name={old}-file,filename=/dev/fdset/3,read-only=on"),
            format!("node-name={old},file={old}-file,backing=base,read-only=on"),
            format!("node-name={new},file={new}-file,backing={old},read-only=on"),
            format!("node-name={top},file={top}-file,backing={new},discard=unmap"),
            format!("-device virtio-blk-device,drive={top}"),
            "-incoming defer -S".to_owned(),
        ] {
            assert!(line.contains(&part), "{part} is not in {line}");
        }
        assert!(!line.contains("/r/old") && !line.contains("/r/top"), "{line}");
    }

    #[test]
    fn the_shape_is_the_machine_and_not_its_name_place_or_disk() {
        let one = plan("ws_golden", std::path::Path::new("/r"));
        let mut other = plan("ws_other", std::path::Path::new("/s"));
        other.uuid = uuid::Uuid::from_u128(7);
        other.token_hash_hex = "cd".repeat(32);
        other.is_fork = true;
        let shape =
            |plan: &MachinePlan| text(&shape_words(plan, AcceleratorKind::Tcg, Processor::Current));
        assert_eq!(shape(&one), shape(&other));
        other.memory_mb += 1;
        assert_ne!(shape(&one), shape(&other));
        other.memory_mb -= 1;
        let nic = |last| Nic { mac: [2, 0, 0, 0, 0, last], end: NicEnd::Unplugged };
        other.nic = Some(nic(1));
        let with_nic = shape(&other);
        assert_ne!(shape(&one), with_nic);
        other.nic = Some(nic(2));
        assert_eq!(shape(&other), with_nic, "whose it is makes no difference");
        assert!(shape(&one).contains("virtserialport") && shape(&one).contains("qemu64"));
    }

    #[test]
    fn an_interface_comes_behind_what_all_machines_have() {
        let mut plan = plan("ws_golden", std::path::Path::new("/r"));
        let without = line(&plan, AcceleratorKind::Tcg);
        plan.nic = Some(Nic { mac: [2, 0, 0, 0, 0, 1], end: NicEnd::Unplugged });
        let with = line(&plan, AcceleratorKind::Tcg);
        let words = " -netdev hubport,id=net,hubid=0 -device virtio-net-device,guest_announce=off,\
                     id=nic,netdev=net,mac=02:00:00:00:00:01";
        assert_eq!(with.replace(words, ""), without);
        assert!(with.find("virtserialport") < with.find("virtio-net"), "{with}");
    }

    #[test]
    fn volumes_come_last_and_change_nothing_for_machines_without() {
        let mut plan = plan("ws_golden", std::path::Path::new("/r"));
        let without = line(&plan, AcceleratorKind::Tcg);
        assert!(!without.contains("force-legacy") && !without.contains("hivekeep.volumes"));
        let volume = |n: u8, read_only| crate::VolumeMount {
            folder: format!("/state/v{n}").into(),
            path: format!("/data/{n}").into(),
            read_only,
            owner: None,
        };
        plan.volumes = vec![volume(0, false), volume(1, true)];
        let machine = Machine {
            accelerator: AcceleratorKind::Tcg,
            processor: Processor::Current,
            tsc_khz: 2_500_000,
            direct: true,
            shared_ram: true,
            incoming: false,
            fds: Fds { volumes: vec![30, 31], ..fds(&[]) },
        };
        let with = text(&command_line(&plan, &machine));
        let parts = [
            " -global virtio-mmio.force-legacy=off",
            " -chardev socket,id=volume0,fd=30 -device vhost-user-fs-device,chardev=volume0,tag=volume0 \
             -chardev socket,id=volume1,fd=31 -device vhost-user-fs-device,chardev=volume1,tag=volume1",
            " hivekeep.volumes",
        ];
        let rest = parts.iter().fold(with.clone(), |rest, part| {
            assert!(rest.contains(part), "{part} is not in {with}");
            rest.replace(part, "")
        });
        assert_eq!(rest, without, "saved memory of machines without goes on fitting");
        // Neither their places on the host nor in the guest are QEMU's business.
        assert!(!with.contains("/state/") && !with.contains("/data/"), "{with}");
    }

    #[test]
    fn a_comma_in_a_path_cannot_become_an_option() {
        assert_eq!(comma_safe("a,sandbox=off"), "a,,sandbox=off");
    }
}
