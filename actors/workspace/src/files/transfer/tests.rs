use hivekeep_kernel::SessionId;
use hivekeep_link::{
    LinkOptions, LinkToken,
    fake::{FakeGuest, Observation, RequestBehaviour},
};
use hivekeep_testkit::context;
use tokio_util::sync::CancellationToken;

use crate::files::transfer::*;

fn host(root: &Path, inside: &str) -> HostFile {
    HostFile { root: root.to_owned(), inside: inside.into() }
}

#[test]
fn paths_stay_inside() {
    let root = Path::new("/srv/transfers");
    for good in ["a", "a/b.txt", "/srv/transfers/a"] {
        assert!(inside(root, good).is_ok(), "{good}");
    }
    for bad in
        ["", "/", "..", "a/../b", "../x", "/etc/passwd", "/srv/transfers", "/srv/transfers/../x"]
    {
        assert!(inside(root, bad).is_err(), "{bad}");
    }
}

#[test]
fn symlinks_lead_nowhere() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path().join("root");
    std::fs::create_dir(&root).expect("made");
    std::fs::write(dir.path().join("secret"), "x").expect("written");
    std::os::unix::fs::symlink("../secret", root.join("leak")).expect("linked");
    std::os::unix::fs::symlink("..", root.join("up")).expect("linked");
    let refused = host(&root, "leak").open_source().expect_err("followed");
    assert_eq!(refused.code, "outside_transfer_dir");
    assert!(host(&root, "up/secret").open_source().is_err());
    assert!(host(&root, "up/new").create_target().is_err());
}

#[test]
fn an_unfinished_download_leaves_nothing_and_a_finished_one_replaces_a_link() {
    let dir = tempfile::tempdir().expect("a folder");
    let outside = dir.path().join("outside");
    std::fs::write(&outside, "untouched").expect("written");
    let root = dir.path().join("root");
    std::fs::create_dir(&root).expect("made");
    drop(host(&root, "file").create_target().expect("created"));
    assert_eq!(std::fs::read_dir(&root).expect("listed").count(), 0);
    std::os::unix::fs::symlink("../outside", root.join("file")).expect("linked");
    let file = host(&root, "file");
    file.create_target().expect("created").finish(&file).expect("finished");
    assert_eq!(std::fs::read_to_string(outside).expect("read"), "untouched");
    assert!(root.join("file").symlink_metadata().expect("there").is_file());
}

#[test]
fn a_fifo_cannot_hang_an_upload() {
    let dir = tempfile::tempdir().expect("a folder");
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .expect("made");
    assert!(host(dir.path(), "fifo").open_source().is_err());
}

fn cx() -> CallCx {
    let limit = std::time::Duration::from_secs(60);
    context(SessionId::new(), "file_transfer", limit, Default::default())
}

#[tokio::test]
async fn a_download_ends_where_the_guests_disk_does() {
    const MOST: u64 = 300_000;
    let dir = tempfile::tempdir().expect("a folder");
    for (bytes, fits) in [(MOST, true), (MOST + 1, false), (MOST + 2, false)] {
        // A guest that heeds no limit.
        let (guest, mut seen) = FakeGuest::new(move |_| RequestBehaviour::Content(bytes));
        let (carrier, token) = (guest.carrier(), LinkToken::generate().expect("random"));
        let (options, cancel) = (LinkOptions::default(), CancellationToken::new());
        let connected = Link::connect_over(&carrier, &token, &options, &cancel).await;
        let (link, _) = connected.expect("it lets us in");
        let name = format!("of {bytes}");
        let most = Most { bytes: MOST, quota: TransferQuota::of_mb(1024) };
        let done = download(&link, host(dir.path(), &name), "/f", most, &cx()).await;
        match done {
            Ok(sent) => assert!(fits && sent == MOST, "{bytes}"),
            Err(error) => {
                assert!(!fits, "{bytes}: {error}");
                assert!(
                    ["too_large", "guest_misbehaves"].contains(&error.code.as_ref()),
                    "{error}"
                );
            }
        }
        assert_eq!(dir.path().join(&name).exists(), fits, "{bytes}");
        let asked = std::iter::from_fn(|| seen.try_recv().ok()).find_map(|seen| match seen {
            Observation::Request(_, hivekeep_protocol::ToGuest::ReadFile(read)) => Some(read.limit),
            _ => None,
        });
        assert_eq!(asked, Some(Some(MOST + 1)), "one that heeds it does not cut a file");
    }
    let left = std::fs::read_dir(dir.path()).expect("listed").count();
    assert_eq!(left, 1, "what was refused left nothing");
}

#[tokio::test]
async fn a_download_ends_where_the_transfer_directory_is_full() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("old"), vec![1; 900 << 10]).expect("written");
    let quota = TransferQuota::of_mb(1);
    let (guest, _seen) = FakeGuest::new(move |_| RequestBehaviour::Content(300_000));
    let (carrier, token) = (guest.carrier(), LinkToken::generate().expect("random"));
    let (options, cancel) = (LinkOptions::default(), CancellationToken::new());
    let connected = Link::connect_over(&carrier, &token, &options, &cancel).await;
    let (link, _) = connected.expect("it lets us in");
    quota.admit(dir.path()).expect("some room");
    let most = Most { bytes: 1 << 30, quota };
    let refused = download(&link, host(dir.path(), "new"), "/f", most, &cx()).await;
    assert_eq!(refused.expect_err("too much").code, "transfer_dir_full");
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 1, "something is left");
}
