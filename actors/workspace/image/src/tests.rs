//! Tests of the store without a build, on a made-up image of four small objects.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::build::run::tool;
use super::fixture::fixture;
use super::*;

const GIB: u64 = 1 << 30;

/// Changes one byte and resets the modification time, as a silent fault would.
fn flip_a_byte(path: &Path) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    let mut bytes = fs::read(path).unwrap();
    bytes[0] ^= 1;
    fs::write(path, bytes).unwrap();
    fs::File::open(path).unwrap().set_modified(modified).unwrap();
}

#[tokio::test]
async fn manifest_survives_the_disk() {
    let fixture = fixture(4096);
    let path = fixture.store.inner.manifest_path(&ImageName::Base);
    let manifest = Manifest::load(&path, &ImageName::Base).unwrap().unwrap();
    let copy = path.with_file_name("copy.json");
    manifest.save(&copy).unwrap();
    assert_eq!(Manifest::load(&copy, &ImageName::Base).unwrap().unwrap(), manifest);
    assert_eq!(fs::read(&copy).unwrap(), fs::read(&path).unwrap());
}

#[tokio::test]
async fn manifest_of_another_format_is_refused_and_kept() {
    let fixture = fixture(4096);
    let path = fixture.store.inner.manifest_path(&ImageName::Base);
    let text = fs::read_to_string(&path).unwrap().replace("\"format\": 1", "\"format\": 99");
    fs::write(&path, &text).unwrap();
    let error = fixture.store.resolve(ImageName::Base).await.unwrap_err();
    assert!(
        matches!(&error, Error::Manifest { reason, .. } if reason.contains("format 99")),
        "{error}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let listed = fixture.store.list().await.unwrap();
    assert!(matches!(listed[0].state, ImageState::Unreadable { .. }));
    assert!(matches!(listed[1].state, ImageState::NotBuilt));
}

#[tokio::test]
async fn manifest_cannot_point_out_of_the_store() {
    let fixture = fixture(4096);
    let path = fixture.store.inner.manifest_path(&ImageName::Base);
    let text = fs::read_to_string(&path).unwrap().replace("\"vmlinux\"", "\"../../vmlinux\"");
    fs::write(&path, text).unwrap();
    let error = fixture.store.resolve(ImageName::Base).await.unwrap_err();
    assert!(matches!(error, Error::Manifest { .. }), "{error}");
}

#[tokio::test]
async fn an_image_nobody_built_is_missing_with_a_remedy() {
    let fixture = fixture(4096);
    let error = fixture.store.resolve(ImageName::Debian).await.unwrap_err();
    assert!(
        matches!(&error, Error::Missing { remedy, .. } if remedy == "run: hivekeep image build debian"),
        "{error}"
    );
}

#[tokio::test]
async fn a_lost_object_is_missing() {
    let fixture = fixture(4096);
    let image = fixture.store.resolve(ImageName::Base).await.unwrap();
    fs::remove_file(image.initrd().unwrap()).unwrap();
    let error = fixture.store.resolve(ImageName::Base).await.unwrap_err();
    assert!(matches!(&error, Error::Missing { what, .. } if what.ends_with("/initrd")), "{error}");
}

#[tokio::test]
async fn a_flipped_byte_is_found_even_after_a_good_check() {
    let fixture = fixture(4096);
    let image = fixture.store.resolve(ImageName::Base).await.unwrap();
    for path in [image.kernel().unwrap(), image.initrd().unwrap(), image.rootfs()] {
        let good = fs::read(path).unwrap();
        flip_a_byte(path);
        let error = fixture.store.resolve(ImageName::Base).await.unwrap_err();
        assert!(
            matches!(&error, Error::Corrupt { path: found, remedy, .. }
                if found == path && remedy == "run: hivekeep image build base"),
            "{error}"
        );
        fs::write(path, good).unwrap();
        fixture.store.resolve(ImageName::Base).await.unwrap();
    }
}

#[tokio::test]
async fn a_changed_tree_is_found() {
    let fixture = fixture(4096);
    let image = fixture.store.resolve(ImageName::Base).await.unwrap();
    let tree = fixture.store.resolve_tree(&image).await.unwrap();
    assert_eq!(fs::read(tree.join("etc/name")).unwrap(), b"workspace\n");
    let folder = fs::metadata(tree.parent().unwrap()).unwrap();
    assert_eq!(folder.permissions().mode() & 0o777, 0o700, "others could run its programs");

    let reopened = ImageStore::open(fixture.store.root().to_path_buf()).unwrap();
    fs::set_permissions(tree.join("etc/hostname"), fs::Permissions::from_mode(0o4755)).unwrap();
    let error = reopened.resolve_tree(&image).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn leftovers_go_at_the_next_open_unless_a_build_is_alive() {
    let fixture = fixture(4096);
    let root = fixture.store.root().to_path_buf();
    let leftover = root.join("tmp/build-dead/apt/lists");
    let lock = fixture.store.inner.lock().unwrap();
    fs::create_dir_all(&leftover).unwrap();
    ImageStore::open(root.clone()).unwrap();
    assert!(leftover.exists(), "the lock was held: a build may own it");
    assert!(matches!(fixture.store.inner.lock(), Err(Error::Busy { .. })));

    drop(lock);
    let store = ImageStore::open(root.clone()).unwrap();
    assert_eq!(fs::read_dir(root.join("tmp")).unwrap().count(), 0);
    store.resolve(ImageName::Base).await.unwrap();
}

#[tokio::test]
async fn putting_a_damaged_object_again_repairs_it_in_place() {
    let fixture = fixture(4096);
    let objects = &fixture.store.inner.objects;
    let object = objects.put_bytes(b"content", "file", None).unwrap();
    let path = objects.path(&object);
    flip_a_byte(&path);
    assert_eq!(objects.put_bytes(b"content", "file", None).unwrap(), object);
    assert_eq!(fs::read(&path).unwrap(), b"content");
}

async fn qemu_info(path: &Path) -> serde_json::Value {
    let output = Command::new(tool("qemu-img").unwrap())
        .args(["info", "--output=json"])
        .arg(path)
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn no_qemu_img() -> bool {
    let missing = tool("qemu-img").is_err();
    if missing {
        hivekeep_skip::skip("qemu-img is not installed");
    }
    missing
}

#[tokio::test]
async fn overlays_have_the_size_asked_for_and_the_image_below() {
    if no_qemu_img() {
        return;
    }
    let fixture = fixture(GIB / 2);
    let image = fixture.store.resolve(ImageName::Base).await.unwrap();
    for (disk_gb, name) in [(1, "a"), (10, "b"), (10, "c"), (MAX_DISK_GB, "d")] {
        let path = fixture.store.root().join(format!("{name}.qcow2"));
        fixture.store.overlay(&image, &path, disk_gb).await.unwrap();
        let info = qemu_info(&path).await;
        assert_eq!(info["virtual-size"], disk_gb * GIB);
        assert_eq!(info["format"], "qcow2");
        assert_eq!(info["backing-filename-format"], "raw");
        assert_eq!(info["full-backing-filename"], image.rootfs().to_str().unwrap());
        assert!(image.rootfs().is_absolute());
    }
}

#[tokio::test]
async fn disk_sizes_have_limits() {
    let fixture = fixture(GIB + 4096);
    let image = fixture.store.resolve(ImageName::Base).await.unwrap();
    for asked in [0, 1, MAX_DISK_GB + 1] {
        let path = fixture.store.root().join("refused.qcow2");
        let error = fixture.store.overlay(&image, &path, asked).await.unwrap_err();
        assert!(
            matches!(error, Error::DiskSize { min_gb: 2, max_gb: MAX_DISK_GB, asked_gb, .. } if asked_gb == asked),
            "{error}"
        );
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn an_existing_disk_is_never_overwritten() {
    if no_qemu_img() {
        return;
    }
    let fixture = fixture(4096);
    let image = fixture.store.resolve(ImageName::Base).await.unwrap();
    let folder = fixture.store.root().join("workspace");
    fs::create_dir(&folder).unwrap();
    let path = folder.join("disk.qcow2");
    fs::write(&path, b"somebody's data").unwrap();
    let error = fixture.store.overlay(&image, &path, 1).await.unwrap_err();
    assert!(matches!(error, Error::OverlayExists { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"somebody's data");
    let names: Vec<PathBuf> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names, [path], "no temporary file may stay");
}

#[test]
fn names_are_a_closed_set() {
    assert_eq!("debian".parse::<ImageName>().unwrap(), ImageName::Debian);
    assert_eq!("small".parse::<KernelChoice>().unwrap(), KernelChoice::Small);
    let error = "alpine".parse::<ImageName>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no image named `alpine`; known: base, debian, code-interpreter"
    );
}

#[test]
fn the_host_tells_its_suite() {
    let debian = "ID=debian\nVERSION_CODENAME=trixie\n";
    assert_eq!(Suite::from_os_release(debian), Some(Suite::Trixie));
    assert_eq!(
        Suite::from_os_release("ID=debian\nVERSION_CODENAME=\"bookworm\""),
        Some(Suite::Bookworm)
    );
    assert_eq!(Suite::from_os_release("ID=ubuntu\nVERSION_CODENAME=noble\n"), None);
}
