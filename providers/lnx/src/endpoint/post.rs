//! Posts of messages, tagged and untagged. The caller's promise about memory becomes a [`TxBuf`] or
//! [`RxBuf`]; the code that uses these values is safe.

#![expect(unsafe_code, reason = "the raw API: a post is a promise about memory")]

use selvedge::{Context, Errno, FiAddr, Iov, Msg, OpFlags, Result, TagMatch, Tagged, msg, tagged};
use selvedge_kit::copy::{RxBuf, TxBuf};
use selvedge_kit::srx::{
    COMMON_FLAGS, Envelope, Kind, Matcher, Posted, ReceivePolicy, Receiver, Source,
};
use selvedge_kit::{Ep, Report};

use crate::endpoint::Endpoint;
use crate::limits::{CONFIRMED, TX_FLAGS};
use crate::link::Frame;
use crate::state::{AfterSend, PendingSend, State, Unexpected};
use crate::wire::{EAGER, FrameKind, Header};

/// The largest number of outstanding operations to one peer.
const BUSY_MAX: usize = 256;

/// The arguments that tagged and untagged sends have in common.
struct SendArgs {
    kind: Kind,
    tag: u64,
    data: u64,
    dest: FiAddr,
    context: Context,
}

impl Msg for Endpoint {
    unsafe fn sendmsg(&self, msg: &msg::SendMsg<'_>, flags: OpFlags) -> Result {
        let send = SendArgs {
            kind: Kind::Msg,
            tag: 0,
            data: msg.data,
            dest: msg.dest,
            context: msg.context,
        };
        // SAFETY: passed on from the caller.
        self.post_send(
            unsafe { TxBuf::with_limit(msg.iov, self.iov_limit)? },
            &send,
            flags,
        )
    }

    unsafe fn recvmsg(&self, msg: &msg::RecvMsg<'_>, flags: OpFlags) -> Result {
        let tag = TagMatch::exact(0);
        // SAFETY: passed on from the caller.
        let buf = unsafe { RxBuf::with_limit(msg.iov, self.iov_limit)? };
        self.post_recv(Kind::Msg, buf, tag, msg.src, msg.context, flags)
    }

    fn inject(&self, buf: &[u8], dest: FiAddr, data: Option<u64>) -> Result {
        self.post_inject(Kind::Msg, buf, dest, 0, data)
    }
}

impl Tagged for Endpoint {
    unsafe fn tsendmsg(&self, msg: &tagged::SendMsg<'_>, flags: OpFlags) -> Result {
        let send = SendArgs {
            kind: Kind::Tagged,
            tag: msg.tag,
            data: msg.data,
            dest: msg.dest,
            context: msg.context,
        };
        // SAFETY: passed on from the caller.
        self.post_send(
            unsafe { TxBuf::with_limit(msg.iov, self.iov_limit)? },
            &send,
            flags,
        )
    }

    unsafe fn trecvmsg(&self, msg: &tagged::RecvMsg<'_>, flags: OpFlags) -> Result {
        // SAFETY: passed on from the caller.
        let buf = unsafe { RxBuf::with_limit(msg.iov, self.iov_limit)? };
        self.post_recv(Kind::Tagged, buf, msg.tag, msg.src, msg.context, flags)
    }

    fn tinject(&self, buf: &[u8], dest: FiAddr, tag: u64, data: Option<u64>) -> Result {
        self.post_inject(Kind::Tagged, buf, dest, tag, data)
    }
}

impl Endpoint {
    fn post_send(&self, buf: TxBuf, send: &SendArgs, flags: OpFlags) -> Result {
        if !TX_FLAGS.contains(flags) {
            return Err(Errno::BadFlags);
        }
        let mut state = self.shell.lock()?;
        let flags = state.ep.tx_flags(flags);
        let len = buf.len();
        if flags.contains(OpFlags::INJECT) && len > self.inject_size || len > self.max_msg_size {
            return Err(Errno::MsgSize);
        }
        let peer = state.peer_at(send.dest)?;
        let report = Report {
            kind: send.kind.sent(),
            context: send.context,
            flags,
            reports_success: true,
            len,
        };
        let mut header = state.header(send.kind, send.tag, len);
        if flags.contains(OpFlags::REMOTE_CQ_DATA) {
            (header.has_data, header.data) = (true, send.data);
        }
        state.post(peer, header, buf, report)
    }

    fn post_inject(
        &self,
        kind: Kind,
        bytes: &[u8],
        dest: FiAddr,
        tag: u64,
        data: Option<u64>,
    ) -> Result {
        if bytes.len() > self.inject_size {
            return Err(Errno::MsgSize);
        }
        let mut state = self.shell.lock()?;
        let peer = state.peer_at(dest)?;
        let report = Report {
            kind: kind.sent(),
            context: Context::default(),
            flags: state.ep.inject_flags(),
            reports_success: false,
            len: bytes.len(),
        };
        let mut header = state.header(kind, tag, bytes.len());
        if let Some(data) = data {
            (header.has_data, header.data) = (true, data);
        }
        // SAFETY: `bytes` is borrowed for the whole call. A message of at most `EAGER` bytes is
        // copied into a frame before the call ends, or dropped with an error (`State::post`).
        let buf = unsafe { TxBuf::one(Iov::new(bytes)) };
        state.post(peer, header, buf, report)
    }

