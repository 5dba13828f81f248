//! Name of a registry with its versions, as an event-sourced state in the stream `KIND/ID`; and the values
//! that it is made of: scopes, and versions that are compared as numbers.

use std::{collections::BTreeMap, fmt, marker::PhantomData, str::FromStr, sync::Arc};

use chrono::{DateTime, Utc};
use hivekeep_kernel::User;
use hivekeep_runtime::log::Sourced;
use serde::{Deserialize, Serialize};

use crate::{ManifestLabels, RegisteredManifest};

/// Size that a version counts for at least, so that many small ones are bounded too.
const LEAST_BYTES: usize = 4 * 1024;
/// Size of all versions of one name, so that its state as JSON is within the journal's limit of a snapshot.
pub(crate) const MAX_NAME_BYTES: usize = 2 * 1024 * 1024;
/// Size of the words that a version is found by.
const MAX_WORDS_BYTES: usize = 4 * 1024;
/// Records after which a stream is folded at the earliest.
const FOLD_RECORDS: usize = 16;

/// Version of a manifest: three numbers, of which the first counts most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ManifestVersion([u32; 3]);

impl fmt::Display for ManifestVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl FromStr for ManifestVersion {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| part.parse().ok().filter(|_| !part.starts_with('+'));
        let parts = text.split('.').map(number).collect::<Option<Vec<u32>>>();
        let parts = parts.and_then(|parts| parts.try_into().ok());
        parts.map(Self).ok_or_else(|| format!("`{text:.40}` is not a version as `1.2.3`"))
    }
}

impl From<ManifestVersion> for String {
    fn from(version: ManifestVersion) -> Self {
        version.to_string()
    }
}

impl TryFrom<String> for ManifestVersion {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// Scope of a name, the nearest to a caller first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManifestScope {
    /// A user's own.
    User(User),
    /// Everybody's of this daemon, kept by its operators.
    Tenant,
    /// Everybody's, shipped with the daemon.
    Global,
}

impl ManifestScope {
    /// Height: the scope of fewer callers is the lower one.
    pub(crate) fn height(self) -> u8 {
        match self {
            Self::User(_) => 0,
            Self::Tenant => 1,
            Self::Global => 2,
        }
    }

    /// User of a user's scope.
    pub fn owner(self) -> Option<User> {
        match self {
            Self::User(user) => Some(user),
            Self::Tenant | Self::Global => None,
        }
    }

    /// Name: `user`, `tenant` or `global`.
    pub fn name(self) -> &'static str {
        match self {
            Self::User(_) => "user",
            Self::Tenant => "tenant",
            Self::Global => "global",
        }
    }
}

/// Version of a manifest. Never changes; shared by the states that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptManifest {
    /// Number that the text gives itself.
    pub version: ManifestVersion,
    /// Text as it came.
    pub text: String,
    /// Purpose, for people.
    pub description: Option<String>,
    /// Labels to filter by.
    pub labels: ManifestLabels,
    /// Words to find it by.
    pub(crate) words: String,
    /// Facts for lists, by name.
    #[serde(default, skip_serializing_if = "ManifestLabels::is_empty")]
    pub facts: ManifestLabels,
    /// Time at which it was deployed.
    pub(crate) at: DateTime<Utc>,
    /// User who deployed it; `None` for one that was shipped, or deployed before this was kept.
    #[serde(default)]
    pub by: Option<User>,
}

impl KeptManifest {
    pub(crate) fn of<M: RegisteredManifest>(manifest: &M, text: String) -> Result<Self, String> {
        let mut words = manifest.words();
        words.truncate(words.floor_char_boundary(MAX_WORDS_BYTES));
        Ok(Self {
            version: manifest.version().parse()?,
            text,
            description: manifest.description().map(str::to_owned),
            labels: manifest.labels(),
            words,
            facts: manifest.facts(),
            at: Utc::now(),
            by: None,
        })
    }

    /// Size in bytes that counts against the limits.
    pub(crate) fn bytes(&self) -> usize {
        let facts: usize = self.facts.iter().map(|(name, fact)| name.len() + fact.len()).sum();
        (self.text.len() + self.words.len() + facts).max(LEAST_BYTES)
    }
}

/// Name with all its versions.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct ManifestEntry<M> {
    /// Scope of the name.
    pub scope: ManifestScope,
    /// Name that the texts give themselves.
    pub name: String,
    /// Versions; at least one.
    pub versions: BTreeMap<ManifestVersion, Arc<KeptManifest>>,
    #[serde(skip)]
    kind: PhantomData<fn() -> M>,
}

impl<M> ManifestEntry<M> {
    pub(crate) fn shipped(name: &str, kept: KeptManifest) -> Self {
        let versions = BTreeMap::from([(kept.version, Arc::new(kept))]);
        Self { scope: ManifestScope::Global, name: name.to_owned(), versions, kind: PhantomData }
    }

    /// Version with the highest number.
    pub fn latest(&self) -> &Arc<KeptManifest> {
        self.versions.values().next_back().expect("a name begins with a version")
    }

    pub(crate) fn bytes(&self) -> usize {
        self.versions.values().map(|version| version.bytes()).sum()
    }
}

/// Record of a name's stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The first version of a name.
    Created { scope: ManifestScope, name: String, manifest: Arc<KeptManifest> },
    /// A version that is new, or replaces itself.
    Deployed { manifest: Arc<KeptManifest> },
    /// The name is another scope's, with all its versions.
    Moved { scope: ManifestScope },
}

impl<M: RegisteredManifest> Sourced for ManifestEntry<M> {
    const KIND: &'static str = M::KIND;
    const PIECE_BYTES: Option<usize> = Some(512 * 1024);
    type Record = Record;

    fn begin(record: Record) -> Result<Self, Record> {
        match record {
            Record::Created { scope, name, manifest } => {
                let versions = BTreeMap::from([(manifest.version, manifest)]);
                Ok(Self { scope, name, versions, kind: PhantomData })
            }
            other => Err(other),
        }
    }

    fn apply(&mut self, record: Record) -> Result<(), Record> {
        match record {
            Record::Deployed { manifest } => {
                self.versions.insert(manifest.version, manifest);
                Ok(())
            }
            Record::Moved { scope } => {
                self.scope = scope;
                Ok(())
            }
            other => Err(other),
        }
    }

    /// Only what was replaced is worth a fold: records then outnumber the versions.
    fn fold_due(&self, unfolded: usize) -> bool {
        unfolded >= FOLD_RECORDS.max(2 * self.versions.len())
    }

    fn fold(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self).ok()
    }

    fn unfold(snapshot: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(snapshot).map_err(|error| error.to_string())
    }
}
