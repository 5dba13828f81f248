//! Registry of one kind of manifests: a log for each name, and judgments on what is decided: which name is
//! meant, which version is new, what there is room for.

mod scopes;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

use hivekeep_kernel::{CallCx, Layer, Tier, ToolError, User, lock};
use hivekeep_ports::{ManifestProblem, SessionQuotas};
use hivekeep_runtime::{
    Daemon,
    log::{self, Decision, Log},
};
use hivekeep_store::{Journal, NewEvent};
use serde_json::json;

use crate::{
    ManifestScope, ManifestVersion, RegisteredManifest, codes,
    entry::{KeptManifest, MAX_NAME_BYTES, ManifestEntry, Record},
    search::{ManifestQuery, ranked},
};

pub use scopes::ScopeMove;

type Answer<T> = Result<T, ToolError>;
type Logs<M> = BTreeMap<<M as RegisteredManifest>::Id, Log<ManifestEntry<M>>>;
/// Name with its id.
type Named<M> = (<M as RegisteredManifest>::Id, ManifestEntry<M>);

/// Bounds of a scope.
#[derive(Debug, Clone, Copy)]
pub struct RegistryLimits {
    /// Names; a user's tier may allow fewer.
    pub names: usize,
    /// Bytes of all versions.
    pub bytes: usize,
}

/// Caller of a registry.
#[derive(Debug, Clone, Copy)]
pub struct RegistryCaller {
    /// User of its session.
    pub user: User,
    /// True if its credential is an operator's.
    pub operator: bool,
}

impl RegistryCaller {
    /// Caller of a call, by its credential.
    ///
    /// # Errors
    /// `session_ended` for a session that is over.
    pub fn of(cx: &CallCx, sessions: &dyn SessionQuotas) -> Answer<Self> {
        let user = sessions.caller(cx.session)?;
        Ok(Self { user, operator: cx.view.reaches(Tier::Operator) })
    }

    /// Scope that it writes to.
    pub fn scope(&self) -> ManifestScope {
        if self.operator { ManifestScope::Tenant } else { ManifestScope::User(self.user) }
    }

    /// Whether it may know of a scope's names. Operators know of all.
    fn sees(&self, scope: ManifestScope) -> bool {
        self.operator || scope.owner().is_none_or(|user| user == self.user)
    }
}

/// Manifest to deploy.
#[derive(Debug)]
pub struct DeployRequest<M> {
    /// Manifest, as its checker read it.
    pub manifest: M,
    /// Text that it was read from.
    pub text: String,
    /// True if the name has to be there already.
    pub update: bool,
    /// True if a version that is there is replaced.
    pub force: bool,
}

/// Manifests of one kind.
pub struct ManifestRegistry<M: RegisteredManifest> {
    journal: Journal,
    sessions: Arc<dyn SessionQuotas>,
    limits: RegistryLimits,
    /// Names shipped with the daemon.
    shipped: Vec<Named<M>>,
    /// Locked while something is decided, so that names and sizes are judged on what was decided before;
    /// never across an await.
    logs: Arc<Mutex<Logs<M>>>,
}

impl<M: RegisteredManifest> ManifestRegistry<M> {
    /// Opens the registry with all that was deployed.
    ///
    /// # Errors
    /// When its streams cannot be read.
    pub async fn open(daemon: &Daemon, limits: RegistryLimits) -> Answer<Self> {
        let (journal, sessions) = (daemon.journal.clone(), daemon.sessions.clone());
        let mut logs = Logs::<M>::new();
        for (stream, loaded) in log::read_all::<ManifestEntry<M>>(&journal).await?.loaded {
            let id = stream.id().parse().map_err(|_| {
                let message = format!("the stream {stream} has no id");
                ToolError::new(Layer::Actor, codes::STATE_UNREADABLE, message)
            })?;
            logs.insert(id, Log::of(journal.clone(), stream, Some(loaded)));
        }
        let (shipped, logs) = (Vec::new(), Arc::new(Mutex::new(logs)));
        Ok(Self { journal, sessions, limits, shipped, logs })
    }

    /// Adds a manifest that is shipped with the daemon, by an id that never changes. Everybody sees it where no nearer
    /// scope has its name, and nobody replaces or deletes it.
    ///
    /// # Errors
    /// `internal` for a version that is not one.
    pub fn ship(&mut self, id: M::Id, manifest: &M, text: &str) -> Answer<()> {
        let kept = KeptManifest::of(manifest, text.to_owned()).map_err(ToolError::internal)?;
        self.shipped.push((id, ManifestEntry::shipped(manifest.name(), kept)));
        Ok(())
    }

