//! Kernel module selection: the modules that a workspace VM needs, in load order.
//!
//! Debian's packages have no `modules.dep` (it is made when a kernel is installed), so the
//! dependencies are read from the modules themselves.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::elf;
use crate::{Error, Result};

/// Modules to load, the devices that a VM cannot start without first. Only what a kernel has as a
/// module counts; what is built in needs no file.
pub(super) const WANTED: [&str; 12] = [
    "virtio_mmio",
    "virtio_pci",
    "virtio_console",
    "virtio_blk",
    "ext4",
    "virtio_net",
    "vmw_vsock_virtio_transport",
    "vsock_loopback",
    "virtio_rng",
    "overlay",
    "qemu_fw_cfg",
    "virtiofs",
];

/// Mark at the end of a signed module, after the signature and twelve bytes about it.
const SIGNATURE_MARK: &[u8] = b"~Module signature appended~\n";

/// Module ready for `finit_module`: uncompressed, without its signature.
#[derive(Debug, Clone)]
pub(super) struct Module {
    /// File name, such as `virtio_blk.ko`.
    pub(super) file: String,
    pub(super) bytes: Vec<u8>,
}

/// Collects the wanted modules below `folder` (a `/lib/modules/<release>`) with all their
/// dependencies, each after those. Blocks.
pub(super) fn select(folder: &Path, wanted: &[&str]) -> Result<Vec<Module>> {
    let mut index = Index {
        files: BTreeMap::new(),
        builtin: builtin(folder)?,
        chosen: Vec::new(),
        seen: HashSet::new(),
    };
    find(folder, &mut index.files)?;
    for name in wanted {
        index.add(name, None)?;
    }
    Ok(index.chosen)
}

struct Index {
    files: BTreeMap<String, PathBuf>,
    builtin: HashSet<String>,
    chosen: Vec<Module>,
    seen: HashSet<String>,
}

impl Index {
    fn add(&mut self, name: &str, wanted_by: Option<&str>) -> Result<()> {
        let name = canonical(name);
        if self.builtin.contains(&name) || !self.seen.insert(name.clone()) {
            return Ok(());
        }
        let Some(path) = self.files.get(&name).cloned() else {
            let by = wanted_by.map_or_else(String::new, |by| format!(", which {by} needs,"));
            return Err(Error::Kernel {
                reason: format!("module {name}{by} is neither built in nor a file"),
            });
        };
        let bytes = unsigned(unpack(&path)?);
        let depends = elf::modinfo(&bytes, "depends").map_err(|error| Error::Kernel {
            reason: format!("module {name} is not a 64-bit ELF: {error}"),
        })?;
        for dependency in depends.iter().flat_map(|list| list.split(',')) {
            if !dependency.is_empty() {
                self.add(dependency, Some(&name))?;
            }
        }
        self.chosen.push(Module { file: format!("{name}.ko"), bytes });
        Ok(())
    }
}

/// Canonical module name: the kernel treats `-` and `_` as the same.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

fn module_name(file: &str) -> Option<String> {
    let name = file.strip_suffix(".xz").unwrap_or(file);
    name.strip_suffix(".ko").map(canonical)
}

fn builtin(folder: &Path) -> Result<HashSet<String>> {
    let path = folder.join("modules.builtin");
    let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    Ok(text.lines().filter_map(|line| module_name(line.rsplit('/').next()?)).collect())
}

fn find(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        let entry = entry.map_err(Error::io("list", folder))?;
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            find(&path, files)?;
        } else if let Some(name) = entry.file_name().to_str().and_then(module_name) {
            files.insert(name, path);
        }
    }
    Ok(())
}

fn unpack(path: &Path) -> Result<Vec<u8>> {
    let packed = fs::read(path).map_err(Error::io("read", path))?;
    if path.extension().is_none_or(|extension| extension != "xz") {
        return Ok(packed);
    }
    let mut plain = Vec::new();
    lzma_rust2::XzReader::new(packed.as_slice(), true)
        .read_to_end(&mut plain)
        .map_err(Error::io("unpack", path))?;
    Ok(plain)
}

/// Cuts the signature off. Checking it would cost the guest one RSA operation per module, and the
/// initrd's own hash already vouches for the content.
fn unsigned(mut bytes: Vec<u8>) -> Vec<u8> {
    const DETAILS: usize = 12;
    let Some(body) = bytes.strip_suffix(SIGNATURE_MARK) else {
        return bytes;
    };
    let Some(length) = body.last_chunk::<4>().copied().map(u32::from_be_bytes) else {
        return bytes;
    };
    let Some(keep) = body.len().checked_sub(DETAILS + length as usize) else {
        return bytes;
    };
    bytes.truncate(keep);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_cut_off_and_anything_else_is_kept() {
        let details = [[0u8; 8].as_slice(), 5u32.to_be_bytes().as_slice()].concat();
        let signed = [b"\x7fELF module", b"12345".as_slice(), &details, SIGNATURE_MARK].concat();
        assert_eq!(unsigned(signed), b"\x7fELF module");

        let plain = b"\x7fELF module".to_vec();
        assert_eq!(unsigned(plain.clone()), plain);
        let forged = [u32::MAX.to_be_bytes().as_slice(), SIGNATURE_MARK].concat();
        assert_eq!(unsigned(forged.clone()), forged);
    }

    #[test]
    fn a_module_that_is_nowhere_is_named() {
        let folder = tempfile::TempDir::new().unwrap();
        fs::write(folder.path().join("modules.builtin"), "kernel/fs/ext4/ext4.ko\n").unwrap();
        assert_eq!(select(folder.path(), &["ext4"]).unwrap().len(), 0);
        let error = select(folder.path(), &["virtio-rng"]).unwrap_err();
        assert!(error.to_string().contains("module virtio_rng is neither"), "{error}");
    }
}
