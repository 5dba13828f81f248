//! Handshakes of HTTP clients on the disk, each with its user and the session that its calls belong to, so that
//! all go on after a restart of the daemon. A file each: one client's is not another's to lose.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use async_trait::async_trait;
use hivekeep_kernel::{SessionId, User};
use rmcp::transport::streamable_http_server::session::{
    SessionState, SessionStore, SessionStoreError,
};
use serde::{Deserialize, Serialize};

/// The longest name of a client's session.
const MOST_NAME: usize = 64;
/// The longest handshake that is kept.
const MOST_BYTES: u64 = 64 * 1024;
/// How long a handshake is kept to which no call belongs.
const UNUSED: Duration = Duration::from_secs(3_600);

tokio::task_local! {
    /// The user whose request is served: rmcp stores a handshake and makes a stream within its request, and
    /// knows no users.
    static SERVED: User;
}

/// Serves a request of a user, to whom a handshake and a stream in it belong.
pub(super) async fn serving<T>(user: User, serving: impl Future<Output = T>) -> T {
    SERVED.scope(user, serving).await
}

/// The user whose request is served.
pub(super) fn served() -> Option<User> {
    SERVED.try_with(|user| *user).ok()
}

/// A client's handshake, user and session, as kept on disk.
#[derive(Debug, Serialize, Deserialize)]
struct KeptClient {
    state: SessionState,
    user: User,
    session: Option<SessionId>,
}

/// The folder of kept clients. Cheap to clone.
#[derive(Debug, Clone)]
pub struct KeptClients {
    folder: Arc<Path>,
    most: usize,
}

impl KeptClients {
    /// Opens the folder, or makes it, for at most `most` clients. Clients go whose session is over by
    /// `lives`, and those without one after an hour. Blocks.
    pub(super) fn open(
        folder: PathBuf,
        most: usize,
        lives: impl Fn(SessionId) -> bool,
    ) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let kept = Self { folder: folder.into(), most };
        for (path, changed) in kept.files()? {
            // A file that a crash left half written belongs to no client.
            let whole = path.extension().is_none();
            let client = kept.read(&path).ok().flatten().filter(|_| whole);
            let old = changed.elapsed().is_ok_and(|age| age > UNUSED);
            let stays = match client {
                Some(KeptClient { session: Some(session), .. }) => lives(session),
                Some(KeptClient { session: None, .. }) => !old,
                None => false,
            };
            if !stays {
                fs::remove_file(path)?;
            }
        }
        Ok(kept)
    }

    /// All files, the least recently written first.
    fn files(&self) -> io::Result<Vec<(PathBuf, SystemTime)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            files.push((entry.path(), entry.metadata()?.modified()?));
        }
        files.sort_by_key(|(_, changed)| *changed);
        Ok(files)
    }

    /// Path of a client's file; none for an invalid name. Names come from a header.
    fn at(&self, name: &str) -> Option<PathBuf> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let ours = (1..=MOST_NAME).contains(&name.len()) && name.bytes().all(fits);
        ours.then(|| self.folder.join(name))
    }

    fn read(&self, path: &Path) -> io::Result<Option<KeptClient>> {
        match fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&self, path: &Path, client: &KeptClient) -> io::Result<()> {
        let bytes = serde_json::to_vec(client)?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(io::Error::other("the handshake is too long to be kept"));
        }
        hivekeep_fs::replace(path, 0o600, &bytes)
    }

    async fn find(&self, name: &str) -> io::Result<Option<KeptClient>> {
        let (kept, Some(path)) = (self.clone(), self.at(name)) else { return Ok(None) };
        tokio::task::spawn_blocking(move || kept.read(&path)).await.map_err(io::Error::other)?
    }

    /// The session that a client's calls belonged to.
    pub(crate) async fn session(&self, name: &str) -> Option<SessionId> {
        self.find(name).await.ok()??.session
    }

    /// The user who shook hands; `None` where that is not known.
    pub(super) async fn user(&self, name: &str) -> Option<User> {
        Some(self.find(name).await.ok()??.user)
    }

    /// Notes the session that a client's calls belong to. Without it the client begins with a new one
    /// after a restart.
    pub(crate) async fn bind(&self, name: &str, session: SessionId) {
        let (kept, Some(path)) = (self.clone(), self.at(name)) else { return };
        let bind = move || -> io::Result<()> {
            let Some(mut client) = kept.read(&path)? else { return Ok(()) };
            if client.session == Some(session) {
                return Ok(());
            }
            client.session = Some(session);
            kept.write(&path, &client)
        };
        let bound = tokio::task::spawn_blocking(bind).await.map_err(io::Error::other).flatten();
        if let Err(error) = bound {
            tracing::warn!(%error, "a client's session is not kept for a restart");
        }
    }
}

