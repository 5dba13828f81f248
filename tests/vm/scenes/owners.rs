//! Who may operate a workspace, when its session is there and when it is gone.

use serde_json::json;

use crate::house::House;

pub fn a_workspace_outlives_its_session_and_can_be_adopted(house: House) {
    let client = house.attach();
    let made = client.call("workspace_create", json!({ "name": "w" })).expect("made");
    assert_eq!(made["state"], "running", "{made}");
    // The command line has a session of its own.
    let exec = json!({ "workspace_id": "w", "command": "true" });
    assert_eq!(house.refused("exec", exec.clone()).code, "not_owner");
    assert_eq!(house.list()[0]["owned"], false);
    for force in [false, true] {
        let args = json!({ "workspace_id": "w", "force": force });
        assert_eq!(house.refused("workspace_adopt", args).code, "owner_active", "force: {force}");
    }
    assert_eq!(house.call("workspace_adopt", json!({}))["adopted_count"], 0, "it is in use");

    let sessions = house.ask(json!({ "method": "sessions", "params": {} })).expect("listed");
    let rows = sessions["sessions"].as_array().or(sessions.as_array()).expect("a list").clone();
    let row = rows.iter().find(|row| row["door"] == "mcp_stdio").expect("the client's session");
    let id = row["session"].as_str().or(row["id"].as_str()).expect("an id").to_owned();
    drop(client);
    house.ask(json!({ "method": "end_session", "params": { "session": id } })).expect("ended");

    assert_eq!(house.list()[0]["state"], "running", "the machine went with its session");
    let adopted = house.call("workspace_adopt", json!({}));
    assert_eq!(adopted["adopted_count"], 1, "{adopted}");
    assert_eq!(house.call("exec", exec)["exit_code"], 0);
}
