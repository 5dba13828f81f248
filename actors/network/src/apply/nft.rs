//! nft, spoken to in JSON: one transaction is one process.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

use crate::Error;
use crate::plan::Tag;
use crate::rules::{ExistingTable, GUARDED, Ruleset};

/// Time limit of nft, which usually takes milliseconds.
const DEADLINE: Duration = Duration::from_secs(15);
/// Bound of nft's answers, in bytes.
const ANSWER_BYTES: u64 = 16 << 20;
const STDERR_BYTES: usize = 4 << 10;

/// The nft program.
#[derive(Debug, Clone)]
pub struct Nft {
    path: PathBuf,
}

/// Addresses that a name of a member's allow-list resolved to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedAddresses {
    /// From [`crate::rules::name_set`].
    pub set: String,
    /// The addresses.
    pub addresses: Vec<std::net::Ipv4Addr>,
    /// Lifetime of the opening, at least 1 second.
    pub secs: u32,
}

/// A chain outside of our tables that our packets pass, and that drops what it does not accept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForeignChain {
    /// Such as `ip filter FORWARD`.
    pub chain: String,
    /// `input`: guests may not reach the resolver. `forward`: guests may not reach the internet,
    /// nor others the guests.
    pub hook: String,
}

/// Listing of the kernel's tables, in a form that can be compared: rules by their chain, and sets with
/// the elements that are planned; without handles, which differ each time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Listing(BTreeMap<String, Vec<Value>>);

impl Listing {
    /// From nft's objects. Elements of `kept` sets are others' to change.
    fn of(items: Vec<Map<String, Value>>, kept: &BTreeSet<String>) -> Self {
        let mut found = Self::default();
        for (kind, mut item) in items.into_iter().flatten() {
            let text = |key: &str| item[key].as_str().unwrap_or_default().to_owned();
            let family = text("family");
            let place = match kind.as_str() {
                "chain" => format!("{family} chain {}", text("name")),
                "rule" => format!("{family} chain {}", text("chain")),
                "set" => format!("{family} set {}", text("name")),
                _ => continue,
            };
            let name = text("name");
            if let Some(fields) = item.as_object_mut() {
                fields.remove("handle");
                let elements = fields.get_mut("elem").and_then(Value::as_array_mut);
                match (kind == "set", elements) {
                    (true, Some(_)) if kept.contains(&name) => _ = fields.remove("elem"),
                    (true, Some(elements)) => elements.sort_by_cached_key(Value::to_string),
                    _ => {}
                }
            }
            found.0.entry(place).or_default().push(item);
        }
        found
    }

    /// The chains and sets that differ.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let names: BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        names.into_iter().filter(|name| self.0.get(*name) != other.0.get(*name)).cloned().collect()
    }
}

/// Our tables as nft lists them, and the chains in our way.
#[derive(Debug, Default)]
pub(crate) struct ListedTables {
    inet: ExistingTable,
    bridge: ExistingTable,
    pub(crate) obstacles: Vec<ForeignChain>,
}

impl ListedTables {
    /// True when a table of the network has any content.
    pub(crate) fn is_ours(&self) -> bool {
        let empty = ExistingTable::default();
        self.inet != empty || self.bridge != empty
    }
}

impl Nft {
    /// Finds the program in the path, or where only root's path leads.
    ///
    /// # Errors
    /// [`Error::NftMissing`].
    pub fn find(path: &Path) -> Result<Self, Error> {
        let missing = || Error::NftMissing { path: path.to_owned() };
        if path.components().count() > 1 {
            return path.is_file().then(|| Self { path: path.to_owned() }).ok_or_else(missing);
        }
        let searched = std::env::var_os("PATH").unwrap_or_default();
        let administration = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
        let mut folders = std::env::split_paths(&searched).chain(administration);
        let found = folders.find_map(|folder| Some(folder.join(path)).filter(|p| p.is_file()));
        found.map(|path| Self { path }).ok_or_else(missing)
    }

    /// Such as "nftables v1.0.6".
    ///
    /// # Errors
    /// When nft does not run.
    pub async fn version(&self) -> Result<String, Error> {
        let said = self.run(&["--version"], Vec::new()).await?;
        Ok(String::from_utf8_lossy(&said).trim().to_owned())
    }

    /// Runs commands as one transaction: all of it holds, or nothing.
    pub(crate) async fn transact(&self, commands: &[impl Serialize]) -> Result<(), Error> {
        let input = serde_json::to_vec(&json!({ "nftables": commands }))
            .map_err(|error| Error::NftBroken(error.to_string()))?;
        self.run(&["-j", "-f", "-"], input).await.map(drop)
    }

