//! Progress: the completions of the links, and the work that they had no room for.

use std::time::Duration;

use selvedge::cq::{Entry, ErrEntry};
use selvedge::{CompletionFlags, Context, Counter, Errno, FiAddr, OpFlags};
use selvedge_kit::cq::Sink;
use selvedge_kit::shell::EndpointState;
use selvedge_kit::srx::{Envelope, Posted};
use selvedge_kit::wait::ArmOutcome;

use crate::limits::{CONFIRMED, LEVELS};
use crate::link::Frame;
use crate::state::reachability::PROBE_PERIOD;
use crate::state::{AfterSend, Deferred, Op, PendingSend, ReceivedFrame, Route, State};
use crate::wire::{FrameKind, Header};

/// The number of progress calls between two reads of the clock.
const SNAPSHOT_INTERVAL: u32 = 64;
/// Progress calls between two polls of the link without completions, while the other link has some:
/// a poll of a socket takes several times as long as a message in shared memory.
const INACTIVE_LINK_INTERVAL: u32 = 16;
/// The largest number of completions that one read of a link returns.
const ENTRIES: usize = 16;
/// The largest number of unused frames that are kept for the next messages.
const MAX_SPARE: usize = 64;
/// The flags of completions of peers' operations on local memory.
const REMOTE_ACCESS: CompletionFlags =
    CompletionFlags::REMOTE_READ.union(CompletionFlags::REMOTE_WRITE);
/// The number of deferred items from which on no further completions are set aside.
const MAX_SET_ASIDE: usize = 128;
/// The longest park time while work waits for room.
const RETRY_PERIOD: Duration = Duration::from_millis(1);

/// The number of completions that are read from a link before a thread parks, and after a wake-up.
const BUDGET: usize = 64;

impl EndpointState for State {
    fn progress(&mut self, budget: usize, sink: &mut Sink<'_>) -> usize {
        self.progress_calls = self.progress_calls.wrapping_add(1);
        let mut done = self.poll(self.active_link, budget, sink);
        if self.progress_calls.is_multiple_of(INACTIVE_LINK_INTERVAL)
            || done == 0 && self.progress_calls.is_multiple_of(2)
        {
            let other = 1 - self.active_link;
            let polled = self.poll(other, budget, sink);
            if polled > 0 && done == 0 {
                self.active_link = other;
            }
            done += polled;
        }
        if !self.deferred.is_empty() {
            self.retry_deferred();
        }
        if !self.refused_peers.is_empty() {
            self.send_refused();
        }
        if self.counts_remote_access {
            self.add_remote_counts();
        }
        if self.unexpected_bytes < self.unexpected_limit {
            self.repost_withheld();
        }
        if self.progress_calls.is_multiple_of(SNAPSHOT_INTERVAL) {
            self.write_snapshot();
            self.probe_peers();
        }
        done
    }

    #[inline(never)]
    fn arm(&mut self, _seen: &mut u64) -> ArmOutcome {
        if self.poll_links(BUDGET) > 0 {
            return ArmOutcome::Progressed;
        }
        let mut has_descriptors = true;
        for link in &self.links {
            if link.wait_fd().is_none() {
                has_descriptors = false;
            } else if link.cq.try_wait().is_err() {
                return ArmOutcome::Progressed;
            }
        }
        if !self.deferred.is_empty() || !self.refused_peers.is_empty() || !has_descriptors {
            ArmOutcome::AtMost(RETRY_PERIOD)
        } else if self.links.iter().all(|link| link.is_watched) {
            ArmOutcome::UntilWoken
        } else {
            ArmOutcome::AtMost(PROBE_PERIOD)
        }
    }

    fn woken(&mut self) {
        self.poll_links(BUDGET);
    }

    fn close(&mut self) {
        let deferred = &mut self.deferred;
        deferred.retain(|it| !matches!(it, Deferred::Received(..)));
        // Peers wait for the deferred control frames.
        self.retry_deferred();
        self.send_refused();
    }
}

impl State {
    /// Polls both links.
    pub(crate) fn poll_links(&mut self, budget: usize) -> usize {
        let sink = &mut Sink::none();
        self.write_snapshot();
        let done = self.poll(0, budget, sink) + self.poll(1, budget, sink);
        self.retry_deferred();
        self.send_refused();
        self.probe_peers();
        if self.counts_remote_access {
            self.add_remote_counts();
        }
        self.repost_withheld();
        done
    }

