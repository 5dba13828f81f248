//! Chrome's processes: a sandbox of namespaces with a profile of its own, spoken to over pipes.
//!
//! bubblewrap's first process dies with the daemon, and with it all of Chrome. Within, Chrome has its
//! own sandbox for each page. Nothing listens: DevTools are a pair of pipes, and the network is the
//! listener of [`crate::proxy`] alone.

use std::{ffi::OsString, io, path::PathBuf, process::Stdio, sync::Arc, time::Duration};

use hivekeep_runtime::host_process::{HostBounds, HostChild, HostCommand, HostSandbox, StderrTail};
use tokio::{
    net::TcpListener,
    task::JoinHandle,
    time::{MissedTickBehavior, interval, timeout},
};

use crate::{
    carrier,
    cdp::Frames,
    folder::{self, BrowserFolder},
    netns::{self, PORT},
    proxy::{self, BrowserEgress, Refusals},
};

/// Time for an orderly end.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// Processes and threads of all browsers together.
const MOST_PROCESSES: u64 = 32_768;
/// Pause between two looks at the memory of the processes.
const MEMORY_LOOK: Duration = Duration::from_secs(1);
/// Processes whose memory is looked at; a browser has some dozens.
const MOST_MEASURED: usize = 512;
/// The home of a browser within its sandbox.
pub(crate) const HOME: &str = "/srv/browser";

/// Paths in the sandbox beside `/usr`: Google's Chrome, fonts, certificates and files of the linker.
const ETC: [&str; 8] = [
    "/opt/google",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/pki",
    "/etc/ssl",
];

/// Flags of Chrome: headless, no services of its vendor, no way around the proxy.
const FLAGS: [&str; 19] = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--proxy-bypass-list=<-loopback>",
    "--disable-quic",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-breakpad",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-popup-blocking",
    "--disable-sync",
    "--hide-scrollbars",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--disable-features=Translate,OptimizationHints,MediaRouter,DialMediaRouteProvider,AsyncDns",
];

/// Specification of a Chrome to start: program, folder, user and bounds.
#[derive(Clone)]
pub(crate) struct ChromeSpec {
    pub(crate) program: PathBuf,
    /// Folder of the profile, downloads and uploads. Created at the start, removed at the end.
    pub(crate) folder: PathBuf,
    /// User of the host that Chrome runs as, if not the daemon's.
    pub(crate) uid: Option<u32>,
    pub(crate) memory_mb: u64,
    pub(crate) download_mb: u64,
    pub(crate) egress: BrowserEgress,
}

/// A running Chrome. When dropped, it is killed with all its processes, and its folder is removed.
pub(crate) struct ChromeProcess {
    child: Option<HostChild>,
    pid: u32,
    pub(crate) folder: Arc<BrowserFolder>,
    stderr: StderrTail,
    proxy: JoinHandle<()>,
    pub(crate) refusals: Refusals,
}

impl ChromeProcess {
    /// Starts Chrome. Its first answer shows that it runs.
    ///
    /// # Errors
    /// The reason, for people.
    pub(crate) async fn start(spec: &ChromeSpec) -> Result<(Self, Frames), String> {
        let (path, shown) = (spec.folder.clone(), spec.folder.display());
        let made = tokio::task::spawn_blocking(move || BrowserFolder::make(path)).await;
        let made = made.unwrap_or_else(|panic| Err(io::Error::other(panic)));
        let files = made.map_err(|error| format!("{shown} cannot be made: {error}"))?;
        let cannot = |error: io::Error| format!("it cannot be started: {error}");
        let mut command = HostCommand::bwrap();
        let slot = netns::isolate(&mut command).map_err(cannot)?;
        sandbox(spec).add_to(&mut command).await?;
        command
            .args(program(spec))
            .env_clear()
            .envs([("HOME", HOME), ("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8")])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = HostChild::spawn(command, &spec.folder)?;
        let listener = slot.take().and_then(TcpListener::from_std).map_err(cannot)?;
        let (stdin, stdout, stderr) = child.streams()?;
        let (stderr, refusals) = (StderrTail::of(stderr), Refusals::default());
        let proxy = tokio::spawn(proxy::serve(listener, spec.egress.clone(), refusals.clone()));
        let pid = child.id().unwrap_or_default();
        let folder = Arc::new(files);
        let process = Self { child: Some(child), pid, folder, stderr, proxy, refusals };
        Ok((process, carrier::over_pipes(stdin, stdout)))
    }

    /// Waits until Chrome's processes together exceed a memory limit; returns the amount in MiB.
    pub(crate) async fn beyond(&self, memory_mb: u64) -> u64 {
        beyond(self.pid, memory_mb).await
    }

