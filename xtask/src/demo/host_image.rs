//! The image of the demo's sandboxes, and of programs of others: programs of this host with the libraries that they
//! need, as a container image that `hivekeep image pull` takes. No package is fetched for it.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::json;
use xshell::{Shell, cmd};

/// Programs that are played with, and what a person expects beside them.
const PROGRAMS: [&str; 29] = [
    "awk",
    "bash",
    "cat",
    "chmod",
    "cp",
    "cut",
    "env",
    "find",
    "git",
    "grep",
    "head",
    "id",
    "ls",
    "mkdir",
    "mv",
    "rm",
    "sed",
    "seq",
    "sh",
    "sha256sum",
    "sleep",
    "sort",
    "tail",
    "tar",
    "tee",
    "touch",
    "true",
    "uname",
    "wc",
];
/// Where the system's own are, which are preferred to others in the path.
const SYSTEMS_OWN: [&str; 2] = ["/usr/bin", "/bin"];
/// Folders of libraries that are names of folders below `/usr` on most systems.
const MERGED: [&str; 2] = ["lib", "lib64"];

/// Things in an image beside the programs of this host.
#[derive(Default)]
pub(crate) struct ImageExtras<'e> {
    /// More programs, whose libraries come with them.
    pub(crate) programs: Vec<PathBuf>,
    /// Programs whose libraries alone are needed.
    pub(crate) linked: Vec<PathBuf>,
    /// Links of `/usr/bin`: name, and where it leads.
    pub(crate) links: Vec<(&'e str, PathBuf)>,
    /// A folder, and the name of one in it that stands at the root.
    pub(crate) beside: Option<(&'e Path, &'e str)>,
}

/// Writes the image into a folder, in the form of `docker save`; returns its path.
pub(crate) fn write(shell: &Shell, folder: &Path, extras: &ImageExtras<'_>) -> Result<PathBuf> {
    let _none_before = fs::remove_dir_all(folder);
    let tree = folder.join("tree");
    fill(shell, &tree)?;
    for program in &extras.programs {
        let name = program.file_name().context("no name")?;
        fs::copy(program, tree.join("usr/bin").join(name))?;
    }
    for program in extras.programs.iter().chain(&extras.linked) {
        libraries(shell, program).iter().try_for_each(|library| copy(library, &tree))?;
    }
    for (name, to) in &extras.links {
        symlink(to, tree.join("usr/bin").join(name))?;
    }
    let _there = shell.push_dir(folder);
    let same = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0"];
    cmd!(shell, "tar {same...} -C {tree} -cf layer.tar .").quiet().run()?;
    if let Some((from, name)) = extras.beside {
        cmd!(shell, "tar {same...} -C {from} -rf layer.tar {name}").quiet().run()?;
    }
    let sum = cmd!(shell, "sha256sum layer.tar").quiet().read()?;
    let digest = sum.split(' ').next().context("sha256sum printed nothing")?;
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": { "Env": ["PATH=/usr/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
    });
    fs::write(folder.join("config.json"), config.to_string())?;
    let manifest = json!([{ "Config": "config.json", "Layers": ["layer.tar"] }]);
    fs::write(folder.join("manifest.json"), manifest.to_string())?;
    cmd!(shell, "tar -cf image.tar --remove-files manifest.json config.json layer.tar")
        .quiet()
        .run()?;
    Ok(folder.join("image.tar"))
}

/// Copies the programs, and their libraries to where they lie on this host.
fn fill(shell: &Shell, tree: &Path) -> Result<()> {
    fs::create_dir_all(tree.join("etc"))?;
    fs::create_dir_all(tree.join("usr/bin"))?;
    symlink("usr/bin", tree.join("bin"))?;
    fs::write(tree.join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n")?;
    fs::write(tree.join("etc/group"), "root:x:0:\n")?;
    for name in MERGED {
        if let Ok(to) = fs::read_link(Path::new("/").join(name)) {
            symlink(to, tree.join(name))?;
        }
    }
    for name in PROGRAMS {
        let program = which(name).with_context(|| format!("{name} is not in the path"))?;
        for library in libraries(shell, &program) {
            copy(&library, tree)?;
        }
        let to = tree.join("usr/bin").join(name);
        fs::copy(&program, to).with_context(|| format!("copy {}", program.display()))?;
    }
    Ok(())
}

/// Copies a library, or what a link of that name leads to, to its path below a folder.
fn copy(file: &Path, tree: &Path) -> Result<()> {
    let (folder, name) =
        (file.parent().context("no folder")?, file.file_name().context("no name")?);
    // `/lib` may be a link, and is one in the tree then.
    let folder = folder.canonicalize()?;
    let to = tree.join(folder.strip_prefix("/")?);
    fs::create_dir_all(&to)?;
    if !to.join(name).exists() {
        fs::copy(file, to.join(name)).with_context(|| format!("copy {}", file.display()))?;
    }
    Ok(())
}

fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders = SYSTEMS_OWN.map(PathBuf::from).into_iter().chain(std::env::split_paths(&path));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Libraries and loader of a program; none of one that is static.
fn libraries(shell: &Shell, program: &Path) -> Vec<PathBuf> {
    let listed = cmd!(shell, "ldd {program}").quiet().ignore_status().ignore_stderr().read();
    let path = |line: &str| {
        let named = line.split_once("=>").map_or(line, |(_, path)| path);
        named.split_whitespace().next().filter(|word| word.starts_with('/')).map(PathBuf::from)
    };
    listed.unwrap_or_default().lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_run_in_the_tree_and_the_layer_is_the_one_that_is_named() {
        let (shell, dir) = (Shell::new().unwrap(), tempfile::tempdir().unwrap());
        let links = vec![("shell", PathBuf::from("sh"))];
        let extras =
            ImageExtras { links, beside: Some((dir.path(), "beside")), ..Default::default() };
        fs::create_dir(dir.path().join("beside")).unwrap();
        let image = write(&shell, &dir.path().join("image"), &extras).unwrap();
        let folder = image.parent().unwrap();
        cmd!(shell, "tar -C {folder} -xf {image}").quiet().run().unwrap();
        let sum = cmd!(shell, "sha256sum").stdin(fs::read(folder.join("layer.tar")).unwrap());
        let sum = sum.quiet().read().unwrap();
        let layer = folder.join("layer.tar");
        let listed = cmd!(shell, "tar -tf {layer}").quiet().read().unwrap();
        assert!(listed.contains("\nbeside/") && listed.contains("./usr/bin/shell"), "{listed}");
        let config = fs::read_to_string(folder.join("config.json")).unwrap();
        assert!(config.contains(sum.split(' ').next().unwrap()));
        let tree = folder.join("tree");
        for program in ["sh", "git", "tar"] {
            for library in libraries(&shell, &which(program).unwrap()) {
                let inside = tree.join(library.strip_prefix("/").unwrap());
                assert!(inside.exists(), "{program} needs {}", inside.display());
            }
        }
    }
}
