//! Placement of disks in a restore: layers by their names, bases by the hash of their content.
//!
//! ```text
//! layers/<id>.qcow2       ─▶ state folder: layers/<id>.qcow2
//! bases/<hash>/<file>     ─▶ image folder: objects/<hash>/<file>, unless it is there already
//! the manifest's `kept`   ─▶ state folder: disks/<workspace id>/, empty: a start makes the top
//! ```

use std::{
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
};

use hivekeep_image::ObjectName;
use hivekeep_workspace::DISKS;

use super::{
    ArchivedDisks, BASES, Error, Hashed, LAYERS, Manifest,
    unpack::{remove, sync, sync_dir},
};

/// Says in the unpacked archive that its disks are being put in their places.
const PLACING: &str = "PLACING";

/// The name of an object of an image folder in the archive.
pub(super) fn base_in_archive(path: &Path) -> Option<String> {
    let ObjectName { hash, file } = ObjectName::of(path)?;
    Some(format!("{BASES}/{hash}/{file}"))
}

/// Checks that each file of disks is what its name says, as far as a manifest can tell.
pub(super) fn check(manifest: &Manifest) -> Result<(), String> {
    for (name, content) in &manifest.files {
        let path = Path::new(name);
        let right = if path.starts_with(BASES) {
            let of_hash = |object: ObjectName| object.hash.to_string() == content.blake3;
            base_in_archive(path).as_deref() == Some(name)
                && ObjectName::of(path).is_some_and(of_hash)
        } else if path.starts_with(LAYERS) {
            path.parent() == Some(Path::new(LAYERS))
                && path.extension().is_some_and(|extension| extension == "qcow2")
        } else {
            true
        };
        if !right
            || (manifest.disks.is_none() && (path.starts_with(BASES) || path.starts_with(LAYERS)))
        {
            return Err(format!("{name} has not its place there"));
        }
    }
    Ok(())
}

/// Removes what a restore that was cut short had put in its places. Blocks.
pub(super) fn undo(part: &Path, state: &Path) -> Result<(), Error> {
    if part.join(PLACING).exists() {
        remove(&state.join(LAYERS))?;
        remove(&state.join(DISKS))?;
        sync_dir(state)?;
    }
    Ok(())
}

/// Checks that disks can be put there without mixing them with others. Blocks.
pub(super) fn free(state: &Path) -> Result<(), Error> {
    for path in [state.join(LAYERS), state.join(DISKS)] {
        if fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some()) {
            let next = "disks that are there are not mixed with others: move them away";
            return Err(Error::There { path, next });
        }
    }
    Ok(())
}

/// Puts what was unpacked and synced in `part` in its places, which are [`free`]. Blocks.
pub(super) fn place(
    part: &Path,
    state: &Path,
    images: &Path,
    disks: &ArchivedDisks,
) -> Result<(), Error> {
    make(&part.join(LAYERS))?;
    for kept in &disks.kept {
        make(&part.join(DISKS).join(kept.workspace_id.to_string()))?;
    }
    make(&part.join(DISKS))?;
    sync(&part.join(DISKS))?;
    let mark = part.join(PLACING);
    File::create(&mark).map_err(Error::io(&mark))?;
    sync_dir(part)?;
    for name in [LAYERS, DISKS] {
        let to = state.join(name);
        fs::rename(part.join(name), &to).map_err(Error::io(&to))?;
    }
    sync_dir(state)?;
    let bases = part.join(BASES);
    if !bases.exists() {
        return Ok(());
    }
    for folder in fs::read_dir(&bases).map_err(Error::io(&bases))? {
        let folder = folder.map_err(Error::io(&bases))?.path();
        for file in fs::read_dir(&folder).map_err(Error::io(&folder))? {
            place_base(&file.map_err(Error::io(&folder))?.path(), images)?;
        }
    }
    Ok(())
}

