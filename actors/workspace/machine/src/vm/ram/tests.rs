use super::*;

/// Memory of one MiB with the given bytes at the given offsets.
fn memory(content: &[(u64, &[u8])]) -> File {
    let file = File::from(make(1).unwrap());
    for (offset, bytes) in content {
        file.write_all_at(bytes, *offset).unwrap();
    }
    file
}

fn read(fd: &OwnedFd) -> Vec<u8> {
    let file = File::from(fd.try_clone().unwrap());
    let mut bytes = vec![0; 1 << 20];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn a_copy_follows_what_changes_and_leaves_zeroes_out() {
    let zeroes = [0; 3 * PAGE_BYTES];
    let source = memory(&[(0, b"first"), (5 * 4096, &zeroes), (200 * 4096 + 7, b"last")]);
    let mut copy = Copy::of(source.try_clone().unwrap().into(), 1).unwrap();
    assert_eq!(copy.refresh().unwrap(), 2 * 4096);
    assert_eq!(copy.refresh().unwrap(), 0, "nothing changed");
    source.write_all_at(b"other", 0).unwrap();
    source.write_all_at(b"new", 130 * 4096).unwrap();
    source.write_all_at(&[0; 4], 200 * 4096 + 7).unwrap();
    assert_eq!(copy.refresh().unwrap(), 3 * 4096);

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ram");
    let (sealed, bytes) = copy.finish(&path).unwrap();
    assert_eq!(bytes, 3 * 4096);
    assert!(read(&sealed.0) == read(&source.into()));
    let loaded = Sealed::load(&path, 1).unwrap();
    assert!(read(&loaded.0) == read(&sealed.0));
    let held = rustix::fs::fstat(&loaded.0).unwrap().st_blocks * 512;
    assert!(held <= 3 * 4096, "holes stay holes: {held}");
}

#[test]
fn a_sealed_image_cannot_be_written_or_resized() {
    let sealed = Sealed::of(memory(&[(0, b"template")]).into()).unwrap();
    let file = File::from(sealed.fd().unwrap());
    assert!(file.write_all_at(b"x", 0).is_err());
    assert!(file.set_len(0).is_err() && file.set_len(2 << 20).is_err());
    assert!(Mapping::of(&file, 1 << 20, true).is_err());
    assert!(rustix::fs::fcntl_add_seals(&file, SealFlags::SEAL).is_err());
}

#[test]
fn memory_that_could_shrink_under_us_or_is_of_another_size_is_refused() {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let loose = rustix::fs::memfd_create("loose", flags).unwrap();
    rustix::fs::ftruncate(&loose, 1 << 20).unwrap();
    assert!(Copy::of(loose, 1).is_err());
    assert!(Copy::of(make(2).unwrap(), 1).is_err());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plain");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    assert!(Copy::of(File::open(&path).unwrap().into(), 1).is_err());
    std::fs::write(&path, b"short").unwrap();
    assert!(Sealed::load(&path, 1).is_err());
}

fn image() -> Result<Sealed, Error> {
    Sealed::of(make(1).unwrap()).map_err(Error::io("seal", "test".as_ref()))
}

#[tokio::test(start_paused = true)]
async fn one_load_serves_all_who_ask_and_is_let_go_after_a_while() {
    let cache = RamCache::default();
    let id = Uuid::new_v4();
    let loads = std::sync::atomic::AtomicU32::new(0);
    let get = || {
        cache.get(id, async {
            loads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            image()
        })
    };
    let (one, two) = tokio::join!(get(), get());
    assert!(Arc::ptr_eq(&one.unwrap(), &two.unwrap()));
    tokio::time::sleep(KEEP * 2).await;
    assert!(lock(&cache.images).is_empty());
    get().await.unwrap();
    assert_eq!(loads.into_inner(), 2);
}

#[tokio::test]
async fn a_failed_load_is_tried_anew_and_the_number_is_bounded() {
    let cache = RamCache::default();
    let id = Uuid::new_v4();
    let failing = cache.get(id, async { Err(Error::BadPlan("no".into())) }).await;
    assert!(failing.is_err());
    cache.get(id, async { image() }).await.unwrap();
    for _ in 0..2 * MAX_IMAGES {
        cache.put(Uuid::new_v4(), image().unwrap());
    }
    assert_eq!(lock(&cache.images).len(), MAX_IMAGES);
}
