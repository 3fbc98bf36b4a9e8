//! Memory registration: which mode bits remain for the requested capabilities, and which modes
//! satisfy them.

use selvedge::info::{Mismatch, Version};
use selvedge::{Caps, MrMode};

/// The bits that the deprecated [`MrMode::BASIC`] stands for.
const BASIC_MODES: MrMode = MrMode::VIRT_ADDR
    .union(MrMode::ALLOCATED)
    .union(MrMode::PROV_KEY);

/// Bits that matter only if peers access the memory.
const TARGET_MODES: MrMode = MrMode::RAW
    .union(MrMode::VIRT_ADDR)
    .union(MrMode::PROV_KEY)
    .union(MrMode::RMA_EVENT);

/// Before this version, an empty mode meant "any", and there were only the two old modes.
const FIRST_WITH_MODES: Version = Version::new(1, 5);

/// The mode of the result, or the mismatch.
pub(super) fn negotiate(
    accepted: MrMode,
    has: MrMode,
    caps: Caps,
    version: Version,
) -> Result<MrMode, Mismatch> {
    let required = required(has, caps);
    let basic = has.contains(MrMode::BASIC) || required == BASIC_MODES;
    let scalable = has.contains(MrMode::SCALABLE) || required.is_empty();
    let fits = if accepted == MrMode::BASIC {
        basic.then_some(MrMode::BASIC)
    } else if accepted == MrMode::SCALABLE {
        scalable.then_some(MrMode::SCALABLE)
    } else if accepted.intersects(MrMode::BASIC | MrMode::SCALABLE) {
        None
    } else if accepted.is_empty() && version < FIRST_WITH_MODES {
        let old = [(scalable, MrMode::SCALABLE), (basic, MrMode::BASIC)];
        old.into_iter()
            .find_map(|(is_supported, mode)| is_supported.then_some(mode))
    } else {
        accepted.contains(required).then_some(required)
    };
    fits.ok_or_else(|| Mismatch::new("mr_mode", accepted, has))
}

fn required(has: MrMode, caps: Caps) -> MrMode {
    let mut mode = has - MrMode::BASIC - MrMode::SCALABLE;
    if !caps.contains(Caps::HMEM) {
        mode -= MrMode::HMEM;
    }
    if !caps.contains(Caps::COLLECTIVE) {
        mode -= MrMode::COLLECTIVE;
    }
    if !is_target(caps) {
        mode -= TARGET_MODES;
    }
    let needs_registration =
        is_target(caps) || mode.intersects(MrMode::LOCAL | MrMode::HMEM | MrMode::COLLECTIVE);
    if needs_registration {
        mode
    } else {
        MrMode::empty()
    }
}

fn is_target(caps: Caps) -> bool {
    caps.intersects(Caps::RMA | Caps::ATOMIC)
        && caps.intersects(Caps::REMOTE_READ | Caps::REMOTE_WRITE)
}
