//! The other side of a test, as a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use selvedge_service::{Event, Listener, connect};

const ROLE: &str = "SERVICE_TEST_ROLE";
const ADDRESS: &str = "SERVICE_TEST_ADDRESS";

/// A process that is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Process {
    /// Starts a process with a role.
    pub(crate) fn start(role: &str, address: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "processes::process_of_another_test",
                "--nocapture",
            ])
            .env(ROLE, role)
            .env(ADDRESS, address)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The rest of the next line that begins with `> `.
    pub(crate) fn line(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "the process has ended"
            );
            if let Some((_, rest)) = line.split_once("> ") {
                return rest.trim().to_owned();
            }
        }
    }

    pub(crate) fn id(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.id()), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test by itself: the process of another test.
#[test]
fn process_of_another_test() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let address = std::env::var(ADDRESS).unwrap();
    match role.as_str() {
        "idle client" => {
            let connection = connect(&address).wait().unwrap();
            println!("> connected");
            connection.receive().wait().unwrap();
        }
        "subscriber" => {
            let mut subscriber = selvedge_service::subscribe(&address).wait().unwrap();
            loop {
                subscriber.receive().wait().unwrap();
            }
        }
        "keeping subscriber" => {
            let mut subscriber = selvedge_service::subscribe(&address).wait().unwrap();
            let mut kept = Vec::new();
            loop {
                kept.push(subscriber.receive().wait().unwrap());
                println!("> {}", kept.last().unwrap().is_lent());
            }
        }
        "publisher" => {
            let publisher = selvedge_service::Publisher::bind(&address, 4).unwrap();
            println!("> {}", publisher.addresses().unwrap().join(","));
            for seed in 0..4 {
                publisher.publish(&crate::pattern(200_000, seed)).unwrap();
            }
            selvedge_service::run(publisher.serve()).unwrap().unwrap();
        }
        "streaming client" => {
            let mut stream = connect(&address).wait().unwrap().into_stream();
            stream.write_all(b"abcd").unwrap();
            stream.flush().unwrap();
            println!("> written");
            std::thread::park();
        }
        "requesting client" => {
            let connection = connect(&address).wait().unwrap();
            for number in 0_u64.. {
                let request = number.to_le_bytes().repeat(1 + number as usize % 2000);
                assert_eq!(*connection.request(&request).wait().unwrap(), *request);
            }
        }
        "silent server" => {
            let listener = Listener::bind(&address).unwrap();
            println!("> {}", listener.addresses().unwrap().join(","));
            let mut requests = Vec::new();
            loop {
                if let Event::Request(request) = listener.event().wait().unwrap() {
                    println!("> request");
                    requests.push(request);
                }
            }
        }
        _ => panic!("unknown role {role}"),
    }
}
