//! Parts of a build on made-up input, and one real build where the host allows it.

use std::collections::HashMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::Mutex;

use tempfile::TempDir;
use tokio::process::Command;

use super::apt::Apt;
use super::run::{run, tool};
use super::*;
use crate::RequirementPurpose;
use crate::requirements;
use crate::tree::{self, Owners};

/// Makes the smallest ELF with a PVH entry note.
fn pvh_elf(entry: u32, note_type: u32) -> Vec<u8> {
    let mut note = Vec::new();
    for word in [4u32, 4, note_type] {
        note.extend(word.to_le_bytes());
    }
    note.extend(b"Xen\0");
    note.extend(entry.to_le_bytes());
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    elf.extend(0u64.to_le_bytes());
    elf.extend(64u64.to_le_bytes());
    elf.extend(0u64.to_le_bytes());
    elf.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    elf.extend(4u32.to_le_bytes());
    elf.extend(4u32.to_le_bytes());
    for word in [120, 0, 0, note.len() as u64, note.len() as u64, 4] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(note);
    elf
}

/// Makes a bzImage with this payload: boot sector, one setup sector, then 16 bytes of code.
fn bz_image(payload: &[u8]) -> Vec<u8> {
    let mut image = vec![0; 1024 + 16];
    image[0x1f1] = 1;
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x206..0x208].copy_from_slice(&0x020f_u16.to_le_bytes());
    image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
    image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    image.extend(payload);
    image.extend(b"relocations follow");
    image
}

fn lz4_payload(kernel: &[u8]) -> Vec<u8> {
    let mut payload = vec![0x02, 0x21, 0x4c, 0x18];
    for block in kernel.chunks(8 << 20) {
        let packed = lz4_flex::block::compress(block);
        payload.extend((packed.len() as u32).to_le_bytes());
        payload.extend(packed);
    }
    payload.extend((kernel.len() as u32).to_le_bytes());
    payload
}

/// Payload of more than one lz4 block.
fn large_kernel() -> Vec<u8> {
    let mut kernel = pvh_elf(0x0100_0000, 18);
    kernel.resize(20 << 20, 7);
    kernel
}

#[test]
fn kernels_come_out_of_every_packing_debian_uses() {
    let kernel = large_kernel();
    let zstd = zstd::stream::encode_all(kernel.as_slice(), 1).unwrap();
    let zstd = [zstd, (kernel.len() as u32).to_le_bytes().to_vec()].concat();
    for payload in [kernel.clone(), lz4_payload(&kernel), zstd] {
        let plain = elf::extract_kernel(&bz_image(&payload)).unwrap();
        assert!(plain == kernel, "the kernel changed on the way");
    }
}

#[test]
fn unusable_kernels_are_refused_with_the_reason() {
    let good = lz4_payload(&large_kernel());
    let cases: [(Vec<u8>, &str); 6] = [
        (bz_image(&lz4_payload(&pvh_elf(0, 7))), "no PVH entry note"),
        (bz_image(b"\xfd7zXZ\0 and more"), "neither lz4 nor zstd"),
        (bz_image(&good[..good.len() / 2]), "ends too early"),
        (bz_image(&good)[..2000].to_vec(), "outside of the file"),
        (bz_image(&lz4_payload(b"plain text, not a kernel")), "not a 64-bit ELF"),
        (b"MZ".to_vec(), "shorter than a boot header"),
    ];
    for (image, reason) in cases {
        let error = elf::extract_kernel(&image).unwrap_err().to_string();
        assert!(error.contains(reason), "`{error}` does not say `{reason}`");
    }
}

#[test]
fn the_trusted_certificates_are_the_same_text_for_the_same_files() {
    let folder = TempDir::new().unwrap();
    let pem =
        |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----");
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
    assert!(staged::certificate_bundle(folder.path()).is_err(), "nobody would be trusted");
    write("b.crt", format!("{}\n\n", pem("Yg==")));
    write("a.crt", pem("YQ=="));
    write("README", "no certificate".to_owned());
    let expected = format!("{}\n{}\n", pem("YQ=="), pem("Yg=="));
    assert_eq!(staged::certificate_bundle(folder.path()).unwrap(), expected);
    write("c.crt", "no certificate".to_owned());
    assert!(staged::certificate_bundle(folder.path()).unwrap_err().to_string().contains("c.crt"));
}

fn store() -> (TempDir, ImageStore) {
    let folder = TempDir::new().unwrap();
    let store = ImageStore::open(folder.path().join("images")).unwrap();
    (folder, store)
}