    /// Brings both tables to the rules. True if they had to be made anew.
    ///
    /// The bridge's table is the older one: `nft flush ruleset` takes the hooks of one table after
    /// the other from the packets' way, in the order in which they were made, and what the bridge
    /// has marked passes the second wall.
    pub(crate) async fn apply(&self, rules: &Ruleset, found: &ListedTables) -> Result<bool, Error> {
        let none = ExistingTable::default();
        if found.bridge == none && found.inet != none {
            return self.rebuild(rules).await;
        }
        let mut update = rules.bridge.update(&found.bridge);
        update.extend(rules.inet.update(&found.inet));
        match self.transact(&update).await {
            Err(Error::NftRefused { stderr }) => {
                tracing::warn!(stderr, "the tables do not take the change; making them anew");
                self.rebuild(rules).await
            }
            other => other.map(|()| false),
        }
    }

    async fn rebuild(&self, rules: &Ruleset) -> Result<bool, Error> {
        let mut rebuild = rules.bridge.rebuild();
        rebuild.extend(rules.inet.rebuild());
        self.transact(&rebuild).await.map(|()| true)
    }

    /// Lists chains and sets, without rules and elements.
    pub(crate) async fn look(&self, tag: &Tag) -> Result<ListedTables, Error> {
        let mut found = ListedTables::default();
        let table = tag.table();
        for item in self.list(&["-t", "list chains; list sets"]).await? {
            let (Some(kind), Some(item)) = (item.keys().next(), item.values().next()) else {
                continue;
            };
            let text = |key: &str| item[key].as_str().unwrap_or_default();
            let ours = (text("table") == table).then_some(text("family"));
            let name = text("name").to_owned();
            match (ours, kind.as_str()) {
                (Some("inet"), "chain") => _ = found.inet.chains.insert(name),
                (Some("bridge"), "chain") => _ = found.bridge.chains.insert(name),
                (Some("inet"), "set") => _ = found.inet.sets.insert(name),
                (Some("bridge"), "set") => _ = found.bridge.sets.insert(name),
                (None, "chain") => found.obstacles.extend(obstacle(item)),
                _ => {}
            }
        }
        Ok(found)
    }

    /// The uplinks that forward because of us; none if there is no table.
    pub(crate) async fn guarded_if_any(&self, tag: &Tag) -> Result<Vec<String>, Error> {
        match self.look(tag).await?.inet.sets.contains(GUARDED) {
            true => self.guarded(tag).await,
            false => Ok(Vec::new()),
        }
    }

    /// The uplinks that forward because of us. The table must be there.
    pub(crate) async fn guarded(&self, tag: &Tag) -> Result<Vec<String>, Error> {
        let listed = self.list(&["list", "set", "inet", &tag.table(), GUARDED]).await?;
        let elements = listed.iter().filter_map(|item| item.get("set")?.get("elem")?.as_array());
        Ok(elements.flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect())
    }

    pub(crate) async fn guard(&self, tag: &Tag, uplink: &str) -> Result<(), Error> {
        self.transact(&[element(tag, "add", GUARDED, json!([uplink]))]).await
    }

    /// Removes the guard; true when that took a transaction.
    pub(crate) async fn unguard(&self, tag: &Tag, uplinks: &[String]) -> Result<bool, Error> {
        if uplinks.is_empty() {
            return Ok(false);
        }
        self.transact(&[element(tag, "delete", GUARDED, json!(uplinks))]).await.map(|()| true)
    }

    /// Opens addresses for their time. An element that is there keeps its old time on most
    /// kernels, so it is taken out and put in again, within one transaction. Whether there was
    /// anything to open.
    pub(crate) async fn open(
        &self,
        tag: &Tag,
        openings: &[ResolvedAddresses],
    ) -> Result<bool, Error> {
        let commands = openings.iter().filter(|opening| !opening.addresses.is_empty());
        let commands: Vec<Value> = commands
            .flat_map(|opening| {
                let timed = opening.addresses.iter().map(
                    |address| json!({ "elem": { "val": address, "timeout": opening.secs.max(1) } }),
                );
                let timed: Value = timed.collect();
                let plain = json!(opening.addresses);
                [
                    element(tag, "add", &opening.set, timed.clone()),
                    element(tag, "delete", &opening.set, plain),
                    element(tag, "add", &opening.set, timed),
                ]
            })
            .collect();
        match commands.is_empty() {
            true => Ok(false),
            false => self.transact(&commands).await.map(|()| true),
        }
    }

