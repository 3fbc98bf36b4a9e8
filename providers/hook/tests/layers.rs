//! The hooks around shm and tcp: their output, their faults, and the endpoints in events.

#![expect(unsafe_code, reason = "tests of the raw API")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::fs;
use std::net::TcpListener;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use selvedge::cq::Entry;
use selvedge::info::{EpType, RxAttr};
use selvedge::{
    Address, Caps, Context, Errno, FiAddr, Hints, Info, IovMut, MrAccess, OpFlags, SharedReceives,
    TagMatch, alloc, cntr, eq, tagged,
};
use selvedge_hook::{Hooked, hooked};
use selvedge_kit::telemetry::calls::CallLog;
use selvedge_kit::telemetry::layout::{CALLS_WORDS, MEMFD_NAME};
use selvedge_testkit::domain::{Recv, Send};
use selvedge_testkit::local::{self, LocalEndpoint, open_domain};

static SHM: Hooked = hooked(&selvedge_shm::PROVIDER);
static TCP: Hooked = hooked(&selvedge_tcp::PROVIDER);

/// The environment of one test, with its own output file.
struct TestEnv {
    file: PathBuf,
}

impl TestEnv {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let file = std::env::temp_dir().join(format!("selvedge-hook-{pid}-{number}"));
        Self { file }
    }

    fn info(&self, pairs: &[(&str, &str)]) -> Info {
        let file = ("FI_HOOK_FILE", self.file.to_str().unwrap());
        let params: Vec<_> = pairs.iter().copied().chain([file]).collect();
        local::info(&SHM, &params, &Hints::new().caps(Caps::MSG | Caps::TAGGED))
    }

    fn written(&self) -> String {
        fs::read_to_string(&self.file).unwrap_or_default()
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        // The file may not exist.
        let _ = fs::remove_file(&self.file);
    }
}

/// An endpoint whose address vector has the endpoint's address.
struct LoopbackEndpoint {
    local: LocalEndpoint,
    self_addr: FiAddr,
}

impl Deref for LoopbackEndpoint {
    type Target = LocalEndpoint;

    fn deref(&self) -> &LocalEndpoint {
        &self.local
    }
}

impl LoopbackEndpoint {
    fn open(info: &Info) -> Self {
        Self::from(LocalEndpoint::open(info))
    }
}

impl From<LocalEndpoint> for LoopbackEndpoint {
    fn from(local: LocalEndpoint) -> Self {
        let self_addr = local.insert_endpoint(&local);
        Self { local, self_addr }
    }
}

#[test]
fn a_trace_has_a_line_for_each_call_from_the_first_to_the_last() {
    let env = TestEnv::new();
    let side = LoopbackEndpoint::open(&env.info(&[("FI_HOOK", "trace")]));
    side.ep.tinject(b"hello", side.self_addr, 7, None).unwrap();
    assert_eq!(
        side.ep.tinject(&[0; 1 << 20], side.self_addr, 7, None),
        Err(Errno::MsgSize)
    );
    assert_eq!(side.cq().read(&mut [Entry::default()]), Ok(0));
    drop(side);
    let text = env.written();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let calls: Vec<_> = lines
        .iter()
        .map(|line| line["call"].as_str().unwrap())
        .collect();
    for call in [
        "fabric",
        "domain",
        "cq_open",
        "av_open",
        "endpoint",
        "getname",
        "av_insert",
        "tinject",
        "cq_read",
        "ep_close",
        "cq_close",
        "av_close",
        "domain_close",
        "fabric_close",
    ] {
        assert!(calls.contains(&call), "{call} in {calls:?}");
    }
    let sent: Vec<_> = lines
        .iter()
        .filter(|line| line["call"] == "tinject")
        .collect();
    assert_eq!(
        (&sent[0]["args"]["len"], &sent[0]["args"]["tag"]),
        (&5.into(), &7.into())
    );
    assert_eq!(sent[0]["result"], 0);
    assert_eq!(sent[1]["result"], -Errno::MsgSize.as_raw());
    assert!(sent[0]["ns"].as_u64().unwrap() > 0);
    assert_eq!(sent[0]["pid"], std::process::id());
}