    pub(crate) fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill();
        }
    }

    /// Waits for the process's end, which is near, and says how it ended.
    pub(crate) async fn last_words(&mut self) -> String {
        let Some(child) = &mut self.child else { return "it ended".to_owned() };
        let how = match timeout(LAST_WORDS, child.wait()).await {
            Ok(Ok(status)) => format!("its process ended ({status})"),
            _ => "its process gives no answer".to_owned(),
        };
        let said = self.stderr.said();
        let last =
            said.lines().rev().find(|line| line.contains("FATAL") || line.contains("bwrap:"));
        match last {
            Some(last) => format!("{how}; it said: {last:.300}"),
            None => how,
        }
    }

    /// Waits for the process's end, kills it if that takes too long, and removes its folder.
    pub(crate) async fn end(mut self) {
        if let Some(child) = self.child.take() {
            gone(child, self.folder.path().to_owned()).await;
        }
    }
}

impl Drop for ChromeProcess {
    fn drop(&mut self) {
        self.proxy.abort();
        let (Some(mut child), Ok(runtime)) =
            (self.child.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        child.kill();
        drop(runtime.spawn(gone(child, self.folder.path().to_owned())));
    }
}

/// Waits for the end of a process, kills it if that takes too long, and removes its folder.
async fn gone(mut child: HostChild, folder: PathBuf) {
    if timeout(LAST_WORDS, child.wait()).await.is_err() {
        child.kill();
        // A killed process is waited for without a limit.
        let _ended = child.wait().await;
    }
    folder::removed(folder).await;
}

/// Sandbox of Chrome. Its network namespace exists already.
fn sandbox(spec: &ChromeSpec) -> HostSandbox<'_> {
    HostSandbox {
        hostname: "browser",
        uid: spec.uid,
        home: (&spec.folder, HOME),
        network: true,
        etc: &ETC,
        folders: &[],
        // Memory that pages share is in `/tmp`.
        tmp_mb: Some(spec.memory_mb),
        // Chrome keeps its own sandbox for each page.
        nests: true,
        bounds: HostBounds { memory_mb: None, processes: MOST_PROCESSES },
    }
}

/// Command line of Chrome with bounds: memory of each process, size of each file, no core dumps.
fn program(spec: &ChromeSpec) -> Vec<OsString> {
    let bytes = |mb: u64| mb.saturating_mul(1024 * 1024);
    // The shell opens the DevTools pipes: descriptors 3 and 4.
    let script = "exec 3<&0 4>&1 </dev/null >&2; exec \"$@\"";
    let mut args: Vec<OsString> = vec!["prlimit".into(), "--core=0".into()];
    args.push(format!("--data={}", bytes(spec.memory_mb)).into());
    // A cache file or a profile's database may be larger than a small download.
    args.push(format!("--fsize={}", bytes(spec.download_mb.max(256))).into());
    args.extend(["--".into(), "/bin/sh".into(), "-c".into(), script.into(), "sh".into()]);
    args.push(spec.program.clone().into());
    args.extend(FLAGS.map(OsString::from));
    args.push(format!("--user-data-dir={HOME}/profile").into());
    args.push(format!("--proxy-server=socks5://127.0.0.1:{PORT}").into());
    args
}

/// Waits until the processes below `root`, itself included, take more; answers with the amount in MiB.
async fn beyond(root: u32, memory_mb: u64) -> u64 {
    let mut looks = interval(MEMORY_LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        // Files of /proc: a kilobyte each, and nothing to wait for.
        let taken = tokio::task::spawn_blocking(move || of_tree(root)).await.unwrap_or_default();
        let taken_mb = taken / (1024 * 1024);
        if taken_mb > memory_mb {
            return taken_mb;
        }
    }
}

/// Bytes of a tree of processes: what they have beyond what they share with files.
fn of_tree(root: u32) -> u64 {
    let page = rustix::param::page_size() as u64;
    let (mut found, mut at, mut pages) = (vec![root], 0, 0);
    while let Some(pid) = found.get(at).copied().filter(|_| at < MOST_MEASURED) {
        at += 1;
        let text = |path: String| std::fs::read_to_string(path).unwrap_or_default();
        let statm = text(format!("/proc/{pid}/statm"));
        let mut numbers = statm.split(' ').skip(1).map(|it| it.parse::<u64>().unwrap_or_default());
        let (resident, of_files) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        pages += resident.saturating_sub(of_files);
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            let children = std::fs::read_to_string(thread.path().join("children"));
            let children = children.unwrap_or_default();
            found.extend(children.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
        }
    }
    pages * page
}
