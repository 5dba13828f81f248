use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits { teams: 12, total_vms: 30, vms_per_team: 8, depth: 3 };

fn entry(name: &str, parent: Option<TeamId>, max_vms: u32, members: u32) -> Entry {
    let at = DateTime::UNIX_EPOCH;
    Entry { name: name.to_owned(), parent, max_vms, members, closing: false, at }
}

#[test]
fn every_team_above_has_to_have_room() {
    let mut directory = Directory::new(LIMITS);
    let (a, b, c) = (TeamId::new(), TeamId::new(), TeamId::new());
    directory.admit(a, entry("a", None, 5, 2)).expect("fits");
    directory.admit(b, entry("b", Some(a), 9, 2)).expect("fits");
    let refused = directory.admit(c, entry("c", Some(b), 9, 2)).expect_err("a is the grandparent");
    assert_eq!(refused, Refused::Budget { team: "a".to_owned(), max_vms: 5, used: 4, wanted: 2 });
    directory.admit(c, entry("c", Some(b), 9, 1)).expect("fits");
    assert_eq!(directory.cascade(a), [c, b, a]);
    assert_eq!(directory.used(a), 5);
    directory.release(c);
    assert_eq!(directory.used(a), 4);
}

#[test]
fn a_team_is_refused_for_what_stands_in_the_way() {
    let mut directory = Directory::new(LIMITS);
    let own = directory.admit(TeamId::new(), entry("x", None, 2, 3)).expect_err("own limit");
    assert!(matches!(own, Refused::Budget { used: 0, .. }));
    let many = directory.admit(TeamId::new(), entry("x", None, 99, 9)).expect_err("too many");
    assert!(matches!(many, Refused::TooManyRoles { .. }));
    let orphan = directory.admit(TeamId::new(), entry("x", Some(TeamId::new()), 9, 1));
    assert_eq!(orphan, Err(Refused::ParentGone));
    let mut parent = None;
    for depth in 0..=3 {
        let id = TeamId::new();
        directory.admit(id, entry(&depth.to_string(), parent, 9, 1)).expect("four levels");
        parent = Some(id);
    }
    let deep = directory.admit(TeamId::new(), entry("x", parent, 9, 1)).expect_err("a fifth");
    assert_eq!(deep, Refused::TooDeep { depth: 4, limit: 3 });
    let taken = directory.admit(TeamId::new(), entry("2", None, 9, 1)).expect_err("taken");
    assert_eq!(taken, Refused::NameTaken("2".to_owned()));
    directory.close(&[parent.expect("made")], true);
    let (id, _) = directory.find("3").expect("there");
    let closing = directory.admit(TeamId::new(), entry("x", Some(id), 9, 1)).expect_err("closing");
    assert_eq!(closing, Refused::ParentClosing("3".to_owned()));
}

#[derive(Debug, Clone)]
enum Step {
    Admit { parent: prop::sample::Index, root: bool, max_vms: u32, members: u32 },
    Release(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (any::<prop::sample::Index>(), any::<bool>(), 1..12u32, 1..6u32).prop_map(
            |(parent, root, max_vms, members)| Step::Admit { parent, root, max_vms, members }
        ),
        1 => any::<prop::sample::Index>().prop_map(Step::Release),
    ]
}

proptest! {
    #[test]
    fn no_limit_is_ever_exceeded_and_a_refusal_changes_nothing(
        steps in proptest::collection::vec(step(), 1..60)
    ) {
        let mut directory = Directory::new(LIMITS);
        for (number, step) in steps.into_iter().enumerate() {
            let ids: Vec<_> = directory.all().map(|(id, _)| id).collect();
            match step {
                Step::Admit { parent, root, max_vms, members } => {
                    let parent = (!root && !ids.is_empty()).then(|| *parent.get(&ids));
                    let before = directory.teams.clone();
                    let new = entry(&number.to_string(), parent, max_vms, members);
                    if directory.admit(TeamId::new(), new).is_err() {
                        prop_assert_eq!(&before, &directory.teams);
                    }
                }
                // Only what has nothing below it is released, as a destroy does.
                Step::Release(which) => if !ids.is_empty() {
                    let id = directory.cascade(*which.get(&ids))[0];
                    directory.release(id);
                }
            }
            prop_assert!(directory.teams.len() <= LIMITS.teams);
            let total: u32 = directory.teams.values().map(|team| team.members).sum();
            prop_assert!(total <= LIMITS.total_vms);
            for (id, team) in &directory.teams {
                prop_assert!(directory.used(*id) <= team.max_vms, "{:?}", team);
                let mut depth = 0;
                let mut above = team.parent;
                while let Some(id) = above {
                    depth += 1;
                    above = directory.teams[&id].parent;
                }
                prop_assert!(depth <= LIMITS.depth);
            }
        }
    }
}
