//! Files of any content, as other families put them into places and read them there.

use std::time::Duration;

use hivekeep_file_engine::{
    ByteRange, FileOperation, FileOutcome, FilePut, Operation, PutFile, ReadBytes, decode, encode,
};
use hivekeep_kernel::{CallCx, Progress, ToolError};
use hivekeep_ports::{PlaceFiles, WorkspaceReadiness};
use hivekeep_testkit::context;

use super::stage::Stage;

/// Runs an operation as another family does.
async fn ask<O: Operation>(
    stage: &Stage,
    place: Option<&str>,
    operation: O,
) -> Result<O::Outcome, ToolError> {
    let files = stage.daemon().ports.need::<dyn PlaceFiles>().expect("offered");
    let cx: CallCx =
        context(stage.session(), "webview_connect", Duration::from_secs(60), Progress::default());
    let at = files.locate(&cx, place).await?;
    let operation: FileOperation = operation.into();
    let answer = files.run(&cx, &at.id, encode(&operation).expect("it fits")).await?;
    let outcome: FileOutcome = decode(&answer).expect("an outcome");
    Ok(O::outcome_of(outcome).expect("of its kind"))
}

fn put(path: &str, content: &[u8]) -> PutFile {
    PutFile { path: path.to_owned(), content: content.to_vec().into() }
}

fn read(path: &str) -> ReadBytes {
    ReadBytes { path: path.to_owned(), offset: 0, limit: 1 << 24 }
}

#[tokio::test]
async fn files_are_put_into_a_folder_of_the_host_and_read_there() {
    let (stage, binary) = (Stage::new().await, [0, 159, 146, 150]);
    for name in ["a.bin", "a-1.bin"] {
        let FilePut { name: given } =
            ask(&stage, None, put("downloads/a.bin", &binary)).await.expect("put");
        assert_eq!(given, name);
        let path = format!("downloads/{name}");
        assert_eq!(std::fs::read(stage.work(&path)).expect("there"), binary);
        let ByteRange { bytes, size_bytes } = ask(&stage, None, read(&path)).await.expect("read");
        assert_eq!((bytes.as_slice(), size_bytes), (&binary[..], 4));
    }
    for (place, path, code) in [
        (Some("look"), "x", "place_read_only"),
        (Some("none"), "x", "place_unknown"),
        (None, "../x", "outside_place"),
        (None, "", "invalid_path"),
    ] {
        assert_eq!(ask(&stage, place, put(path, b"x")).await.expect_err(code).code, code);
    }
    std::os::unix::fs::symlink(stage.outside(""), stage.work("out")).expect("made");
    assert!(ask(&stage, None, put("out/x", b"x")).await.is_err(), "through a link");
    assert_eq!(std::fs::read_dir(stage.outside("")).expect("there").count(), 0);
}

#[tokio::test]
async fn files_are_put_into_a_workspace_and_read_there() {
    let stage = Stage::new().await;
    stage.machines.put("mine", Some(stage.session()), WorkspaceReadiness::Ready);
    let content = vec![255; 1 << 20];
    let given = ask(&stage, Some("mine"), put("downloads/a.bin", &content)).await.expect("put");
    assert_eq!(given.name, "a.bin");
    let bytes = ask(&stage, Some("mine"), read("downloads/a.bin")).await.expect("read").bytes;
    assert_eq!(bytes, content);
}
