//! The server of the requests of [`crate::process::PeerProcess`].

use std::io::{BufRead, Read, Stdin, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use selvedge::{AddressVector, Errno, FiAddr, LentMemory, MrAccess, av};

use crate::atomics;
use crate::denial;
use crate::endpoint::{self, Event, Kind, NumberedEndpoint, content};
use crate::fork::Fork;
use crate::parking::Pauses;
use crate::unauthenticated::OtherUser;

/// Serves requests until the standard input ends.
pub(crate) fn serve_requests() {
    prctl::set_pdeathsig(Signal::SIGKILL).unwrap();
    nix::unistd::alarm::set(300);
    let mut server = RequestServer {
        side: None,
        contexts: Vec::new(),
        shared: None,
        other_user: OtherUser::default(),
        views: Vec::new(),
        makes_progress: false,
    };
    // Ends the line that the test harness has begun.
    println!();
    let input = std::io::stdin();
    while let Some(request) = server.next_request(&input) {
        let words: Vec<_> = request.split_whitespace().collect();
        let response = server.serve(words[0], &words[1..]);
        println!("@{response}");
        std::io::stdout().flush().unwrap();
    }
}

struct RequestServer {
    side: Option<NumberedEndpoint>,
    /// The contexts of the scalable endpoint, if one is open.
    contexts: Vec<NumberedEndpoint>,
    /// The named address vector that this process has created.
    shared: Option<Arc<dyn AddressVector>>,
    other_user: OtherUser,
    /// Lent messages that are kept.
    views: Vec<Box<dyn LentMemory>>,
    /// Whether the process makes progress between requests.
    makes_progress: bool,
}

impl RequestServer {
    fn next_request(&mut self, input: &Stdin) -> Option<String> {
        while self.makes_progress && !is_ready(input) {
            self.side().drive();
            std::thread::yield_now();
        }
        let mut line = String::new();
        (input.lock().read_line(&mut line).unwrap() > 0).then_some(line)
    }

    fn serve(&mut self, request: &str, args: &[&str]) -> String {
        match request {
            "open" => {
                let params: Vec<_> = args[1..].iter().filter_map(|p| p.split_once('=')).collect();
                let info = endpoint::info(selvedge::info::EpType::Rdm, &params);
                self.side = Some(NumberedEndpoint::open(Some(args[0]), &info).unwrap());
            }
            "try-open" => {
                let params: Vec<_> = args[1..].iter().filter_map(|p| p.split_once('=')).collect();
                let info = endpoint::info(selvedge::info::EpType::Rdm, &params);
                match NumberedEndpoint::open(Some(args[0]), &info) {
                    Ok(side) => self.side = Some(side),
                    Err(error) => return format!("{:?}", error.errno()),
                }
            }
            "open-waiting" => {
                let params: Vec<_> = args[1..].iter().filter_map(|p| p.split_once('=')).collect();
                let info = endpoint::info(selvedge::info::EpType::Rdm, &params);
                let object = selvedge::wait::Object::Unspec;
                self.side =
                    Some(NumberedEndpoint::open_waiting(Some(args[0]), &info, object).unwrap());
            }
            "park" => {
                let event = self.side().park(None).unwrap();
                return describe(&event);
            }
            "echo" => self.echo(args),
            // Arguments: the name, the number of contexts, and the destination of a message of
            // each.
            "contexts" => {
                self.contexts = NumberedEndpoint::open_contexts(args[0], number(args[1]) as usize);
                for (context, number) in self.contexts.iter_mut().zip(1..) {
                    let to = context.insert(args[2]);
                    context.send(Kind::Msg, to, 8, number).unwrap();
                }
            }
            "share" => {
                let mut attr = av::Attr::default();
                attr.name = Some(av::SharedName::Create(args[0].into()));
                self.shared = Some(self.side().domain().av(&attr).unwrap());
                return self.share(&args[1..]);
            }
            "share-more" => return self.share(args),
            "unshare" => {
                let shared = self.shared.as_ref().unwrap();
                shared.remove(&[FiAddr(number(args[0]))]).unwrap();
            }
            "insert" => return self.side().insert(args[0]).0.to_string(),
            "send" => {
                let kind = Kind::parse(args[0]);
                let (dest, len, tag) = (FiAddr(number(args[1])), number(args[2]), number(args[3]));
                return response_word(self.side().send(kind, dest, len as usize, tag));
            }
            "alloc" => {
                let (block, len, access) = (number(args[0]), number(args[1]), number(args[2]));
                let access = MrAccess::from_bits_retain(access);
                let allocated = self.side().alloc(block, len as usize, access);
                return response_word(allocated.map_err(|error| error.errno()));
            }
            // Reads words of a block from an offset on, without a call of the library.
            "words" => {
                let (block, offset, count) = (number(args[0]), number(args[1]), number(args[2]));
                return self.side().words(block, offset as usize, count as usize);
            }
            "wait" => {
                let (block, offset, word) = (number(args[0]), number(args[1]), number(args[2]));
                while self.side().word(block, offset as usize) != word {
                    std::hint::spin_loop();
                }
            }
            "add" => atomics::add(self.side(), args),
            "lock" => atomics::lock(self.side(), args),
            "put" => {
                let (block, offset, word) = (number(args[0]), number(args[1]), number(args[2]));
                self.side().set_word(block, offset as usize, word);
            }
            // Frees and allocates the same block, without end.
            "recycle" => {
                let (block, len, access) = (number(args[0]), number(args[1]), number(args[2]));
                let access = MrAccess::from_bits_retain(access);
                println!("@ok");
                loop {
                    self.side().blocks.remove(&block);
                    self.side().alloc(block, len as usize, access).unwrap();
                    self.side().set_word(block, 0, 1);
                    self.side().drive();
                }
            }
            "free" => drop(self.side().blocks.remove(&number(args[0]))),
            "sendfrom" => {
                let (block, dest, len) =
                    (number(args[0]), FiAddr(number(args[1])), number(args[2]));
                let (tag, segments) = (number(args[3]), number(args[4]) as usize);
                return response_word(self.side().send_special(
                    block,
                    dest,
                    len as usize,
                    tag,
                    segments,
                ));
            }
            "lend" => {
                let [block, dest, len, tag] = [0, 1, 2, 3].map(|arg| number(args[arg]));
                let posted = self.side().lend(block, FiAddr(dest), len as usize, tag);
                return response_word(posted);
            }
            "recv-lent" => self
                .side()
                .recv_lent(number(args[0]) as usize, number(args[1])),
            "keep" => {
                let event = self.side().next();
                let text = describe(&event);
                self.views.extend(event.view);
                return text;
            }
            "return" => drop(self.views.remove(0)),
            "recv" => {
                let kind = Kind::parse(args[0]);
                let (len, tag) = (number(args[1]), number(args[2]));
                return response_word(self.side().recv(kind, FiAddr::UNSPEC, len as usize, tag));
            }
            "next" => return self.next(),
            "drive" if matches!(args[0], "on" | "off") => self.makes_progress = args[0] == "on",
            "drive" => (0..number(args[0])).for_each(|_| self.side().drive()),
            "stream" => self.stream(args, u64::MAX),
            "stream-exec" => self.stream(args, number(args[3])),
            "fork" if args[0] == "Libc" => return spawn_child(Fork::Libc).to_string(),
            "fork" => return spawn_child(Fork::Kernel).to_string(),
            "exec" => exec_sleep(),
            "sink" => self.sink(args),
            "close" => self.side = None,
            "deny" => denial::deny(args[0], number(args[1]) as i32),
            "hide" => prctl::set_dumpable(false).unwrap(),
            "other-user" => return self.other_user.serve(args),
            "exit" => std::process::exit(0),
            _ => panic!("unknown request {request}"),
        }
        "ok".into()
    }

    fn side(&mut self) -> &mut NumberedEndpoint {
        self.side.as_mut().unwrap()
    }

    /// Inserts addresses into the named vector. Returns their indices.
    fn share(&self, names: &[&str]) -> String {
        let shared = self.shared.as_ref().unwrap();
        let insert = |name: &&str| shared.insert_one(&name.parse().unwrap()).unwrap();
        let indices: Vec<_> = names
            .iter()
            .map(|name| insert(name).0.to_string())
            .collect();
        indices.join(" ")
    }

    fn next(&mut self) -> String {
        describe(&self.side().next())
    }

    /// Sends back `count` tagged messages of `len` bytes, one after the other, and parks between
    /// them after pauses of all lengths. Arguments: `dest len count`.
    fn echo(&mut self, args: &[&str]) {
        let (dest, len, count) = (FiAddr(number(args[0])), number(args[1]), number(args[2]));
        println!("@ok");
        let mut pauses = Pauses::new(1);
        for message in 0..count {
            let side = self.side();
            let posted = side.recv(Kind::Tagged, dest, len as usize, message);
            posted.unwrap();
            pauses.pause();
            while side.park(None).unwrap().ok().bytes.is_empty() {}
            pauses.pause();
            side.send(Kind::Tagged, dest, len as usize, message)
                .unwrap();
        }
    }

    /// Sends `count` messages one after the other, and executes another program. Arguments:
    /// `kind dest len`.
    fn stream(&mut self, args: &[&str], count: u64) {
        let kind = Kind::parse(args[0]);
        let (dest, len) = (FiAddr(number(args[1])), number(args[2]) as usize);
        println!("@ok");
        let mut next = 0;
        while next < count {
            match self.side().send(kind, dest, len, next) {
                Ok(()) => next += 1,
                Err(Errno::Again) => {}
                Err(errno) => panic!("{errno}"),
            }
            while self.side().poll().is_some() {}
        }
        exec_sleep()
    }

    /// Receives tagged messages in order, without end. Arguments: `len first`.
    fn sink(&mut self, args: &[&str]) {
        let (len, first) = (number(args[0]) as usize, number(args[1]));
        println!("@ok");
        let mut next = first;
        loop {
            let posted = self.side().recv(Kind::Tagged, FiAddr::UNSPEC, len, next);
            posted.unwrap();
            let event = self.side().next().ok();
            assert!(
                event.bytes == content(next, len),
                "message {next} is corrupt"
            );
            next += 1;
        }
    }
}

/// Forks a child that waits for a minute at most, and returns when the child runs.
fn spawn_child(fork: Fork) -> i32 {
    let (mut parent_end, mut child_end) = UnixStream::pair().unwrap();
    let pid = fork.call();
    assert!(pid >= 0);
    if pid == 0 {
        nix::unistd::alarm::set(60);
        child_end.write_all(b"!").unwrap();
        loop {
            nix::unistd::pause();
        }
    }
    parent_end.read_exact(&mut [0]).unwrap();
    pid
}

/// Executes another program in this process.
#[expect(unsafe_code, reason = "executes a program")]
fn exec_sleep() -> ! {
    let args = [c"sleep".as_ptr(), c"60".as_ptr(), std::ptr::null()];
    // SAFETY: a null-terminated list of strings.
    unsafe { libc::execvp(args[0], args.as_ptr()) };
    panic!("{}", std::io::Error::last_os_error());
}

fn describe(event: &Event) -> String {
    match &event.error {
        Some(error) => format!("fail {} {:?} {}", event.context, error.errno, error.detail),
        None if event.bytes.is_empty() => format!("done {}", event.context),
        None => {
            let is_good = event.bytes == content(event.context, event.bytes.len());
            let word = if is_good { "good" } else { "bad" };
            format!("done {} {} {word}", event.context, event.bytes.len())
        }
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap()
}

fn response_word(result: Result<(), Errno>) -> String {
    result.map_or_else(|errno| format!("{errno:?}"), |()| "ok".into())
}

fn is_ready(input: &Stdin) -> bool {
    let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() > 0
}