    fn post_recv(
        &self,
        kind: Kind,
        buf: RxBuf,
        tag: TagMatch,
        src: FiAddr,
        context: Context,
        flags: OpFlags,
    ) -> Result {
        let mut state = self.shell.lock()?;
        let posted = Posted {
            buf,
            src: Source::ANY,
            tag,
            context,
            flags: state.ep.rx_flags(kind, flags),
            kind,
        };
        state.recv_from(src, posted)
    }
}

impl State {
    fn header(&self, kind: Kind, tag: u64, len: usize) -> Header {
        let frame_kind = match (kind, len <= EAGER) {
            (Kind::Msg, true) => FrameKind::Msg,
            (Kind::Tagged, true) => FrameKind::Tagged,
            (Kind::Msg, false) => FrameKind::LargeMsg,
            (Kind::Tagged, false) => FrameKind::LargeTagged,
        };
        Header {
            tag,
            len,
            ..Header::new(frame_kind, self.incarnation)
        }
    }

    /// Posts a message. A message that fits into a frame is copied; a larger one waits until the
    /// peer requests its bytes.
    fn post(&mut self, peer: usize, mut header: Header, buf: TxBuf, report: Report) -> Result {
        self.check_room(peer, &report)?;
        self.send_hello(peer)?;
        let is_eager = header.len <= EAGER;
        header.wants_ack = is_eager && report.flags.intersects(CONFIRMED);
        let mut frame = self.spare_frames.pop().unwrap_or_else(Frame::new);
        let number = self.next_number();
        if header.wants_ack || !is_eager {
            header.number = number;
        }
        let body = if is_eager {
            frame.write(&header, |out| {
                buf.read(0, out);
            });
            drop(buf);
            None
        } else {
            frame.write_header(&header);
            Some(buf)
        };
        let after_send = match header.number {
            0 => AfterSend::Report(report),
            number => AfterSend::AwaitResponse(number),
        };
        self.send_frame(peer, frame, false, after_send)?;
        if let AfterSend::AwaitResponse(number) = after_send {
            self.serial = self.serial.wrapping_add(1);
            self.pending_sends.insert(PendingSend {
                number,
                peer,
                report,
                buf: body,
            });
        }
        self.peers[peer].outstanding += 1;
        self.active_link = self.peers[peer].link;
        Ok(())
    }

    /// Checks whether a post to a peer is possible now.
    #[inline]
    pub(crate) fn check_room(&self, peer: usize, report: &Report) -> Result {
        let outstanding = self.peers[peer].outstanding;
        let is_fenced = report.flags.contains(OpFlags::FENCE) && outstanding > 0;
        let is_full = report.reports_success && self.ep.tx_cq.room() == 0;
        if is_fenced || is_full || outstanding >= BUSY_MAX {
            Err(Errno::Again)
        } else {
            Ok(())
        }
    }

    /// The number of the next send that has a response; never zero.
    fn next_number(&self) -> u64 {
        u64::from(self.serial | 1 << 31) << 32 | self.pending_sends.vacant_key() as u64
    }

    /// Sends the name of this endpoint to a peer before any other frame.
    pub(crate) fn send_hello(&mut self, peer: usize) -> Result {
        if self.peers[peer].is_hello_sent {
            return Ok(());
        }
        let name = self.local_name.to_string();
        let mut frame = Frame::new();
        let header = Header {
            len: name.len(),
            ..Header::new(FrameKind::Hello, self.incarnation)
        };
        frame.write(&header, |out| out.copy_from_slice(name.as_bytes()));
        self.send_frame(peer, frame, false, AfterSend::Nothing)?;
        self.peers[peer].is_hello_sent = true;
        self.watch(peer);
        Ok(())
    }

    fn recv_from(&mut self, src: FiAddr, mut posted: Posted) -> Result {
        if !COMMON_FLAGS.contains(posted.flags) {
            return self.recv_with_flags(posted, src);
        }
        if src != self.policy.any_source {
            self.direct(&mut posted, src)?;
        }
        let matched = self.matcher(posted.kind).post(posted);
        if let Some((posted, env, unexpected)) = matched {
            Self::match_unexpected(self, posted, env, unexpected);
        }
        Ok(())
    }
}

impl Receiver for State {
    type Kept = Unexpected;

    fn matcher(&mut self, kind: Kind) -> &mut Matcher<Unexpected> {
        Self::matcher(self, kind)
    }

    fn policy(&self) -> &ReceivePolicy {
        &self.policy
    }

    fn ep(&self) -> &Ep {
        &self.ep
    }

    fn source_at(&mut self, addr: FiAddr) -> Result<Source> {
        Ok(Source(self.peer_at(addr)? as u32))
    }

    fn addr_of(&mut self, source: Source) -> FiAddr {
        self.peer_addr(source.0 as usize)
    }

    fn direct(&mut self, posted: &mut Posted, src: FiAddr) -> Result {
        if self.policy.is_directed(posted.kind) {
            posted.src = self.source_at(src)?;
            self.watch(posted.src.0 as usize);
        }
        Ok(())
    }

    fn poll_unexpected(&mut self) {
        const BUDGET: usize = 64;
        self.poll_links(BUDGET);
    }

    fn deliver(&mut self, posted: Posted, env: Envelope, unexpected: Unexpected) {
        Self::match_unexpected(self, posted, env, unexpected);
    }

    fn discard(&mut self, env: &Envelope, unexpected: Unexpected) {
        Self::discard(self, env, &unexpected);
    }
}
