//! Folders of DAGs: files of `dags` in the places that the operator watches, looked at every few seconds. A file is its
//! owner's: its runs are begun as the user of this host whose it is.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read as _},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use hivekeep_kernel::{DagId, Layer, RunId, ToolError, User, fault_point, lock};
use hivekeep_manifest::{BASE_FILE, MAX_TEXT_BYTES, dag::DagManifest, read_dag_over};
use hivekeep_ports::{ChildSessions, PlaceFolders};
use hivekeep_runtime::{Daemon, schedule::Schedules};
use rustix::fs::{Dir, FileType, Mode, OFlags, Stat, fstat, open, openat};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::watch;

use crate::{
    DagRuns, RunPlace, RunRequest, RunTrigger, codes,
    dag_file::{DAG_FOLDER, SCRATCH, checked, name_of},
    schedule::ScheduledDag,
};

/// Time between two looks at the files.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(3);
/// Most files of a folder that are looked at.
const MOST_FILES: usize = 1_000;
/// Most entries of a folder that are read.
const MOST_ENTRIES: usize = 10 * MOST_FILES;
/// Session of a user above those of the runs that begin by themselves.
const SESSION: &str = "dags";
/// Flags of everything that is opened: no link is followed, and no pipe is waited for.
const OPENS: OFlags =
    OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// File of a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct PlacedFile {
    pub(crate) place: String,
    /// Path below the place's root.
    pub(crate) file: String,
}

/// File as it was looked at last.
#[derive(Debug, PartialEq)]
pub(crate) struct WatchedDag {
    pub(crate) owner: User,
    pub(crate) name: String,
    /// Schedule of a valid DAG that has one, or the problem of another.
    pub(crate) schedule: Result<Option<ScheduledDag>, String>,
    /// The file's, and that of the defaults beside it.
    stamp: Option<(FileStamp, Option<FileStamp>)>,
}

/// Defaults of the DAGs of a folder.
struct WatchedBase {
    stamp: Option<FileStamp>,
    /// Owner and text.
    read: Result<(User, String), String>,
}

impl WatchedBase {
    /// Defaults of a folder that has some.
    fn of(dags: &impl std::os::fd::AsFd) -> Option<Self> {
        if matches!(openat(dags, BASE_FILE, OPENS, Mode::empty()), Err(rustix::io::Errno::NOENT)) {
            return None;
        }
        Some(match opened(dags, BASE_FILE) {
            Ok((file, stat)) => Self {
                stamp: Some(FileStamp::of(&stat)),
                read: owner_of(&stat).and_then(|owner| Ok((owner, text_of(file)?))),
            },
            Err(why) => Self { stamp: None, read: Err(why) },
        })
    }

    /// Text for a DAG of a user, who has its commands run.
    ///
    /// # Errors
    /// For a file that is neither that user's nor root's.
    fn text_for(base: Option<&Self>, user: User) -> Result<Option<String>, String> {
        let Some(base) = base else { return Ok(None) };
        match &base.read {
            Ok((owner, text)) if *owner == user || *owner == User::Uid(0) => Ok(Some(text.clone())),
            Ok((owner, _)) => Err(format!("{BASE_FILE} belongs to {owner}, and it to {user}")),
            Err(why) => Err(format!("{BASE_FILE}: {why}")),
        }
    }
}

/// Properties of a file that are others when its content or its rights are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    bytes: u64,
    owner: (u32, u32, u32),
    times: [i64; 4],
}

type WatchedFiles = BTreeMap<PlacedFile, Arc<WatchedDag>>;

/// See the module.
pub(crate) struct DagFolders {
    /// Folders by the names of their places.
    folders: BTreeMap<String, PathBuf>,
    files: Mutex<Arc<WatchedFiles>>,
    /// True once the schedules were made those of the files.
    followed: watch::Sender<bool>,
    /// True while that has failed for one of them.
    behind: AtomicBool,
    pub(crate) runs: DagRuns,
    pub(crate) children: Arc<dyn ChildSessions>,
}

impl DagFolders {
    /// Folders of these places.
    ///
    /// # Errors
    /// `place_unknown`, `dag_folder_writable`; `internal` where a family that is needed is not there.
    pub(crate) fn new(
        daemon: &Daemon,
        places: &[String],
        runs: DagRuns,
    ) -> Result<Self, ToolError> {
        let folder = |name: &String| {
            let place = daemon.ports.need::<dyn PlaceFolders>()?.folder(name)?;
            match place.read_only {
                true => Ok((name.clone(), place.folder)),
                // Whatever a session writes there would be begun as the user whom the file belongs to.
                false => Err(ToolError::new(
                    Layer::Actor,
                    codes::FOLDER_WRITABLE,
                    format!("`workflow.folders` names `{name:.80}`, where every session may write"),
                )
                .next(
                    "take `read_only = false` from the place, or open the folder as another one",
                )),
            }
        };
        Ok(Self {
            folders: places.iter().map(folder).collect::<Result<_, ToolError>>()?,
            files: Mutex::default(),
            followed: watch::channel(false).0,
            behind: AtomicBool::new(true),
            runs,
            children: daemon.ports.need::<dyn ChildSessions>()?,
        })
    }

