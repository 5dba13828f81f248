//! Debian's registry and a store with a puller.

use std::{
    collections::BTreeMap,
    fs,
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use hivekeep_image::{ImageStore, PulledImage};
use hivekeep_oci::{Asker, Error, ImageOptions, ImagePuller, ImageSource, PullRequest};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::made::{Made, entries};

/// Programs of Debian's packages of the same names, but for the last ones.
const NEEDED: [&str; 7] =
    ["umoci", "skopeo", "docker-registry", "busybox", "setcap", "mke2fs", "openssl"];

/// Whether the tests can run here; says why not.
pub fn can_run() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> =
        std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from)).collect();
    let lacking = |name: &&&str| !folders.iter().any(|folder| folder.join(name).is_file());
    let lacking: Vec<_> = NEEDED.iter().filter(lacking).collect();
    if !lacking.is_empty() {
        hivekeep_skip::skip(format_args!(
            "not installed: {lacking:?}; `cargo xtask setup` installs them"
        ));
    } else if !rustix::process::geteuid().is_root() {
        hivekeep_skip::skip("only root gives files their owners and capabilities");
    } else {
        return true;
    }
    false
}

pub fn run(program: &str, args: &[&str]) {
    let done = Command::new(program).args(args).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{program} {args:?}: {said}");
}

/// Debian's registry on loopback.
pub struct Registry {
    child: Child,
    pub host: String,
    pub folder: TempDir,
}

impl Registry {
    pub fn start() -> Self {
        Self::with("", "")
    }

    /// The same with more in its configuration: keys of `http`, and whole lines.
    pub fn with(http: &str, lines: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (folder, host) = (TempDir::new().unwrap(), format!("127.0.0.1:{port}"));
        let config = folder.path().join("config.yml");
        let text = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {:?}}}}}\n\
             http: {{addr: {host:?}{http}}}\n{lines}\n",
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

    pub fn push(&self, made: &Made, more: &[&str]) {
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
pub struct Place {
    _folder: TempDir,
    pub store: ImageStore,
    pub puller: ImagePuller,
}

impl Place {
    pub fn new(options: ImageOptions) -> Self {
        let folder = TempDir::new().unwrap();
        let store = ImageStore::open(folder.path().join("images")).unwrap();
        let options = ImageOptions { min_free_mb: 0, ..options };
        Self { _folder: folder, puller: ImagePuller::new(store.clone(), options), store }
    }

    pub async fn pull(&self, source: &str, name: Option<&str>) -> Result<PulledImage, Error> {
        let source = ImageSource::parse(source).unwrap();
        let name = name.map(str::to_owned);
        let request = PullRequest { source, name, asker: Asker::Operator };
        let pulled = self.puller.pull(request, &|_| (), &CancellationToken::new()).await;
        let left = fs::read_dir(self.store.root().join("tmp")).unwrap().count();
        assert_eq!(left, 0, "unfinished work is left");
        pulled
    }

    /// Tree of an image, without the folders that are added where an image has none.
    pub async fn tree(
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
