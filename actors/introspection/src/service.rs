//! Service of introspection: what all of its tools stand on.

use std::sync::Arc;

use hivekeep_kernel::{CallCx, Census, Door, Service, ServiceActor, ToolError, ToolGroup};
use hivekeep_ports::{ImagePresence, Network, Tools};
use hivekeep_runtime::{Daemon, Ports, introspection::Introspection};
use hivekeep_store::Journal;

use crate::{
    Options,
    options::LanguageRuntime,
    schemas::Schemas,
    tools::{
        self, Presence, ReadSchema, RuntimeList, RuntimeListed, RuntimeRow, SchemaDocument,
        SchemaGet, SchemaNode, SchemaValidate, SchemaValidated,
    },
};

type Answer<T> = Result<T, ToolError>;

/// Knowledge of the daemon and its host.
pub(crate) struct IntrospectionService {
    pub(crate) daemon: Arc<dyn Introspection>,
    pub(crate) census: Census,
    pub(crate) journal: Journal,
    pub(crate) tools: Arc<dyn Tools>,
    /// Families that are mounted later offer ports too, so each is looked for when it is needed.
    ports: Ports,
    runtimes: Vec<LanguageRuntime>,
    schemas: Schemas,
}

impl Service for IntrospectionService {
    const TOOLS: &'static [&'static ToolGroup<ServiceActor<Self>>] =
        &[&tools::SCHEMA, &tools::RUNTIME, &tools::SYSTEM, &tools::events::EVENTS];
}

impl IntrospectionService {
    pub(crate) fn new(daemon: &Daemon, options: Options) -> Answer<Self> {
        let introspection = daemon.ports.need::<dyn Introspection>()?;
        let mut runtimes = options.images;
        runtimes.sort_by_cached_key(|one| (one.language.clone(), version_key(&one.version)));
        Ok(Self {
            schemas: Schemas::new(introspection.clone()),
            daemon: introspection,
            census: daemon.census.clone(),
            journal: daemon.journal.clone(),
            tools: daemon.tools.clone(),
            ports: daemon.ports.clone(),
            runtimes,
        })
    }

    /// Network of the workspaces, if a family offers it.
    pub(crate) fn network(&self) -> Option<Arc<dyn Network>> {
        self.ports.find()
    }

    pub(crate) async fn schema_get(
        self: Arc<Self>,
        _: CallCx,
        input: SchemaGet,
    ) -> Answer<SchemaDocument> {
        let schema = self.schemas.find(&input.key)?;
        Ok(SchemaDocument(schema.as_object().cloned().unwrap_or_default()))
    }

    pub(crate) async fn read_schema(
        self: Arc<Self>,
        _: CallCx,
        input: ReadSchema,
    ) -> Answer<SchemaNode> {
        self.schemas.read(input.schema, input.path.unwrap_or_default())
    }

    pub(crate) async fn schema_validate(
        self: Arc<Self>,
        _: CallCx,
        input: SchemaValidate,
    ) -> Answer<SchemaValidated> {
        let kind = self.schemas.manifest_kind(&input.kind)?;
        let check = move || hivekeep_manifest::check(kind, &input.manifest_yaml);
        let problems = tokio::task::spawn_blocking(check).await;
        let problems = problems.map_err(|error| ToolError::internal(error.to_string()))?;
        let errors: Vec<_> = problems.iter().map(ToString::to_string).collect();
        let valid = errors.is_empty();
        Ok(SchemaValidated { valid, errors: (!valid).then_some(errors), problems })
    }

    pub(crate) async fn runtime_list(
        self: Arc<Self>,
        _: CallCx,
        input: RuntimeList,
    ) -> Answer<RuntimeListed> {
        let images = self.ports.find::<dyn ImagePresence>();
        let present =
            |image: &str| match images.as_ref().and_then(|images| images.is_present(image)) {
                Some(true) => Presence::Yes,
                Some(false) => Presence::No,
                None => Presence::Unknown,
            };
        let wanted = |one: &&LanguageRuntime| {
            input.language.as_ref().is_none_or(|language| one.language == *language)
        };
        let row = |one: &LanguageRuntime| RuntimeRow {
            language: one.language.clone(),
            version: one.version.clone(),
            image: one.image.clone(),
            description: one.description.clone(),
            deprecated: one.deprecated,
            present: present(&one.image),
        };
        let mut languages: Vec<_> = self.runtimes.iter().map(|one| one.language.clone()).collect();
        languages.dedup();
        Ok(RuntimeListed {
            tool: tools::RUNTIME.rows[0].0.spec.name,
            runtimes: self.runtimes.iter().filter(wanted).map(row).collect(),
            languages,
            custom_runtime_supported: true,
        })
    }
}

/// Order of versions: numbers by their value, so that 3.9 comes before 3.10.
fn version_key(version: &str) -> Vec<(u64, String)> {
    let part = |part: &str| (part.parse().unwrap_or(u64::MAX), part.to_owned());
    version.split('.').map(part).collect()
}

/// True for a call over the daemon's own command line, which is the operator's.
pub(crate) fn is_operator(cx: &CallCx) -> bool {
    cx.door == Door::Cli
}