    /// Files as they were looked at last.
    pub(crate) fn files(&self) -> Arc<WatchedFiles> {
        lock(&self.files).clone()
    }

    /// Waits until the schedules are those of the files, which may have changed without a daemon.
    pub(crate) async fn followed(&self) {
        // The sender is this one's.
        let _followed = self.followed.subscribe().wait_for(|followed| *followed).await.map(drop);
    }

    /// Looks at all files, and has the schedules be theirs.
    pub(crate) async fn look(&self, schedules: &Schedules<ScheduledDag>) {
        let (folders, known) = (self.folders.clone(), self.files());
        let looked = tokio::task::spawn_blocking(move || {
            let mut found = WatchedFiles::new();
            for (place, folder) in &folders {
                look_into(place, folder, &known, &mut found);
            }
            (*known != found).then_some(found)
        });
        let Ok(changed) = looked.await else { return };
        if changed.is_none() && !self.behind.load(SeqCst) {
            return;
        }
        fault_point!("dag.folder_scanned");
        if let Some(found) = changed {
            *lock(&self.files) = Arc::new(found);
        }
        self.behind.store(!self.follow(schedules).await, SeqCst);
        self.followed.send_replace(true);
    }

    /// Makes the schedules those of the files; false where one could not be.
    async fn follow(&self, schedules: &Schedules<ScheduledDag>) -> bool {
        let kept = schedules.all().into_iter();
        let mut kept: BTreeMap<_, _> =
            kept.map(|(id, state)| (state.agent.file.clone(), id)).collect();
        let (files, mut all) = (self.files(), true);
        let mut told = |file: &PlacedFile, done: Result<(), ToolError>| {
            if let Err(error) = done {
                tracing::warn!(place = file.place, file = file.file, %error, "its schedule is not followed");
                all = false;
            }
        };
        for (file, dag) in files.iter() {
            let Ok(Some(scheduled)) = &dag.schedule else { continue };
            let id = kept.remove(file).unwrap_or_else(DagId::new);
            told(file, schedules.set(id, scheduled.clone()).await);
        }
        for (file, id) in kept {
            told(&file, schedules.end(id).await);
        }
        all
    }

    /// Text of the defaults of a file, if there are some, and of the file, which has to be its owner's still.
    ///
    /// # Errors
    /// `dag_invalid` for a file that is not there, or cannot be read.
    async fn text(
        &self,
        file: &PlacedFile,
        owner: User,
    ) -> Result<(Option<String>, String), ToolError> {
        let PlacedFile { place, file } = file.clone();
        let invalid = |why: String| {
            let message = format!("`{file}` of `{place}`: {why}");
            ToolError::new(Layer::Actor, codes::DAG_INVALID, message)
                .next("mend the file; its next time is tried")
        };
        let (folder, file) = (self.folders.get(&place).cloned(), file.clone());
        let read = tokio::task::spawn_blocking(move || {
            let folder = folder.ok_or("the place is not watched any more")?;
            let dags = open(folder.join(DAG_FOLDER), OPENS | OFlags::DIRECTORY, Mode::empty());
            let dags = dags.map_err(|error| io::Error::from(error).to_string())?;
            let name = file.rsplit('/').next().unwrap_or_default();
            let (file, stat) = opened(&dags, name)?;
            let owner = owner_of(&stat)?;
            let base = WatchedBase::text_for(WatchedBase::of(&dags).as_ref(), owner)?;
            Ok::<_, String>((owner, (base, text_of(file)?)))
        });
        let read = read.await.map_err(|panic| ToolError::internal(panic.to_string()))?;
        match read.map_err(invalid)? {
            (now, text) if now == owner => Ok(text),
            (now, _) => Err(invalid(format!("it belongs to {now} now"))),
        }
    }

    /// Begins a run of a file that nobody started, as its owner; `given` are the parameters.
    ///
    /// # Errors
    /// Those of [`DagRuns::begin`]; `dag_invalid` for a file that is not as it was.
    pub(crate) async fn begin(
        &self,
        (file, name, owner): (&PlacedFile, &str, User),
        id: RunId,
        trigger: RunTrigger,
        given: impl FnOnce(&DagManifest) -> Value,
    ) -> Result<(), ToolError> {
        let (base, text) = self.text(file, owner).await?;
        let documents = checked(base, text, None).await?.documents;
        let request = RunRequest {
            id,
            user: owner,
            session: self.children.open_for(owner, SESSION).await?,
            given: documents.first().map_or(Value::Null, given),
            documents,
            name: name.to_owned(),
            place: RunPlace::Folder(file.place.clone()),
            scratch: SCRATCH.to_owned(),
            trigger,
            queue: None,
        };
        self.runs.begin(request).await
    }
}

