//! What users see and the checkout keeps: pages of tools and error codes, the configuration, the
//! command line's help.
//!
//! `changelog.d/surface` has a hash of each file as it was at the last fragment. The comparison needs
//! neither a history nor a branch to compare with, and nothing to be built.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::FOLDER;
use crate::docs::names;

const RECORD: &str = "surface";
/// Files beside the pages of tools.
const FILES: [&str; 3] = ["config.toml", "docs/errors.md", "tests/contract/cli.txt"];
const TOOLS: &str = "docs/tools";

/// Hashes by paths.
type Surface = BTreeMap<String, String>;

/// Records the surface as it is.
pub(super) fn record(root: &Path) -> Result<()> {
    let lines = now(root)?.into_iter().map(|(path, hash)| format!("{hash} {path}\n"));
    Ok(fs::write(root.join(FOLDER).join(RECORD), lines.collect::<String>())?)
}

/// Paths that changed, came or went since it was recorded.
pub(super) fn changed(root: &Path) -> Result<Vec<String>> {
    let path = root.join(FOLDER).join(RECORD);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let recorded = text.lines().filter_map(|line| line.split_once(' '));
    let recorded: Surface = recorded.map(|(hash, path)| (path.into(), hash.into())).collect();
    let now = now(root)?;
    let mut changed: Vec<_> = now.keys().chain(recorded.keys()).cloned().collect();
    changed.retain(|path| now.get(path) != recorded.get(path));
    changed.sort();
    changed.dedup();
    Ok(changed)
}

fn now(root: &Path) -> Result<Surface> {
    let pages = names(&root.join(TOOLS))?.into_iter().map(|name| format!("{TOOLS}/{name}"));
    let paths = FILES.iter().map(|path| (*path).to_owned()).chain(pages);
    paths
        .map(|path| {
            let bytes = fs::read(root.join(&path)).with_context(|| format!("read {path}"))?;
            Ok((path, format!("{:016x}", hash(&bytes))))
        })
        .collect()
}

/// FNV-1a, which tells versions of a file apart and guards against nobody.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_fnv_1a() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
