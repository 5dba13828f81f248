//! Index of the artifacts, with the bounds of what each user and all together may keep. A value.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use hivekeep_kernel::{ArtifactId, Layer, ToolError, User};

use crate::{codes, info::ArtifactInfo, options::Options};

/// Size that an artifact counts for at least, so that many small ones are bounded too.
const LEAST_BYTES: u64 = 4 * 1024;

/// Artifacts that are kept, and those that are being written.
#[derive(Debug, Default)]
pub(crate) struct Index {
    kept: BTreeMap<ArtifactId, ArtifactInfo>,
    /// Owner and size of artifacts that are being written.
    reserved: BTreeMap<ArtifactId, (User, u64)>,
}

impl Index {
    pub(crate) fn of(found: Vec<ArtifactInfo>) -> Self {
        let kept = found.into_iter().map(|info| (info.id, info)).collect();
        Self { kept, reserved: BTreeMap::new() }
    }

    /// Takes room for an artifact before it is written.
    ///
    /// # Errors
    /// `artifacts_full`, with the figures.
    pub(crate) fn reserve(
        &mut self,
        id: ArtifactId,
        (user, bytes): (User, u64),
        options: &Options,
        most: usize,
    ) -> Result<(), ToolError> {
        let bytes = bytes.max(LEAST_BYTES);
        let kept = self.kept.values().map(|info| (info.user, info.bytes.max(LEAST_BYTES)));
        let all = kept.chain(self.reserved.values().copied());
        let (mut total, mut own, mut count) = (bytes, bytes, 1);
        for (owner, bytes) in all {
            total += bytes;
            if owner == user {
                own += bytes;
                count += 1;
            }
        }
        let mib = |mb: u64| mb.saturating_mul(1024 * 1024);
        if count > most {
            return Err(full(format!("you have {most} artifacts, as many as may be")));
        }
        if own > mib(options.max_user_mb) {
            let most = mib(options.max_user_mb);
            return Err(full(format!("your artifacts would hold {own} of {most} bytes")));
        }
        if total > mib(options.max_total_mb) {
            let most = mib(options.max_total_mb);
            return Err(full(format!("all artifacts together would hold {total} of {most} bytes")));
        }
        self.reserved.insert(id, (user, bytes));
        Ok(())
    }

    /// Gives a reservation back; what was written counts from now on.
    pub(crate) fn settle(&mut self, id: ArtifactId, written: Option<ArtifactInfo>) {
        self.reserved.remove(&id);
        if let Some(info) = written {
            self.kept.insert(id, info);
        }
    }

    pub(crate) fn get(&self, id: ArtifactId) -> Option<&ArtifactInfo> {
        self.kept.get(&id)
    }

    pub(crate) fn remove(&mut self, id: ArtifactId) -> Option<ArtifactInfo> {
        self.kept.remove(&id)
    }

    /// The newest first.
    pub(crate) fn newest(&self) -> impl Iterator<Item = &ArtifactInfo> {
        self.kept.values().rev()
    }

    /// Artifacts that have expired.
    pub(crate) fn expired(&self, now: DateTime<Utc>) -> Vec<ArtifactId> {
        let over = self.kept.values().filter(|info| info.expires_at <= now);
        over.map(|info| info.id).collect()
    }
}

fn full(message: String) -> ToolError {
    ToolError::new(Layer::Quota, codes::ARTIFACTS_FULL, message)
        .next("delete some with artifact_delete, or wait until they expire")
}