/// Looks at the files of a place.
fn look_into(
    place: &str,
    folder: &std::path::Path,
    known: &WatchedFiles,
    found: &mut WatchedFiles,
) {
    let named = |file: String| PlacedFile { place: place.to_owned(), file };
    let note = |found: &mut WatchedFiles, why: String| {
        let dag = WatchedDag {
            owner: User::Nobody,
            name: String::new(),
            schedule: Err(why),
            stamp: None,
        };
        found.insert(named(DAG_FOLDER.to_owned()), Arc::new(dag));
    };
    let listed = open(folder.join(DAG_FOLDER), OPENS | OFlags::DIRECTORY, Mode::empty())
        .and_then(|dags| Ok((Dir::read_from(&dags)?, dags)));
    let (entries, dags) = match listed {
        Ok(listed) => listed,
        Err(rustix::io::Errno::NOENT) => return,
        Err(error) => {
            let of_place = known.iter().filter(|(file, _)| file.place == place);
            found.extend(of_place.map(|(file, dag)| (file.clone(), dag.clone())));
            return note(found, format!("the folder cannot be read: {}", io::Error::from(error)));
        }
    };
    let name = |entry: rustix::io::Result<rustix::fs::DirEntry>| {
        let name = entry.ok()?.file_name().to_str().ok()?.to_owned();
        let is_dag = name.ends_with(".yaml") || name.ends_with(".yml");
        (is_dag && !name.starts_with('.') && name != BASE_FILE).then_some(name)
    };
    let mut names: Vec<String> = entries.take(MOST_ENTRIES).filter_map(name).collect();
    names.sort_unstable();
    if names.len() > MOST_FILES {
        note(
            found,
            format!("the folder has more than {MOST_FILES} files: the others are left out"),
        );
    }
    let base = WatchedBase::of(&dags);
    for name in names.into_iter().take(MOST_FILES) {
        let file = named(format!("{DAG_FOLDER}/{name}"));
        let dag = looked_at((&dags, base.as_ref()), &name, &file, known.get(&file));
        found.insert(file, dag);
    }
}

fn looked_at(
    (dags, base): (&impl std::os::fd::AsFd, Option<&WatchedBase>),
    name: &str,
    file: &PlacedFile,
    known: Option<&Arc<WatchedDag>>,
) -> Arc<WatchedDag> {
    let plain = || name_of(name);
    let (content, stat) = match opened(dags, name) {
        Ok(opened) => opened,
        Err(why) => {
            let (owner, name) = (User::Nobody, plain());
            return Arc::new(WatchedDag { owner, name, schedule: Err(why), stamp: None });
        }
    };
    let stamp = Some((FileStamp::of(&stat), base.and_then(|base| base.stamp)));
    if let Some(known) = known.filter(|known| known.stamp == stamp) {
        return known.clone();
    }
    let owner = User::Uid(stat.st_uid);
    let read = owner_of(&stat).and_then(|_| {
        let base = WatchedBase::text_for(base, owner)?;
        let file = read_dag_over(base.as_deref(), &text_of(content)?, None)
            .map_err(|problems| problems.first().map(ToString::to_string).unwrap_or_default())?;
        file.documents.into_iter().next().ok_or_else(|| "the text holds no DAG".to_owned())
    });
    let (name, schedule) = match read {
        Ok(dag) => {
            let name = dag.name.clone().unwrap_or_else(plain);
            let scheduled = ScheduledDag::of(dag, file.clone(), name.clone(), owner);
            (name, Ok(scheduled))
        }
        Err(why) => (plain(), Err(why)),
    };
    Arc::new(WatchedDag { owner, name, schedule, stamp })
}

fn opened(dags: &impl std::os::fd::AsFd, name: &str) -> Result<(File, Stat), String> {
    let told = |error: rustix::io::Errno| format!("it cannot be read: {}", io::Error::from(error));
    let file = openat(dags, name, OPENS, Mode::empty()).map_err(told)?;
    let stat = fstat(&file).map_err(told)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((File::from(file), stat)),
        _ => Err("it is not a regular file".to_owned()),
    }
}

/// User whose file it is. A group of the user's own may write it, as many systems have it.
///
/// # Errors
/// For a file that others may write: they would have their commands run as its owner.
fn owner_of(stat: &Stat) -> Result<User, String> {
    let others = if stat.st_gid == stat.st_uid { 0o002 } else { 0o022 };
    match stat.st_mode & others {
        0 => Ok(User::Uid(stat.st_uid)),
        _ => Err("others may write it: take that from them (`chmod go-w`)".to_owned()),
    }
}

fn text_of(file: File) -> Result<String, String> {
    let mut text = String::new();
    let read = file.take(MAX_TEXT_BYTES as u64 + 1).read_to_string(&mut text);
    read.map_err(|error| format!("it cannot be read: {error}"))?;
    match text.len() > MAX_TEXT_BYTES {
        true => Err(format!("it is larger than {MAX_TEXT_BYTES} bytes")),
        false => Ok(text),
    }
}

impl FileStamp {
    fn of(stat: &Stat) -> Self {
        Self {
            inode: stat.st_ino,
            bytes: u64::try_from(stat.st_size).unwrap_or_default(),
            owner: (stat.st_uid, stat.st_gid, stat.st_mode),
            times: [
                stat.st_mtime,
                stat.st_mtime_nsec as i64,
                stat.st_ctime,
                stat.st_ctime_nsec as i64,
            ],
        }
    }
}