    /// Removes both tables. Success if they are not there.
    pub(crate) async fn remove(&self, tag: &Tag) -> Result<(), Error> {
        let table = |family| json!({ "table": { "family": family, "name": tag.table() } });
        let gone = |family| [json!({ "add": table(family) }), json!({ "delete": table(family) })];
        self.transact(&[gone("bridge"), gone("inet")].concat()).await
    }

    /// Both tables of a plan as the kernel has them; nothing where they are not there.
    pub(super) async fn read_back(&self, rules: &Ruleset) -> Result<Listing, Error> {
        let table = rules.inet.name();
        let kept = rules.inet.kept_sets().chain(rules.bridge.kept_sets());
        let kept = kept.map(str::to_owned).collect();
        let mut items = Vec::new();
        // Tables are listed one by one: asked for both at once, nft 1.0.6 does not find the first.
        for family in ["inet", "bridge"] {
            match self.list(&["list", "table", family, table]).await {
                Ok(listed) => items.extend(listed),
                Err(Error::NftRefused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Listing::of(items, &kept))
    }

    /// The objects of one answer or several.
    async fn list(&self, what: &[&str]) -> Result<Vec<Map<String, Value>>, Error> {
        #[derive(serde::Deserialize)]
        struct Answer {
            nftables: Vec<Map<String, Value>>,
        }
        let said = self.run(&[&["-j"], what].concat(), Vec::new()).await?;
        let answers = serde_json::Deserializer::from_slice(&said).into_iter::<Answer>();
        let answers: Result<Vec<Answer>, _> = answers.collect();
        let answers =
            answers.map_err(|error| Error::NftBroken(format!("answered no JSON: {error}")))?;
        Ok(answers.into_iter().flat_map(|answer| answer.nftables).collect())
    }

    async fn run(&self, arguments: &[&str], input: Vec<u8>) -> Result<Vec<u8>, Error> {
        let work = self.converse(arguments, input);
        let timed = tokio::time::timeout(DEADLINE, work).await;
        timed.unwrap_or(Err(Error::NftTimeout { after: DEADLINE }))
    }

    async fn converse(&self, arguments: &[&str], input: Vec<u8>) -> Result<Vec<u8>, Error> {
        let mut command = Command::new(&self.path);
        command.args(arguments).env_clear().current_dir("/").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let missing = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::NftMissing { path: self.path.clone() },
            _ => Error::io("start nft")(error),
        };
        let mut child = command.spawn().map_err(missing)?;
        let mut stdin = child.stdin.take().expect("piped");
        let stdout = child.stdout.take().expect("piped");
        let stderr = child.stderr.take().expect("piped");
        let (mut answer, mut complaint) = (Vec::new(), Vec::new());
        let (mut stdout, mut stderr) = (stdout.take(ANSWER_BYTES), stderr.take(ANSWER_BYTES));
        let feed = async {
            // A program that does not read to the end says why on stderr.
            let _ = stdin.write_all(&input).await;
            drop(stdin);
            Ok(())
        };
        let talk = tokio::try_join!(
            feed,
            stdout.read_to_end(&mut answer),
            stderr.read_to_end(&mut complaint)
        );
        talk.map_err(Error::io("talk to nft"))?;
        let status = child.wait().await.map_err(Error::io("wait for nft"))?;
        if status.success() {
            return Ok(answer);
        }
        complaint.truncate(STDERR_BYTES);
        let stderr = String::from_utf8_lossy(&complaint).trim().to_owned();
        match status.code() {
            Some(_) if !crate::netns::net_admin() => {
                let action = "change the packet filter".into();
                Err(Error::NotPermitted { action, needs: "CAP_NET_ADMIN" })
            }
            Some(_) => Err(Error::NftRefused { stderr }),
            None => Err(Error::NftBroken(format!("{status}: {stderr}"))),
        }
    }
}

fn element(tag: &Tag, verb: &str, set: &str, elements: Value) -> Value {
    let element = json!({
        "family": "inet", "table": tag.table(), "name": set, "elem": elements
    });
    json!({ verb: { "element": element } })
}

/// A chain that our packets pass too, if it drops by policy.
fn obstacle(chain: &Value) -> Option<ForeignChain> {
    let text = |key: &str| chain[key].as_str();
    let hook = text("hook").filter(|hook| ["input", "forward"].contains(hook))?;
    let family = text("family").filter(|family| ["inet", "ip"].contains(family))?;
    let (table, name) = (text("table")?, text("name")?);
    let drops = text("policy") == Some("drop");
    let chain = format!("{family} {table} {name}");
    drops.then(|| ForeignChain { chain, hook: hook.to_owned() })
}
