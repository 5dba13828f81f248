//! Trial of what programs on the host run in, for `hivekeep check`.

use std::{path::Path, process::Stdio, time::Duration};

use tokio::{io::AsyncReadExt, time::timeout};

use super::{ETC, HostBounds, HostChild, HostProgram, HostSandbox, HostUsers};
use crate::Finding;

const LIMIT: Duration = Duration::from_secs(10);
const SCRIPT: &str = "if test -w /proc/sys/kernel/core_pattern; then exit 9; fi";
/// Exit code of a program that could write the kernel's settings.
const WRITES: i32 = 9;

/// Runs a program as readers are run, and says as whom.
pub async fn tried(users: HostUsers) -> Finding {
    let what = "programs on the host";
    let tried = timeout(LIMIT, trial(users)).await;
    let remedy = "see `user namespaces`; sources, browsers and readers of PDFs do not run without";
    match tried.unwrap_or_else(|_| Err(format!("no end within {} s", LIMIT.as_secs()))) {
        Err(why) => Finding::bad(what, why, remedy),
        Ok(()) => match users {
            HostUsers::Daemon => Finding::good(what, "run as the daemon's user, in namespaces"),
            HostUsers::Apart { first } => {
                Finding::good(what, format!("run as users of their own, from {first} on"))
            }
            HostUsers::Shared => Finding::bad(
                what,
                "all run as `nobody`: they can end and read each other's processes",
                "see `users in sandboxes`, or workspace.driver.sandbox_first_id",
            ),
        },
    }
    .optional()
}

async fn trial(users: HostUsers) -> Result<(), String> {
    let home = Path::new("/usr/share");
    let sandbox = HostSandbox {
        hostname: "check",
        uid: users.uid(HostProgram::Reader),
        home: (home, "/srv/check"),
        network: false,
        etc: ETC,
        folders: &[],
        tmp_mb: Some(1),
        nests: false,
        bounds: HostBounds { memory_mb: None, processes: 16 },
    };
    let mut command = sandbox.command().await?;
    command.args(["sh", "-c", SCRIPT]).env_clear().env("PATH", super::PROGRAM_PATH);
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = HostChild::spawn(command, home)?;
    let mut said = String::new();
    if let Some(stderr) = child.stderr() {
        // What it says is for people; how it ended counts.
        let _ = stderr.take(4096).read_to_string(&mut said).await;
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    match status.code() {
        Some(0) => Ok(()),
        Some(WRITES) => Err("they can write the kernel's settings (/proc/sys)".to_owned()),
        _ => Err(format!("{status}: {}", said.trim())),
    }
}
