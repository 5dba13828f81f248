//! Stand-in for a machine: a process that holds a tap. It passes the frames on to a namespace whose
//! kernel plays the guest, and can send frames that no kernel would.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use hivekeep_kernel::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::test_network;
use crate::apply::open_by_name;
use crate::plan::{AddressLease, Subnet};
use crate::{Error, Namespace};

/// Header of each frame of a tap; all zero, it asks for nothing.
const VIRTIO_HEADER: [u8; 10] = [0; 10];
const FRAME_BYTES: usize = 64 << 10;
/// Frames that are remembered.
const MEMORY: usize = 512;
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

type Frames = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A guest.
#[derive(Debug)]
pub struct TestGuest {
    /// Namespace of its kernel.
    pub inside: Namespace,
    /// Address lease in the network.
    pub lease: AddressLease,
    cable: Arc<OwnedFd>,
    heard: Frames,
    end: Arc<AtomicBool>,
    pump: Option<JoinHandle<()>>,
}

impl TestGuest {
    /// Plugs a guest into the tap that the host gave out.
    ///
    /// # Errors
    /// When its namespace cannot be set up.
    pub fn plug(tap: OwnedFd, lease: AddressLease, subnet: Subnet) -> Result<Self, Error> {
        let inside = Namespace::new()?;
        let port = inside.run(|| open_by_name("eth0"))?;
        inside.block_on(move || test_network::set_up_guest(lease, subnet))?;
        let cable = Arc::new(tap);
        let heard = Frames::default();
        let end = Arc::new(AtomicBool::new(false));
        let pump = {
            let (cable, heard, end) = (cable.clone(), heard.clone(), end.clone());
            let body = move || pump(&cable, &port, &heard, &end);
            let thread = std::thread::Builder::new().name("stand-in".into()).spawn(body);
            Some(thread.map_err(Error::io("start a thread"))?)
        };
        Ok(Self { inside, lease, cable, heard, end, pump })
    }

    /// Sends a frame past the guest's kernel.
    ///
    /// # Errors
    /// When the tap is down or gone.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let framed = [&VIRTIO_HEADER, frame].concat();
        rustix::io::write(&*self.cable, &framed)?;
        Ok(())
    }

    /// Forgets what it heard.
    pub fn forget(&self) {
        lock(&self.heard).clear();
    }

    /// The frames, of the last 512, that contain these bytes.
    pub fn received(&self, bytes: &[u8]) -> usize {
        let heard = lock(&self.heard);
        let has = |frame: &&Vec<u8>| frame.windows(bytes.len()).any(|window| window == bytes);
        heard.iter().filter(has).count()
    }

    /// The frames from a MAC, of the last 512.
    pub fn received_from(&self, mac: crate::plan::Mac) -> usize {
        let heard = lock(&self.heard);
        heard.iter().filter(|frame| frame.get(6..12) == Some(&mac.0[..])).count()
    }
}

impl Drop for TestGuest {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(pump) = self.pump.take() {
            // The thread ends within a tick.
            let _ = pump.join();
        }
    }
}

/// Passes frames between the host's tap and the guest's until `end` is set.
fn pump(cable: &OwnedFd, port: &OwnedFd, heard: &Frames, end: &AtomicBool) {
    let mut buffer = vec![0; FRAME_BYTES];
    while !end.load(Ordering::Relaxed) {
        let mut polled = [PollFd::new(cable, PollFlags::IN), PollFd::new(port, PollFlags::IN)];
        if poll(&mut polled, Some(&TICK)).is_err() {
            continue;
        }
        if polled.iter().any(|fd| fd.revents().intersects(PollFlags::ERR | PollFlags::HUP)) {
            // A tap that is down; it may come up again.
            std::thread::sleep(Duration::from_millis(10));
        }
        while let Ok(len) = rustix::io::read(cable, &mut buffer) {
            let mut heard = lock(heard);
            if heard.len() == MEMORY {
                heard.pop_front();
            }
            heard.push_back(buffer[VIRTIO_HEADER.len().min(len)..len].to_vec());
            drop(heard);
            pass(port, &buffer[..len]);
        }
        while let Ok(len) = rustix::io::read(port, &mut buffer) {
            pass(cable, &buffer[..len]);
        }
    }
}

/// Passes a frame on; a frame that cannot be written is lost.
fn pass(to: &impl AsFd, frame: &[u8]) {
    let _ = rustix::io::write(to, frame);
}
