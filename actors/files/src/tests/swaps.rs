//! A folder that becomes a link out of the place, and a folder again, while the tools work in it.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use serde_json::json;

use super::stage::{Stage, every_tool};

/// Calls of each tool.
const ROUNDS: usize = 150;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_that_are_swapped_in_lead_nowhere() {
    let stage = Stage::new().await;
    fs::create_dir(stage.outside("x")).expect("made");
    fs::write(stage.outside("x/f"), "secret outside").expect("written");
    fs::create_dir_all(stage.work("d/x")).expect("made");
    symlink("../outside", stage.work("link")).expect("linked");
    let done = Arc::new(AtomicBool::new(false));
    let swapping = std::thread::spawn({
        let (d, link, done) = (stage.work("d"), stage.work("link"), done.clone());
        move || {
            let mut swaps = 0_u64;
            while !done.load(Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                if rustix::fs::renameat_with(cwd, &d, cwd, &link, flags).is_ok() {
                    swaps += 1;
                }
            }
            swaps
        }
    });
    for round in 0..ROUNDS {
        for path in ["d/x/f", "d/x"] {
            for (tool, args) in every_tool(path) {
                if let Ok(answer) = stage.call(tool, args).await {
                    assert!(!answer.to_string().contains("outside"), "{tool} {path}: {answer}");
                }
            }
        }
        for (tool, pattern) in [("grep", "secret"), ("glob", "f")] {
            let found = stage.good(tool, json!({ "path": "/", "pattern": pattern })).await;
            assert!(!found.to_string().contains("outside"), "{round}: {found}");
        }
        // Deletions of the round before.
        let _either_is_the_folder = fs::create_dir_all(stage.work("d/x"))
            .or_else(|_| fs::create_dir_all(stage.work("link/x")));
    }
    done.store(true, Relaxed);
    assert!(swapping.join().expect("no panic") > 0, "nothing was swapped");
    assert_eq!(fs::read_to_string(stage.outside("x/f")).expect("there"), "secret outside");
    let names: Vec<_> = fs::read_dir(stage.outside("x")).expect("there").collect();
    assert_eq!(names.len(), 1, "{names:?}");
}