fn place_base(from: &Path, images: &Path) -> Result<(), Error> {
    let ObjectName { hash, file } =
        ObjectName::of(from).ok_or_else(|| Error::Base(from.to_owned()))?;
    let folder = images.join("objects").join(hash.to_string());
    let to = folder.join(&file);
    if to.symlink_metadata().is_ok() {
        let same = hash_of(&to)? == hash.to_string();
        return if same { Ok(()) } else { Err(Error::Differs(to)) };
    }
    make(&folder)?;
    // Never seen half written under its name, also from another file system.
    let fresh = folder.join(format!(".{file}.restored"));
    copy(from, &fresh).map_err(Error::io(&fresh))?;
    hivekeep_fs::rename(&fresh, &to).map_err(Error::io(&to))?;
    sync_dir(&images.join("objects"))
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    match fs::remove_file(to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    if fs::rename(from, to).is_err() {
        fs::copy(from, to)?;
    }
    fs::set_permissions(to, fs::Permissions::from_mode(0o444))?;
    hivekeep_fs::sync_file(to)
}

fn hash_of(path: &Path) -> Result<String, Error> {
    let mut hashed = Hashed::new(File::open(path).map_err(Error::io(path))?);
    io::copy(&mut hashed, &mut io::sink()).map_err(Error::io(path))?;
    Ok(hashed.hasher.finalize().to_hex().to_string())
}

fn make(folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::io(folder))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::backup::{Content, FORMAT_WITH_DISKS};

    fn manifest(name: String, content: &[u8]) -> Manifest {
        let blake3 = blake3::hash(content).to_hex().to_string();
        let disks = ArchivedDisks { kept: Vec::new(), left_out: Vec::new(), memories_left_out: 0 };
        Manifest {
            format: FORMAT_WITH_DISKS,
            hivekeep: "0".to_owned(),
            at: 0,
            files: BTreeMap::from([(name, Content { bytes: 1, blake3 })]),
            disks: Some(disks),
        }
    }

    #[test]
    fn files_of_disks_are_what_their_names_say() {
        let hash = blake3::hash(b"base").to_hex();
        let base = format!("bases/{hash}/rootfs.ext4");
        assert!(check(&manifest(base.clone(), b"base")).is_ok());
        assert!(check(&manifest("layers/lay_1.qcow2".to_owned(), b"x")).is_ok());
        assert!(check(&manifest("journal/STORE".to_owned(), b"x")).is_ok());
        assert!(check(&manifest(base.clone(), b"another")).is_err());
        let names = ["layers/a/b.qcow2", "layers/a", "layers", "bases/rootfs.ext4", "bases"];
        for name in names.map(str::to_owned).into_iter().chain([format!("bases/x/{hash}/f")]) {
            assert!(check(&manifest(name.clone(), b"base")).is_err(), "{name}");
        }
        let unasked = Manifest { disks: None, ..manifest(base, b"base") };
        assert!(check(&unasked).is_err());
    }

    #[test]
    fn what_a_restore_that_was_killed_had_placed_is_taken_back_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (state, images) = (dir.path().join("state"), dir.path().join("images"));
        let part = state.join("restore.part");
        let kept = hivekeep_workspace::backup::BackedUp {
            workspace_id: hivekeep_kernel::WorkspaceId::new(),
            name: "one".to_owned(),
        };
        let folder = state.join(DISKS).join(kept.workspace_id.to_string());
        let disks = ArchivedDisks { kept: vec![kept], left_out: Vec::new(), memories_left_out: 0 };
        fs::create_dir_all(part.join(LAYERS)).unwrap();
        fs::create_dir_all(state.join(LAYERS)).unwrap();
        fs::write(part.join(LAYERS).join("a.qcow2"), "a").unwrap();
        free(&state).unwrap();
        undo(&part, &state).unwrap();
        assert!(state.join(LAYERS).exists(), "nothing was placed");
        place(&part, &state, &images, &disks).unwrap();
        assert!(folder.exists() && state.join(LAYERS).join("a.qcow2").exists());
        assert!(matches!(free(&state), Err(Error::There { .. })));
        undo(&part, &state).unwrap();
        free(&state).unwrap();
        assert!(!folder.exists());
    }

    #[test]
    fn a_base_is_placed_where_it_is_missing_and_replaces_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (part, images) = (dir.path().join("part"), dir.path().join("images"));
        let hash = blake3::hash(b"base").to_hex().to_string();
        let (from, to) = (part.join(&hash), images.join("objects").join(&hash));
        let unpacked = || {
            fs::create_dir_all(&from).unwrap();
            fs::write(from.join("rootfs.ext4"), "base").unwrap();
        };
        unpacked();
        // A killed restore leaves a partial file.
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join(".rootfs.ext4.restored"), "ba").unwrap();
        place_base(&from.join("rootfs.ext4"), &images).unwrap();
        let placed = to.join("rootfs.ext4");
        assert_eq!(fs::read(&placed).unwrap(), b"base");
        assert_eq!(fs::metadata(&placed).unwrap().permissions().mode() & 0o777, 0o444);
        assert_eq!(fs::read_dir(&to).unwrap().count(), 1);
        unpacked();
        place_base(&from.join("rootfs.ext4"), &images).unwrap();
        fs::remove_file(&placed).unwrap();
        fs::write(&placed, "damaged").unwrap();
        let refused = place_base(&from.join("rootfs.ext4"), &images).unwrap_err();
        assert!(matches!(refused, Error::Differs(_)), "{refused}");
        assert_eq!(fs::read(&placed).unwrap(), b"damaged");
    }
}
