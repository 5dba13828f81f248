//! Disk layers: the qcow2 files that a disk is made of.
//!
//! A layer contains only what differs from the file below it; that file is given to QEMU at each
//! start ([`super::Disk`]) and not recorded in the layer. A new layer is therefore nothing but its
//! size: 256 KiB of address space of which three pages are written.
//!
//! A layer's header is accepted only as this program and its QEMU write it. QEMU writes a layer while a guest runs in it.
//! A guest that has broken out of its processor can write anything there, and qemu-img, which runs as the daemon,
//! follows what a header names: a backing file, a data file elsewhere. So a header that names anything is refused. The
//! fields are those of QEMU's `docs/interop/qcow2.rst`, version 3.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::Error;
use crate::options;

/// Cluster size, QEMU's default.
const CLUSTER_BYTES: u64 = 64 << 10;
/// Bytes covered by one entry of the first-level table: a second-level table's 8192 clusters.
const L1_COVERS_BYTES: u64 = CLUSTER_BYTES * (CLUSTER_BYTES / 8);
/// Offset of the L1 table, after header, reference count table and reference count block of one
/// cluster each.
const L1_AT: u64 = 3 * CLUSTER_BYTES;

/// Name of a layer's node in QEMU: at most 31 characters, of which the file's node needs five.
pub(super) fn node(path: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;
    format!("l{}", &blake3::hash(path.as_os_str().as_bytes()).to_hex()[..24])
}

/// Makes an empty layer: complete and synced under its name, or absent. Does nothing if it exists
/// already. Blocks.
pub fn make_top(path: &Path, size_bytes: u64) -> Result<(), Error> {
    if path.exists() {
        return Ok(());
    }
    publish(path, |fresh| write_empty(fresh, size_bytes))
}

/// Size of a layer on the disk in bytes. Blocks.
pub fn layer_bytes(path: &Path) -> Result<u64, Error> {
    let meta = fs::metadata(path).map_err(Error::io("look at", path))?;
    Ok(meta.blocks() * 512)
}

/// Publishes a layer: what `make` writes beside `path` is durable, or is not there.
pub(super) fn publish(
    path: &Path,
    make: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), Error> {
    hivekeep_fs::replace_by(path, make).map_err(Error::io("make the disk layer", path))
}

/// Writes an image in which every cluster is unallocated, version 3, as `qemu-img create` makes it.
fn write_empty(path: &Path, size_bytes: u64) -> io::Result<()> {
    let l1_entries = size_bytes.div_ceil(L1_COVERS_BYTES);
    let l1_clusters = (l1_entries * 8).div_ceil(CLUSTER_BYTES);
    let clusters = 3 + l1_clusters;
    let mut header = Vec::with_capacity(112);
    let mut put = |bytes: &[u8]| header.extend_from_slice(bytes);
    put(b"QFI\xfb");
    put(&3_u32.to_be_bytes());
    // Backing file: none.
    put(&[0; 12]);
    put(&CLUSTER_BYTES.ilog2().to_be_bytes());
    put(&size_bytes.to_be_bytes());
    // Encryption: none.
    put(&0_u32.to_be_bytes());
    put(&u32::try_from(l1_entries).map_err(io::Error::other)?.to_be_bytes());
    put(&L1_AT.to_be_bytes());
    // Reference count table: offset, and number of clusters.
    put(&CLUSTER_BYTES.to_be_bytes());
    put(&1_u32.to_be_bytes());
    // Internal snapshots and feature bits: none.
    put(&[0; 4 + 8 + 24]);
    // Reference counts of 2^4 bits, the header's length, and compression by deflate.
    put(&4_u32.to_be_bytes());
    put(&112_u32.to_be_bytes());
    put(&[0; 8]);
    let file = File::options().write(true).create_new(true).open(path)?;
    file.set_len(clusters * CLUSTER_BYTES)?;
    file.write_all_at(&header, 0)?;
    file.write_all_at(&(2 * CLUSTER_BYTES).to_be_bytes(), CLUSTER_BYTES)?;
    let counts: Vec<u8> = (0..clusters).flat_map(|_| 1_u16.to_be_bytes()).collect();
    file.write_all_at(&counts, 2 * CLUSTER_BYTES)
}

/// Size of the fixed part, including the compression type and its padding.
pub const HEADER_BYTES: usize = 112;
const MAGIC: [u8; 4] = *b"QFI\xfb";
/// Feature bit of an image that was not closed: harmless, because its reference counts are written
/// through.
const DIRTY: u64 = 1;
/// Maximum size of a disk, with room to spare.
const MAX_BYTES: u64 = 1 << 50;

