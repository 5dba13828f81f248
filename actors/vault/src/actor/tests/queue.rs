//! Jobs on notes begin in turn.

use proptest::prelude::*;

use super::*;

#[test]
fn nobody_overtakes_on_a_note_and_others_pass() {
    let mut queue = KeyedQueue::default();
    assert_eq!(queue.ask(vec!["a"], 1), [(vec!["a"], 1)]);
    assert!(queue.ask(vec!["a", "b"], 2).is_empty());
    assert!(queue.ask(vec!["b"], 3).is_empty(), "2 came before and needs b");
    assert_eq!(queue.ask(vec!["c"], 4), [(vec!["c"], 4)]);
    assert_eq!(queue.done(&["a"]), [(vec!["a", "b"], 2)]);
    assert_eq!(queue.done(&["a", "b"]), [(vec!["b"], 3)]);
    assert_eq!(queue.waiting(), 0);
}

proptest! {
    #[test]
    fn each_runs_once_alone_and_in_order(jobs in prop::collection::vec(prop::collection::btree_set(0u8..4, 1..3), 1..30), pick in any::<u64>()) {
        let mut queue = KeyedQueue::default();
        let (mut running, mut ended) = (Vec::new(), Vec::new());
        let mut pick = pick;
        let mut finish = |queue: &mut KeyedQueue<u8, usize>, running: &mut Vec<(Vec<u8>, usize)>| {
            pick = pick.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let nth = usize::try_from(pick >> 33).unwrap() % running.len();
            let (keys, job) = running.remove(nth);
            running.extend(queue.done(&keys));
            ended.push((keys, job));
        };
        for (nth, keys) in jobs.iter().enumerate() {
            running.extend(queue.ask(keys.iter().copied().collect(), nth));
            let busy: Vec<_> = running.iter().flat_map(|(keys, _)| keys).collect();
            let distinct: HashSet<_> = busy.iter().collect();
            prop_assert_eq!(busy.len(), distinct.len(), "two jobs have one note");
            if running.len() > 2 {
                finish(&mut queue, &mut running);
            }
        }
        while !running.is_empty() {
            finish(&mut queue, &mut running);
        }
        prop_assert_eq!(ended.len(), jobs.len());
        for note in 0u8..4 {
            let order: Vec<_> = ended.iter().filter(|(keys, _)| keys.contains(&note)).map(|(_, job)| *job).collect();
            prop_assert!(order.is_sorted(), "{order:?}");
        }
    }
}
