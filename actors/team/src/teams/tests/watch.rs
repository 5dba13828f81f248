//! A team as whoever runs the daemon sees it.

use serde_json::json;

use super::stage::Stage;

#[tokio::test]
async fn a_picture_needs_no_session_and_takes_nothing_out_of_an_inbox() {
    let stage = Stage::new().await;
    assert_eq!(stage.watcher.picture("crew", true).await.expect_err("none").code, "team_not_found");
    let made = stage.create("crew", &["a", "b"]).await;
    let sent = stage.say("a", "b", "hello").await;
    for _ in 0..2 {
        let picture = stage.watcher.picture("crew", true).await.expect("a picture");
        assert_eq!(json!(picture.team_id), made["team_id"]);
        assert_eq!(picture.state, "ready");
        let [a, b] = &picture.members[..] else { panic!("{picture:?}") };
        assert_eq!((a.member.name.as_str(), b.member.name.as_str()), ("a", "b"));
        assert_eq!(a.member.agent_status.as_deref(), Some("ready"));
        assert_eq!(json!(a.inbox), json!([]));
        assert_eq!(json!(b.inbox), json!([sent["message_id"]]));
    }
    let light = stage.watcher.picture("crew", false).await.expect("a picture");
    let a = &light.members[0].member;
    assert_eq!((&a.agent_status, &a.ip, a.pending_tasks), (&None, &None, Some(0)));
    let got = stage.call(json!({ "action": "receive", "name": "crew", "agent": "b" })).await;
    assert_eq!((&got["count"], &got["messages"][0]["redelivered"]), (&json!(1), &json!(false)));
}
