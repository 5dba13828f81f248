//! Images made by umoci and skopeo, in Debian's registry, an OCI layout and an archive of Docker;
//! what is unpacked of them is compared with what `umoci unpack` makes.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    fs,
    net::{TcpListener, TcpStream},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use hivekeep_image::{ImageName, ImageStore, PulledImage};
use hivekeep_oci::{Asker, Error, ImageOptions, ImagePuller, ImageSource, PullRequest};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// Programs of Debian's packages of the same names, but for the last ones.
const NEEDED: [&str; 6] = ["umoci", "skopeo", "docker-registry", "busybox", "setcap", "mke2fs"];

/// Whether the tests can run here; says why not.
fn can_run() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> =
        std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from)).collect();
    let lacking = |name: &&&str| !folders.iter().any(|folder| folder.join(name).is_file());
    let lacking: Vec<_> = NEEDED.iter().filter(lacking).collect();
    if !lacking.is_empty() {
        println!("SKIPPED: not installed: {lacking:?}; `cargo xtask setup` installs them");
    } else if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root gives files their owners and capabilities");
    } else {
        return true;
    }
    false
}

fn run(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {args:?}: {said}");
}

/// Two layers of everything that a layer can say, made by umoci in a layout.
struct Made {
    folder: TempDir,
}

