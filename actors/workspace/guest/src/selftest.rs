//! Checks that need the real machine, run by whoever builds one.

pub mod calls;
pub mod raw;

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hivekeep_protocol::{
    Decoder, Frame, FrameKind, FromGuest, GuestError, GuestWelcome, HelloRefusal, HostHello,
    PROTOCOL_VERSION, Ping, SYNC_LEN, ToGuest, decode, encode, sync_preamble,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_vsock::{VMADDR_CID_LOCAL, VsockAddr, VsockStream};

use crate::agent::Agent;
use crate::carrier::vsock::{PORT, Vsock};
use crate::roles::{RoleFailure, runtime};
use crate::settings::{AgentSettings, GuestKind};
use crate::sys::spawn::{Program, Stdio, spawn as start};

/// Serves on AF_VSOCK, dials it through the loopback CID, and pings through the
/// whole handshake. Needs the kernel's vsock_loopback.
///
/// # Errors
/// At the first step that fails.
pub fn vsock() -> Result<ExitCode, RoleFailure> {
    let dir = std::env::temp_dir().join(format!("hivekeep-selftest-{}", std::process::id()));
    let token = [0x5a; 32];
    let settings = AgentSettings {
        token_hash: *blake3::hash(&token).as_bytes(),
        exe: "/proc/self/exe".into(),
        state_dir: dir.join("state"),
        run_dir: dir.join("run"),
        place: GuestKind::Sandbox,
        cgroup_root: None,
    };
    let outcome = runtime()?.block_on(async {
        let refusing = Vsock::bind(PORT + 1000, vec![crate::carrier::vsock::HOST_CID])?;
        let agent = Agent::start(settings).await?;
        tokio::spawn(agent.clone().serve(refusing));
        tokio::spawn(agent.serve(Vsock::bind(PORT, vec![VMADDR_CID_LOCAL])?));
        let pong = tokio::time::timeout(Duration::from_secs(10), ping(PORT, token)).await??;
        let refused =
            tokio::time::timeout(Duration::from_secs(10), ping(PORT + 1000, token)).await?;
        match (pong, refused) {
            (true, Err(_)) => Ok(()),
            (true, Ok(_)) => Err("a peer that is not the host was served".into()),
            (false, _) => Err::<(), RoleFailure>("the ping came back changed".into()),
        }
    });
    let _ = std::fs::remove_dir_all(dir);
    outcome?;
    crate::say!("selftest-vsock: ok");
    Ok(ExitCode::SUCCESS)
}

async fn ping(port: u32, token: [u8; 32]) -> Result<bool, RoleFailure> {
    let mut stream = VsockStream::connect(VsockAddr::new(VMADDR_CID_LOCAL, port)).await?;
    let preamble = sync_preamble(*b"selftest-vsock-1");
    stream.write_all(&preamble).await?;
    let mut echo = [0; SYNC_LEN];
    stream.read_exact(&mut echo).await?;
    let hello = HostHello { min_version: PROTOCOL_VERSION, max_version: PROTOCOL_VERSION, token };
    let hello = Frame { kind: FrameKind::Hello, id: 0, payload: encode(&hello)? };
    stream.write_all(&hello.to_bytes()).await?;
    let welcome: Result<GuestWelcome, HelloRefusal> = decode(&frame(&mut stream).await?.payload)?;
    welcome?;
    let payload = b"are you there".to_vec();
    let request = encode(&ToGuest::Ping(Ping { payload: payload.clone() }))?;
    let request = Frame { kind: FrameKind::Request, id: 1, payload: request };
    stream.write_all(&request.to_bytes()).await?;
    let reply: Result<FromGuest, GuestError> = decode(&frame(&mut stream).await?.payload)?;
    Ok(matches!(reply?, FromGuest::Ping(pong) if pong.payload == payload) && echo == preamble)
}

async fn frame(stream: &mut VsockStream) -> Result<Frame, RoleFailure> {
    let mut decoder = Decoder::default();
    loop {
        let byte = [stream.read_u8().await?];
        if let (_, Some(frame)) = decoder.push(&byte)? {
            return Ok(frame);
        }
    }
}

/// Times bare starts of `sh -c true`: what an exec of it is measured against.
///
/// # Errors
/// When it cannot be started.
pub fn spawn(times: Option<OsString>) -> Result<ExitCode, RoleFailure> {
    let times = times.and_then(|text| text.to_str()?.parse().ok()).unwrap_or(100_usize).max(1);
    let program = Program {
        path: c"/bin/sh".to_owned(),
        argv: vec![c"sh".to_owned(), c"-c".to_owned(), c"true".to_owned()],
        env: vec![c"PATH=/usr/bin:/bin".to_owned()],
        workdirs: Vec::new(),
        max_open_files: None,
    };
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    let fd = null.as_fd();
    let stdio = Stdio::of(fd, fd, fd);
    let shared = measure(times, || {
        let started = start(&program, &stdio)?;
        let options = rustix::process::WaitOptions::empty();
        rustix::process::waitpid(Some(started.pid), options)?;
        Ok(())
    })?;
    let std_way = measure(times, || {
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", "true"]).stdin(null.try_clone()?);
        command.status()?;
        Ok(())
    })?;
    let line =
        format!(r#"{{"times":{times},"spawn_p50_us":{shared},"std_spawn_p50_us":{std_way}}}"#);
    std::io::Write::write_all(&mut std::io::stdout(), format!("{line}\n").as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn measure(
    times: usize,
    mut once: impl FnMut() -> Result<(), RoleFailure>,
) -> Result<u128, RoleFailure> {
    let mut taken = Vec::with_capacity(times);
    for _ in 0..times {
        let begun = Instant::now();
        once()?;
        taken.push(begun.elapsed().as_micros());
    }
    taken.sort_unstable();
    Ok(taken[taken.len() / 2])
}