#[async_trait]
impl SessionStore for KeptClients {
    async fn load(&self, name: &str) -> Result<Option<SessionState>, SessionStoreError> {
        Ok(self.find(name).await?.map(|client| client.state))
    }

    async fn store(&self, name: &str, state: &SessionState) -> Result<(), SessionStoreError> {
        let (kept, Some(path)) = (self.clone(), self.at(name)) else { return Ok(()) };
        let user = SERVED.try_with(|user| *user)?;
        let client = KeptClient { state: state.clone(), user, session: None };
        let store = move || -> io::Result<()> {
            kept.write(&path, &client)?;
            let files = kept.files()?;
            let surplus = files.len().saturating_sub(kept.most);
            files.iter().take(surplus).try_for_each(|(path, _)| fs::remove_file(path))
        };
        Ok(tokio::task::spawn_blocking(store).await??)
    }

    async fn delete(&self, name: &str) -> Result<(), SessionStoreError> {
        let Some(path) = self.at(name) else { return Ok(()) };
        match tokio::task::spawn_blocking(move || fs::remove_file(path)).await? {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::InitializeRequestParams;

    use super::*;

    fn state() -> SessionState {
        SessionState::new(InitializeRequestParams::default())
    }

    async fn store(kept: &KeptClients, name: &str) {
        serving(User::Uid(7), kept.store(name, &state())).await.expect("stored");
    }

    #[tokio::test]
    async fn a_client_is_found_again_while_its_session_lives() {
        let dir = tempfile::tempdir().expect("a folder");
        let open = |lives: bool| {
            KeptClients::open(dir.path().join("kept"), 2, move |_| lives).expect("opens")
        };
        let (kept, session) = (open(true), SessionId::new());
        store(&kept, "a-1").await;
        kept.bind("a-1", session).await;
        kept.bind("never-stored", session).await;
        let again = open(true);
        assert!(again.load("a-1").await.expect("read").is_some());
        assert_eq!(again.session("a-1").await, Some(session));
        assert_eq!(again.user("a-1").await, Some(User::Uid(7)));
        assert!(again.load("never-stored").await.expect("read").is_none());
        assert!(open(false).load("a-1").await.expect("read").is_none(), "its session is over");
    }

    #[tokio::test]
    async fn a_handshake_whose_user_is_not_known_is_nobodys() {
        let dir = tempfile::tempdir().expect("a folder");
        let kept = KeptClients::open(dir.path().join("kept"), 2, |_| true).expect("opens");
        assert!(kept.store("a", &state()).await.is_err(), "no request is served");
        let of_before = serde_json::json!({ "state": state(), "session": SessionId::new() });
        fs::write(dir.path().join("kept/b"), of_before.to_string()).expect("written");
        for name in ["a", "b"] {
            assert_eq!(kept.user(name).await, None);
            assert!(kept.load(name).await.expect("read").is_none(), "{name}");
        }
    }

    #[tokio::test]
    async fn a_name_leads_nowhere_else_and_no_more_are_kept_than_may_be() {
        let dir = tempfile::tempdir().expect("a folder");
        let kept = KeptClients::open(dir.path().join("kept"), 2, |_| true).expect("opens");
        fs::write(dir.path().join("secret"), "{}").expect("written");
        for bad in ["../secret", "", ".", "a/b", "a.part", &"a".repeat(65)] {
            store(&kept, bad).await;
            assert!(kept.load(bad).await.expect("nothing there").is_none(), "{bad}");
            kept.delete(bad).await.expect("nothing to delete");
        }
        assert!(dir.path().join("secret").exists());
        for name in ["a", "b", "c"] {
            store(&kept, name).await;
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(kept.load("a").await.expect("read").is_none(), "the oldest went");
        assert!(kept.load("c").await.expect("read").is_some());
        kept.delete("c").await.expect("deleted");
        assert!(kept.load("c").await.expect("read").is_none());
    }
}