#[test]
fn perf_counts_calls_errors_and_time() {
    let env = TestEnv::new();
    let side = LoopbackEndpoint::open(&env.info(&[("FI_HOOK", "perf")]));
    for _ in 0..5 {
        side.ep.tinject(b"hello", side.self_addr, 7, None).unwrap();
    }
    side.ep
        .tinject(&[0; 1 << 20], side.self_addr, 7, None)
        .unwrap_err();
    drop(side);
    let text = env.written();
    let line = text
        .lines()
        .find(|line| line.starts_with("tinject "))
        .unwrap();
    let words: Vec<_> = line.split_whitespace().collect();
    assert_eq!(words[..3], ["tinject", "6", "1"]);
    assert!(words[4].parse::<u64>().unwrap() > 0, "{line}");
}

/// Sends one message from the endpoint to itself. The receive and the send complete.
fn exchange(side: &LoopbackEndpoint, len: usize, tag: u64) {
    let sent = vec![7_u8; len];
    let recv = Recv::new(tag)
        .from(side.self_addr)
        .tag(TagMatch::exact(tag));
    let received = side.recv_new(len, &recv);
    let send = Send::new(side.self_addr, tag).tag(tag);
    side.send_copy(&sent, &send).unwrap();
    for _ in 0..2 {
        side.wait(&[]).unwrap();
    }
    assert_eq!(received.bytes(), sent);
}

#[test]
fn perf_times_operations_by_kind_and_size_until_they_are_read() {
    let env = TestEnv::new();
    let side = LoopbackEndpoint::open(&env.info(&[("FI_HOOK", "perf")]));
    (0..5).for_each(|tag| exchange(&side, 8, tag));
    (0..3).for_each(|tag| exchange(&side, 5000, tag));
    side.ep.tinject(b"hello", side.self_addr, 7, None).unwrap();
    drop(side);
    let text = env.written();
    let table = text
        .lines()
        .skip_while(|line| !line.starts_with("operation"));
    let rows: Vec<Vec<_>> = table
        .skip(1)
        .map(|line| line.split_whitespace().collect())
        .collect();
    let counted: Vec<_> = rows.iter().map(|row| (row[0], row[1], row[2])).collect();
    let wanted = [
        ("tsend", "8-15", "5"),
        ("tsend", "4096-8191", "3"),
        ("trecv", "8-15", "5"),
        ("trecv", "4096-8191", "3"),
        ("inject", "4-7", "1"),
    ];
    assert_eq!(counted, wanted, "{text}");
    for row in rows {
        let numbers: Vec<u64> = row[3..].iter().map(|it| it.parse().unwrap()).collect();
        let [mean, .., longest] = numbers[..] else {
            panic!("{row:?}");
        };
        assert!(mean > 0 && mean <= longest, "{row:?}");
        assert!(numbers[1..].is_sorted(), "{row:?}");
    }
}

#[test]
fn faults_follow_their_rules_and_outer_layers_see_them() {
    let env = TestEnv::new();
    let side = LoopbackEndpoint::open(&env.info(&[
        ("FI_HOOK", "trace;fault"),
        (
            "FI_HOOK_FAULT",
            "tinject:error=NOMEM@2;tinject:drop@3;cq_read:delay=1us",
        ),
    ]));
    let send = || side.ep.tinject(b"hello", side.self_addr, 7, None);
    assert_eq!(
        [send(), send(), send()],
        [Ok(()), Err(Errno::NoMem), Ok(())]
    );
    assert_eq!(send(), Ok(()));
    drop(side);
    let text = env.written();
    let sent = text.lines().filter(|line| line.contains("\"tinject\""));
    let results: Vec<i64> = sent
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["result"].as_i64())
        .map(Option::unwrap)
        .collect();
    assert_eq!(results, [0, -i64::from(Errno::NoMem.as_raw()), 0, 0]);
}

#[test]
fn inner_layers_do_not_see_calls_that_outer_layers_fail() {
    let env = TestEnv::new();
    let side = LoopbackEndpoint::open(&env.info(&[
        ("FI_HOOK", "fault;trace"),
        ("FI_HOOK_FAULT", "tinject:error=AGAIN@1+"),
    ]));
    assert_eq!(
        side.ep.tinject(b"hello", side.self_addr, 7, None),
        Err(Errno::Again)
    );
    drop(side);
    assert!(!env.written().contains("\"tinject\""));
}

