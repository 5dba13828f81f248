//! Clean and conflicting sources side by side, from a base of two hundred commits.

use super::{
    histories::{binary, long},
    place::{Place, STRATEGIES, conflicting, statuses},
};
use crate::merge::api::{MergeStrategy, SourceStatus};

const SOURCES: [&str; 6] = ["renames", "text", "adds", "image", "moved", "deletes"];

fn line(place: &Place, name: &str, file: &str, number: usize) -> String {
    place.read(name, file).replace(&format!("line {number} "), &format!("{name} {number} "))
}

/// Conflicting sources: `text` and `image` touch what the target touches too, `moved` what the
/// target has renamed; the others touch other files.
fn mixed() -> Place {
    let place = Place::new();
    long(&place);
    place.commit("target", "logo.png", binary(0));
    for name in SOURCES {
        place.fork(name);
    }
    place.git("renames", &["mv", "src/1.txt", "src/one.txt"]);
    place.commit("renames", "src/one.txt", line(&place, "renames", "src/one.txt", 3));
    place.commit("text", "fine", "fine\n");
    place.commit("text", "src/8.txt", line(&place, "text", "src/8.txt", 5));
    place.commit("adds", "photo.png", binary(7));
    place.commit("adds", "src/9.txt", line(&place, "adds", "src/9.txt", 5));
    place.commit("image", "logo.png", binary(1));
    place.commit("image", "after", "after\n");
    place.commit("moved", "src/7.txt", line(&place, "moved", "src/7.txt", 20));
    std::fs::remove_file(place.path("deletes").join("src/3.txt")).expect("removed");
    place.commit("deletes", "gone", "src/3.txt is\n");

    place.commit("target", "src/8.txt", line(&place, "target", "src/8.txt", 5));
    place.commit("target", "logo.png", binary(2));
    place.git("target", &["mv", "src/7.txt", "src/seven.txt"]);
    place.commit("target", "src/seven.txt", line(&place, "target", "src/seven.txt", 20));
    place
}

#[tokio::test]
async fn clean_sources_come_and_conflicting_ones_lose_nothing() {
    let place = mixed();
    let (head, before) = (place.head("target"), place.subjects("target"));
    let sources = SOURCES.map(|name| place.fingerprint(name));
    for (strategy, keep_going) in STRATEGIES.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        place.reset("target", &head);
        let untouched = place.fingerprint("target");
        let mut request = place.request(strategy);
        request.keep_going = keep_going;
        let result = place.try_merge(&request, &SOURCES).await.expect("a result");
        let how = format!("{strategy:?}, keep going: {keep_going}");

        let clean = if keep_going { SourceStatus::Merged } else { SourceStatus::Withheld };
        let failed = SourceStatus::Failed;
        assert_eq!(statuses(&result), [clean, failed, clean, failed, failed, clean], "{how}");
        assert_eq!(conflicting(&result, "src/8.txt").hunks.len(), 1, "{how}");
        assert!(conflicting(&result, "logo.png").binary, "{how}");
        assert_eq!(conflicting(&result, "src/seven.txt").hunks.len(), 1, "{how}");

        let mut wanted = before.clone();
        if keep_going {
            let applied = ["renames: src/one.txt", "adds: photo.png", "adds: src/9.txt"];
            wanted.extend(applied.into_iter().chain(["deletes: gone"]).map(str::to_owned));
            if strategy == MergeStrategy::BranchPerSource {
                let names = ["renames", "adds", "deletes"];
                wanted.extend(names.map(|name| format!("Merge workspace '{name}'")));
            }
            assert!(place.read("target", "src/one.txt").contains("renames 3 "), "{how}");
            assert_eq!(
                std::fs::read(place.path("target").join("photo.png")).expect("read"),
                binary(7)
            );
            assert!(!place.path("target").join("src/3.txt").exists(), "{how}");
        } else {
            assert!(untouched == place.fingerprint("target"), "{how}");
        }
        wanted.sort();
        assert_eq!(place.subjects("target"), wanted, "{how}");
        assert_eq!(place.git("target", &["status", "--porcelain"]), "", "{how}");
        place.fsck("target");
        place.nothing_is_left("target");
    }
    for (name, before) in SOURCES.into_iter().zip(sources) {
        assert!(before == place.fingerprint(name), "{name} was written to");
        place.fsck(name);
    }
}