fn request(guest_binary: &Path) -> BuildRequest {
    BuildRequest {
        name: ImageName::Base,
        kernel: KernelChoice::Debian,
        guest_binary: guest_binary.to_path_buf(),
        suite: Suite::Bookworm,
        refresh: false,
    }
}

#[tokio::test]
async fn a_guest_that_cannot_be_process_1_is_refused_before_anything_runs() {
    let (folder, store) = store();
    let cancel = CancellationToken::new();
    let script = folder.path().join("guest");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    let dynamic = std::env::current_exe().unwrap();
    for path in [folder.path().join("absent"), script, dynamic] {
        let error =
            store.build(request(&path), &|_| panic!("a step ran"), &cancel).await.unwrap_err();
        assert!(matches!(error, Error::GuestBinary { .. }), "{error}");
    }
}

#[tokio::test]
async fn failing_hanging_and_cancelled_programs_are_told_apart() {
    let cancel = CancellationToken::new();
    let shell = |script: &str| {
        let mut command = Command::new(tool("sh").unwrap());
        command.arg("-c").arg(script);
        command
    };
    let long = std::time::Duration::from_secs(60);
    assert_eq!(run(shell("echo fine"), long, &cancel).await.unwrap(), "fine\n");

    let error = run(shell("echo why >&2; exit 3"), long, &cancel).await.unwrap_err();
    assert!(
        matches!(&error, Error::ToolFailed { stderr, status, .. } if stderr == "why" && status.contains('3')),
        "{error}"
    );
    let short = std::time::Duration::from_millis(50);
    let error = run(shell("sleep 600 & sleep 600"), short, &cancel).await.unwrap_err();
    assert!(matches!(error, Error::ToolTimeout { .. }), "{error}");

    cancel.cancel();
    let error = run(shell("sleep 600"), long, &cancel).await.unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
}

#[tokio::test]
async fn owners_are_set_inside_the_image_for_a_builder_that_is_not_root() {
    if tool("mke2fs").is_err() || tool("debugfs").is_err() {
        return hivekeep_skip::skip("e2fsprogs is not installed");
    }
    let folder = TempDir::new().unwrap();
    let cancel = CancellationToken::new();
    let tree = folder.path().join("tree");
    fs::create_dir_all(tree.join("var/mail box")).unwrap();
    fs::write(tree.join("var/file"), "x").unwrap();
    fs::set_permissions(tree.join("var/file"), fs::Permissions::from_mode(0o4755)).unwrap();
    let owner = |uid, gid| crate::FileOwner { uid, gid, capability: None };
    let listed = HashMap::from([
        ("var/mail box".to_owned(), owner(7, 8)),
        ("var/file".to_owned(), owner(9, 10)),
    ]);
    let list = tree::scan(&tree, &Owners::Listed(listed)).unwrap();
    let out = folder.path().join("rootfs.ext4");
    ext4::make(&tree, &list, &out, folder.path(), &cancel).await.unwrap();
    ext4::set_owners(&list, &out, folder.path(), &cancel).await.unwrap();

    for (path, user, group) in [("/var", 0, 0), ("/var/mail box", 7, 8), ("/var/file", 9, 10)] {
        let mut stat = Command::new(tool("debugfs").unwrap());
        stat.arg("-R").arg(format!("stat \"{path}\"")).arg(&out);
        let text = run(stat, std::time::Duration::from_secs(30), &cancel).await.unwrap();
        let words: Vec<_> = text.split_whitespace().collect();
        let after =
            |key| words.iter().position(|word| *word == key).map(|at| words[at + 1].to_owned());
        assert_eq!(after("User:"), Some(user.to_string()), "{text}");
        assert_eq!(after("Group:"), Some(group.to_string()), "{text}");
    }
}

/// Reason why a real build cannot run here, if any.
async fn obstacle() -> Option<String> {
    let wanted =
        |purpose| matches!(purpose, RequirementPurpose::Build | RequirementPurpose::Overlay);
    let missing = requirements().into_iter().find(|it| wanted(it.purpose) && !it.found);
    if let Some(missing) = missing {
        return Some(format!("{}: {}", missing.what, missing.remedy));
    }
    if tool("busybox").is_err() {
        return Some(
            "no static program to stand in for the guest daemon (busybox-static)".to_owned(),
        );
    }
    let work = TempDir::new().unwrap();
    let cancel = CancellationToken::new();
    match Apt::open(work.path(), Suite::Bookworm, &cancel).await {
        Ok(_) => None,
        Err(error) => Some(format!("Debian's archive cannot be reached: {error}")),
    }
}

