//! A workspace VM of the daemon's with a second virtio-serial port for plain
//! bytes, so that the link and its baseline are the same carrier of the same
//! machine. The daemon is given a QEMU that is a script, which adds the port and
//! becomes QEMU.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{client::StdioClient, house::BenchDaemon, kit::BenchPrograms, raw::Raw};

pub(super) const WORKSPACE: &str = "bench";
const PORT: &str = "hivekeep.raw";
/// The driver wakes the reader of one port at each interrupt of the device, which is every
/// port's. On an emulated CPU each change to that process and back empties the TLB, which costs
/// the link much of its speed. So it is stopped but for its own turns.
const RAW_SLEEPS: &str = "kill -STOP $(cat /run/raw.pid)";
const RAW_WAKES: &str = "kill -CONT $(cat /run/raw.pid)";

/// The machine, with both ways into it.
pub(super) struct Rig {
    pub(super) client: StdioClient,
    raw: Raw,
    transfers: PathBuf,
    // Ends after those above.
    _house: BenchDaemon,
}

impl Rig {
    pub(super) fn new(kit: &BenchPrograms<'_>) -> Result<Self> {
        let tools = kit.repo.shell.create_temp_dir()?;
        fs::set_permissions(tools.path(), fs::Permissions::from_mode(0o711))?;
        let sockets = tools.path().join("sockets");
        fs::create_dir(&sockets)?;
        // The machine's own user makes the socket.
        fs::set_permissions(&sockets, fs::Permissions::from_mode(0o777))?;
        let (qemu, socket) = (tools.path().join("qemu"), sockets.join("raw"));
        write_script(&qemu, &socket)?;
        let house = BenchDaemon::open(
            kit,
            &format!(
                "isolation = \"vm\"\n[workspace.driver]\ncarrier = \"virtio-serial\"\nqemu_path = {qemu:?}\n"
            ),
        )?;
        let mut client = house.attach()?;
        // One CPU, so that emulated ones do not wait for each other on a small host; memory
        // for the largest file, which is also put into the memory file system.
        let size = json!({ "name": WORKSPACE, "vcpus": 1, "memory_mb": 1024 });
        client.call("workspace_create", &size)?;
        let raw = Raw::connect(&socket)?;
        let transfers = house.path().join("state/transfers");
        let mut rig = Self { client, raw, transfers, _house: house };
        rig.serve_raw()?;
        rig.exec(RAW_SLEEPS, 0)?;
        // The script and the sockets are in use by now and may go.
        drop(tools);
        Ok(rig)
    }

    /// Has the guest serve the second port.
    fn serve_raw(&mut self) -> Result<()> {
        let find = format!("grep -lx {PORT} /sys/class/virtio-ports/*/name | cut -d/ -f5");
        let command =
            format!("echo $$ > /run/raw.pid; exec /proc/1/exe selftest-raw /dev/$({find})");
        let job = json!({ "workspace_id": WORKSPACE, "action": "start", "command": command });
        self.client.call("exec_background", &job)?;
        self.raw.echo_us()?;
        Ok(())
    }

    /// A turn of the bare carrier.
    pub(super) fn bare<T>(&mut self, turn: impl FnOnce(&mut Raw) -> Result<T>) -> Result<T> {
        self.exec(RAW_WAKES, 0)?;
        let had = turn(&mut self.raw)?;
        self.exec(RAW_SLEEPS, 0)?;
        Ok(had)
    }

    /// A command that has to succeed; the whole result.
    pub(super) fn exec(&mut self, command: &str, max_output_bytes: u64) -> Result<Value> {
        let result = self.client.call(
            "exec",
            &json!({
                "workspace_id": WORKSPACE,
                "command": command,
                "max_output_bytes": max_output_bytes,
            }),
        )?;
        ensure!(result["exit_code"] == 0, "{command}: {result}");
        Ok(result)
    }

    /// The host's folder for transfers.
    pub(super) fn transfers(&self) -> &Path {
        &self.transfers
    }
}

fn write_script(path: &Path, socket: &Path) -> Result<()> {
    let socket = socket.display();
    let script = format!(
        "#!/bin/sh\n\
         case $1 in --version) exec qemu-system-x86_64 --version;; esac\n\
         left=$#\n\
         while [ $left -gt 0 ]; do\n\
         case $1 in\n\
         virtio-serial-device,max_ports=2) set -- \"$@\" virtio-serial-device,max_ports=3;;\n\
         *) set -- \"$@\" \"$1\";;\n\
         esac\n\
         shift\n\
         left=$((left-1))\n\
         done\n\
         exec qemu-system-x86_64 \"$@\" \\\n\
         -chardev socket,id=raw,path={socket},server=on,wait=off \\\n\
         -device virtserialport,chardev=raw,name={PORT}\n"
    );
    fs::write(path, script)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}