#[test]
fn the_error_for_an_invalid_variable_quotes_the_value() {
    for (hook, fault, named) in [
        ("trace;nonsense", "", "nonsense"),
        ("fault", "tinject:explode", "tinject:explode"),
        ("fault", "tsendmgs:drop", "did you mean tsendmsg?"),
        ("fault", "nonsense:drop", "names an unknown call"),
    ] {
        let env = TestEnv::new();
        let info = env.info(&[("FI_HOOK", hook), ("FI_HOOK_FAULT", fault)]);
        let error = info.fabric().unwrap_err();
        assert_eq!(error.errno(), Errno::Inval);
        assert!(error.to_string().contains(named), "{error}");
    }
}

#[test]
fn without_fi_hook_there_is_no_layer() {
    let env = TestEnv::new();
    let side = LoopbackEndpoint::open(&env.info(&[]));
    drop(side);
    assert!(!env.file.exists());
}

#[test]
fn an_event_names_the_applications_endpoint_when_its_fabric_is_open_twice() {
    let hints = Hints::new()
        .caps(Caps::MSG)
        .ep_type(EpType::Msg)
        .src_addr("127.0.0.1:0".parse().unwrap());
    let info = local::info(&TCP, &[("FI_HOOK", "perf")], &hints);
    let eq = info.fabric().unwrap().eq(&eq::Attr::default()).unwrap();
    let endpoint = LocalEndpoint::open_with(&info, |_, config| config.eq = Some(Arc::clone(&eq)));
    let ep = &endpoint.ep;
    let closed_port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
    let closed_port = Address::Ip(closed_port.unwrap());
    ep.cm().unwrap().connect(&closed_port, &[]).unwrap();
    let error = loop {
        match eq.read() {
            Err(Errno::Avail) => break eq.read_err().unwrap(),
            other => assert_eq!(other.unwrap_err(), Errno::Again),
        }
    };
    assert_eq!(error.errno, Errno::ConnRefused);
    assert!(Arc::ptr_eq(&error.ep.unwrap(), ep));
}

#[test]
fn rules_apply_to_opening_contexts_and_joining_groups() {
    let env = TestEnv::new();
    let info = env.info(&[
        ("FI_HOOK", "fault"),
        (
            "FI_HOOK_FAULT",
            "context:error=NOMEM@2;join:error=NOSPC;srx_close:delay=1us",
        ),
    ]);
    let domain = open_domain(&info).unwrap();
    drop(domain.domain().srx(&RxAttr::default()).unwrap());
    let sep = domain.domain().scalable_endpoint(&info).unwrap();
    let open = || {
        LocalEndpoint::try_open(&domain, |_, config| {
            config.context = Some((Arc::clone(&sep), 0));
        })
    };
    let context = open().unwrap();
    let group = "127.0.0.1:1".parse().unwrap();
    let joined = context.ep.join(&group, Context(1)).map(drop);
    assert_eq!(joined, Err(Errno::NoSpc));
    drop(context);
    assert_eq!(open().err().unwrap().errno(), Errno::NoMem);
    open().unwrap();
}

#[test]
fn a_region_is_bound_to_the_counter_below_its_layers() {
    let env = TestEnv::new();
    let info = env.info(&[("FI_HOOK", "trace;perf")]);
    let domain = info.open().unwrap();
    let cntr = domain.cntr(&cntr::Attr::default()).unwrap();
    let attr = alloc::Attr::new(MrAccess::REMOTE_WRITE).with_key(3);
    let memory = domain.alloc(64, &attr).unwrap();
    memory.bind_counter(&cntr, MrAccess::REMOTE_WRITE).unwrap();
    let again = memory.bind_counter(&cntr, MrAccess::REMOTE_WRITE);
    assert_eq!(again.unwrap_err().errno(), Errno::Inval);
    drop(memory);
    let written = env.written();
    let bound = written.lines().filter(|line| line.contains("mr_bind"));
    assert_eq!(bound.count(), 2, "{written}");
    assert!(written.contains("mr_close"), "{written}");
}

