//! What a guest makes of its files, and what the daemon makes of that.

use serde_json::json;

use crate::{house::House, leaks};

/// 16,000 folders in each other, which no path reaches and no walk that recurses gets to the end
/// of; others that deny everything, and names that are no text.
const TREE: &str = r#"cd /root && t=$(printf 'd/%.0s' $(seq 1 500)) && mkdir -p a/$t &&
    for i in $(seq 1 31); do mkdir -p b/$t && mv a b/$t && mv b a || exit 1; done &&
    mkdir -p shut/in && touch shut/in/file "$(printf 'odd\377\n\033')" && ln -s / a/link &&
    chmod 000 shut/in shut && echo made"#;

pub fn a_tree_of_any_depth_goes_and_the_daemon_lives(mut house: House) {
    house.create("deep");
    let args = json!({ "workspace_id": "deep", "command": TREE, "timeout_secs": 80 });
    let made = house.call("exec", args);
    assert_eq!(made["stdout"], "made\n", "{made}");

    house.kill();
    house.start_armed("removal.after_folder=100*off->return(kill)");
    house.wait_state("deep", "running");
    // The removal goes on behind the answer, which its death may overtake.
    if let Err(Some(refusal)) =
        house.try_call("workspace_destroy", json!({ "workspace_id": "deep" }))
    {
        panic!("{}", refusal.text);
    }
    // It had begun, and dies where it is told to: not of the tree.
    house.wait_for_death();
    assert!(!house.stderr().contains("overflowed its stack"), "{}", house.stderr());
    let trash = house.path().join("state/disks/.hivekeep-trash");
    assert!(std::fs::read_dir(&trash).expect("listed").next().is_some(), "nothing was left over");

    // The rest is still deeper than any stack. The start does not wait for it, nor end by it.
    house.start();
    house.create("next");
    leaks::check(&house);
    house.exec("next", "true");
}