    fn poll(&mut self, link: usize, budget: usize, sink: &mut Sink<'_>) -> usize {
        let mut done = 0;
        while done < budget {
            if self.ep.rx_cq.room() == 0 {
                return done + self.poll_without_room(link);
            }
            let mut entries = [Entry::default(); ENTRIES];
            let mut src = [FiAddr::UNSPEC; ENTRIES];
            match self.links[link].cq.read_from(&mut entries, &mut src) {
                Ok(count @ 1..) => {
                    done += count;
                    for (entry, &src) in entries[..count].iter().zip(&src) {
                        let src = self.links[link].known_source(src);
                        self.complete_op(link, entry, src, sink);
                    }
                    if count < ENTRIES {
                        break;
                    }
                }
                Err(Errno::Avail) => {
                    let Ok(error) = self.links[link].cq.read_err() else {
                        break;
                    };
                    done += 1;
                    self.fail_op(link, &error);
                }
                _ => break,
            }
        }
        done
    }

    /// Polls a link while the receive queue is full. Completes the endpoint's own operations, and
    /// sets messages aside until the queue has room.
    #[cold]
    fn poll_without_room(&mut self, link: usize) -> usize {
        let mut done = 0;
        while self.deferred.len() < MAX_SET_ASIDE {
            let (mut entry, mut src) = ([Entry::default()], [FiAddr::UNSPEC]);
            match self.links[link].cq.read_from(&mut entry, &mut src) {
                Ok(1..) => {
                    let ([entry], [src]) = (entry, src);
                    let src = self.links[link].known_source(src);
                    if self.needs_queue_room(&entry) {
                        self.deferred
                            .push_back(Deferred::Received(link, entry, src))
                    } else {
                        self.complete_op(link, &entry, src, &mut Sink::none())
                    }
                }
                Err(Errno::Avail) => {
                    let Ok(error) = self.links[link].cq.read_err() else {
                        break;
                    };
                    self.fail_op(link, &error);
                }
                _ => break,
            }
            done += 1;
        }
        done
    }

    /// Whether a link's completion leads to an entry in the receive queue that no posted receive
    /// bounds, or posts the receive of one more message.
    fn needs_queue_room(&self, entry: &Entry) -> bool {
        let op = self.ops.get(entry.context.0 as usize);
        entry.flags.intersects(REMOTE_ACCESS) || matches!(op, Some(Op::Receive(_, false)))
    }

    /// Handles a completion that was set aside, unless the receive queue is still full.
    #[cold]
    fn take_set_aside(&mut self, link: usize, entry: Entry, src: FiAddr) -> Option<Deferred> {
        if self.ep.rx_cq.room() == 0 {
            return Some(Deferred::Received(link, entry, src));
        }
        self.complete_op(link, &entry, src, &mut Sink::none());
        None
    }

    /// Reports a peer's access to local memory, as the link reports it.
    #[cold]
    fn report_remote_access(&mut self, link: usize, entry: &Entry, src: FiAddr) {
        let src = match src {
            FiAddr::UNSPEC => FiAddr::UNSPEC,
            _ => {
                let peer = self.peer_on(link, src, None);
                self.peer_addr(peer)
            }
        };
        self.ep.rx_cq.push(*entry, src);
    }

    /// Adds the links' counts of peers' accesses to local memory.
    #[cold]
    fn add_remote_counts(&mut self) {
        for link in &mut self.links {
            for (count, cntr) in link
                .take_remote_counts()
                .into_iter()
                .zip(self.ep.remote_cntrs())
            {
                if let Some(cntr) = cntr.filter(|_| count > 0) {
                    cntr.add(count);
                }
            }
        }
    }

    /// Removes the operation of a link that has ended.
    fn take_op(&mut self, link: usize, context: Context) -> Option<Op> {
        let op = self.ops.try_remove(context.0 as usize)?;
        self.transmits[link] -= usize::from(op.is_transmit());
        Some(op)
    }

    /// Handles the completion of a link's operation.
    fn complete_op(&mut self, link: usize, entry: &Entry, src: FiAddr, sink: &mut Sink<'_>) {
        if entry.flags.intersects(REMOTE_ACCESS) {
            return self.report_remote_access(link, entry, src);
        }
        let Some(op) = self.take_op(link, entry.context) else {
            return;
        };
        match op {
            Op::Receive(frame, true) => {
                self.handle_frame(link, frame.received_bytes(entry.len), src, sink);
                self.repost_receive(link, frame, true);
            }
            Op::Receive(frame, false) => {
                self.store_received(link, entry.context.0 as usize, (frame, entry.len, src));
                self.handle_frames_in_order(link, sink);
            }
            Op::Send(frame, peer, after) => {
                self.recycle(frame);
                self.peers[peer].reachability.sent();
                if let AfterSend::Report(report) = after {
                    self.report_sent(peer, &report);
                }
            }
            Op::SendBody(buf, peer, report) => {
                // The buffer is released before the completion is reported.
                drop(buf);
                self.report_sent(peer, &report);
            }
            Op::ReceiveBody(posted, env) => {
                let copied = env.len.min(posted.buf.len()).min(entry.len);
                self.report_received(posted, &env, copied, sink);
            }
            Op::OneSided(peer, report) => self.report_sent(peer, &report),
            Op::Watch(peer) => {
                self.peers[peer].is_watched = false;
                self.watch(peer);
            }
        }
    }

