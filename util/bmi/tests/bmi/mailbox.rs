//! A tiny method in one process, for the method interface itself: it has no support for lists, no
//! descriptor to sleep on, and nothing that two threads could use at once.

#![expect(unsafe_code, reason = "the promise of a method")]

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use selvedge_bmi::method::{Kind, Limits, Method, MethodAddr, RecvPost, Rest, SendPost, Setup};
use selvedge_bmi::support::op_queue::{OpQueue, SearchKey};
use selvedge_bmi::{Code, Desk, Error, Module, OpKey, Result, Url};

/// The method `mail`.
#[derive(Debug)]
pub(crate) struct Mail;

/// Everybody's letters, and who is at which port.
#[derive(Default)]
struct Office {
    boxes: Vec<VecDeque<Letter>>,
    ports: HashMap<u16, u32>,
}

static OFFICE: LazyLock<Mutex<Office>> = LazyLock::new(Mutex::default);

struct Letter {
    from: u32,
    tag: i32,
    kind: Kind,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Mailbox {
    number: u32,
    posted: OpQueue,
    rooms: HashMap<u64, Room>,
    /// Expected letters without a receive.
    early: VecDeque<(u32, i32, Vec<u8>)>,
    port: Option<u16>,
    /// Nothing for two threads: calls of methods are made one by one.
    calls: Cell<u64>,
}

#[derive(Debug)]
struct Room {
    base: *mut u8,
    len: usize,
}

// SAFETY: the address of memory that an operation was posted with.
unsafe impl Send for Room {}

impl Module for Mail {
    fn scheme(&self) -> &str {
        "mail"
    }

    fn initialize(&self, setup: &Setup) -> Result<Box<dyn Method>, Error> {
        let mut office = OFFICE.lock().unwrap();
        let number = office.boxes.len() as u32;
        office.boxes.push(VecDeque::new());
        let port = setup.listen.as_ref().and_then(|url| url.port);
        if let Some(port) = port
            && office.ports.insert(port, number).is_some()
        {
            return Err(Error::new(Code::EADDRINUSE, format!("port {port}")));
        }
        Ok(Box::new(Mailbox {
            number,
            posted: OpQueue::new(),
            rooms: HashMap::new(),
            early: VecDeque::new(),
            port,
            calls: Cell::new(0),
        }))
    }
}

impl Mailbox {
    fn fill(&mut self, key: OpKey, bytes: &[u8], desk: &mut Desk) {
        let room = self.rooms.remove(&key.0).unwrap();
        if bytes.len() > room.len {
            return desk.complete(key, Err(Code::EMSGSIZE));
        }
        // SAFETY: whoever posted the receive promised the room until it is told of as done.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.base, bytes.len()) };
        desk.complete(key, Ok(bytes.len() as u64));
    }
}

// SAFETY: memory of a receive is written before it is told of, and its address forgotten then; that
// of a send is copied by its post.
unsafe impl Method for Mailbox {
    fn limits(&self) -> Limits {
        Limits {
            size: 1 << 20,
            unexpected: 1000,
            pieces: 1,
        }
    }

    fn addr_lookup(&mut self, url: &Url) -> Result<MethodAddr, Error> {
        let office = OFFICE.lock().unwrap();
        let found = url.port.and_then(|port| office.ports.get(&port));
        let nobody = || Error::new(Code::EHOSTNTFD, format!("{url}"));
        found.map(|&number| MethodAddr(number)).ok_or_else(nobody)
    }

    fn addr_forget(&mut self, _: MethodAddr) {}

    fn host(&self, addr: MethodAddr) -> String {
        format!("box{}", addr.0)
    }

    fn is_in_range(&self, _: MethodAddr, pattern: &str, _: Option<u8>) -> Result<bool> {
        Ok(pattern == "*")
    }

    unsafe fn post_send(&mut self, key: OpKey, post: &SendPost<'_>, desk: &mut Desk) -> Result {
        self.calls.set(self.calls.get() + 1);
        let [piece] = post.pieces else {
            return Err(Code::ENOSYS);
        };
        let mut bytes = vec![0; piece.len];
        if piece.len > 0 {
            // SAFETY: the caller promises the piece.
            unsafe {
                std::ptr::copy_nonoverlapping(piece.base.cast(), bytes.as_mut_ptr(), piece.len)
            };
        }
        let letter = Letter {
            from: self.number,
            tag: post.tag,
            kind: post.kind,
            bytes,
        };
        OFFICE.lock().unwrap().boxes[post.dest.0 as usize].push_back(letter);
        desk.complete(key, Ok(post.size as u64));
        Ok(())
    }

    unsafe fn post_recv(&mut self, key: OpKey, post: &RecvPost<'_>, desk: &mut Desk) -> Result {
        self.calls.set(self.calls.get() + 1);
        let [piece] = post.pieces else {
            return Err(Code::ENOSYS);
        };
        let room = Room {
            base: piece.base.cast(),
            len: piece.len,
        };
        self.rooms.insert(key.0, room);
        let fits = |(from, tag, _): &(u32, i32, Vec<u8>)| *from == post.src.0 && *tag == post.tag;
        match self.early.iter().position(fits) {
            Some(place) => {
                let (_, _, bytes) = self.early.remove(place).unwrap();
                self.fill(key, &bytes, desk);
            }
            None => assert!(self.posted.add(&mut desk.ops, key)),
        }
        Ok(())
    }

    fn cancel(&mut self, key: OpKey, desk: &mut Desk) {
        if self.posted.remove(&mut desk.ops, key) {
            self.rooms.remove(&key.0);
            desk.complete(key, Err(Code::ECANCEL));
        }
    }

    fn progress(&mut self, desk: &mut Desk) {
        self.calls.set(self.calls.get() + 1);
        let letters = std::mem::take(&mut OFFICE.lock().unwrap().boxes[self.number as usize]);
        for letter in letters {
            let from = MethodAddr(letter.from);
            match letter.kind {
                Kind::Unexpected { class } => desk.arrive(from, letter.tag, class, &letter.bytes),
                Kind::Expected => {
                    let wanted = SearchKey {
                        addr: Some(desk.register(from).unwrap()),
                        tag: Some(letter.tag),
                        op: None,
                    };
                    match self.posted.search(&desk.ops, &wanted) {
                        Some(key) => {
                            self.posted.remove(&mut desk.ops, key);
                            self.fill(key, &letter.bytes, desk);
                        }
                        None => self
                            .early
                            .push_back((letter.from, letter.tag, letter.bytes)),
                    }
                }
            }
        }
    }

    fn rest(&mut self, _: &mut Desk) -> Rest {
        Rest::AtMost(Duration::from_millis(1))
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn listen_port(&self) -> Option<u16> {
        self.port
    }
}
