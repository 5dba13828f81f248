//! Service of the file tools: each call is an operation in a place.

mod agent;
mod entries;
mod file;
mod fs;
mod search;
mod text;
mod watch;

use std::sync::Arc;

use hivekeep_file_engine::Operation;
use hivekeep_kernel::{CallCx, Service, ServiceActor, ToolError, ToolGroup};
use hivekeep_runtime::Ports;

use crate::{place::PlacedPath, place_table::PlaceTable};

/// Groups of tools, in listing order.
pub(crate) const FAMILIES: &[&ToolGroup<ServiceActor<Files>>] = &[
    &text::TEXT,
    &fs::FAMILY,
    &search::FAMILY,
    &entries::FAMILY,
    &watch::FAMILY,
    &file::FILE,
    &file::DIR,
    &text::LANG,
    &agent::FAMILY,
];

type Answer<T> = Result<T, ToolError>;

/// Files of all places.
pub(crate) struct Files {
    pub(crate) places: Arc<PlaceTable>,
    /// Folder of a place below which YAML files are manifests.
    pub(crate) dag_folder: String,
    pub(crate) ports: Ports,
}

impl Service for Files {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] = FAMILIES;
}

impl Files {
    pub(crate) fn new(places: Arc<PlaceTable>, dag_folder: String, ports: Ports) -> Self {
        Self { places, dag_folder, ports }
    }

    /// Runs an operation in a place, for its outcome and where it was.
    pub(crate) async fn run<O: Operation>(
        &self,
        cx: &CallCx,
        place: Option<&str>,
        operation: O,
    ) -> Answer<(O::Outcome, PlacedPath)> {
        self.places.find(cx, place).await?.ask(cx, operation).await
    }
}
