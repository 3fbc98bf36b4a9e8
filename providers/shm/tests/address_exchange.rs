//! The address exchange, step by step as in OFIWG's slides on shared memory (19 to 23): four
//! endpoints insert each other one after the other. After every step each endpoint's table has the
//! inserted peers and the endpoint's index in their tables.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::any::Any;
use std::fs::File;
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use selvedge::{Address, Caps, FiAddr, Hints};
use selvedge_testkit::local::{self, LocalEndpoint};

/// The slides' endpoints, clockwise from the upper left.
const NAMES: [&str; 4] = ["11111:0:0", "22222:0:0", "33333:0:0", "44444:0:0"];
/// Timeout of one step, which takes less than a hundredth of this time.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Set in a child that is one of the endpoints.
const CHILD: &str = "SELVEDGE_TEST_ENDPOINT";

/// The table of one endpoint: by index, the peer and the endpoint's index in the peer's table.
type Table = Vec<String>;

/// One step of the slides: the endpoint that inserts the three others, and all tables afterwards.
struct Step {
    slide: u32,
    inserts: usize,
    tables: [&'static [&'static str]; 4],
}

const STEPS: [Step; 4] = [
    Step {
        slide: 20,
        inserts: 0,
        tables: [
            &["22222:0:0 UNSPEC", "33333:0:0 UNSPEC", "44444:0:0 UNSPEC"],
            &[],
            &[],
            &[],
        ],
    },
    Step {
        slide: 21,
        inserts: 3,
        tables: [
            &["22222:0:0 UNSPEC", "33333:0:0 UNSPEC", "44444:0:0 0"],
            &[],
            &[],
            &["11111:0:0 2", "22222:0:0 UNSPEC", "33333:0:0 UNSPEC"],
        ],
    },
    Step {
        slide: 22,
        inserts: 2,
        tables: [
            &["22222:0:0 UNSPEC", "33333:0:0 0", "44444:0:0 0"],
            &[],
            &["11111:0:0 1", "22222:0:0 UNSPEC", "44444:0:0 2"],
            &["11111:0:0 2", "22222:0:0 UNSPEC", "33333:0:0 2"],
        ],
    },
    Step {
        slide: 23,
        inserts: 1,
        tables: [
            &["22222:0:0 0", "33333:0:0 0", "44444:0:0 0"],
            &["11111:0:0 0", "33333:0:0 1", "44444:0:0 1"],
            &["11111:0:0 1", "22222:0:0 1", "44444:0:0 2"],
            &["11111:0:0 2", "22222:0:0 2", "33333:0:0 2"],
        ],
    },
];

/// The four endpoints, in one process or in four.
trait EndpointSet {
    fn insert(&mut self, index: usize, name: &str);
    /// All tables, after every endpoint has made some progress.
    fn tables(&mut self) -> [Table; 4];
}

fn run_steps(endpoints: &mut impl EndpointSet) {
    assert_eq!(endpoints.tables(), [const { Table::new() }; 4], "slide 19");
    for step in &STEPS {
        for other in NAMES {
            if other != NAMES[step.inserts] {
                endpoints.insert(step.inserts, other);
            }
        }
        let expected = step
            .tables
            .map(|t| t.iter().map(ToString::to_string).collect());
        let tables = wait_for_tables(endpoints, &expected);
        print(step.slide, &tables);
        assert_eq!(tables, expected, "slide {}", step.slide);
    }
}

/// Returns the tables once they match `expected` in successive reads, or the last ones at the
/// timeout.
fn wait_for_tables(endpoints: &mut impl EndpointSet, expected: &[Table; 4]) -> [Table; 4] {
    const STABLE_READS: usize = 30;
    let deadline = Instant::now() + TIMEOUT;
    let mut matches = 0;
    loop {
        let tables = endpoints.tables();
        matches = if tables == *expected { matches + 1 } else { 0 };
        if matches > STABLE_READS || Instant::now() > deadline {
            return tables;
        }
    }
}

fn print(slide: u32, tables: &[Table; 4]) {
    println!("slide {slide}");
    for (name, table) in NAMES.iter().zip(tables) {
        println!("  {name}: {}", table.join(", "));
    }
}

/// An endpoint whose table of peers can be read.
struct Node {
    ep: Arc<selvedge_shm::Endpoint>,
    local: LocalEndpoint,
}

impl Node {
    fn open(name: &str, eager: &str) -> Self {
        let params = [("FI_SHM_EAGER_EXCHANGE", eager)];
        let info = local::info(
            &selvedge_shm::PROVIDER,
            &params,
            &Hints::new().caps(Caps::MSG),
        );
        let local = LocalEndpoint::open_named(name, &info);
        let ep: Arc<dyn Any + Send + Sync> = Arc::clone(&local.ep) as _;
        let ep = ep.downcast().unwrap();
        Self { ep, local }
    }

    fn insert(&self, name: &str) -> FiAddr {
        self.local.insert(&Address::Str(name.into()))
    }

    /// Reads the queue often enough that progress polls the clock and the sockets.
    fn progress(&self) {
        for _ in 0..100 {
            assert_eq!(self.local.cq().read(&mut []), Ok(0));
        }
    }

