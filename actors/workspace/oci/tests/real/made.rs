//! Image of everything that a layer can say, and what a tree holds.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use tempfile::TempDir;

use crate::stage::run;

/// Two layers of everything that a layer can say, made by umoci in a layout.
pub struct Made {
    folder: TempDir,
}

impl Made {
    pub fn new() -> Self {
        let made = Self { folder: TempDir::new().unwrap() };
        let (layout, image) = (made.text("layout"), made.image());
        run("umoci", &["init", "--layout", &layout]);
        run("umoci", &["new", "--image", &image]);
        made.layer("first", first_layer);
        made.layer("second", second_layer);
        let config = ["config", "--image", &image, "--config.env", "GREETING=hello there"];
        let more =
            ["--config.workingdir", "/srv/app", "--config.user", "app", "--config.cmd", "/hello"];
        run("umoci", &[config.as_slice(), &more].concat());
        made
    }

    pub fn layer(&self, name: &str, change: fn(&Path)) {
        let (image, bundle) = (self.image(), self.text(name));
        run("umoci", &["unpack", "--image", &image, &bundle]);
        change(&Path::new(&bundle).join("rootfs"));
        run("umoci", &["repack", "--image", &image, &bundle]);
    }

    pub fn text(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    pub fn image(&self) -> String {
        format!("{}:app", self.text("layout"))
    }

    /// Tree that umoci makes of it.
    pub fn expected(&self) -> BTreeMap<String, String> {
        let bundle = self.text("expected");
        run("umoci", &["unpack", "--image", &self.image(), &bundle]);
        entries(&Path::new(&bundle).join("rootfs"))
    }
}

pub fn first_layer(root: &Path) {
    let at = |path: &str| root.join(path);
    for folder in ["bin", "etc", "srv/app", "opaque/sub", "usr/lib", "var/tmp", "closed"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    let busybox =
        ["/usr/bin/busybox", "/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    fs::copy(busybox.unwrap(), at("bin/busybox")).unwrap();
    fs::hard_link(at("bin/busybox"), at("bin/sh")).unwrap();
    fs::copy("/bin/true", at("bin/ping")).unwrap();
    run("setcap", &["cap_net_raw+ep", at("bin/ping").to_str().unwrap()]);
    fs::write(at("bin/su"), "su").unwrap();
    std::os::unix::fs::chown(at("bin/su"), Some(33), Some(44)).unwrap();
    fs::set_permissions(at("bin/su"), fs::Permissions::from_mode(0o4711)).unwrap();
    fs::set_permissions(at("var/tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::set_permissions(at("closed"), fs::Permissions::from_mode(0o500)).unwrap();
    symlink("usr/lib", at("lib")).unwrap();
    symlink("/etc/passwd", at("usr/lib/absolute")).unwrap();
    for (path, text) in [
        ("etc/passwd", "root:x:0:0::/:/bin/sh\napp:x:1000:1000::/:/bin/sh\n"),
        ("opaque/old", "old"),
        ("opaque/sub/old", "old"),
        ("srv/app/removed", "x"),
        ("srv/app/replaced", "x"),
        ("srv/app/n\u{e4}me with \"quotes\"\n", "odd"),
        (&format!("srv/{}", "long".repeat(60)), "a name that needs an extension record"),
    ] {
        fs::write(at(path), text).unwrap();
    }
}

pub fn second_layer(root: &Path) {
    let at = |path: &str| root.join(path);
    fs::remove_file(at("srv/app/removed")).unwrap();
    fs::remove_file(at("srv/app/replaced")).unwrap();
    fs::create_dir(at("srv/app/replaced")).unwrap();
    fs::write(at("srv/app/replaced/inner"), "inner").unwrap();
    fs::remove_dir_all(at("opaque")).unwrap();
    fs::create_dir(at("opaque")).unwrap();
    fs::write(at("opaque/new"), "new").unwrap();
    fs::remove_dir_all(at("closed")).unwrap();
    symlink("srv/app", at("closed")).unwrap();
    fs::set_permissions(at("etc/passwd"), fs::Permissions::from_mode(0o600)).unwrap();
}

/// Everything of a tree that an image keeps, by path.
pub fn entries(root: &Path) -> BTreeMap<String, String> {
    let (mut found, mut inodes) = (BTreeMap::new(), BTreeMap::new());
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let content = if meta.is_dir() {
                folders.push(path.clone());
                "folder".to_owned()
            } else if meta.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else {
                inodes.entry(meta.ino()).or_insert_with(Vec::new).push(name.clone());
                format!("{:?}", hivekeep_oci::Sha256Digest::of(&fs::read(&path).unwrap()))
            };
            let mode = if meta.is_symlink() { 0 } else { meta.mode() };
            let times = (meta.mtime(), meta.mtime_nsec());
            let (uid, gid, xattrs) = (meta.uid(), meta.gid(), xattrs(&path));
            found.insert(name, format!("{content} {mode:o} {uid}:{gid} {times:?} {xattrs:?}"));
        }
    }
    for (number, mut names) in inodes.into_values().enumerate() {
        names.sort();
        if names.len() > 1 {
            found.insert(format!("links of {}", names[0]), names.join(" "));
        }
        let _order_of_inodes_means_nothing = number;
    }
    found
}

pub fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let (mut names, mut value) = (vec![0u8; 4096], vec![0u8; 4096]);
    let got = rustix::fs::llistxattr(path, &mut names).unwrap();
    let names = names[..got].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let names = names.map(|name| String::from_utf8(name.to_vec()).unwrap());
    names
        .map(|name| {
            let got = rustix::fs::lgetxattr(path, name.as_str(), &mut value).unwrap();
            (name, value[..got].to_vec())
        })
        .collect()
}
