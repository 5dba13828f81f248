//! Merge of two adjacent layers into one.

use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Error, publish, virtual_size};
use crate::layer;
use crate::options;

/// Time limit, for the largest disk on a slow host.
const WAIT: Duration = Duration::from_secs(1800);

/// Number of bytes copied between two checks for cancellation.
const COPY_BYTES: u64 = 64 << 20;

/// Makes `into` from a frozen layer and the only one above it: on what is below `frozen`, it reads
/// as `child` does. The result appears complete and synced, or not at all, and the two sources are
/// unchanged; the owner removes them once its record names `into`. No machine may have `child` as
/// its top meanwhile; below that they may be read. Does nothing if `into` exists. Blocks, half an
/// hour at most, and ends early once `wanted` is false.
///
/// # Errors
/// Fails also when it was cancelled.
pub fn merge(
    frozen: &Path,
    child: &Path,
    into: &Path,
    wanted: &dyn Fn() -> bool,
) -> Result<(), Error> {
    if into.exists() {
        return Ok(());
    }
    let qemu_img = options::find_program(Path::new("qemu-img"), "apt-get install qemu-utils")?;
    virtual_size(child).map_err(Error::io("read the header of", child))?;
    publish(into, |fresh| {
        copy(frozen, fresh, wanted)?;
        // A disk's lowest layer may name its image. The file below a layer is given to QEMU
        // instead.
        let size_bytes = layer::without_backing(fresh)?;
        // Something must be below the copy: where nothing is, qemu-img leaves zeroes out, and the
        // layer that the copy is put on later would show through.
        let below = json!({ "driver": "null-co", "size": size_bytes, "read-zeroes": true });
        let file = |path: &Path| {
            let path = path.to_str().ok_or_else(|| io::Error::other("a path must be UTF-8"))?;
            // A frozen layer is opened as if for writing, but not written. A lock for that would
            // keep a machine from starting on it.
            Ok::<_, io::Error>(json!({ "driver": "file", "filename": path, "locking": "off" }))
        };
        let copy = json!({ "driver": "qcow2", "file": file(fresh)?, "backing": below });
        let above = json!({ "driver": "qcow2", "file": file(child)?, "backing": copy });
        // Option -d: the child is not emptied.
        let mut commit = Command::new(qemu_img);
        run(commit.args(["commit", "-q", "-d"]).arg(format!("json:{above}")), wanted)
    })
}

/// Copies in pieces, so that a cancellation takes effect soon.
fn copy(from: &Path, to: &Path, wanted: &dyn Fn() -> bool) -> io::Result<()> {
    let (mut from, mut to) = (fs::File::open(from)?, fs::File::create_new(to)?);
    while wanted() {
        if io::copy(&mut (&mut from).take(COPY_BYTES), &mut to)? == 0 {
            return Ok(());
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

fn run(command: &mut Command, wanted: &dyn Fn() -> bool) -> io::Result<()> {
    let end = Instant::now() + WAIT;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(io::Error::other(format!("qemu-img: {status}"))),
            None if !wanted() || Instant::now() > end => {
                child.kill()?;
                child.wait()?;
                return Err(io::ErrorKind::TimedOut.into());
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::make_top;
    use super::*;

    /// Describes a layer over another node for qemu-img and qemu-io.
    fn over(layer: &Path, backing: &serde_json::Value) -> serde_json::Value {
        let file = json!({ "driver": "file", "filename": layer.to_str().unwrap() });
        json!({ "driver": "qcow2", "file": file, "backing": backing })
    }

    fn write(disk: &serde_json::Value, commands: &[&str]) {
        let mut io = Command::new("qemu-io");
        for command in commands {
            io.args(["-c", command]);
        }
        let done = io.arg(format!("json:{disk}")).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    }

    #[test]
    fn the_merged_layer_reads_as_the_upper_one_and_both_stay_as_they_were() {
        if Command::new("qemu-io").arg("--version").output().is_err() {
            return hivekeep_skip::skip("no qemu-io");
        }
        let dir = tempfile::tempdir().unwrap();
        let [base, frozen, child, into] =
            ["base", "frozen", "child", "into"].map(|name| dir.path().join(name));
        fs::write(&base, vec![0xab; 32 << 20]).unwrap();
        // Made like the disk of a new machine, which names its image.
        let made = Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"])
            .args([&base, &frozen])
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        make_top(&child, 32 << 20).unwrap();
        let file = json!({ "driver": "file", "filename": base.to_str().unwrap() });
        let raw = json!({ "driver": "raw", "file": file });
        let lower = over(&frozen, &raw);
        let upper = over(&child, &lower);
        write(&lower, &["write -P 17 0 1M", "write -P 18 4M 300k", "write -z 8M 1M"]);
        let above =
            ["write -P 33 512k 1M", "write -z 4M 128k", "discard 12M 1M", "write -z 20M 1M"];
        write(&upper, &above);
        let before = [&frozen, &child].map(|path| fs::read(path).unwrap());
        merge(&frozen, &child, &into, &|| true).unwrap();
        merge(&frozen, &child, &into, &|| true).unwrap();
        assert!([&frozen, &child].map(|path| fs::read(path).unwrap()) == before);
        let compared = Command::new("qemu-img")
            .arg("compare")
            .args([format!("json:{upper}"), format!("json:{}", over(&into, &raw))])
            .output()
            .unwrap();
        assert!(compared.status.success(), "{compared:?}");
        let told = Command::new("qemu-img").arg("info").arg(&into).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        assert!(told.contains("32 MiB") && !told.contains("backing"), "{told}");
        let other = dir.path().join("other");
        assert!(merge(&frozen, &child, &other, &|| false).is_err(), "it was not wanted");
        fs::write(&child, "junk").unwrap();
        assert!(merge(&frozen, &child, &other, &|| true).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4, "no rest of a failed one");
    }
}