/// Size of the disk in bytes, if the layer is valid.
fn virtual_size(layer: &Path) -> io::Result<u64> {
    let mut bytes = [0; HEADER_BYTES];
    File::open(layer)?.read_exact_at(&mut bytes, 0)?;
    check(&bytes).map_err(|why| io::Error::new(io::ErrorKind::InvalidData, why))
}

/// Clears the backing file that a layer names, and returns the size of the disk in bytes, if the
/// layer is otherwise valid.
fn without_backing(layer: &Path) -> io::Result<u64> {
    // Offset and length of the name: none.
    File::options().write(true).open(layer)?.write_all_at(&[0; 12], 8)?;
    virtual_size(layer)
}

/// Validates a header and returns the size of the disk in bytes.
///
/// # Errors
/// Reason why the header is refused.
pub fn check(header: &[u8; HEADER_BYTES]) -> Result<u64, &'static str> {
    let u32_at = |at: usize| header[at..at + 4].iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
    let u64_at = |at: usize| u32_at(at) << 32 | u32_at(at + 4);
    let size_bytes = u64_at(24);
    let wrong = [
        (header[..4] != MAGIC, "it is not qcow2"),
        (u32_at(4) != 3, "it is not of version 3"),
        (u64_at(8) != 0 || u32_at(16) != 0, "it names a backing file"),
        (u32_at(20) != u64::from(CLUSTER_BYTES.ilog2()), "its clusters are not of 64 KiB"),
        (size_bytes == 0 || size_bytes > MAX_BYTES, "its size is not that of a disk"),
        (u32_at(32) != 0, "it is encrypted"),
        (u32_at(60) != 0, "it has internal snapshots"),
        (u64_at(72) & !DIRTY != 0, "it has features that no layer has, such as a data file"),
    ];
    match wrong.iter().find(|(is, _)| *is) {
        Some((_, why)) => Err(why),
        None => Ok(size_bytes),
    }
}

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
        let size_bytes = without_backing(fresh)?;
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
    use super::*;

    #[test]
    fn an_empty_layer_is_sound_and_small() {
        let dir = tempfile::tempdir().unwrap();
        for size_gb in [1_u64, 10, 1024] {
            let path = dir.path().join(format!("{size_gb}.qcow2"));
            make_top(&path, size_gb << 30).unwrap();
            assert!(layer_bytes(&path).unwrap() <= 64 << 10, "{size_gb}");
            let run = |command: &str| {
                std::process::Command::new("qemu-img").arg(command).arg(&path).output()
            };
            let Ok(checked) = run("check") else { return hivekeep_skip::skip("no qemu-img") };
            assert!(checked.status.success(), "{checked:?}");
            let said = String::from_utf8(run("info").unwrap().stdout).unwrap();
            assert!(said.contains(&format!("({} bytes)", size_gb << 30)), "{said}");
            assert!(said.contains("compat: 1.1") && !said.contains("backing"), "{said}");
        }
    }

    #[test]
    fn a_layer_that_is_there_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layer");
        fs::write(&path, "content").unwrap();
        make_top(&path, 1 << 30).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"content");
        assert!(layer_bytes(&dir.path().join("none")).is_err());
    }

    #[test]
    fn nodes_have_names_that_qemu_takes() {
        let name = format!("{}-file", node(Path::new("/a/b")));
        assert!(name.len() <= 31 && name.starts_with('l'), "{name}");
        assert_ne!(node(Path::new("/a/b")), node(Path::new("/a/c")));
    }

    #[test]
    fn what_a_header_could_name_is_not_let_through() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("layer");
        make_top(&path, 5 << 30).unwrap();
        assert_eq!(virtual_size(&path).unwrap(), 5 << 30);
        let mut sound = [0; HEADER_BYTES];
        File::open(&path).unwrap().read_exact_at(&mut sound, 0).unwrap();
        // Bytes of magic, version, backing file, clusters, size, encryption, snapshots, data file.
        for at in [0, 7, 15, 19, 23, 24, 35, 63, 79] {
            let mut other = sound;
            other[at] ^= 0x04;
            assert!(check(&other).is_err(), "byte {at}");
        }
        let mut dirty = sound;
        dirty[79] = 1;
        assert_eq!(check(&dirty), Ok(5 << 30));
        std::fs::write(&path, "short").unwrap();
        assert!(virtual_size(&path).is_err());
    }

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
