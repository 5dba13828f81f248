//! Test fixture: a made-up image of four small objects, without a build.

use std::{collections::HashMap, fs};

use chrono::Utc;
use tempfile::TempDir;

use super::{
    tree::{self, Owners},
    *,
};

/// Store with its folder.
pub struct ImageStoreFixture {
    _folder: TempDir,
    /// Image store.
    pub store: ImageStore,
}

/// Makes a store with a `base` image whose root filesystem is a hole of this size.
pub fn fixture(rootfs_bytes: u64) -> ImageStoreFixture {
    let folder = TempDir::new().unwrap();
    let store = ImageStore::open(folder.path().join("images-root")).unwrap();
    let objects = &store.inner.objects;
    let rootfs = store.inner.temp().join("rootfs");
    fs::File::create(&rootfs).unwrap().set_len(rootfs_bytes).unwrap();
    let tree = store.inner.temp().join("tree");
    fs::create_dir_all(tree.join("etc")).unwrap();
    fs::write(tree.join("etc/hostname"), "workspace\n").unwrap();
    std::os::unix::fs::symlink("hostname", tree.join("etc/name")).unwrap();
    let list = tree::scan(&tree, &Owners::Listed(HashMap::new())).unwrap();
    let manifest = Manifest {
        format: Manifest::FORMAT,
        name: ImageName::Base,
        built_at: Utc::now(),
        kernel: objects.put_bytes(b"kernel", "vmlinux", Some("6.1".to_owned())).unwrap(),
        kernel_choice: KernelChoice::Debian,
        modules: objects.put_bytes(b"modules", "modules.cpio", None).unwrap(),
        initrd: objects.put_bytes(b"initrd", "initrd", None).unwrap(),
        rootfs_ext4: objects.put_file(&rootfs, "rootfs.ext4", None).unwrap(),
        rootfs_tree: Some(objects.put_tree(&tree, &list).unwrap()),
        guest_hash: ContentHash::of(b"guest"),
        debian_suite: Suite::Bookworm,
        packages: vec![Package {
            name: "git".to_owned(),
            version: "1:2.39.5-0+deb12u3".to_owned(),
        }],
        recipe: ContentHash::of(b"recipe"),
        kernel_recipe: ContentHash::of(b"kernel recipe"),
    };
    manifest.save(&store.inner.manifest_path(&ImageName::Base)).unwrap();
    ImageStoreFixture { _folder: folder, store }
}
