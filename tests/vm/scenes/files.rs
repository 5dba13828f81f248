use std::{
    fs,
    io::{Read, Write},
};

use serde_json::json;

use crate::house::{House, Kind};

pub fn text_files(house: &mut House) {
    let path = "/work/deep/er/file.txt";
    let written = house.call(
        "file_write",
        json!({ "workspace_id": "w", "path": path, "content": "grün\nzwei\n", "mode": "0640" }),
    );
    assert_eq!((&written["bytes"], &written["mode"]), (&json!(11), &json!("0640")));
    let read = |offset: u64, limit: u64| {
        house.call(
            "file_read",
            json!({ "workspace_id": "w", "path": path, "offset": offset, "limit": limit }),
        )
    };
    assert_eq!(read(0, 100)["content"], "grün\nzwei\n");
    let part = read(4, 3);
    assert_eq!((&part["content"], &part["next_offset"]), (&json!("n\nzwei\n"), &json!(11)));
    let edit = |old: &str, new: &str| json!({ "workspace_id": "w", "path": path, "old_string": old, "new_string": new });
    assert_eq!(house.call("file_edit", edit("zwei", "drei"))["replacements"], 1);
    assert_eq!(house.refused("file_edit", edit("vier", "x")).code, "no_match");
    assert_eq!(house.refused("file_edit", edit("", "x")).code, "invalid_input");
    assert_eq!(house.exec("w", &format!("cat {path}; stat -c %a {path}")), "grün\ndrei\n640\n");
    let list = house.call("file_list", json!({ "workspace_id": "w", "path": "/work/deep" }));
    assert_eq!(
        (&list["entries"][0]["name"], &list["entries"][0]["kind"]),
        (&json!("er"), &json!("dir"))
    );
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
    assert_eq!(
        house.refused("file_read", json!({ "workspace_id": "w", "path": "/tmp/binary" })).code,
        "not_utf8"
    );
}

pub fn transfers_both_ways(house: &mut House) {
    let transfers = house.path().join("state/transfers");
    let bytes: Vec<u8> =
        (0..8 * 1024 * 1024u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(transfers.join("up"), &bytes).expect("written");
    let transfer = |direction: &str, host: &str, guest: &str| json!({ "workspace_id": "w", "direction": direction, "host_path": host, "guest_path": guest });
    let up = house.call("file_transfer", transfer("upload", "up", "/data/copy"));
    assert_eq!(up["bytes"], bytes.len());
    house.exec("w", "cp /data/copy /data/copy2");
    house.call("file_transfer", transfer("download", "down", "/data/copy2"));
    assert!(fs::read(transfers.join("down")).expect("read") == bytes, "the bytes differ");
    for (host, code) in [
        ("../x", "outside_transfer_dir"),
        ("/etc/passwd", "outside_transfer_dir"),
        ("none", "host_file_missing"),
    ] {
        assert_eq!(house.refused("file_transfer", transfer("upload", host, "/x")).code, code);
    }
    assert_eq!(
        house.refused("file_transfer", transfer("download", "y", "/none")).code,
        "not_found"
    );
    let left: Vec<_> =
        fs::read_dir(&transfers).expect("listed").map(|e| e.expect("entry").file_name()).collect();
    assert_eq!(left.len(), 2, "a failed download left something: {left:?}");
}

/// A file that fits neither a frame nor, held whole, the daemon's memory bound.
pub fn large_files_in_bounded_memory(house: &mut House) {
    let size: u64 = if house.kind == Kind::Vm { 192 << 20 } else { 1 << 30 };
    let transfers = house.path().join("state/transfers");
    let mut file = fs::File::create(transfers.join("up")).expect("made");
    let block: Vec<u8> =
        (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    for n in 0..size >> 20 {
        file.write_all(&n.to_le_bytes()).expect("written");
        file.write_all(&block[8..]).expect("written");
    }
    drop(file);
    let before = house.peak_memory_kib();
    let transfer = |direction: &str, host: &str| {
        let args = json!({ "workspace_id": "w", "direction": direction, "host_path": host, "guest_path": "/data/big" });
        house.call("file_transfer", args)
    };
    assert_eq!(transfer("upload", "up")["bytes"], size);
    assert_eq!(house.exec("w", "stat -c %s /data/big").trim(), size.to_string());
    assert_eq!(transfer("download", "down")["bytes"], size);
    let grown = house.peak_memory_kib().saturating_sub(before);
    assert!(grown < 64 * 1024, "the daemon grew by {grown} KiB over a file of {} MiB", size >> 20);
    let (mut up, mut down) = (open(&transfers.join("up")), open(&transfers.join("down")));
    let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    for n in 0..size >> 20 {
        up.read_exact(&mut a).expect("read");
        down.read_exact(&mut b).expect("read");
        assert!(a == b, "MiB {n} differs");
    }
    fs::remove_file(transfers.join("up")).expect("removed");
    fs::remove_file(transfers.join("down")).expect("removed");
}

fn open(path: &std::path::Path) -> fs::File {
    fs::File::open(path).expect("opened")
}

pub fn full_disks_are_told_and_lose_nothing(house: House) {
    house.create("w");
    let transfers = house.path().join("state/transfers");
    if house.kind == Kind::Vm {
        house.call(
            "file_write",
            json!({ "workspace_id": "w", "path": "/root/kept", "content": "old" }),
        );
        house.exec("w", "dd if=/dev/zero of=/root/fill bs=1M 2>/dev/null; sync; true");
        let content = "x".repeat(1 << 20);
        let refused = house.refused(
            "file_write",
            json!({ "workspace_id": "w", "path": "/root/kept", "content": content }),
        );
        assert_eq!(refused.code, "guest_disk_full", "{}", refused.text);
        house.exec("w", "rm /root/fill");
        assert_eq!(house.exec("w", "cat /root/kept"), "old");
    }
    let small = transfers.join("small");
    fs::create_dir(&small).expect("made");
    let _mounted = house.mount_small(&small);
    house.exec("w", "head -c 3000000 /dev/zero > /tmp/three");
    fs::write(small.join("kept"), "old").expect("written");
    let args = json!({ "workspace_id": "w", "direction": "download", "host_path": "small/kept", "guest_path": "/tmp/three" });
    let refused = house.refused("file_transfer", args);
    assert_eq!(refused.code, "host_disk_full", "{}", refused.text);
    assert_eq!(fs::read_to_string(small.join("kept")).expect("read"), "old");
    assert_eq!(fs::read_dir(&small).expect("listed").count(), 1, "the cut download stays");
}
