//! Durable timer of images: each time it looks, it goes by the times of use that the store keeps.

use std::sync::Arc;

use hivekeep_image::{Error, ImageStore, PruneTerms, RemovedImages};
use hivekeep_oci::{ImageOptions, ImagePuller};
use hivekeep_ports::ImagePresence;
use serde_json::json;

use crate::shared::Shared;

/// Removes images that nothing has used for long, or whose room is needed.
pub(crate) async fn look(shared: Arc<Shared>) {
    match prune(&shared.images, &shared.options.images).await {
        Ok(removed) if removed == RemovedImages::default() => {}
        Ok(RemovedImages { images, objects, bytes }) => {
            let images: Vec<_> = images.iter().map(ToString::to_string).collect();
            tracing::info!(?images, objects, bytes, "unused images are removed");
            let data = json!({ "images": images, "objects": objects, "bytes": bytes });
            shared.publish("images.pruned", "images", data);
        }
        // A build or pull runs, or it is not known yet who uses what: the next look will do.
        Err(Error::Busy { .. } | Error::UsesUnknown) => {}
        Err(error) => tracing::error!(%error, "unused images stay"),
    }
}

async fn prune(store: &ImageStore, options: &ImageOptions) -> Result<RemovedImages, Error> {
    let lock = store.lock().await?;
    let terms = options.prune_terms();
    let terms = PruneTerms { age: terms.age.max(PruneTerms::SETTLING), ..terms };
    store.prune(&lock, terms).await
}

/// Tells other families which images are here.
pub(crate) struct ImagesHere(pub(crate) ImageStore);

impl ImagePresence for ImagesHere {
    fn is_present(&self, reference: &str) -> Option<bool> {
        self.0.is_present(&ImagePuller::name_of(reference).ok()?)
    }
}
