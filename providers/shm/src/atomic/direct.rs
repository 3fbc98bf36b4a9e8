//! Direct atomics: the initiator executes an atomic on a peer's mapped special memory.

use super::{Payload, Request, rights, target_segment};
use crate::peers::peer::Peer;

impl Peer {
    /// Executes the request if all of its targets are mapped special memory that grants the needed
    /// rights. Otherwise returns `false` without effect.
    #[inline]
    pub(super) fn apply_directly(&mut self, request: &mut Request) -> bool {
        let kernel = request.kernel;
        let targets = request.targets.as_slice();
        let is_mapped = |target| {
            let segment = target_segment(&kernel, target);
            let range = segment.and_then(|segment| self.find_mapped(&segment, rights(&kernel)));
            range.is_some_and(|(span, offset)| {
                (span.is_writable() || !kernel.writes()) && span.is_aligned(offset, &kernel)
            })
        };
        if !targets.iter().all(is_mapped) {
            return false;
        }
        let mut fetched = Payload::zeroed(0, request.result.as_ref().map_or(0, |room| room.len()));
        let mut position = 0;
        for target in targets {
            let Some(segment) = target_segment(&kernel, target) else {
                return false;
            };
            // The owner may have withdrawn or replaced a region since the check. Such a target is
            // skipped, as if the atomic had arrived after the withdrawal.
            if let Some((span, offset)) = self.find_mapped(&segment, rights(&kernel)) {
                let args = request.payload.args(position, &mut fetched);
                let _ = span.apply(offset, &kernel, target.count, args);
            }
            position += segment.len;
        }
        if let Some(result) = &mut request.result {
            result.write(0, fetched.as_slice());
        }
        true
    }
}
