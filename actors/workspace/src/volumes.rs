//! Volumes as workspaces see them: which may be mounted where, and where they are on the host.

use std::path::{Component, Path};

use hivekeep_kernel::{Layer, SessionId, ToolError};
use hivekeep_machine::{CapabilitySupport, Isolation, MAX_VOLUMES, VolumeMount};
use hivekeep_ports::{AttachedVolume, MountSource, VolumeRequest};

use crate::{codes, records::Planned, shared::Shared};

/// Folders that the guest mounts itself, in any kind of workspace.
const TAKEN: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

impl Shared {
    /// Attaches volumes of a session's user to a workspace.
    ///
    /// # Errors
    /// `invalid_input` for paths that cannot be, `volumes_unsupported` for a kind of workspace that
    /// mounts none, `volume_not_found`.
    pub(crate) fn attach(
        &self,
        session: SessionId,
        plan: &Planned,
        wanted: &[VolumeRequest],
    ) -> Result<Vec<AttachedVolume>, ToolError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        check(wanted)?;
        if let CapabilitySupport::No { why } =
            &self.driver(plan.spec.isolation)?.capabilities().volumes
        {
            let message = format!("this workspace cannot mount volumes: {why}");
            return Err(ToolError::new(Layer::Machine, codes::VOLUMES_UNSUPPORTED, message).next(
                "`hivekeep check` says what the host lacks; isolation `sandbox` may do without",
            ));
        }
        let of_host = |request: &&VolumeRequest| request.volume.starts_with(MountSource::PLACE);
        if let Some(request) = wanted.iter().find(of_host)
            && plan.spec.isolation != Isolation::Sandbox
        {
            let message =
                format!("`{}` is a folder of the host, for sandboxes alone", request.volume);
            return Err(ToolError::new(Layer::Machine, codes::VOLUMES_UNSUPPORTED, message)
                .next("make the workspace with isolation `sandbox`, or mount a volume"));
        }
        self.volumes.attach(session, plan.id, wanted)
    }

    /// Attaches for another start: what is asked for, or what it had before, which has to be the
    /// session's user's too.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub(crate) fn attach_again(
        &self,
        session: SessionId,
        plan: &Planned,
        before: &[AttachedVolume],
        wanted: Option<Vec<VolumeRequest>>,
    ) -> Result<Vec<AttachedVolume>, ToolError> {
        let same = |had: &AttachedVolume| VolumeRequest {
            volume: had.volume.to_string(),
            path: had.path.clone(),
            read_only: had.read_only,
        };
        let wanted = wanted.unwrap_or_else(|| before.iter().map(same).collect());
        self.attach(session, plan, &wanted)
    }

    /// Mounts a workspace's volumes on the host, for its machine.
    ///
    /// # Errors
    /// `volumes_unsupported`, `volume_failed`.
    pub(crate) async fn mounted(&self, plan: &Planned) -> Result<Vec<VolumeMount>, ToolError> {
        let folders = self.volumes.mount(&plan.volumes).await?;
        let mounted = plan.volumes.iter().zip(folders).map(|(volume, mounted)| VolumeMount {
            folder: mounted.folder,
            path: volume.path.clone().into(),
            read_only: mounted.read_only,
            owner: mounted.owner,
        });
        Ok(mounted.collect())
    }
}

/// Refuses mount points that cannot be, or that hide each other.
fn check(wanted: &[VolumeRequest]) -> Result<(), ToolError> {
    if wanted.len() > MAX_VOLUMES {
        return Err(ToolError::invalid(format!("at most {MAX_VOLUMES} volumes can be mounted")));
    }
    for (n, request) in wanted.iter().enumerate() {
        let path = Path::new(&request.path);
        let plain = request.path.starts_with('/')
            && !request.path.contains('\0')
            && path.components().nth(1).is_some()
            && path.components().skip(1).all(|part| matches!(part, Component::Normal(_)));
        let shown = &request.path;
        if !plain {
            return Err(ToolError::invalid(format!(
                "`volumes[{n}].path` must be an absolute path without `..`, and not `/`: `{shown}`"
            )));
        }
        if let Some(taken) = TAKEN.iter().find(|taken| path.starts_with(taken)) {
            return Err(ToolError::invalid(format!(
                "`volumes[{n}].path` cannot be in {taken}, which the guest mounts itself"
            )));
        }
        let overlaps = |other: &VolumeRequest| {
            let other = Path::new(&other.path);
            other.starts_with(path) || path.starts_with(other)
        };
        if let Some(other) = wanted[..n].iter().find(|other| overlaps(other)) {
            let other = &other.path;
            return Err(ToolError::invalid(format!(
                "`{shown}` and `{other}` are one folder, or one is in the other"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(paths: &[&str]) -> bool {
        let request = |path: &&str| VolumeRequest {
            volume: "v".to_owned(),
            path: (*path).to_owned(),
            read_only: false,
        };
        check(&paths.iter().map(request).collect::<Vec<_>>()).is_err()
    }

    #[test]
    fn mount_points_are_absolute_apart_and_not_the_guests_own() {
        for good in [&["/data"][..], &["/data", "/database", "/a/b"], &["/process"]] {
            assert!(!refused(good), "{good:?}");
        }
        for bad in
            ["", "/", "//", "/./", "data", "/a/../b", "/..", "/proc", "/run/x", "/dev/shm", "/a\0b"]
        {
            assert!(refused(&[bad]), "{bad:?}");
        }
        for bad in [["/a", "/a"], ["/a", "/a/b"], ["/a/b", "/a/"]] {
            assert!(refused(&bad), "{bad:?}");
        }
        assert!(refused(&["/x"; MAX_VOLUMES + 1]));
    }
}
