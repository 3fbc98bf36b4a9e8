//! Frames to peers. A frame that a link of another library refuses waits until the link takes it,
//! or until the peer is unreachable.

use selvedge::{Errno, Result};

use crate::link::Frame;
use crate::state::peer_frames::RefusedFrame;
use crate::state::{AfterSend, Op, PendingSend, Route, State};

impl State {
    /// Sends a frame to a peer.
    ///
    /// # Errors
    /// The link's error. The frame was not sent.
    pub(crate) fn send_frame(
        &mut self,
        peer: usize,
        frame: Frame,
        is_control: bool,
        after: AfterSend,
    ) -> Result {
        let Route { link, .. } = self.peers[peer].route();
        let may_wait = !is_control && !self.links[link].is_watched;
        if may_wait && !self.peers[peer].refused_frames.is_empty() {
            self.peers[peer]
                .refused_frames
                .push_back(RefusedFrame { frame, after });
            return Ok(());
        }
        match self.post_frame(peer, frame, is_control, after) {
            Ok(()) => Ok(()),
            Err((Errno::Again, frame)) if may_wait => {
                self.refused_peers.push(peer);
                let refused = RefusedFrame { frame, after };
                self.peers[peer].refused_frames.push_back(refused);
                Ok(())
            }
            Err((errno, frame)) => {
                self.recycle(frame);
                Err(errno)
            }
        }
    }

    /// Posts a frame to the peer's link. The error has the frame.
    fn post_frame(
        &mut self,
        peer: usize,
        frame: Frame,
        is_control: bool,
        after: AfterSend,
    ) -> Result<(), (Errno, Frame)> {
        let Route { link, link_addr } = self.peers[peer].route();
        let key = self.ops.vacant_key();
        // The operation keeps the frame's bytes, which do not move with it.
        match self.links[link].send(&frame, link_addr, is_control, key) {
            Ok(()) => {
                self.ops.insert(Op::Send(frame, peer, after));
                self.transmits[link] += 1;
                self.peers[peer].reachability.posted();
                Ok(())
            }
            Err(errno) => Err((errno, frame)),
        }
    }

    /// Sends the frames that links have refused, as far as the links take them now.
    #[cold]
    pub(crate) fn send_refused(&mut self) {
        for peer in std::mem::take(&mut self.refused_peers) {
            while let Some(RefusedFrame { frame, after }) =
                self.peers[peer].refused_frames.pop_front()
            {
                match self.post_frame(peer, frame, false, after) {
                    Ok(()) => {}
                    Err((Errno::Again, frame)) => {
                        let refused = RefusedFrame { frame, after };
                        self.peers[peer].refused_frames.push_front(refused);
                        break;
                    }
                    Err((errno, frame)) => {
                        self.recycle(frame);
                        let detail = "the link cannot send the frame of the message";
                        self.fail_frame(peer, after, errno, detail);
                    }
                }
            }
            if !self.peers[peer].refused_frames.is_empty() {
                self.refused_peers.push(peer);
                self.check_reachable(peer);
            }
        }
    }

    /// Handles the failure of a frame.
    #[cold]
    pub(crate) fn fail_frame(&mut self, peer: usize, after: AfterSend, errno: Errno, detail: &str) {
        self.peers[peer].is_hello_sent = false;
        match after {
            AfterSend::Nothing => {}
            AfterSend::Report(report) => self.fail_send(peer, &report, errno, detail),
            AfterSend::AwaitResponse(number) => {
                if let Some(PendingSend { report, buf, .. }) = self.take_pending_send(peer, number)
                {
                    drop(buf);
                    self.fail_send(peer, &report, errno, detail);
                }
            }
        }
    }

    /// Drops the frames that wait for a failed peer.
    pub(crate) fn fail_refused(&mut self, peer: usize, errno: Errno, detail: &str) {
        for RefusedFrame { frame, after } in std::mem::take(&mut self.peers[peer].refused_frames) {
            self.recycle(frame);
            self.fail_frame(peer, after, errno, detail);
        }
    }
}