/// Two endpoints that use shared receives, each with its own queue, and a sender to both.
struct SharedFixture {
    srx: Arc<dyn SharedReceives>,
    members: Vec<LoopbackEndpoint>,
    sender: LoopbackEndpoint,
    to: Vec<FiAddr>,
}

impl SharedFixture {
    fn open(info: &Info, is_selective: bool) -> Self {
        let domain = open_domain(info).unwrap();
        let srx = domain.domain().srx(&RxAttr::default()).unwrap();
        let open = |srx: Option<&Arc<dyn SharedReceives>>| {
            let endpoint = LocalEndpoint::try_open(&domain, |_, config| {
                (config.srx, config.rx_selective) = (srx.cloned(), is_selective);
            });
            LoopbackEndpoint::from(endpoint.unwrap())
        };
        let members: Vec<_> = (0..2).map(|_| open(Some(&srx))).collect();
        let sender = open(None);
        let to = members
            .iter()
            .map(|it| sender.insert_endpoint(it))
            .collect();
        Self {
            srx,
            members,
            sender,
            to,
        }
    }

    /// Posts a shared receive.
    fn post(&self, to: &mut [u8], flags: OpFlags) -> Result<(), Errno> {
        let msg = tagged::RecvMsg {
            iov: &[IovMut::new(to)],
            desc: &[],
            src: FiAddr::UNSPEC,
            tag: TagMatch::exact(9),
            context: Context(5),
        };
        // SAFETY: the buffer lives until a message was received, or the endpoints are closed.
        unsafe { self.srx.trecvmsg(&msg, flags) }
    }

    /// Sends a message that matches a shared receive to a member, and waits for it.
    fn send_and_receive(&self, member: usize, to: &[u8], is_reported: bool) {
        send_and_receive(
            &self.sender,
            &self.members[member],
            self.to[member],
            (to, is_reported),
        );
    }

    fn exchange(&self, member: usize, len: usize) {
        let mut to = vec![0_u8; len];
        self.post(&mut to, OpFlags::DEFAULT).unwrap();
        self.send_and_receive(member, &to, true);
    }
}

fn send_and_receive(
    sender: &LoopbackEndpoint,
    member: &LoopbackEndpoint,
    dest: FiAddr,
    (to, is_reported): (&[u8], bool),
) {
    let from = vec![7_u8; to.len()];
    sender.ep.tinject(&from, dest, 9, None).unwrap();
    let mut entry = [Entry::default()];
    while member.cq().read(&mut entry).unwrap() == 0 && (is_reported || to != from) {
        assert_eq!(sender.cq().read(&mut []), Ok(0));
    }
    assert_eq!(to, from);
}

/// The rows of the table of operations: kind, size class, count, and the longest time.
fn operation_rows(text: &str) -> Vec<(&str, &str, &str, u64)> {
    let table = text
        .lines()
        .skip_while(|line| !line.starts_with("operation"));
    let rows = table.skip(1).map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        (
            words[0],
            words[1],
            words[2],
            words[words.len() - 1].parse().unwrap(),
        )
    });
    rows.collect()
}

#[test]
fn perf_times_shared_receives_at_every_endpoint_that_completes_them() {
    let env = TestEnv::new();
    let fixture = SharedFixture::open(&env.info(&[("FI_HOOK", "perf")]), false);
    (0..5).for_each(|_| fixture.exchange(0, 8));
    (0..3).for_each(|_| fixture.exchange(1, 2000));
    let mut buffer = [0; 40];
    fixture.post(&mut buffer, OpFlags::DEFAULT).unwrap();
    // Endpoints still take the posted receives.
    let SharedFixture {
        srx,
        members,
        sender,
        to,
    } = fixture;
    drop(srx);
    send_and_receive(&sender, &members[1], to[1], (&buffer, true));
    drop((members, sender));
    let text = env.written();
    let counted = operation_rows(&text)
        .into_iter()
        .map(|row| (row.0, row.1, row.2));
    let received: Vec<_> = counted.filter(|row| row.0 == "trecv").collect();
    let wanted = [
        ("trecv", "8-15", "5"),
        ("trecv", "32-63", "1"),
        ("trecv", "1024-2047", "3"),
    ];
    assert_eq!(received, wanted, "{text}");
}

