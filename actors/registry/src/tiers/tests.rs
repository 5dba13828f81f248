//! Tests of tiers: windows as a property over restarts, and calls of users through a dispatcher.

use std::{collections::BTreeMap, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::join_all;
use hivekeep_kernel::{Layer, User};
use hivekeep_ports::SessionQuotas as _;
use proptest::prelude::*;
use serde_json::json;

use super::{CallLimit, CountedLimit, LimitPeriod, QuotaTier};
use crate::{Options, test_util::Stage};

fn limit(tools: &[&str], per: LimitPeriod, most: u32) -> CallLimit {
    let tools = tools.iter().map(|&tool| tool.to_owned()).collect();
    CallLimit { tools, per, most: most.try_into().expect("above zero") }
}

#[derive(Debug, Clone)]
enum Step {
    Call,
    Pass { secs: i64 },
    Restart,
}

proptest! {
    #[test]
    fn a_window_is_never_granted_twice(
        most in 1_u32..60,
        steps in prop::collection::vec(
            prop_oneof![
                8 => Just(Step::Call),
                2 => (-5_i64..40).prop_map(|secs| Step::Pass { secs }),
                1 => Just(Step::Restart),
            ],
            0..400,
        ),
    ) {
        let limit = limit(&["*"], LimitPeriod::Minute, most);
        let (mut counted, mut written) = (CountedLimit::new(&limit, None), None);
        let mut now = DateTime::<Utc>::UNIX_EPOCH;
        let mut granted = 0;
        // While the clock only goes on, a restart forgets less than a lease.
        let (mut lost, mut monotonic) = (0, true);
        let mut began = None;
        for step in steps {
            match step {
                Step::Pass { secs } => {
                    now += TimeDelta::seconds(secs);
                    monotonic &= secs >= 0;
                }
                Step::Restart => {
                    counted = CountedLimit::new(&limit, written);
                    lost += (most / 16).max(1) - 1;
                }
                Step::Call => {
                    if monotonic && began.is_none_or(|began| now >= began + TimeDelta::minutes(1)) {
                        (began, granted, lost) = (Some(now), 0, 0);
                    }
                    match counted.blocked(now) {
                        None => {
                            granted += 1;
                            written = counted.take().or(written);
                            let written = written.expect("the first call writes");
                            prop_assert!(!monotonic || granted <= most);
                            prop_assert!(written.upto <= most);
                        }
                        Some(opens) => {
                            prop_assert!(opens.expect("a window ends") > now);
                            prop_assert!(!monotonic || granted + lost >= most);
                        }
                    }
                }
            }
        }
    }
}

fn tiers(calls: Vec<CallLimit>) -> Options {
    let mut options = Stage::loose();
    let holds = BTreeMap::from([("scripts".to_owned(), 5)]);
    options.tiers.insert("free".to_owned(), QuotaTier { calls, holds });
    options.user_tiers.insert(crate::test_util::stage::USER, "free".to_owned());
    options
}

#[tokio::test]
async fn a_tier_limits_its_users_calls_and_survives_a_restart() {
    let options = tiers(vec![limit(&["toy.a*", "toy_echo"], LimitPeriod::Hour, 3)]);
    let stage = Stage::new(options.clone()).await;
    let echo = json!({ "text": "x" });
    for _ in 0..2 {
        stage.call("toy_echo", echo.clone()).await.result.expect("below the limit");
    }
    stage.call("toy_admin", json!({})).await.result.expect("the third");
    let refused = stage.refusal("toy_echo", echo.clone()).await;
    assert_eq!((refused.layer, refused.code.as_ref()), (Layer::Rate, "tier_limit_reached"));
    assert_eq!(refused.details["tier"], "free");
    let wait = refused.retry_after_ms.expect("a time");
    assert!((3_590_000..=3_600_000).contains(&wait), "{wait}");
    let opens = refused.details["opens_at"].as_str().expect("a time");
    assert!(opens.parse::<DateTime<Utc>>().expect("RFC 3339") > Utc::now());
    stage.call("toy_wait", json!({ "ms": 0 })).await.result.expect("not limited");
    let stage = stage.restarted(options).await;
    assert!(stage.refusal("toy_echo", echo).await.is(crate::codes::TIER_LIMIT_REACHED));
    assert_eq!(stage.sessions.allowance(crate::test_util::stage::USER, "scripts"), Some(5));
    assert_eq!(stage.sessions.allowance(User::Bearer, "scripts"), None);
}

#[tokio::test]
async fn calls_at_once_are_exact() {
    let stage = Stage::new(tiers(vec![limit(&["toy_wait"], LimitPeriod::AtOnce, 2)])).await;
    for _ in 0..3 {
        let calls = (0..8).map(|_| stage.call("toy_wait", json!({ "ms": 200 })));
        let outcomes = join_all(calls).await;
        let passed = outcomes.iter().filter(|outcome| outcome.result.is_ok()).count();
        assert_eq!(passed, 2, "{outcomes:?}");
    }
    // A call that is cancelled gives its place back when its work has ended.
    let cancelled = stage.call("toy_wait", json!({ "ms": 60_000 }));
    assert!(tokio::time::timeout(Duration::from_millis(50), cancelled).await.is_err());
    let give_up = tokio::time::Instant::now() + Duration::from_secs(10);
    while join_all((0..2).map(|_| stage.call("toy_wait", json!({ "ms": 1 }))))
        .await
        .iter()
        .any(|outcome| outcome.result.is_err())
    {
        assert!(tokio::time::Instant::now() < give_up, "the place was not given back");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn what_cannot_be_meant_is_a_problem() {
    let mut options = tiers(vec![
        limit(&["fs.*"], LimitPeriod::Day, 1),
        limit(&["fs.*"], LimitPeriod::Day, 2),
        limit(&[], LimitPeriod::Day, 2),
        limit(&["a{"], LimitPeriod::Day, 2),
    ]);
    options.default_tier = "gold".to_owned();
    options.user_tiers.insert(User::Bearer, "silver".to_owned());
    let keys: Vec<_> = options.problems().into_iter().map(|(key, _)| key).collect();
    let wanted = [
        "user_tiers.bearer",
        "default_tier",
        "tiers.free.calls[1].tools",
        "tiers.free.calls[2].tools",
        "tiers.free.calls[3].tools",
    ];
    assert_eq!(keys, wanted);
}
