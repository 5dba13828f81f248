//! Builder of the root filesystem as a raw ext4 file.
//!
//! The filesystem is made small and grows in the guest at first boot by `EXT4_IOC_RESIZE_FS`, so
//! one file serves every disk size. This relies on three settings:
//! - descriptor blocks are reserved for 1 TiB, so growing moves nothing;
//! - `noinit_itable` is a default mount option: new inode tables are known to be zeros (a fresh
//!   overlay reads so), and writing them would put 160 MB into the overlay of a 10 GiB disk;
//! - a journal is kept (QEMU may be killed at any moment); it is fixed at 16 MiB, since the size
//!   mke2fs would choose depends on the small file, not on the grown disk.
//!
//! All settings come from here, not from the host's `mke2fs.conf`, so a newer host does not make a
//! filesystem that an older kernel refuses.

use std::fs::{self, File};
use std::path::Path;
use std::time::Duration;

use hivekeep_kernel::fault_point;
use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use super::run::{run, tool};
use crate::tree::{List, chown_script};
use crate::{Error, MAX_DISK_GB, Result};

const LIMIT: Duration = Duration::from_secs(600);
const BLOCK_BYTES: u64 = 4096;
const MIB: u64 = 1 << 20;
/// Bytes for each inode, as in [`SETTINGS`].
const BYTES_PER_INODE: u64 = 16384;

/// Settings of mke2fs, part of the recipe: a change here makes built images out of date.
pub(super) const SETTINGS: &str = "[defaults]
\tbase_features = sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr
\tdefault_mntopts = acl,user_xattr
\tenable_periodic_fsck = 0
\tblocksize = 4096
\tinode_size = 256
\tinode_ratio = 16384
[fs_types]
\text4 = {
\t\tfeatures = has_journal,extent,huge_file,flex_bg,metadata_csum,64bit,dir_nlink,extra_isize
\t}
";

/// Size of the file for this content: the files in whole blocks, the journal and other metadata,
/// and a sixth of free room so that a workspace starts even where growing fails.
pub(super) fn size_for(list: &List) -> u64 {
    let data = list.bytes() + list.0.len() as u64 * BLOCK_BYTES;
    (data + data / 6 + 32 * MIB).next_multiple_of(16 * MIB)
}

/// Number of inodes, where a tree of many small files needs more than its size gives.
fn inodes_for(list: &List) -> Vec<String> {
    let needed = list.0.len() as u64 + list.0.len() as u64 / 4 + 64;
    let given = size_for(list) / BYTES_PER_INODE;
    if needed > given { vec!["-N".to_owned(), needed.to_string()] } else { Vec::new() }
}

/// Makes the filesystem at `out` from `tree`, whose entries are `list`; the owners are those of the
/// list, whoever builds. `work` is for scratch files.
pub(super) async fn make(
    tree: &Path,
    list: &List,
    out: &Path,
    work: &Path,
    cancel: &CancellationToken,
) -> Result<()> {
    let config = work.join("mke2fs.conf");
    fs::write(&config, SETTINGS).map_err(Error::io("write", &config))?;
    File::create_new(out)
        .and_then(|file| file.set_len(size_for(list)))
        .map_err(Error::io("create", out))?;
    let grow_to = (MAX_DISK_GB << 30) / BLOCK_BYTES;
    let mut mke2fs = Command::new(tool("mke2fs")?);
    mke2fs
        .env("MKE2FS_CONFIG", &config)
        .args(["-q", "-F", "-t", "ext4", "-m", "0", "-L", "hivekeep", "-J", "size=16", "-E"])
        .arg(format!("lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0,resize={grow_to}"))
        .args(inodes_for(list))
        .arg("-d")
        .arg(tree)
        .arg(out);
    run(mke2fs, LIMIT, cancel).await?;
    fault_point!("image.after_mke2fs");
    let mut tune2fs = Command::new(tool("tune2fs")?);
    tune2fs.args(["-E", "mount_opts=noinit_itable"]).arg(out);
    run(tune2fs, LIMIT, cancel).await?;
    if !rustix::process::geteuid().is_root() {
        set_owners(list, out, work, cancel).await?;
    }
    let mut e2fsck = Command::new(tool("e2fsck")?);
    e2fsck.arg("-fn").arg(out);
    run(e2fsck, LIMIT, cancel).await?;
    Ok(())
}

/// Writes the owners into the inodes, for a builder whose own files were copied.
pub(super) async fn set_owners(
    list: &List,
    out: &Path,
    work: &Path,
    cancel: &CancellationToken,
) -> Result<()> {
    let script = work.join("owners.debugfs");
    fs::write(&script, chown_script(list)?).map_err(Error::io("write", &script))?;
    let mut debugfs = Command::new(tool("debugfs")?);
    debugfs.arg("-w").arg("-f").arg(&script).arg(out);
    run(debugfs, LIMIT, cancel).await?;
    Ok(())
}
