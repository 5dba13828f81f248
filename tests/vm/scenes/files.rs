use std::fs;

use serde_json::json;

use crate::house::House;

pub fn text_files(house: House) {
    house.create("w");
    let path = "/work/deep/er/file.txt";
    let written = house.call("file_write", json!({ "workspace_id": "w", "path": path, "content": "grün\nzwei\n", "mode": "0640" }));
    assert_eq!((&written["bytes"], &written["mode"]), (&json!(11), &json!("0640")));
    let read = |offset: u64, limit: u64| house.call("file_read", json!({ "workspace_id": "w", "path": path, "offset": offset, "limit": limit }));
    assert_eq!(read(0, 100)["content"], "grün\nzwei\n");
    let torn = read(0, 3);
    assert_eq!((&torn["content"], &torn["next_offset"]), (&json!("gr"), &json!(2)));
    let edit = |old: &str, new: &str| json!({ "workspace_id": "w", "path": path, "old_string": old, "new_string": new });
    assert_eq!(house.call("file_edit", edit("zwei", "drei"))["replacements"], 1);
    assert_eq!(house.refused("file_edit", edit("vier", "x")).code, "no_match");
    assert_eq!(house.refused("file_edit", edit("", "x")).code, "invalid_input");
    assert_eq!(house.exec("w", &format!("cat {path}; stat -c %a {path}")), "grün\ndrei\n640\n");
    let list = house.call("file_list", json!({ "workspace_id": "w", "path": "/work/deep" }));
    assert_eq!((&list["entries"][0]["name"], &list["entries"][0]["kind"]), (&json!("er"), &json!("dir")));
    for (tool, args, code) in [
        ("file_read", json!({ "path": "/none" }), "not_found"),
        ("file_read", json!({ "path": "/work" }), "is_a_directory"),
        ("file_list", json!({ "path": path }), "not_a_directory"),
        ("file_write", json!({ "path": "/work", "content": "x" }), "is_a_directory"),
    ] {
        let mut args = args;
        args["workspace_id"] = json!("w");
        assert_eq!(house.refused(tool, args.clone()).code, code, "{tool} {args}");
    }
    house.exec("w", "printf '\\377\\376' > /tmp/binary");
    assert_eq!(house.refused("file_read", json!({ "workspace_id": "w", "path": "/tmp/binary" })).code, "not_utf8");
}

pub fn transfers_both_ways(house: House) {
    house.create("w");
    let transfers = house.path().join("state/transfers");
    let bytes: Vec<u8> = (0..8 * 1024 * 1024u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(transfers.join("up"), &bytes).expect("written");
    let transfer = |direction: &str, host: &str, guest: &str| {
        json!({ "workspace_id": "w", "direction": direction, "host_path": host, "guest_path": guest })
    };
    let up = house.call("file_transfer", transfer("upload", "up", "/data/copy"));
    assert_eq!(up["bytes"], bytes.len());
    house.exec("w", "cp /data/copy /data/copy2");
    house.call("file_transfer", transfer("download", "down", "/data/copy2"));
    assert!(fs::read(transfers.join("down")).expect("read") == bytes, "the bytes differ");
    for (host, code) in [("../x", "outside_transfer_dir"), ("/etc/passwd", "outside_transfer_dir"), ("none", "host_file_missing")] {
        assert_eq!(house.refused("file_transfer", transfer("upload", host, "/x")).code, code);
    }
    assert_eq!(house.refused("file_transfer", transfer("download", "y", "/none")).code, "not_found");
    let left: Vec<_> = fs::read_dir(&transfers).expect("listed").map(|e| e.expect("entry").file_name()).collect();
    assert_eq!(left.len(), 2, "a failed download left something: {left:?}");
}