    /// Handles the failure of a link's operation.
    #[cold]
    fn fail_op(&mut self, link: usize, error: &ErrEntry) {
        let Some(op) = self.take_op(link, error.entry.context) else {
            return;
        };
        let (errno, detail) = (error.errno, &error.detail);
        match op {
            Op::Receive(frame, is_control) => {
                log::info!(target: "selvedge::lnx::ep_data", "receiving a frame failed: {detail}");
                if is_control {
                    self.repost_receive(link, frame, true)
                } else {
                    let key = error.entry.context.0 as usize;
                    self.store_received(link, key, (frame, 0, FiAddr::UNSPEC));
                    self.handle_frames_in_order(link, &mut Sink::none());
                }
            }
            Op::Send(frame, peer, after) => {
                self.recycle(frame);
                self.peers[peer].reachability.frame_ended();
                self.fail_frame(peer, after, errno, detail);
            }
            Op::SendBody(buf, peer, report) => {
                drop(buf);
                self.fail_send(peer, &report, errno, detail);
            }
            Op::ReceiveBody(posted, env) if errno == Errno::Trunc => {
                let copied = env.len.min(posted.buf.len());
                self.report_received(posted, &env, copied, &mut Sink::none());
            }
            Op::ReceiveBody(posted, env) => {
                let src = self.peer_addr(env.src.0 as usize);
                self.ep.rx_failed(posted, errno, src, detail.clone());
            }
            Op::OneSided(peer, report) => {
                let detail = format!("{}: {detail}", self.peers[peer]);
                self.fail_send(peer, &report, errno, &detail);
            }
            Op::Watch(peer) => {
                self.peers[peer].is_watched = false;
                let detail = format!("{}: {detail}", self.peers[peer]);
                self.fail_peer(peer, errno, &detail);
            }
        }
    }

    /// Stores the frame that the receive with this key has received; no bytes if it has failed.
    fn store_received(&mut self, link: usize, key: usize, received: ReceivedFrame) {
        let posted_frames = &mut self.posted_frames[link];
        // The key of a completed receive may have been reused.
        let slot = posted_frames
            .iter_mut()
            .find(|(posted, received)| *posted == key && received.is_none());
        if let Some(slot) = slot {
            slot.1 = Some(received);
        }
    }

    /// Handles messages in the order in which their receives were posted, which is the order in
    /// which the link matched them. A link may complete a short message before a longer one that
    /// was sent earlier.
    fn handle_frames_in_order(&mut self, link: usize, sink: &mut Sink<'_>) {
        while let Some((_, Some((frame, len, src)))) =
            self.posted_frames[link].pop_front_if(|(_, received)| received.is_some())
        {
            if len > 0 {
                self.handle_frame(link, frame.received_bytes(len), src, sink);
            }
            self.repost_receive(link, frame, false);
        }
    }

    fn repost_receive(&mut self, link: usize, frame: Frame, is_control: bool) {
        if !is_control && self.unexpected_bytes >= self.unexpected_limit {
            return self.withheld[link].push(frame);
        }
        if self.post_receive(link, frame, is_control).is_err() {
            log::error!(target: "selvedge::lnx::ep_data", "cannot post a receive again: a link refuses it");
        }
    }

    fn repost_withheld(&mut self) {
        for link in 0..self.links.len() {
            while self.unexpected_bytes < self.unexpected_limit
                && let Some(frame) = self.withheld[link].pop()
            {
                self.repost_receive(link, frame, false);
            }
        }
    }

    pub(crate) fn recycle(&mut self, frame: Frame) {
        if self.spare_frames.len() < MAX_SPARE {
            self.spare_frames.push(frame);
        }
    }

    /// Watches for the failure of a peer.
    pub(crate) fn watch(&mut self, peer: usize) {
        let Route { link, link_addr } = self.peers[peer].route();
        let can_watch = self.links[link].is_watched && link_addr != FiAddr::UNSPEC;
        if can_watch && !self.peers[peer].is_watched {
            self.peers[peer].is_watched = true;
            self.defer(Deferred::Watch(peer));
        }
    }