    fn logs(&self) -> MutexGuard<'_, Logs<M>> {
        lock(&self.logs)
    }

    /// Deploys a version in the caller's scope. Answered when it is on the disk.
    ///
    /// # Errors
    /// `version_exists`, the kind's code for an update of nothing, `manifest_registry_full`.
    pub async fn deploy(
        &self,
        caller: RegistryCaller,
        request: DeployRequest<M>,
    ) -> Answer<(M::Id, ManifestVersion)> {
        let DeployRequest { manifest, text, update, force } = request;
        let kept = KeptManifest::of(&manifest, text).map_err(ToolError::internal)?;
        let kept = KeptManifest { by: Some(caller.user), ..kept };
        let (name, version) = (manifest.name(), kept.version);
        let (id, written) = {
            let mut logs = self.logs();
            let mut found = named(&logs, caller.scope(), name);
            if found.is_none() && update && caller.operator {
                found = named(&logs, ManifestScope::Global, name);
            }
            let scope = found.as_ref().map_or(caller.scope(), |(_, entry)| entry.scope);
            if found.is_none() && update {
                let next = format!("{} shows what there is; create makes a new one", M::LISTED_BY);
                return Err(not_found::<M>(name).next(next));
            }
            let entry = found.as_ref().map(|(_, entry)| entry);
            let before = entry.and_then(|entry| entry.versions.get(&version));
            if before.is_some() && !force {
                return Err(exists::<M>(name, version));
            }
            let freed = before.map_or(0, |before| before.bytes());
            self.check_room(&logs, scope, entry, kept.bytes().saturating_sub(freed))?;
            let (replaces, manifest) = (before.is_some(), Arc::new(kept));
            let id = found.as_ref().map_or_else(M::new_id, |(id, _)| *id);
            let record = match found {
                Some(_) => Record::Deployed { manifest },
                None => Record::Created { scope, name: name.to_owned(), manifest },
            };
            let mut decision = Decision::record(record);
            if replaces {
                let data = json!({ "version": version, "by": caller.user });
                let kind = format!("{}.replaced", M::KIND);
                decision = decision.event(NewEvent { kind, subject: id.to_string(), data });
            }
            let stream = log::stream::<ManifestEntry<M>>(id)
                .map_err(|error| ToolError::internal(error.to_string()))?;
            let known = logs.get(&id).cloned();
            let log = known.unwrap_or_else(|| Log::of(self.journal.clone(), stream, None));
            let written = log.decide(|_| Ok::<_, ToolError>(decision))?;
            logs.insert(id, log);
            (id, written)
        };
        written.await?;
        Ok((id, version))
    }

    fn check_room(
        &self,
        logs: &Logs<M>,
        scope: ManifestScope,
        entry: Option<&ManifestEntry<M>>,
        more: usize,
    ) -> Answer<()> {
        let tier = scope.owner().and_then(|user| self.sessions.allowance(user, M::HELD));
        let tier = tier.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let own = |entry: &&ManifestEntry<M>| entry.scope == scope;
        let bytes =
            |log: &Log<_>| log.views(|decided, _| decided.filter(own).map(ManifestEntry::bytes));
        let own: Vec<_> = logs.values().filter_map(bytes).collect();
        // A limit that was lowered since keeps nobody from what takes no more room.
        let with = |used: usize, more: usize| if more > 0 { used + more } else { 0 };
        let names = with(own.len(), usize::from(entry.is_none()));
        let bounds = [
            ("names", names, tier.min(self.limits.names)),
            ("bytes", with(own.iter().sum(), more), self.limits.bytes),
            (
                "bytes of one name",
                with(entry.map_or(0, ManifestEntry::bytes), more),
                MAX_NAME_BYTES,
            ),
        ];
        let over = bounds.into_iter().find(|(_, would, most)| would > most);
        over.map_or(Ok(()), |(what, would, most)| {
            let told = format!("there would be {would} {what} of {}s, {most} are allowed", M::KIND);
            Err(ToolError::new(Layer::Quota, codes::MANIFEST_REGISTRY_FULL, told)
                .next("have the operator delete one, or raise the limit"))
        })
    }

    /// All names that a caller sees, the nearest scope of a name first.
    pub fn list(&self, caller: RegistryCaller) -> Vec<(M::Id, ManifestEntry<M>)> {
        let sees = |entry: &&ManifestEntry<M>| caller.sees(entry.scope);
        let logs = self.logs();
        let durable = |(id, log): (&M::Id, &Log<ManifestEntry<M>>)| {
            Some((*id, log.view(|entry| entry.filter(sees).cloned())?))
        };
        let mut seen: Vec<Named<M>> = logs.iter().filter_map(durable).collect();
        drop(logs);
        seen.extend(self.shipped.iter().cloned());
        seen.sort_by(|(a, one), (b, other)| {
            (&one.name, one.scope, a).cmp(&(&other.name, other.scope, b))
        });
        seen
    }

    /// A version of a name, the latest unless one is asked for. A name is looked for in the
    /// caller's scope, then in the tenant's and the global one.
    ///
    /// # Errors
    /// The kind's code, or `manifest_version_not_found`.
    pub fn find(
        &self,
        caller: RegistryCaller,
        id_or_name: &str,
        version: Option<&str>,
    ) -> Answer<(M::Id, ManifestEntry<M>, Arc<KeptManifest>)> {
        let id = id_or_name.parse::<M::Id>().ok();
        let mut seen = self.list(caller);
        let by_name = |(_, entry): &Named<M>| {
            entry.name == id_or_name && entry.scope.owner().is_none_or(|user| user == caller.user)
        };
        let at = seen.iter().position(|(found, _)| Some(*found) == id);
        let at = at.or_else(|| seen.iter().position(by_name));
        let (id, entry) = seen.swap_remove(at.ok_or_else(|| not_found::<M>(id_or_name))?);
        let Some(asked) = version else {
            let latest = entry.latest().clone();
            return Ok((id, entry, latest));
        };
        let kept = asked.parse().ok().and_then(|version| entry.versions.get(&version).cloned());
        let kept = kept.ok_or_else(|| {
            let versions: Vec<_> = entry.versions.keys().map(ToString::to_string).collect();
            let code = codes::MANIFEST_VERSION_NOT_FOUND;
            ToolError::not_found(Layer::Resolve, code, "version", asked)
                .next("use one of `details.versions`, or leave the version out for the latest")
                .detail("versions", versions)
        })?;
        Ok((id, entry, kept))
    }

    /// Deletes a name with all its versions. Answered when it is gone from the disk.
    ///
    /// # Errors
    /// The kind's code for an id that is not there, or not the caller's to delete.
    pub async fn delete(&self, caller: RegistryCaller, asked: &str) -> Answer<M::Id> {
        let id = asked.parse::<M::Id>().map_err(|_| not_found::<M>(asked))?;
        let may = |entry: &ManifestEntry<M>| caller.operator || entry.scope == caller.scope();
        let log =
            self.logs().get(&id).filter(|log| log.view(|entry| entry.is_some_and(may))).cloned();
        let log = log.ok_or_else(|| not_found::<M>(asked))?;
        let logs = self.logs.clone();
        // To its end, whether or not anybody waits.
        let gone = tokio::spawn(async move {
            log.forget().await?;
            lock(&logs).remove(&id);
            Ok::<_, ToolError>(())
        });
        gone.await.map_err(|panic| ToolError::internal(panic.to_string()))??;
        Ok(id)
    }

    /// Names that a query finds among all that a caller sees, each with a score from 0 to 1, the best first.
    /// No score depends on what the caller does not see.
    ///
    /// # Errors
    /// `internal`, when the search panics.
    pub async fn search(
        &self,
        caller: RegistryCaller,
        query: ManifestQuery,
    ) -> Answer<Vec<(f64, M::Id, ManifestEntry<M>)>> {
        let seen = self.list(caller);
        let found = tokio::task::spawn_blocking(move || ranked(seen, &query)).await;
        found.map_err(|panic| ToolError::internal(panic.to_string()))
    }
}

