//! Memory registration: which duties remain for the capabilities asked for, and who accepts them.

use selvedge::info::{Mismatch, Version};
use selvedge::{Caps, MrMode};

/// What the deprecated [`MrMode::BASIC`] stands for.
const BASIC_DUTIES: MrMode = MrMode::VIRT_ADDR
    .union(MrMode::ALLOCATED)
    .union(MrMode::PROV_KEY);

/// Duties that only exist towards peers that access the memory.
const TARGET_DUTIES: MrMode = MrMode::RAW
    .union(MrMode::VIRT_ADDR)
    .union(MrMode::PROV_KEY)
    .union(MrMode::RMA_EVENT);

/// Before this version, an empty mode meant "any", and there were only the two old ones.
const FIRST_WITH_DUTIES: Version = Version::new(1, 5);

/// The mode of the result, or a refusal.
pub(super) fn fit(
    accepted: MrMode,
    has: MrMode,
    caps: Caps,
    version: Version,
) -> Result<MrMode, Mismatch> {
    let needed = needed(has, caps);
    let basic = has.contains(MrMode::BASIC) || needed == BASIC_DUTIES;
    let scalable = has.contains(MrMode::SCALABLE) || needed.is_empty();
    let fits = if accepted == MrMode::BASIC {
        basic.then_some(MrMode::BASIC)
    } else if accepted == MrMode::SCALABLE {
        scalable.then_some(MrMode::SCALABLE)
    } else if accepted.intersects(MrMode::BASIC | MrMode::SCALABLE) {
        None
    } else if accepted.is_empty() && version < FIRST_WITH_DUTIES {
        let old = [(scalable, MrMode::SCALABLE), (basic, MrMode::BASIC)];
        old.into_iter().find_map(|(can, mode)| can.then_some(mode))
    } else {
        accepted.contains(needed).then_some(needed)
    };
    fits.ok_or_else(|| Mismatch::new("mr_mode", accepted, has))
}

fn needed(has: MrMode, caps: Caps) -> MrMode {
    let mut mode = has - MrMode::BASIC - MrMode::SCALABLE;
    if !caps.contains(Caps::HMEM) {
        mode -= MrMode::HMEM;
    }
    if !caps.contains(Caps::COLLECTIVE) {
        mode -= MrMode::COLLECTIVE;
    }
    if !is_target(caps) {
        mode -= TARGET_DUTIES;
    }
    let registers =
        is_target(caps) || mode.intersects(MrMode::LOCAL | MrMode::HMEM | MrMode::COLLECTIVE);
    if registers { mode } else { MrMode::empty() }
}

fn is_target(caps: Caps) -> bool {
    caps.intersects(Caps::RMA | Caps::ATOMIC)
        && caps.intersects(Caps::REMOTE_READ | Caps::REMOTE_WRITE)
}
