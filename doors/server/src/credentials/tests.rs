use hivekeep_store::Options;

use super::*;

async fn journal(dir: &std::path::Path) -> Journal {
    let options = Options { dir: dir.to_owned(), ..Options::default() };
    tokio::task::spawn_blocking(|| Journal::open(options)).await.expect("runs").expect("opens").0
}

const BY: User = User::Uid(7);

#[tokio::test]
async fn a_credential_is_known_until_it_is_revoked_and_outlives_the_daemon() {
    let dir = tempfile::tempdir().expect("a folder");
    let first = journal(dir.path()).await;
    let credentials = Credentials::open(&first).await.expect("opens");
    let (row, secret) = credentials.create("ci", CredentialScope::Session, BY).await.expect("made");
    let (other, _) = credentials.create("ops", CredentialScope::Operator, BY).await.expect("made");
    let again = credentials.create("ci", CredentialScope::Session, BY).await.expect_err("taken");
    assert!(again.is(codes::NAME_TAKEN), "{again}");
    first.close().await;

    let second = journal(dir.path()).await;
    let credentials = Credentials::open(&second).await.expect("opens");
    assert_eq!(credentials.list(), [row.clone(), other]);
    assert_eq!(credentials.find(secret.expose().as_bytes()), Some(row.clone()));
    let near = format!("{}x", &secret.expose()[..secret.expose().len() - 1]);
    for wrong in [near.as_str(), "", PREFIX, &secret.expose()[1..]] {
        assert_eq!(credentials.find(wrong.as_bytes()), None, "{wrong}");
    }
    credentials.revoke("ci", BY).await.expect("revoked");
    assert_eq!(credentials.find(secret.expose().as_bytes()), None);
    // It is over at once for whoever waited.
    credentials.revocation(row.user()).await;
    let gone = credentials.revoke("ci", BY).await.expect_err("it is gone");
    assert!(gone.is(codes::CREDENTIAL_NOT_FOUND), "{gone}");
    second.close().await;

    let third = journal(dir.path()).await;
    let credentials = Credentials::open(&third).await.expect("opens");
    assert_eq!(credentials.find(secret.expose().as_bytes()), None, "revoked for good");
    assert_eq!(credentials.list().len(), 1);
}

#[tokio::test]
async fn nothing_kept_has_the_secret() {
    let dir = tempfile::tempdir().expect("a folder");
    let journal = journal(dir.path()).await;
    let credentials = Credentials::open(&journal).await.expect("opens");
    let (row, secret) = credentials.create("a", CredentialScope::ReadOnly, BY).await.expect("made");
    let kept = credentials.0.log.state().expect("there");
    let kept = kept.fold().expect("a snapshot");
    let told = format!("{row:?} {secret:?} {credentials:?} {}", String::from_utf8_lossy(&kept));
    assert!(!told.contains(&secret.expose()[PREFIX.len()..]), "{told}");
    assert_eq!(secret.expose().len(), PREFIX.len() + 64);
    let unfolded = Keyring::unfold(&kept).expect("reads");
    assert_eq!(unfolded.rows(), credentials.list());
}

#[test]
fn a_name_is_one_word() {
    for good in ["a", "ci-runner_2", "ops@example.org", &"n".repeat(NAME_CHARS)] {
        assert!(check(good).is_ok(), "{good}");
    }
    for bad in ["", "a b", "a/b", "\u{1b}[2J", "größe", &"n".repeat(NAME_CHARS + 1)] {
        assert!(check(bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn the_bearer_of_a_webhook_is_one_for_webhooks_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let journal = journal(dir.path()).await;
    let credentials = Credentials::open(&journal).await.expect("opens");
    let named = |name: &str| name.to_owned();
    let target =
        WebhookTarget { dag: named("a"), place: named("here"), file: named("dags/a.yaml") };
    let made = credentials.create_webhook("hook", target.clone(), BY).await.expect("made");
    let (row, bearer) = (made.0, made.1.expose().as_bytes().to_vec());
    let (_, other) = credentials.create("ops", CredentialScope::Operator, BY).await.expect("made");
    assert_eq!(credentials.find(&bearer), None);
    assert_eq!(credentials.find_webhook(other.expose().as_bytes()), None);
    assert_eq!(credentials.find_webhook(&bearer), Some((row.clone(), target)));
    assert!(credentials.list().contains(&row));
    credentials.revoke("hook", BY).await.expect("revoked");
    assert_eq!(credentials.find_webhook(&bearer), None);
}
