//! Pull of an image: policy, source, unpacking, adoption by the store.

use std::path::Path;
use std::time::Duration;

use hivekeep_image::{
    BuildLock, ImageName, ImageStore, PulledImage, PulledName, TreeAdoption, VerifiedImage,
};
use hivekeep_kernel::fault_point;
use rustix::fs::statvfs;
use tokio_util::sync::CancellationToken;

use crate::options::{Asker, ImagePolicy};
use crate::source::{self, FetchTerms, FetchedImage};
use crate::unpack;
use crate::{Error, ImageOptions, ImageSource, LayerFile, OciResult, RegistryRef, UnpackedTree};

/// Pause between two looks at the lock of builds.
const LOCK_EVERY: Duration = Duration::from_millis(200);

/// Request for an image.
#[derive(Debug)]
pub struct PullRequest {
    /// Source of the image.
    pub source: ImageSource,
    /// Name for the image; `None` takes its reference.
    pub name: Option<String>,
    /// Requester of the pull.
    pub asker: Asker,
}

/// How far a pull is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullProgress {
    /// Another build or pull runs.
    Waiting,
    /// Layers are fetched.
    Fetching {
        /// Bytes that are there.
        bytes: u64,
        /// Bytes of all layers.
        total: u64,
    },
    /// Layers are unpacked.
    Unpacking {
        /// Bytes of archives that are read.
        bytes: u64,
    },
    /// The disk is made.
    Storing,
}

/// Importer of images into a store.
#[derive(Debug, Clone)]
pub struct ImagePuller {
    store: ImageStore,
    options: ImageOptions,
}

impl ImagePuller {
    /// Importer by a configuration.
    pub fn new(store: ImageStore, options: ImageOptions) -> Self {
        Self { store, options }
    }

    /// Name under which an image that is named so is kept: the name itself, or the full form of a
    /// reference to a registry.
    ///
    /// # Errors
    /// `Reference`, and `Store` for a text that is no name.
    pub fn name_of(text: &str) -> OciResult<ImageName> {
        if RegistryRef::looks_like(text) {
            return Ok(ImageName::named(&RegistryRef::parse(text)?.to_string())?);
        }
        Ok(ImageName::named(text)?)
    }

    /// Judges whether a session may have an image: it is here, or may be pulled. Nothing is asked
    /// of the network.
    ///
    /// # Errors
    /// `NotAllowed`; `Unknown` of the store for a name that nothing has.
    pub async fn may_use(&self, name: &ImageName) -> OciResult<()> {
        if !matches!(name, ImageName::Pulled(_)) || self.store.pulled(name.clone()).await?.is_some()
        {
            return Ok(());
        }
        if !RegistryRef::looks_like(name.as_str()) {
            let known = "base, debian, and those that `hivekeep image list` shows".to_owned();
            let (what, asked) = ("image", name.to_string());
            return Err(hivekeep_image::Error::Unknown { what, asked, known }.into());
        }
        ImagePolicy(&self.options).judge(&ImageSource::parse(name.as_str())?, Asker::Session)
    }

    /// Finds an image; one that is named by its reference and is not here is pulled.
    ///
    /// # Errors
    /// As [`Self::pull`], and those of the store.
    pub async fn ensure(
        &self,
        name: &ImageName,
        tell: &(dyn Fn(PullProgress) + Send + Sync),
        cancel: &CancellationToken,
    ) -> OciResult<VerifiedImage> {
        let there = async || self.store.pulled(name.clone()).await;
        if RegistryRef::looks_like(name.as_str()) && there().await?.is_none() {
            let source = ImageSource::parse(name.as_str())?;
            let request = PullRequest { source, name: None, asker: Asker::Session };
            self.pull_once(request, true, tell, cancel).await?;
        }
        Ok(self.store.resolve(name.clone()).await?)
    }

    /// Pulls an image, also when one of its name is here, which is replaced. Waits while another
    /// build or pull runs.
    ///
    /// # Errors
    /// As the steps; nothing of a failed pull is kept.
    pub async fn pull(
        &self,
        request: PullRequest,
        tell: &(dyn Fn(PullProgress) + Send + Sync),
        cancel: &CancellationToken,
    ) -> OciResult<PulledImage> {
        self.pull_once(request, false, tell, cancel).await
    }

    async fn pull_once(
        &self,
        request: PullRequest,
        there_is_enough: bool,
        tell: &(dyn Fn(PullProgress) + Send + Sync),
        cancel: &CancellationToken,
    ) -> OciResult<PulledImage> {
        let name = name_for(&request)?;
        ImagePolicy(&self.options).judge(&request.source, request.asker)?;
        self.check_room()?;
        let lock = self.locked(tell, cancel).await?;
        let there = self.store.pulled(ImageName::Pulled(name.clone())).await?;
        // Another caller may have pulled it meanwhile.
        if let (true, Some(image)) = (there_is_enough, there) {
            return Ok(image);
        }
        let work = self.store.work_folder(&lock).await?;
        fault_point!("pull.after_folder");
        let pulled = self.pull_into(&lock, &work, name, &request.source, tell, cancel).await;
        if let Err(error) = self.store.remove_work(work).await {
            tracing::warn!(%error, "left for the next open of the store");
        }
        pulled
    }