#[tokio::test]
async fn base_is_built_kept_and_renewed() {
    if let Some(reason) = obstacle().await {
        return hivekeep_skip::skip(reason);
    }
    let (folder, store) = store();
    let cancel = CancellationToken::new();
    let guest = folder.path().join("guest");
    fs::copy(tool("busybox").unwrap(), &guest).unwrap();
    let told = Mutex::new(Vec::new());
    let report = |progress: BuildStep| told.lock().unwrap().push((progress.step, progress.steps));

    let built = store.build(request(&guest), &report, &cancel).await.unwrap();
    assert_eq!(built.change, RebuiltPart::All);
    assert_eq!(*told.lock().unwrap(), [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]);
    assert_eq!(fs::read_dir(store.inner.temp()).unwrap().count(), 0);
    let image = store.resolve(ImageName::Base).await.unwrap();
    let kernel = fs::read(image.kernel().unwrap()).unwrap();
    assert!(elf::pvh_entry(&kernel).unwrap().is_some());
    let order = initrd::load_order(&fs::read(image.initrd().unwrap()).unwrap());
    let place = |name: &str| order.iter().position(|file| file == name);
    // A module comes after its dependencies; what is built in is not in the list.
    for (first, then) in [
        ("virtio.ko", "virtio_blk.ko"),
        ("virtio_ring.ko", "virtio_mmio.ko"),
        ("vsock.ko", "vsock_loopback.ko"),
        ("failover.ko", "net_failover.ko"),
        ("net_failover.ko", "virtio_net.ko"),
    ] {
        assert!(place(first) < place(then), "{first} is not before {then} in {order:?}");
    }
    let tree = store.resolve_tree(&image).await.unwrap();
    for name in etc::EXPECTED_COMMANDS {
        assert!(tree.join("bin").join(name).exists(), "{name}");
    }
    for name in ["git-remote-http", "git-remote-https"] {
        assert!(fs::metadata(tree.join("usr/lib/git-core").join(name)).unwrap().len() > 1 << 20);
    }
    let trusted = fs::read_to_string(tree.join(staged::CERTIFICATE_BUNDLE)).unwrap();
    assert!(trusted.matches("-----BEGIN CERTIFICATE-----").count() > 100);
    let curl = built.manifest.packages.iter().filter(|it| it.name.starts_with("libcurl"));
    assert_eq!(curl.count(), 1);
    assert!(!built.manifest.packages.iter().any(|it| it.name == "debconf"), "nothing is of it");
    assert_eq!(fs::metadata(tree.join("tmp")).unwrap().mode() & 0o7777, 0o1777);

    let again = store.build(request(&guest), &report, &cancel).await.unwrap();
    assert_eq!(again.change, RebuiltPart::Unchanged);
    assert_eq!(again.manifest, built.manifest);

    let mut other = fs::read(&guest).unwrap();
    other.push(0);
    fs::write(&guest, other).unwrap();
    let renewed = store.build(request(&guest), &report, &cancel).await.unwrap();
    assert_eq!(renewed.change, RebuiltPart::Initrd);
    assert_ne!(renewed.manifest.initrd, built.manifest.initrd);
    assert_eq!(renewed.manifest.kernel, built.manifest.kernel);
    assert_eq!(renewed.manifest.rootfs_ext4, built.manifest.rootfs_ext4);

    fs::remove_file(image.rootfs()).unwrap();
    let repaired = store.build(request(&guest), &report, &cancel).await.unwrap();
    assert_eq!(repaired.change, RebuiltPart::All);
    assert_eq!(repaired.manifest.kernel, built.manifest.kernel, "the kernel is reused");
    store.resolve(ImageName::Base).await.unwrap();
}

#[tokio::test]
async fn a_cancelled_build_leaves_nothing() {
    if let Some(reason) = obstacle().await {
        return hivekeep_skip::skip(reason);
    }
    let (_folder, store) = store();
    let cancel = CancellationToken::new();
    let guest = tool("busybox").unwrap();
    let report = |progress: BuildStep| {
        if progress.step == 2 {
            cancel.cancel();
        }
    };
    let error = store.build(request(&guest), &report, &cancel).await.unwrap_err();
    assert!(matches!(error, Error::Cancelled), "{error}");
    assert_eq!(fs::read_dir(store.inner.temp()).unwrap().count(), 0);
    assert!(matches!(store.resolve(ImageName::Base).await, Err(Error::Missing { .. })));
    store.inner.lock().expect("the lock is given back");
}
