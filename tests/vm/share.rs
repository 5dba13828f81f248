//! Which scenes a run takes, as its environment has it.

/// Names the third of the rotated scenes that a run takes: `1/3`, `2/3`, `3/3`, or `all`.
const SHARE: &str = "TEST_HIVEKEEP_SHARE";
/// Adds what only a night has the time for.
const NIGHTLY: &str = "TEST_HIVEKEEP_NIGHTLY";
/// In how many runs each rotated scene has its turn.
const SHARES: u8 = 3;

/// In which runs a scene takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Each,
    /// In one of [`SHARES`] runs, that of this number.
    Share(u8),
    /// At night.
    Night,
    /// In each run as part of a bundle, and at night alone too.
    Bundled,
    /// In a step of its own, which names it.
    Step(&'static str),
}

/// A run's part of the scenes.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Number of the share; all of them when there is none.
    number: Option<u8>,
    night: bool,
}

impl Share {
    /// # Panics
    /// Where the environment names a share that does not exist.
    pub fn of_environment() -> Self {
        let number =
            match std::env::var(SHARE).as_deref() {
                Err(_) | Ok("all") => None,
                Ok(share) => Some(Self::number(share).unwrap_or_else(|| {
                    panic!("{SHARE} is `{share}`: it takes 1/3, 2/3, 3/3 or all")
                })),
            };
        Self { number, night: std::env::var_os(NIGHTLY).is_some() }
    }

    fn number(share: &str) -> Option<u8> {
        let (number, of) = share.split_once('/')?;
        let number = number.parse().ok().filter(|number| (1..=SHARES).contains(number));
        number.filter(|_| of == SHARES.to_string())
    }

    /// Why a scene is left out, behind a word for that; nothing when this run takes it.
    pub fn leaves_out(self, when: When) -> Option<(&'static str, String)> {
        match (when, self.number) {
            (When::Share(its), Some(this)) if its != this => {
                let why = format!("share {its}/{SHARES}, this run is {this}/{SHARES}; --share all");
                Some(("ROTATED", why))
            }
            (When::Night, _) if !self.night => {
                Some(("NIGHT", format!("a night has it; {NIGHTLY}=1")))
            }
            (When::Bundled, _) if !self.night => {
                Some(("BUNDLED", format!("each run has it in a bundle; alone with {NIGHTLY}=1")))
            }
            (When::Step(step), _) => Some(("BUNDLED", format!("the step `{step}` has it"))),
            _ => None,
        }
    }
}

pub fn each_scene_has_its_turn() {
    let run = |number, night| Share { number, night };
    for its in 1..=SHARES {
        let turns = (1..=SHARES)
            .filter(|this| run(Some(*this), false).leaves_out(When::Share(its)).is_none());
        assert_eq!(turns.collect::<Vec<_>>(), [its]);
        assert_eq!(run(None, false).leaves_out(When::Share(its)), None);
    }
    let rotated = run(Some(1), true).leaves_out(When::Share(2)).expect("it is left out");
    assert_eq!(rotated, ("ROTATED", "share 2/3, this run is 1/3; --share all".to_owned()));
    for when in [When::Night, When::Bundled] {
        assert!(
            run(None, false).leaves_out(when).is_some()
                && run(None, true).leaves_out(when).is_none()
        );
    }
    assert_eq!(run(Some(1), false).leaves_out(When::Each), None);
    assert_eq!(["1/3", "3/3"].map(Share::number), [Some(1), Some(3)]);
    assert!(
        ["0/3", "4/3", "1/2", "1", "", "one/3"]
            .into_iter()
            .all(|share| Share::number(share).is_none())
    );
}