/// Decided state of a name in a scope.
fn named<M: RegisteredManifest>(
    logs: &Logs<M>,
    scope: ManifestScope,
    name: &str,
) -> Option<Named<M>> {
    let is = |entry: &&ManifestEntry<M>| entry.scope == scope && entry.name == name;
    logs.iter()
        .find_map(|(id, log)| Some((*id, log.views(|decided, _| decided.filter(is).cloned())?)))
}

fn not_found<M: RegisteredManifest>(asked: &str) -> ToolError {
    let next = format!("{} shows yours", M::LISTED_BY);
    ToolError::not_found(Layer::Resolve, M::NOT_FOUND, M::KIND, asked).next(next)
}

/// Refusal of a manifest: its first problem, and all of them as `aegis.schema.validate` has them.
pub fn manifest_invalid(problems: &[ManifestProblem]) -> ToolError {
    let first = problems.first().map(ToString::to_string).unwrap_or_default();
    let message = match problems.len() {
        0 | 1 => first,
        more => format!("{first}; and {} more", more - 1),
    };
    ToolError::new(Layer::Actor, codes::MANIFEST_INVALID, message)
        .next(
            "mend what `details.problems` names; `aegis.schema.validate` checks without deploying",
        )
        .detail("problems", json!(problems))
}

fn exists<M: RegisteredManifest>(name: &str, version: ManifestVersion) -> ToolError {
    let message = format!("the {} `{name}` has the version {version} already", M::KIND);
    ToolError::new(Layer::Actor, codes::VERSION_EXISTS, message)
        .next("increment `metadata.version`, or replace this version with `force`")
        .detail("version", version.to_string())
}
