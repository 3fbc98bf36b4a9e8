//! The target's memory files, which every process of the same user can open through the links to
//! its descriptors.

use std::fs::{self, OpenOptions};
use std::path::Path;

use selvedge_testkit::shm_peer::PeerSocket;

use super::attack::{AttackStats, Config};

/// Number of passes over all files in one run.
const ROUNDS: usize = 10;

/// Extends and truncates every memory file.
///
/// # Errors
/// The target cannot be reached.
pub(super) fn resize_files(
    config: &Config,
    mut progress: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<AttackStats> {
    let socket = PeerSocket::connect(&config.target)?;
    let descriptors = format!("/proc/{}/fd", socket.peer_pid()?);
    let mut stats = AttackStats::default();
    for _ in 0..ROUNDS {
        for link in fs::read_dir(&descriptors)?.flatten() {
            if is_memory(&link.path()) {
                stats.inputs += resize(&link.path());
            }
        }
        progress()?;
    }
    stats.is_cut_off = socket.is_closed();
    Ok(stats)
}

fn is_memory(link: &Path) -> bool {
    fs::read_link(link).is_ok_and(|path| path.to_string_lossy().starts_with("/memfd:"))
}

/// Returns the number of attempts with a file.
fn resize(link: &Path) -> u64 {
    let Ok(file) = OpenOptions::new().write(true).open(link) else {
        return 1;
    };
    // Both calls must fail: every memory file must have the seals that refuse them.
    let _ = file.set_len(1 << 30);
    let _ = file.set_len(0);
    2
}
