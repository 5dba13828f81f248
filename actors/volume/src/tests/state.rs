//! The state of a volume, sizes and paths, for any input.

use chrono::{TimeDelta, Utc};
use hivekeep_kernel::User;
use hivekeep_runtime::log::Sourced;
use proptest::prelude::*;

use crate::{
    ports::parsed,
    tests::stage::MIB,
    tools::rounded,
    volume::{Record, Volume, VolumePhase},
};

fn wanted() -> Record {
    let (owner, label, at) = (User::Bearer, "v".to_owned(), Utc::now());
    Record::Wanted { owner, label, size_bytes: MIB, at, expires_at: Some(at + TimeDelta::hours(1)) }
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![Just(wanted()), Just(Record::Made), Just(Record::DeleteWanted)]
}

proptest! {
    #[test]
    fn a_volume_is_made_once_and_never_comes_back(records in prop::collection::vec(record(), 0..12)) {
        let mut volume = Volume::begin(wanted()).expect("it begins");
        let mut before = vec![volume.phase];
        for record in records {
            let json = serde_json::to_string(&record).expect("written");
            prop_assert_eq!(serde_json::from_str::<Record>(&json).expect("read"), record.clone());
            let kept = volume.clone();
            match volume.apply(record.clone()) {
                Ok(()) => before.push(volume.phase),
                Err(refused) => {
                    prop_assert_eq!(refused, record);
                    prop_assert_eq!(&volume, &kept);
                }
            }
        }
        let order = [VolumePhase::Making, VolumePhase::Ready, VolumePhase::Deleting];
        let order = before.iter().map(|phase| order.iter().position(|other| other == phase));
        let order: Vec<_> = order.collect();
        prop_assert!(order.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", before);
    }

    #[test]
    fn sizes_are_whole_and_no_smaller(asked in 1..u64::MAX / 2) {
        let size = rounded(asked);
        prop_assert!(size >= asked && size.is_multiple_of(MIB));
        prop_assert!(size < asked + MIB || size == 16 * MIB);
    }

    #[test]
    fn a_path_stays_below_its_root(text in r"[a-c./]{0,12}") {
        let Ok(path) = parsed(&text) else { return Ok(()) };
        let path = path.as_str();
        prop_assert!(!path.starts_with('/') && !path.is_empty());
        prop_assert!(path.split('/').all(|part| part != ".." && !part.is_empty()));
        prop_assert!(path == "." || path.split('/').all(|part| part != "."));
    }
}

#[test]
fn paths_that_leave_or_cannot_be_are_refused() {
    for text in ["..", "a/../..", "/../etc", "a/b/../../../x", "", "a\0b", &"x".repeat(4097)] {
        assert_eq!(parsed(text).expect_err(text).code, "invalid_path", "{text:?}");
    }
    for (text, path) in [("/", "."), (".", "."), ("//a/b/", "a/b"), ("a/../b", "b")] {
        assert_eq!(parsed(text).expect(text).as_str(), path);
    }
}
