//! The victim's memory files, as every process of the same user finds them: through the links to its
//! descriptors.

use std::fs::{self, OpenOptions};
use std::path::Path;

use selvedge_testkit::shm_peer::PeerSocket;

use super::adversary::{Harm, Order};

/// How often all of them are tried in one life.
const ROUNDS: usize = 10;

/// Makes every memory file longer, and cuts it short.
///
/// # Errors
/// When the victim cannot be reached.
pub(super) fn cut_short(
    order: &Order,
    mut meanwhile: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Harm> {
    let line = PeerSocket::connect(&order.victim)?;
    let descriptors = format!("/proc/{}/fd", line.peer_pid()?);
    let mut harm = Harm::default();
    for _ in 0..ROUNDS {
        for link in fs::read_dir(&descriptors)?.flatten() {
            if is_memory(&link.path()) {
                harm.inputs += resize(&link.path());
            }
        }
        meanwhile()?;
    }
    harm.is_cut_off = line.is_closed();
    Ok(harm)
}

fn is_memory(link: &Path) -> bool {
    fs::read_link(link).is_ok_and(|target| target.to_string_lossy().starts_with("/memfd:"))
}

/// How much was tried with a file.
fn resize(link: &Path) -> u64 {
    let Ok(file) = OpenOptions::new().write(true).open(link) else {
        return 1;
    };
    // They are refused by all seals that a file has to have.
    let _ = file.set_len(1 << 30);
    let _ = file.set_len(0);
    2
}