    fn table(&self) -> Table {
        self.ep
            .peer_table()
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}

impl EndpointSet for [Node; 4] {
    fn insert(&mut self, index: usize, name: &str) {
        self[index].insert(name);
    }

    fn tables(&mut self) -> [Table; 4] {
        self.iter().for_each(Node::progress);
        [0, 1, 2, 3].map(|index| self[index].table())
    }
}

/// Reserves the slides' names on the whole machine until the returned file is closed.
fn reserve_names() -> File {
    let path = std::env::temp_dir().join("selvedge-address-exchange.lock");
    let file = File::create(path).unwrap();
    file.lock().unwrap();
    file
}

#[test]
fn four_endpoints_fill_their_tables_as_on_the_slides() {
    let _lock = reserve_names();
    run_steps(&mut NAMES.map(|name| Node::open(name, "1")));
}

/// An endpoint in a separate process, which executes the requests on its standard input.
struct Remote {
    child: Child,
    requests: ChildStdin,
    responses: BufReader<ChildStdout>,
}

impl Remote {
    fn start(name: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "child_process_serves_one_endpoint",
                "--ignored",
                "--nocapture",
            ])
            .env(CHILD, name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut remote = Self {
            requests: child.stdin.take().unwrap(),
            responses: BufReader::new(child.stdout.take().unwrap()),
            child,
        };
        remote.request("ready");
        remote
    }

    /// Sends a request and waits for its response. Skips lines of the test harness.
    fn request(&mut self, request_line: &str) -> String {
        writeln!(self.requests, "{request_line}").unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(
                self.responses.read_line(&mut line).unwrap(),
                0,
                "the process ended"
            );
            if let Some((_, response)) = line.trim_end().split_once("response:") {
                return response.to_owned();
            }
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl EndpointSet for [Remote; 4] {
    fn insert(&mut self, index: usize, name: &str) {
        self[index].request(&format!("insert {name}"));
    }

    fn tables(&mut self) -> [Table; 4] {
        self.each_mut().map(|remote| {
            let table = remote.request("table");
            let lines = table.split(',').filter(|line| !line.is_empty());
            lines.map(str::to_owned).collect()
        })
    }
}

#[test]
fn four_processes_fill_their_tables_as_on_the_slides() {
    let _lock = reserve_names();
    run_steps(&mut NAMES.map(Remote::start));
}

#[test]
#[ignore = "a process that the other tests start"]
fn child_process_serves_one_endpoint() {
    let name = std::env::var(CHILD).unwrap();
    serve(&Node::open(&name, "1"), &read_requests());
}

/// Executes the requests, and makes progress between them, until the parent closes the pipe.
fn serve(node: &Node, requests: &Receiver<String>) {
    loop {
        node.progress();
        let response = match requests.recv_timeout(Duration::from_millis(1)) {
            Ok(request_line) => match request_line.strip_prefix("insert ") {
                Some(name) => node.insert(name).0.to_string(),
                None if request_line == "table" => node.table().join(","),
                None => request_line,
            },
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        println!("response:{response}");
    }
}

/// Starts a thread that reads the requests on standard input.
fn read_requests() -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let lines = stdin().lines().map_while(Result::ok);
        lines
            .take_while(|line| sender.send(line.clone()).is_ok())
            .count()
    });
    receiver
}

/// Makes progress on both nodes until the table of `node` equals `table`.
fn drive_until_table(node: &Node, other: &Node, table: &[&str]) {
    let deadline = Instant::now() + TIMEOUT;
    while node.table() != table {
        assert!(Instant::now() < deadline, "{:?}", node.table());
        node.progress();
        other.progress();
    }
}

fn unique_name(purpose: &str) -> String {
    format!("{}:{purpose}", std::process::id())
}

#[test]
fn inserting_does_not_connect_unless_requested() {
    let (a, b) = (
        Node::open(&unique_name("a"), "0"),
        Node::open(&unique_name("b"), "0"),
    );
    a.insert(&unique_name("b"));
    b.insert(&unique_name("a"));
    for _ in 0..100 {
        a.progress();
        b.progress();
    }
    assert_eq!(a.table(), [unique_name("b") + " UNSPEC"]);
    assert_eq!(b.table(), [unique_name("a") + " UNSPEC"]);
}

#[test]
fn a_first_message_exchanges_addresses_too() {
    let (a, b) = (
        Node::open(&unique_name("m"), "0"),
        Node::open(&unique_name("n"), "0"),
    );
    b.insert(&unique_name("absent"));
    let to_b = a.insert(&unique_name("n"));
    b.insert(&unique_name("m"));
    selvedge::Msg::inject(&*a.ep, b"hello", to_b, None).unwrap();
    drive_until_table(&a, &b, &[&(unique_name("n") + " 1")]);
}

#[test]
fn a_peer_that_starts_later_is_connected() {
    let a = Node::open(&unique_name("early"), "1");
    a.insert(&unique_name("late"));
    for _ in 0..100 {
        a.progress();
    }
    assert_eq!(a.table(), [unique_name("late") + " UNSPEC"]);
    let b = Node::open(&unique_name("late"), "0");
    b.insert(&unique_name("early"));
    drive_until_table(&b, &a, &[&(unique_name("early") + " 0")]);
    drive_until_table(&a, &b, &[&(unique_name("late") + " 0")]);
}