#[test]
fn an_unreported_shared_receive_is_not_matched_with_a_reported_one() {
    let env = TestEnv::new();
    let fixture = SharedFixture::open(&env.info(&[("FI_HOOK", "perf")]), true);
    let mut buffer = [0; 8];
    fixture.post(&mut buffer, OpFlags::empty()).unwrap();
    fixture.send_and_receive(0, &buffer, false);
    // A longer time would be that of the unreported receive.
    thread::sleep(Duration::from_millis(20));
    let begin = Instant::now();
    let mut buffer = [0; 8];
    fixture.post(&mut buffer, OpFlags::COMPLETION).unwrap();
    fixture.send_and_receive(0, &buffer, true);
    let took = begin.elapsed().as_nanos();
    drop(fixture);
    let text = env.written();
    let received = operation_rows(&text)
        .into_iter()
        .filter(|row| row.0 == "trecv");
    let received: Vec<_> = received.collect();
    assert!(
        matches!(received[..], [("trecv", "8-15", "1", longest)] if u128::from(longest) <= took),
        "{text}"
    );
}

#[test]
fn posts_of_shared_receives_pass_each_layer() {
    let env = TestEnv::new();
    let hooks = [
        ("FI_HOOK", "trace;fault"),
        ("FI_HOOK_FAULT", "trecvmsg:error=NOMEM@2"),
    ];
    let fixture = SharedFixture::open(&env.info(&hooks), false);
    let mut buffers = [[0; 8]; 2];
    let posts = buffers
        .each_mut()
        .map(|buffer| fixture.post(buffer, OpFlags::DEFAULT));
    assert_eq!(posts, [Ok(()), Err(Errno::NoMem)]);
    fixture.srx.cancel(Context(5)).unwrap();
    let cq = fixture.members[0].cq();
    assert_eq!(cq.read(&mut [Entry::default()]), Err(Errno::Avail));
    assert_eq!(cq.read_err().unwrap().errno, Errno::Canceled);
    drop(fixture);
    let text = env.written();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let lines: Vec<_> = lines.collect();
    let opened = lines
        .iter()
        .find(|line| line["call"] == "srx_context")
        .unwrap();
    let self_addr = lines
        .iter()
        .filter(|line| line["object"] == opened["object"]);
    let self_addr: Vec<_> = self_addr
        .map(|line| {
            (
                line["call"].as_str().unwrap(),
                line["result"].as_i64().unwrap(),
            )
        })
        .collect();
    let failed = -i64::from(Errno::NoMem.as_raw());
    let wanted = [
        ("srx_context", 0),
        ("trecvmsg", 0),
        ("trecvmsg", failed),
        ("cancel", 0),
        ("srx_close", 0),
    ];
    assert_eq!(self_addr, wanted, "{text}");
}

/// The call logs of this process.
fn recorded_calls() -> Vec<CallLog> {
    let fds = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let logs = fds.filter_map(|fd| {
        let target = fs::read_link(fd.path()).ok()?;
        target.to_str()?.contains(MEMFD_NAME).then_some(())?;
        let bytes = fs::read(fd.path()).ok()?;
        let words = bytes
            .as_chunks::<8>()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word));
        let words: Box<[u64; CALLS_WORDS]> = words.collect::<Box<[u64]>>().try_into().ok()?;
        CallLog::parse(&words)
    });
    logs.collect()
}

#[test]
fn flight_records_posts_of_shared_receives_and_their_outcomes() {
    let env = TestEnv::new();
    let fixture = SharedFixture::open(&env.info(&[("FI_HOOK", "flight")]), false);
    fixture.exchange(1, 24);
    let shared = recorded_calls()
        .into_iter()
        .find(|it| it.header.name.starts_with("srx "));
    let calls = shared.unwrap().calls;
    let calls: Vec<_> = calls.iter().map(|call| (&*call.name, call.len)).collect();
    assert_eq!(calls, [("trecvmsg", 24), ("trecv", 24)]);
}