    async fn pull_into(
        &self,
        lock: &BuildLock,
        work: &Path,
        name: PulledName,
        source: &ImageSource,
        tell: &(dyn Fn(PullProgress) + Send + Sync),
        cancel: &CancellationToken,
    ) -> OciResult<PulledImage> {
        let limits = self.options.limits();
        let fetching = |bytes, total| tell(PullProgress::Fetching { bytes, total });
        let policy = ImagePolicy(&self.options);
        let terms = FetchTerms { policy, limits, work, cancel, tell: &fetching };
        let FetchedImage { digest, defaults, layers } = source::fetch(source, &terms).await?;
        fault_point!("pull.after_fetch");
        let tree = work.join("tree");
        tell(PullProgress::Unpacking { bytes: 0 });
        let unpacked =
            self.unpacked(layers, &tree, defaults.working_dir.clone(), tell, cancel).await?;
        fault_point!("pull.after_unpack");
        tell(PullProgress::Storing);
        let adoption = TreeAdoption {
            name,
            reference: source.to_string(),
            digest: digest.map(|digest| digest.to_string()),
            defaults,
            devices_left_out: unpacked.devices_left_out,
            xattrs_left_out: unpacked.xattrs_left_out,
            work: work.to_owned(),
            tree,
            owners: unpacked.owners,
        };
        Ok(self.store.adopt(lock, adoption, cancel).await?)
    }

    /// Unpacks on a thread that may block, and reports the progress from here.
    async fn unpacked(
        &self,
        layers: Vec<LayerFile>,
        tree: &Path,
        working_dir: Option<String>,
        tell: &(dyn Fn(PullProgress) + Send + Sync),
        cancel: &CancellationToken,
    ) -> OciResult<UnpackedTree> {
        let limits = self.options.limits();
        let (told, mut done) = tokio::sync::watch::channel(0);
        // Dropping this future cancels the work on the thread.
        let cancel = cancel.child_token();
        let _ended = cancel.clone().drop_guard();
        let tree = tree.to_owned();
        let mut work = tokio::task::spawn_blocking(move || {
            std::fs::create_dir(&tree).map_err(Error::io("make the tree"))?;
            unpack(layers, &tree, working_dir.as_deref(), limits, &cancel, &|bytes| {
                let _nobody_asks = told.send(bytes);
            })
        });
        loop {
            tokio::select! {
                unpacked = &mut work => return unpacked.map_err(|_| Error::Cancelled)?,
                Ok(()) = done.changed() => {
                    let bytes = *done.borrow_and_update();
                    tell(PullProgress::Unpacking { bytes });
                }
            }
        }
    }

    async fn locked(
        &self,
        tell: &(dyn Fn(PullProgress) + Send + Sync),
        cancel: &CancellationToken,
    ) -> OciResult<BuildLock> {
        let mut told = false;
        loop {
            match self.store.lock().await {
                Err(hivekeep_image::Error::Busy { .. }) => {}
                taken => return Ok(taken?),
            }
            if !told {
                tell(PullProgress::Waiting);
                told = true;
            }
            tokio::select! {
                () = cancel.cancelled() => return Err(Error::Cancelled),
                () = tokio::time::sleep(LOCK_EVERY) => {}
            }
        }
    }

    fn check_room(&self) -> OciResult<()> {
        let stat = statvfs(self.store.root()).map_err(Error::io("look at the image directory"))?;
        let free_mb = stat.f_bavail.saturating_mul(stat.f_frsize) >> 20;
        if free_mb >= self.options.min_free_mb {
            return Ok(());
        }
        let floor = self.options.min_free_mb;
        let doing = format!(
            "the image directory has {free_mb} MiB free, less than workspace.images.min_free_mb = {floor}"
        );
        Err(Error::io(doing)(std::io::Error::from(std::io::ErrorKind::StorageFull)))
    }
}

/// Name of the image of a request.
fn name_for(request: &PullRequest) -> OciResult<PulledName> {
    let no = |text: &str, reason: &str| Error::Reference {
        text: text.to_owned(),
        reason: reason.to_owned(),
    };
    let text = match (&request.name, &request.source) {
        (Some(name), _) => name.clone(),
        (None, ImageSource::Registry(reference)) => reference.to_string(),
        (None, source) => {
            return Err(no(&source.to_string(), "an image that is not a registry's needs --name"));
        }
    };
    match ImageName::named(&text)? {
        ImageName::Pulled(name) if request.name.is_none() || name.is_given() => Ok(name),
        ImageName::Pulled(_) => {
            let reason =
                "a name has letters, digits, `.`, `_`, `-`, and `/` behind what is not a registry";
            Err(no(&text, reason))
        }
        _ => Err(no(&text, "it is the name of an image that is built here")),
    }
}
