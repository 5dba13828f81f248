use proptest::prelude::*;

use super::*;

type Teams = BTreeMap<TeamId, TeamEntry>;

fn limits() -> Options {
    Options { max_total_vms: 30, max_vms_per_team: 8, max_nesting_depth: 3, ..Options::default() }
}

fn entry(name: &str, parent: Option<TeamId>, max_vms: u32, members: u32) -> TeamEntry {
    let (owner, at) = (SessionId::new(), DateTime::UNIX_EPOCH);
    TeamEntry { name: name.to_owned(), owner, user: None, parent, max_vms, members, at }
}

fn directory(teams: &Teams) -> Directory<'_> {
    teams.iter().map(|(id, team)| (*id, team)).collect()
}

fn admit(teams: &mut Teams, new: TeamEntry) -> Result<TeamId, LimitReached> {
    directory(teams).fits(&new, &limits(), |_| false)?;
    let id = TeamId::new();
    teams.insert(id, new);
    Ok(id)
}

#[test]
fn every_team_above_has_to_have_room() {
    let mut teams = Teams::new();
    let a = admit(&mut teams, entry("a", None, 5, 2)).expect("fits");
    let b = admit(&mut teams, entry("b", Some(a), 9, 2)).expect("fits");
    let refused = admit(&mut teams, entry("c", Some(b), 9, 2)).expect_err("a is the grandparent");
    assert_eq!(
        refused,
        LimitReached::Budget { team: "a".to_owned(), max_vms: 5, used: 4, wanted: 2 }
    );
    let c = admit(&mut teams, entry("c", Some(b), 9, 1)).expect("fits");
    assert_eq!(directory(&teams).cascade(a), [c, b, a]);
    assert_eq!(directory(&teams).used(a), 5);
    teams.remove(&c);
    assert_eq!(directory(&teams).used(a), 4);
}

#[test]
fn a_team_is_refused_for_what_stands_in_the_way() {
    let mut teams = Teams::new();
    let own = admit(&mut teams, entry("x", None, 2, 3)).expect_err("own limit");
    assert!(matches!(own, LimitReached::Budget { used: 0, .. }));
    let many = admit(&mut teams, entry("x", None, 99, 9)).expect_err("too many");
    assert!(matches!(many, LimitReached::TooManyRoles { .. }));
    let orphan = admit(&mut teams, entry("x", Some(TeamId::new()), 9, 1));
    assert_eq!(orphan, Err(LimitReached::ParentGone));
    let mut parent = None;
    for depth in 0..=3 {
        let new = entry(&depth.to_string(), parent, 9, 1);
        parent = Some(admit(&mut teams, new).expect("four levels"));
    }
    let deep = admit(&mut teams, entry("x", parent, 9, 1)).expect_err("a fifth");
    assert_eq!(deep, LimitReached::TooDeep { depth: 4, limit: 3 });
    let below = entry("x", parent, 9, 1);
    let closing = directory(&teams).fits(&below, &limits(), |id| Some(id) == parent);
    assert_eq!(closing, Err(LimitReached::ParentClosing("3".to_owned())));
    let tight = Options { max_total_vms: 4, ..limits() };
    let total = directory(&teams).fits(&entry("x", None, 9, 1), &tight, |_| false);
    assert_eq!(total, Err(LimitReached::Total { used: 4, wanted: 1, limit: 4 }));
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
    fn no_limit_is_ever_exceeded(steps in proptest::collection::vec(step(), 1..60)) {
        let mut teams = Teams::new();
        for (number, step) in steps.into_iter().enumerate() {
            let ids: Vec<_> = teams.keys().copied().collect();
            match step {
                Step::Admit { parent, root, max_vms, members } => {
                    let parent = (!root && !ids.is_empty()).then(|| *parent.get(&ids));
                    // One that is refused changes nothing.
                    let _refused = admit(&mut teams, entry(&number.to_string(), parent, max_vms, members));
                }
                // Only what has nothing below it is released, as a destroy does.
                Step::Release(which) => if !ids.is_empty() {
                    let id = directory(&teams).cascade(*which.get(&ids))[0];
                    teams.remove(&id);
                }
            }
            let limits = limits();
            let total: u32 = teams.values().map(|team| team.members).sum();
            prop_assert!(total <= limits.max_total_vms);
            for (id, team) in &teams {
                prop_assert!(directory(&teams).used(*id) <= team.max_vms, "{:?}", team);
                let mut depth = 0;
                let mut above = team.parent;
                while let Some(id) = above {
                    depth += 1;
                    above = teams[&id].parent;
                }
                prop_assert!(depth <= limits.max_nesting_depth);
            }
        }
    }
}