impl Made {
    fn new() -> Self {
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

    fn layer(&self, name: &str, change: fn(&Path)) {
        let (image, bundle) = (self.image(), self.text(name));
        run("umoci", &["unpack", "--image", &image, &bundle]);
        change(&Path::new(&bundle).join("rootfs"));
        run("umoci", &["repack", "--image", &image, &bundle]);
    }

    fn text(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn image(&self) -> String {
        format!("{}:app", self.text("layout"))
    }

    /// Tree that umoci makes of it.
    fn expected(&self) -> BTreeMap<String, String> {
        let bundle = self.text("expected");
        run("umoci", &["unpack", "--image", &self.image(), &bundle]);
        entries(&Path::new(&bundle).join("rootfs"))
    }
}

fn first_layer(root: &Path) {
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

fn second_layer(root: &Path) {
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
fn entries(root: &Path) -> BTreeMap<String, String> {
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

fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
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

/// Debian's registry on loopback.
struct Registry {
    child: Child,
    host: String,
    folder: TempDir,
}

impl Registry {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (folder, host) = (TempDir::new().unwrap(), format!("127.0.0.1:{port}"));
        let config = folder.path().join("config.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {:?}}}}}\n\
             http: {{addr: {host:?}}}\n",
            folder.path().join("data")
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let begun = Instant::now();
        while TcpStream::connect(&host).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the registry does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self { child, host, folder }
    }

    fn push(&self, made: &Made, more: &[&str]) {
        let (from, to) =
            (format!("oci:{}", made.image()), format!("docker://{}/lib/app:1", self.host));
        let args = ["--insecure-policy", "copy", "--dest-tls-verify=false"];
        run("skopeo", &[args.as_slice(), more, &[&from, &to]].concat());
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Store with a puller.
struct Place {
    _folder: TempDir,
    store: ImageStore,
    puller: ImagePuller,
}

impl Place {
    fn new(options: ImageOptions) -> Self {
        let folder = TempDir::new().unwrap();
        let store = ImageStore::open(folder.path().join("images")).unwrap();
        let options = ImageOptions { min_free_mb: 0, ..options };
        Self { _folder: folder, puller: ImagePuller::new(store.clone(), options), store }
    }

    async fn pull(&self, source: &str, name: Option<&str>) -> Result<PulledImage, Error> {
        let source = ImageSource::parse(source).unwrap();
        let name = name.map(str::to_owned);
        let request = PullRequest { source, name, asker: Asker::Operator };
        let pulled = self.puller.pull(request, &|_| (), &CancellationToken::new()).await;
        let left = fs::read_dir(self.store.root().join("tmp")).unwrap().count();
        assert_eq!(left, 0, "unfinished work is left");
        pulled
    }

    /// Tree of an image, without the folders that are added where an image has none.
    async fn tree(
        &self,
        image: &PulledImage,
        expected: &BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let found = self.store.resolve(image.name.clone()).await.unwrap();
        assert!(found.kernel().is_none(), "none is built here");
        let mut tree = entries(&self.store.resolve_tree(&found).await.unwrap());
        let added = ["dev", "etc", "proc", "root", "run", "sys", "tmp", "workspace"];
        tree.retain(|path, _| expected.contains_key(path) || !added.contains(&path.as_str()));
        tree
    }
}

#[tokio::test]
async fn a_registry_a_layout_and_an_archive_give_what_umoci_unpacks() {
    if !can_run() {
        return;
    }
    let (made, registry) = (Made::new(), Registry::start());
    let expected = made.expected();
    assert!(expected.contains_key("links of bin/busybox"), "{expected:#?}");
    assert!(expected["bin/ping"].contains("security.capability"), "{expected:#?}");
    registry.push(&made, &[]);
    let archive = made.text("archive.tar");
    let (from, to) = (format!("oci:{}", made.image()), format!("docker-archive:{archive}:a/b:1"));
    run("skopeo", &["--insecure-policy", "copy", &from, &to]);
    let zstd = format!("oci:{}:app", made.text("zstd"));
    run("skopeo", &["--insecure-policy", "copy", "--dest-compress-format", "zstd", &from, &zstd]);

    let place =
        Place::new(ImageOptions { plain_http: vec![registry.host.clone()], ..Default::default() });
    let reference = format!("{}/lib/app:1", registry.host);
    let (archive, by_tag) = (format!("docker-archive:{archive}"), reference.as_str());
    for (source, name) in [
        (by_tag, None),
        (&from, Some("layout")),
        (&archive, Some("archive")),
        (&zstd, Some("zstd")),
    ] {
        let image = place.pull(source, name).await.unwrap();
        let tree = place.tree(&image, &expected).await;
        for (path, entry) in &expected {
            assert_eq!(tree.get(path), Some(entry), "{path} of {source}");
        }
        assert_eq!(tree.len(), expected.len(), "{source}");
        let defaults = &image.defaults;
        assert_eq!(defaults.env["GREETING"], "hello there");
        assert_eq!(defaults.working_dir.as_deref(), Some("/srv/app"));
        assert_eq!(
            (defaults.user.as_deref(), defaults.command.as_slice()),
            (Some("app"), &["/hello".to_owned()][..])
        );
    }
    let names: Vec<_> =
        place.store.list().await.unwrap().into_iter().map(|row| row.name.to_string()).collect();
    assert_eq!(names, ["base", "debian", by_tag, "archive", "layout", "zstd"]);
}

#[tokio::test]
async fn what_was_changed_or_is_not_there_or_not_allowed_is_refused() {
    if !can_run() {
        return;
    }
    let (made, registry) = (Made::new(), Registry::start());
    registry.push(&made, &[]);
    let options = ImageOptions { plain_http: vec![registry.host.clone()], ..Default::default() };
    let place = Place::new(options.clone());
    let reference = |version: &str| format!("{}/lib/app{version}", registry.host);
    let image = place.pull(&reference(":1"), None).await.unwrap();
    let digest = image.digest.unwrap();
    place.pull(&reference(&format!("@{digest}")), Some("pinned")).await.unwrap();
    for absent in [":2".to_owned(), format!("@sha256:{}", "0".repeat(64))] {
        let error = place.pull(&reference(&absent), None).await.unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
    // Without being listed it is asked over TLS, which it does not speak.
    let error = Place::new(ImageOptions::default()).pull(&reference(":1"), None).await.unwrap_err();
    assert!(matches!(error, Error::Registry { .. }), "{error}");
    let name = ImagePuller::name_of(&reference(":1")).unwrap();
    let fresh = Place::new(options);
    let error = fresh.puller.ensure(&name, &|_| (), &CancellationToken::new()).await.unwrap_err();
    assert!(
        matches!(error, Error::NotAllowed { key: "workspace.images.registries", .. }),
        "{error}"
    );
    place.puller.ensure(&name, &|_| (), &CancellationToken::new()).await.expect("it is here");

    // The registry's disk is not to be trusted either.
    let mut blobs = vec![registry.folder.path().join("data")];
    while let Some(path) = blobs.pop() {
        if path.is_dir() {
            blobs.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.ends_with("data") && path.metadata().unwrap().len() > 100_000 {
            let mut bytes = fs::read(&path).unwrap();
            bytes[50_000] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
    let error = place.pull(&reference(":1"), Some("again")).await.unwrap_err();
    assert!(matches!(error, Error::Digest { .. }), "{error}");
    assert!(place.store.pulled(ImageName::named("again").unwrap()).await.unwrap().is_none());
}

#[tokio::test]
async fn an_image_in_use_stays_and_goes_when_nothing_uses_it() {
    if !can_run() {
        return;
    }
    let (made, place) = (Made::new(), Place::new(ImageOptions::default()));
    let image = place.pull(&format!("oci:{}", made.image()), Some("app")).await.unwrap();
    let found = place.store.resolve(image.name.clone()).await.unwrap();
    let lock = place.store.lock().await.unwrap();
    let remove = || place.store.remove(&lock, image.name.clone());
    let unknown = remove().await.unwrap_err();
    assert!(matches!(unknown, hivekeep_image::Error::UsesUnknown), "{unknown}");
    place.store.replace_uses("d".to_owned(), Vec::new()).await.unwrap();
    place.store.hold(found.rootfs().to_owned(), "d.ws_1".to_owned()).await.unwrap();
    let error = remove().await.unwrap_err();
    assert!(
        matches!(&error, hivekeep_image::Error::InUse { users, .. } if users == &["d.ws_1"]),
        "{error}"
    );
    let terms = hivekeep_image::PruneTerms { age: Duration::ZERO, min_free_bytes: 0 };
    assert!(place.store.prune(&lock, terms).await.unwrap().images.is_empty());
    assert!(found.rootfs().exists());
    place.store.release("d.ws_1".to_owned()).await.unwrap();
    let old = hivekeep_image::PruneTerms { age: Duration::from_secs(3600), min_free_bytes: 0 };
    assert!(place.store.prune(&lock, old).await.unwrap().images.is_empty(), "it is young");
    let removed = place.store.prune(&lock, terms).await.unwrap();
    assert_eq!((removed.images, removed.objects), (vec![image.name.clone()], 2));
    assert_eq!(fs::read_dir(place.store.root().join("objects")).unwrap().count(), 0);
    assert!(place.store.hold(found.rootfs().to_owned(), "d.ws_2".to_owned()).await.is_err());
}
