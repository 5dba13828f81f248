//! Registry of Debian's on loopback with an image of this host's files.

use std::fmt::Write as _;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xshell::TempDir;

use super::super::bare::Ended;
use super::super::kit::{BenchPrograms, output};

pub(super) const LAYERS: usize = 4;
const LAYER_BYTES: u64 = 75 << 20;
/// Larger files would make layers of one file.
const FILE_BYTES: u64 = 8 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

/// Registry with the image. Dropped, both go.
pub(super) struct OciStage<'k> {
    kit: &'k BenchPrograms<'k>,
    host: String,
    pub(super) bytes: u64,
    _registry: Ended,
    folder: TempDir,
}

impl<'k> OciStage<'k> {
    pub(super) fn new(kit: &'k BenchPrograms<'k>) -> Result<Self> {
        let folder = kit.repo.shell.create_temp_dir()?;
        let (registry, host) = registry(folder.path())?;
        let mut stage = Self { kit, host, bytes: 0, _registry: registry, folder };
        stage.fill()?;
        Ok(stage)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes the image and pushes it.
    fn fill(&mut self) -> Result<()> {
        let image = format!("{}:v", self.at("made").display());
        program("umoci", &["init", "--layout", path(&self.at("made"))?])?;
        program("umoci", &["new", "--image", &image])?;
        let mut files = Vec::new();
        for folder in ["/usr/lib", "/usr/share", "/usr/bin"] {
            collect(Path::new(folder), &mut files);
        }
        let mut files = files.into_iter();
        for number in 0..LAYERS {
            let (mut list, mut bytes) = (String::new(), 0);
            while bytes < LAYER_BYTES {
                let (file, size) = files.next().context("this host has not enough files")?;
                bytes += size;
                let _infallible = writeln!(list, "{file}");
            }
            self.bytes += bytes;
            let (names, archive) = (self.at("names"), self.at(&format!("{number}.tar")));
            fs::write(&names, list)?;
            let from = ["-cf", path(&archive)?, "-C", "/", "-T", path(&names)?];
            program("tar", &from)?;
            program("umoci", &["raw", "add-layer", "--image", &image, path(&archive)?])?;
            fs::remove_file(&archive)?;
        }
        self.add_shell(&image)?;
        let (from, to) = (format!("oci:{image}"), format!("docker://{}", self.reference()));
        program("skopeo", &["--insecure-policy", "copy", "--dest-tls-verify=false", &from, &to])
    }

    fn add_shell(&self, image: &str) -> Result<()> {
        let (root, archive) = (self.at("shell"), self.at("shell.tar"));
        fs::create_dir_all(root.join("bin"))?;
        let busybox =
            ["/usr/bin/busybox", "/bin/busybox"].into_iter().find(|it| Path::new(it).exists());
        fs::copy(busybox.context("busybox: install busybox-static")?, root.join("bin/sh"))?;
        program("tar", &["-cf", path(&archive)?, "-C", path(&root)?, "bin"])?;
        program("umoci", &["raw", "add-layer", "--image", image, path(&archive)?])
    }

    fn reference(&self) -> String {
        format!("{}/bench/image:v", self.host)
    }

    /// Time that `hivekeep image pull` takes into an empty store.
    pub(super) fn pull(&self) -> Result<Duration> {
        let images = self.at("images");
        let took = self.pulled_into(&images, &[])?;
        fs::remove_dir_all(&images)?;
        Ok(took)
    }

    fn pulled_into(&self, images: &Path, more: &[&str]) -> Result<Duration> {
        let reference = self.reference();
        let began = Instant::now();
        output(self.image(images, &[&["pull", &reference], more].concat())?)?;
        Ok(began.elapsed())
    }

    /// `hivekeep image` on a store.
    fn image(&self, images: &Path, args: &[&str]) -> Result<Command> {
        let config = self.at("config.toml");
        let text = format!(
            "[workspace]\nimage_dir = {images:?}\n[workspace.images]\nplain_http = [{:?}]\nmin_free_mb = 0\n",
            self.host
        );
        fs::write(&config, text)?;
        let mut command = Command::new(self.kit.hivekeep());
        command.env("HIVEKEEP_HOME", self.at("home")).env("HIVEKEEP_CONFIG", config);
        command.arg("image").args(args);
        Ok(command)
    }

    /// Time of the two programs that do it in two steps.
    pub(super) fn copy_and_unpack(&self) -> Result<Duration> {
        let (layout, bundle) = (self.at("layout"), self.at("bundle"));
        let (from, image) =
            (format!("docker://{}", self.reference()), format!("{}:v", layout.display()));
        let began = Instant::now();
        let to = format!("oci:{image}");
        program("skopeo", &["--insecure-policy", "copy", "--src-tls-verify=false", &from, &to])?;
        program("umoci", &["unpack", "--image", &image, path(&bundle)?])?;
        let took = began.elapsed();
        fs::remove_dir_all(&layout)?;
        fs::remove_dir_all(&bundle)?;
        Ok(took)
    }

    /// Bytes of the layers as the registry has them.
    pub(super) fn compressed_bytes(&self) -> Result<u64> {
        let blobs = fs::read_dir(self.at("made/blobs/sha256"))?;
        blobs.map(|blob| Ok(blob?.metadata()?.len())).sum()
    }

    /// Keeps the image beside those that workspaces of the bench are made of.
    pub(super) fn keep(&self, name: &str) -> Result<KeptImage<'_>> {
        self.pulled_into(&self.kit.repo.images(), &["--name", name])?;
        Ok(KeptImage { stage: self, name: name.to_owned() })
    }
}

/// Image that is removed when dropped.
pub(super) struct KeptImage<'s> {
    stage: &'s OciStage<'s>,
    name: String,
}

impl Drop for KeptImage<'_> {
    fn drop(&mut self) {
        let removed = self.stage.image(&self.stage.kit.repo.images(), &["rm", &self.name]);
        if let Err(error) = removed.and_then(output) {
            eprintln!("xtask: the bench's image stays: {error:#}");
        }
    }
}

fn registry(folder: &Path) -> Result<(Ended, String)> {
    let host = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let (config, data) = (folder.join("registry.yml"), folder.join("registry"));
    let text = format!(
        "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {data:?}}}}}\n\
         http: {{addr: {host:?}}}\n"
    );
    fs::write(&config, text)?;
    let mut command = Command::new("docker-registry");
    command.arg("serve").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
    let registry = Ended(command.spawn().context("docker-registry: install it")?);
    let began = Instant::now();
    while TcpStream::connect(&host).is_err() {
        ensure!(began.elapsed() < PATIENCE, "the registry does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok((registry, host))
}

/// Files below a folder in the order of their names, with their sizes.
fn collect(folder: &Path, files: &mut Vec<(String, u64)>) {
    let mut entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, Ok(meta)) = (entry.path(), entry.metadata()) else { continue };
        if meta.is_dir() {
            collect(&path, files);
        } else if let (true, true, Some(text)) =
            (meta.is_file(), meta.len() <= FILE_BYTES, path.to_str())
        {
            files.push((text.trim_start_matches('/').to_owned(), meta.len()));
        }
    }
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().context("a path is text")
}

fn program(name: &str, args: &[&str]) -> Result<()> {
    let mut command = Command::new(name);
    command.args(args);
    output(command).map(drop)
}