    /// Does the work now, or queues it behind the work for which the links have no room.
    pub(crate) fn defer(&mut self, work: Deferred) {
        self.deferred.push_back(work);
        if self.deferred.len() == 1 {
            self.retry_deferred();
        }
        if !self.deferred.is_empty() {
            // A parked thread does not know of the work to retry.
            self.ep.wake();
        }
    }

    /// Retries the deferred work.
    pub(crate) fn retry_deferred(&mut self) {
        for _ in 0..self.deferred.len() {
            let Some(work) = self.deferred.pop_front() else {
                return;
            };
            let remaining = match work {
                Deferred::Control(peer, header) => self.send_control(peer, header),
                Deferred::Body(pending, tag, len) => self.send_body(pending, tag, len),
                Deferred::FetchBody(posted, env, number) => self.request_body(posted, env, number),
                Deferred::Watch(peer) => self.post_watch(peer),
                Deferred::Received(link, entry, src) => self.take_set_aside(link, entry, src),
            };
            self.deferred.extend(remaining);
        }
    }

    fn send_control(&mut self, peer: usize, header: Header) -> Option<Deferred> {
        let mut frame = self.spare_frames.pop().unwrap_or_else(Frame::new);
        frame.write_header(&header);
        let result = self.send_frame(peer, frame, true, AfterSend::Nothing);
        let is_full = result == Err(Errno::Again);
        self.peers[peer].queued_controls -= usize::from(!is_full);
        is_full.then_some(Deferred::Control(peer, header))
    }

    /// Sends the first `len` bytes of a large message.
    fn send_body(&mut self, pending: PendingSend, tag: u64, len: usize) -> Option<Deferred> {
        let PendingSend {
            peer, report, buf, ..
        } = &pending;
        let (peer, report) = (*peer, *report);
        let buf = buf.as_ref()?;
        let Route { link, link_addr } = self.peers[peer].route();
        let key = self.ops.vacant_key();
        let mut flags = report.flags.intersection(LEVELS.union(CONFIRMED));
        if !self.links[link].is_watched {
            // The message has matched before its bytes are requested.
            flags.remove(OpFlags::MATCH_COMPLETE);
        }
        match self.links[link].send_body((buf, len), link_addr, tag, flags, key) {
            Ok(()) => {
                let buf = pending.buf?;
                self.ops.insert(Op::SendBody(buf, peer, report));
                self.transmits[link] += 1;
                None
            }
            Err(Errno::Again) => Some(Deferred::Body(pending, tag, len)),
            Err(errno) => {
                drop(pending);
                self.fail_send(
                    peer,
                    &report,
                    errno,
                    "the link cannot send the bytes of the message",
                );
                None
            }
        }
    }

    /// Posts the receive of a large message's bytes, and requests them from the sender.
    fn request_body(&mut self, mut posted: Posted, env: Envelope, number: u64) -> Option<Deferred> {
        let peer = env.src.0 as usize;
        let posted_len = posted.buf.len();
        if posted_len == 0 {
            // There is nothing to send, and a length of 0 requests all bytes.
            self.send_ack(&env, Some(number));
            self.report_received(posted, &env, 0, &mut Sink::none());
            return None;
        }
        let Route { link, link_addr } = self.peers[peer].route();
        let key = self.ops.vacant_key();
        let tag = self.next_tag % self.links[link].body_tags();
        match self.links[link].recv_body(&mut posted.buf, env.len, link_addr, tag, key) {
            Ok(()) => {
                self.next_tag = self.next_tag.wrapping_add(1);
                self.ops.insert(Op::ReceiveBody(posted, env));
                let header = Header {
                    tag,
                    number,
                    len: env.len.min(posted_len),
                    ..Header::new(FrameKind::ClearToSend, self.incarnation)
                };
                self.peers[peer].queued_controls += 1;
                self.send_control(peer, header)
            }
            Err(Errno::Again) => Some(Deferred::FetchBody(posted, env, number)),
            Err(errno) => {
                let src = self.peer_addr(peer);
                let detail = "the link cannot receive the bytes of the message";
                self.ep.rx_failed(posted, errno, src, detail);
                None
            }
        }
    }

    fn post_watch(&mut self, peer: usize) -> Option<Deferred> {
        let Route { link, link_addr } = self.peers[peer].route();
        let key = self.ops.vacant_key();
        match self.links[link].watch(link_addr, key) {
            Ok(()) => {
                self.ops.insert(Op::Watch(peer));
                None
            }
            Err(Errno::Again) => Some(Deferred::Watch(peer)),
            Err(_) => {
                self.peers[peer].is_watched = false;
                None
            }
        }
    }
}
