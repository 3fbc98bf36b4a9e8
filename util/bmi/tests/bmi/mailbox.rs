//! A minimal method within one process, for tests of the method interface. It supports neither
//! lists of buffers nor a descriptor to wait on, and relies on BMI to make one call at a time.

#![expect(unsafe_code, reason = "implements the unsafe trait `Method`")]

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use selvedge_bmi::method::{Kind, Limits, Method, MethodAddr, RecvPost, SendPost, Setup, TryWait};
use selvedge_bmi::support::op_queue::{OpQueue, SearchKey};
use selvedge_bmi::{Code, Error, MethodQueues, Module, OpKey, Result, Url};

/// The method module `mail`.
#[derive(Debug)]
pub(crate) struct Mail;

/// The state that all mailboxes share.
#[derive(Default)]
struct Exchange {
    /// Messages in transit, by the number of the destination mailbox.
    boxes: Vec<VecDeque<Message>>,
    /// The number of the mailbox that listens on a port.
    ports: HashMap<u16, u32>,
}

static EXCHANGE: LazyLock<Mutex<Exchange>> = LazyLock::new(Mutex::default);

struct Message {
    /// The number of the sender's mailbox.
    from: u32,
    tag: i32,
    kind: Kind,
    bytes: Vec<u8>,
}

/// The initialized method `mail`.
#[derive(Debug)]
struct Mailbox {
    number: u32,
    posted: OpQueue,
    /// The buffers of posted receives, by operation key.
    buffers: HashMap<u64, Buffer>,
    /// Expected messages that have arrived before a matching receive: sender, tag, bytes.
    unmatched: VecDeque<(u32, i32, Vec<u8>)>,
    port: Option<u16>,
    /// A `Cell`, which makes the type not `Sync`: BMI serializes the calls of a method.
    calls: Cell<u64>,
}

#[derive(Debug)]
struct Buffer {
    base: *mut u8,
    len: usize,
}

// SAFETY: the pointer is the address of the memory that a receive was posted with, which any
// thread may write until the operation is complete.
unsafe impl Send for Buffer {}

impl Module for Mail {
    fn scheme(&self) -> &str {
        "mail"
    }

    fn initialize(&self, setup: &Setup) -> Result<Box<dyn Method>, Error> {
        let mut exchange = EXCHANGE.lock().unwrap();
        let number = exchange.boxes.len() as u32;
        exchange.boxes.push(VecDeque::new());
        let port = setup.listen.as_ref().and_then(|url| url.port);
        if let Some(port) = port
            && exchange.ports.insert(port, number).is_some()
        {
            return Err(Error::new(Code::EADDRINUSE, format!("port {port}")));
        }
        Ok(Box::new(Mailbox {
            number,
            posted: OpQueue::new(),
            buffers: HashMap::new(),
            unmatched: VecDeque::new(),
            port,
            calls: Cell::new(0),
        }))
    }
}

impl Mailbox {
    /// Completes a receive with the bytes of its message.
    fn fill(&mut self, key: OpKey, bytes: &[u8], queues: &mut MethodQueues) {
        let buffer = self.buffers.remove(&key.0).unwrap();
        if bytes.len() > buffer.len {
            return queues.complete(key, Err(Code::EMSGSIZE));
        }
        // SAFETY: the poster of the receive guarantees that the buffer is valid until the operation
        // is reported as complete.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.base, bytes.len()) };
        queues.complete(key, Ok(bytes.len() as u64));
    }
}

// SAFETY: the memory of a receive is written before the receive is reported as complete, and its
// address is dropped then. The memory of a send is only read during the post, which copies it.
unsafe impl Method for Mailbox {
    fn limits(&self) -> Limits {
        Limits {
            size: 1 << 20,
            unexpected: 1000,
            segments: 1,
        }
    }

    fn addr_lookup(&mut self, url: &Url) -> Result<MethodAddr, Error> {
        let exchange = EXCHANGE.lock().unwrap();
        let found = url.port.and_then(|port| exchange.ports.get(&port));
        let unknown = || Error::new(Code::EHOSTNTFD, format!("{url}"));
        found.map(|&number| MethodAddr(number)).ok_or_else(unknown)
    }

    fn addr_forget(&mut self, _: MethodAddr) {}

    fn host(&self, addr: MethodAddr) -> String {
        format!("box{}", addr.0)
    }

    fn is_in_range(&self, _: MethodAddr, pattern: &str, _: Option<u8>) -> Result<bool> {
        Ok(pattern == "*")
    }

    unsafe fn post_send(
        &mut self,
        key: OpKey,
        post: &SendPost<'_>,
        queues: &mut MethodQueues,
    ) -> Result {
        self.calls.set(self.calls.get() + 1);
        let [segment] = post.segments else {
            return Err(Code::ENOSYS);
        };
        let mut bytes = vec![0; segment.len];
        if segment.len > 0 {
            // SAFETY: the caller guarantees that the segment is readable.
            unsafe {
                std::ptr::copy_nonoverlapping(segment.base.cast(), bytes.as_mut_ptr(), segment.len)
            };
        }
        let message = Message {
            from: self.number,
            tag: post.tag,
            kind: post.kind,
            bytes,
        };
        EXCHANGE.lock().unwrap().boxes[post.dest.0 as usize].push_back(message);
        queues.complete(key, Ok(post.size as u64));
        Ok(())
    }

    unsafe fn post_recv(
        &mut self,
        key: OpKey,
        post: &RecvPost<'_>,
        queues: &mut MethodQueues,
    ) -> Result {
        self.calls.set(self.calls.get() + 1);
        let [segment] = post.segments else {
            return Err(Code::ENOSYS);
        };
        let buffer = Buffer {
            base: segment.base.cast(),
            len: segment.len,
        };
        self.buffers.insert(key.0, buffer);
        let matches =
            |(from, tag, _): &(u32, i32, Vec<u8>)| *from == post.src.0 && *tag == post.tag;
        match self.unmatched.iter().position(matches) {
            Some(index) => {
                let (_, _, bytes) = self.unmatched.remove(index).unwrap();
                self.fill(key, &bytes, queues);
            }
            None => assert!(self.posted.add(&mut queues.ops, key)),
        }
        Ok(())
    }

    fn cancel(&mut self, key: OpKey, queues: &mut MethodQueues) {
        if self.posted.remove(&mut queues.ops, key) {
            self.buffers.remove(&key.0);
            queues.complete(key, Err(Code::ECANCEL));
        }
    }

    fn progress(&mut self, queues: &mut MethodQueues) {
        self.calls.set(self.calls.get() + 1);
        let messages = std::mem::take(&mut EXCHANGE.lock().unwrap().boxes[self.number as usize]);
        for message in messages {
            let from = MethodAddr(message.from);
            match message.kind {
                Kind::Unexpected { class } => {
                    queues.receive_unexpected(from, message.tag, class, &message.bytes)
                }
                Kind::Expected => {
                    let search_key = SearchKey {
                        addr: Some(queues.register(from).unwrap()),
                        tag: Some(message.tag),
                        op: None,
                    };
                    match self.posted.search(&queues.ops, &search_key) {
                        Some(key) => {
                            self.posted.remove(&mut queues.ops, key);
                            self.fill(key, &message.bytes, queues);
                        }
                        None => {
                            self.unmatched
                                .push_back((message.from, message.tag, message.bytes))
                        }
                    }
                }
            }
        }
    }

    fn try_wait(&mut self, _: &mut MethodQueues) -> TryWait {
        TryWait::ParkAtMost(Duration::from_millis(1))
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn listen_port(&self) -> Option<u16> {
        self.port
    }
}
