//! Compares the speed of contexts with that of the raw fabric, with alternating measurements in one
//! run.
//!
//! ```sh
//! cargo run --release -p selvedge-cheetah --example speed -- [-shmem | -fabric PROVIDER] [-np N]
//! ```
//!
//! With two contexts, the program pins each to a processor and prints the medians of the rounds, of
//! which only the ratios are meaningful. With any other number of contexts, it prints the time of a
//! barrier and the processor time of waiting contexts.

#![expect(unsafe_code, reason = "puts, gets and the raw fabric")]

mod idle_contexts;
mod raw;

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use selvedge_cheetah::{Bell, BellName, Config, Controller, FunctionId, Result, Special};

use raw::Raw;

const ROUNDS: usize = 15;
const SMALL: usize = 4000;
const LARGE: usize = 60;
/// The number of barriers is small: waiting contexts park, which takes long on a machine with few
/// processors.
const BARRIERS: usize = 50;
const MIB: usize = 1 << 20;

fn main() -> Result {
    let mut args: Vec<String> = std::env::args().collect();
    let mut config = Config::from_args(&mut args)?;
    if config.launch.is_none() && config.fork.is_none() {
        config = config.fork(2);
    }
    let controller = Controller::open(&config)?;
    if controller.ncontexts() != 2 {
        return idle_contexts::measure(&controller);
    }
    pin(controller.mycontext());
    let fabric = controller.fabrics()[0].clone();
    let bench = Bench::new(&controller, &fabric)?;
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); ROWS.len()];
    for _ in 0..ROUNDS {
        for (row, times) in ROWS.iter().zip(&mut times) {
            controller.barrier()?;
            times.push((row.run)(&bench)?.as_nanos() as f64);
        }
    }
    controller.barrier()?;
    if controller.mycontext() == 0 {
        report(&fabric, &times);
    }
    drop(bench);
    controller.finalize()
}

/// A measurement. If it has a `limit`, its baseline is the raw measurement before it.
struct Measurement {
    name: &'static str,
    run: fn(&Bench) -> Result<Duration>,
    limit: Option<&'static str>,
}

const ROWS: [Measurement; 9] = [
    Measurement {
        name: "raw message, 8 B, round trip",
        run: |b| Ok(b.raw.messages(SMALL)),
        limit: None,
    },
    Measurement {
        name: "ainvoke, 8 B, round trip",
        run: Bench::ainvokes,
        limit: Some("at most 2 times"),
    },
    Measurement {
        name: "raw write with data, 8 B, round trip",
        run: |b| Ok(b.raw.writes(SMALL)),
        limit: None,
    },
    Measurement {
        name: "put to special memory with bell, 8 B, round trip",
        run: Bench::puts,
        limit: Some("at most 1.5 times"),
    },
    Measurement {
        name: "raw write, 1 MiB",
        run: |b| Ok(b.raw.write_large(LARGE)),
        limit: None,
    },
    Measurement {
        name: "put, 1 MiB",
        run: Bench::put_large,
        limit: Some("at most 1.05 times"),
    },
    Measurement {
        name: "raw read, 1 MiB",
        run: |b| Ok(b.raw.read_large(LARGE)),
        limit: None,
    },
    Measurement {
        name: "get, 1 MiB",
        run: Bench::get_large,
        limit: Some("at most 1.05 times"),
    },
    Measurement {
        name: "barrier of 2",
        run: Bench::barriers,
        limit: None,
    },
];

fn report(fabric: &str, times: &[Vec<f64>]) {
    println!("{fabric}; medians of {ROUNDS} rounds, in turns");
    let mut before = 0.0;
    for (row, times) in ROWS.iter().zip(times) {
        let mut times = times.clone();
        times.sort_unstable_by(f64::total_cmp);
        let median = times[times.len() / 2] / 1000.0;
        let ratio = match row.limit {
            Some(limit) => format!("{:6.2} times ({limit})", median / before),
            None => String::new(),
        };
        println!("{:50} {median:10.3} us {ratio}", row.name);
        before = median;
    }
}

struct Bench {
    controller: Controller,
    raw: Raw,
    pings: Rc<Cell<u64>>,
    /// The number of pings before the next measurement. `pings` may be larger by then, because the
    /// first ping may arrive before this context starts the measurement.
    expected_pings: Cell<u64>,
    expected_rings: Cell<i32>,
    ping: FunctionId,
    bell: Bell,
    done: Bell,
    special: Special,
    buffer: Vec<u8>,
    source: Vec<u8>,
    /// The addresses of the other context's special memory and buffer, and the name of its bell.
    remote: [u64; 3],
}

