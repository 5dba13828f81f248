//! Images made by umoci and skopeo, in Debian's registry, an OCI layout and an archive of Docker;
//! what is unpacked of them is compared with what `umoci unpack` makes.
#![allow(clippy::unwrap_used)]

mod made;
mod stage;
mod trust;

use std::{fs, time::Duration};

use hivekeep_image::ImageName;
use hivekeep_oci::{Error, ImageOptions, ImagePuller};
use tokio_util::sync::CancellationToken;

use made::Made;
use stage::{Place, Registry, can_run, run};

#[tokio::test]
async fn a_registry_a_layout_and_an_archive_give_what_umoci_unpacks() {
    if !can_run() {
        return;
    }
    let (made, registry) = (Made::new(), Registry::start());
    let expected = made.expected();
    assert!(expected.contains_key("links of bin/busybox"), "{expected:#?}");
    assert!(expected["bin/ping"].contains("security.capability"), "{expected:#?}");
    registry.push(&made, &[]);
    let archive = made.text("archive.tar");
    let (from, to) = (format!("oci:{}", made.image()), format!("docker-archive:{archive}:a/b:1"));
    run("skopeo", &["--insecure-policy", "copy", &from, &to]);
    let zstd = format!("oci:{}:app", made.text("zstd"));
    run("skopeo", &["--insecure-policy", "copy", "--dest-compress-format", "zstd", &from, &zstd]);

    let place =
        Place::new(ImageOptions { plain_http: vec![registry.host.clone()], ..Default::default() });
    let reference = format!("{}/lib/app:1", registry.host);
    let (archive, by_tag) = (format!("docker-archive:{archive}"), reference.as_str());
    for (source, name) in [
        (by_tag, None),
        (&from, Some("layout")),
        (&archive, Some("archive")),
        (&zstd, Some("zstd")),
    ] {
        let image = place.pull(source, name).await.unwrap();
        let tree = place.tree(&image, &expected).await;
        for (path, entry) in &expected {
            assert_eq!(tree.get(path), Some(entry), "{path} of {source}");
        }
        assert_eq!(tree.len(), expected.len(), "{source}");
        let defaults = &image.defaults;
        assert_eq!(defaults.env["GREETING"], "hello there");
        assert_eq!(defaults.working_dir.as_deref(), Some("/srv/app"));
        assert_eq!(
            (defaults.user.as_deref(), defaults.command.as_slice()),
            (Some("app"), &["/hello".to_owned()][..])
        );
    }
    let names: Vec<_> =
        place.store.list().await.unwrap().into_iter().map(|row| row.name.to_string()).collect();
    assert_eq!(names, ["base", "debian", "code-interpreter", by_tag, "archive", "layout", "zstd"]);
}

#[tokio::test]
async fn what_was_changed_or_is_not_there_or_not_allowed_is_refused() {
    if !can_run() {
        return;
    }
    let (made, registry) = (Made::new(), Registry::start());
    registry.push(&made, &[]);
    let options = ImageOptions { plain_http: vec![registry.host.clone()], ..Default::default() };
    let place = Place::new(options.clone());
    let reference = |version: &str| format!("{}/lib/app{version}", registry.host);
    let image = place.pull(&reference(":1"), None).await.unwrap();
    let digest = image.digest.unwrap();
    place.pull(&reference(&format!("@{digest}")), Some("pinned")).await.unwrap();
    for absent in [":2".to_owned(), format!("@sha256:{}", "0".repeat(64))] {
        let error = place.pull(&reference(&absent), None).await.unwrap_err();
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
    // Without being listed it is asked over TLS, which it does not speak.
    let error = Place::new(ImageOptions::default()).pull(&reference(":1"), None).await.unwrap_err();
    assert!(matches!(error, Error::Registry { .. }), "{error}");
    let name = ImagePuller::name_of(&reference(":1")).unwrap();
    let fresh = Place::new(options);
    let error = fresh.puller.ensure(&name, &|_| (), &CancellationToken::new()).await.unwrap_err();
    assert!(
        matches!(error, Error::NotAllowed { key: "workspace.images.registries", .. }),
        "{error}"
    );
    place.puller.ensure(&name, &|_| (), &CancellationToken::new()).await.expect("it is here");

    // The registry's disk is not to be trusted either.
    let mut blobs = vec![registry.folder.path().join("data")];
    while let Some(path) = blobs.pop() {
        if path.is_dir() {
            blobs.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.ends_with("data") && path.metadata().unwrap().len() > 100_000 {
            let mut bytes = fs::read(&path).unwrap();
            bytes[50_000] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
    let error = place.pull(&reference(":1"), Some("again")).await.unwrap_err();
    assert!(matches!(error, Error::Digest { .. }), "{error}");
    assert!(place.store.pulled(ImageName::named("again").unwrap()).await.unwrap().is_none());
}

#[tokio::test]
async fn an_image_in_use_stays_and_goes_when_nothing_uses_it() {
    if !can_run() {
        return;
    }
    let (made, place) = (Made::new(), Place::new(ImageOptions::default()));
    let image = place.pull(&format!("oci:{}", made.image()), Some("app")).await.unwrap();
    let found = place.store.resolve(image.name.clone()).await.unwrap();
    let lock = place.store.lock().await.unwrap();
    let remove = || place.store.remove(&lock, image.name.clone());
    let unknown = remove().await.unwrap_err();
    assert!(matches!(unknown, hivekeep_image::Error::UsesUnknown), "{unknown}");
    place.store.replace_uses("d".to_owned(), Vec::new()).await.unwrap();
    place.store.hold(found.rootfs().to_owned(), "d.ws_1".to_owned()).await.unwrap();
    let error = remove().await.unwrap_err();
    assert!(
        matches!(&error, hivekeep_image::Error::InUse { users, .. } if users == &["d.ws_1"]),
        "{error}"
    );
    let terms = hivekeep_image::PruneTerms { age: Duration::ZERO, min_free_bytes: 0 };
    assert!(place.store.prune(&lock, terms).await.unwrap().images.is_empty());
    assert!(found.rootfs().exists());
    place.store.release("d.ws_1".to_owned()).await.unwrap();
    let old = hivekeep_image::PruneTerms { age: Duration::from_secs(3600), min_free_bytes: 0 };
    assert!(place.store.prune(&lock, old).await.unwrap().images.is_empty(), "it is young");
    let removed = place.store.prune(&lock, terms).await.unwrap();
    assert_eq!((removed.images, removed.objects), (vec![image.name.clone()], 2));
    assert_eq!(fs::read_dir(place.store.root().join("objects")).unwrap().count(), 0);
    assert!(place.store.hold(found.rootfs().to_owned(), "d.ws_2".to_owned()).await.is_err());
}