impl Bench {
    fn new(controller: &Controller, fabric: &str) -> Result<Self> {
        let pings = Rc::new(Cell::new(0));
        let count = Rc::clone(&pings);
        let ping = controller.register("ping", move |_, call| {
            debug_assert_eq!(call.bytes.len(), 8);
            count.set(count.get() + 1);
        })?;
        let remote = Rc::new(Cell::new([0; 3]));
        let received = Rc::clone(&remote);
        let address_bell = controller.bell()?;
        let ring = address_bell.clone();
        let raw = Rc::new(Cell::new(None));
        let address = Rc::clone(&raw);
        let set_address = controller.register("set_address", move |_, call| {
            let (words, text) = call.bytes.split_at(24);
            received.set(*bytemuck::from_bytes(words));
            address.set(Some(String::from_utf8_lossy(text).into_owned()));
            ring.set(1);
        })?;
        controller.barrier()?;
        let special = controller.special(4096)?;
        let (bell, done) = (controller.bell()?, controller.bell()?);
        let mut buffer = vec![0_u8; MIB];
        let own = Raw::open(fabric, &mut buffer);
        let words = [
            special.address(0),
            buffer.as_mut_ptr().expose_provenance() as u64,
            bell.name().word(),
        ];
        let mut message = bytemuck::cast_slice(&words).to_vec();
        message.extend_from_slice(own.address_line().as_bytes());
        controller.ainvoke(1 - controller.mycontext(), set_address, &message)?;
        controller.wait(&address_bell, 1)?;
        let own = own.connect(&raw.take().unwrap_or_default());
        controller.barrier()?;
        Ok(Self {
            controller: controller.clone(),
            raw: own.warm_up(controller.mycontext()),
            pings,
            expected_pings: Cell::new(0),
            expected_rings: Cell::new(0),
            ping,
            bell,
            done,
            special,
            buffer,
            source: vec![1; MIB],
            remote: remote.get(),
        })
    }

    fn is_first(&self) -> bool {
        self.controller.mycontext() == 0
    }

    fn ainvokes(&self) -> Result<Duration> {
        let other = 1 - self.controller.mycontext();
        let start = Instant::now();
        let before = self
            .expected_pings
            .replace(self.expected_pings.get() + SMALL as u64);
        for round in 0..SMALL as u64 {
            if self.is_first() {
                self.controller.ainvoke(other, self.ping, &[0; 8])?;
            }
            while self.pings.get() == before + round {
                self.controller.poll()?;
            }
            if !self.is_first() {
                self.controller.ainvoke(other, self.ping, &[0; 8])?;
            }
        }
        Ok(start.elapsed() / SMALL as u32)
    }

    fn puts(&self) -> Result<Duration> {
        let other = 1 - self.controller.mycontext();
        let bell = BellName::from_word(self.remote[2]);
        let bytes = (self.source.as_ptr(), 8);
        // SAFETY: source, special memory and bells live to the end.
        let put = || unsafe {
            self.controller
                .put(other, self.remote[0], bytes, None, bell)
        };
        let start = Instant::now();
        let before = self
            .expected_rings
            .replace(self.expected_rings.get() + SMALL as i32);
        for round in 0..SMALL as i32 {
            if self.is_first() {
                put()?;
            }
            while self.bell.value() == before + round {
                self.controller.poll()?;
            }
            if !self.is_first() {
                put()?;
            }
        }
        Ok(start.elapsed() / SMALL as u32)
    }

    fn put_large(&self) -> Result<Duration> {
        self.large(|other| {
            let bytes = (self.source.as_ptr(), MIB);
            // SAFETY: both vectors live to the end, and one context puts at a time.
            unsafe {
                self.controller.put(
                    other,
                    self.remote[1],
                    bytes,
                    Some(&self.done),
                    BellName::NONE,
                )
            }
        })
    }

    fn get_large(&self) -> Result<Duration> {
        self.large(|other| {
            let buffer = (self.buffer.as_ptr().cast_mut(), MIB);
            // SAFETY: as above.
            unsafe {
                self.controller.get(
                    other,
                    self.remote[1],
                    buffer,
                    Some(&self.done),
                    BellName::NONE,
                )
            }
        })
    }

    /// Measures `post` in context 0, one operation at a time. Context 1 polls until context 0 sends
    /// it a ping at the end.
    fn large(&self, post: impl Fn(usize) -> Result) -> Result<Duration> {
        if !self.is_first() {
            let over = self.expected_pings.get() + 1;
            self.expected_pings.set(over);
            while self.pings.get() < over {
                self.controller.poll()?;
            }
            return Ok(Duration::ZERO);
        }
        let start = Instant::now();
        for _ in 0..LARGE {
            let before = self.done.value();
            post(1)?;
            while self.done.value() == before {
                self.controller.poll()?;
            }
        }
        let time = start.elapsed() / LARGE as u32;
        self.controller.ainvoke(1, self.ping, &[0; 8])?;
        Ok(time)
    }

    fn barriers(&self) -> Result<Duration> {
        let start = Instant::now();
        for _ in 0..BARRIERS {
            self.controller.barrier()?;
        }
        let _ = &self.special;
        Ok(start.elapsed() / BARRIERS as u32)
    }
}

/// Pins this context to the processor with the number `context`, if there is one.
fn pin(context: usize) {
    // SAFETY: all-zero bytes are an empty set, which is filled below.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number is below the size of a set.
    unsafe { libc::CPU_SET(context, &mut set) };
    // SAFETY: the size is that of the set. On an error the system chooses the processor.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
}
