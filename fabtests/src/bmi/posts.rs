//! Duration of posts while other threads of the process test continuously.
//!
//! An instance of BMI sends messages to itself. Each poster posts a receive and a send, and pauses.
//! Testers collect completions and unexpected messages. Background threads use a processor and do
//! not call BMI.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use nix::unistd::gettid;
use selvedge_bmi::{Addr, Bmi, Completion, Config, ContextId, Post, PostError, Posted};
use selvedge_testkit::schedstat::SchedStat;
use serde::Serialize;

/// The threads of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Threads that post.
    pub posters: usize,
    /// Threads that test.
    pub testers: usize,
    /// How long one test call waits for a completion or an unexpected message.
    pub idle: Duration,
    /// Threads that spin until the run ends.
    pub background: usize,
}

/// The times of posts in one run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    /// Number of posts.
    pub posts: usize,
    /// The arithmetic mean, in microseconds.
    pub mean_us: f64,
    /// The 99th percentile, in microseconds.
    pub p99_us: f64,
    /// Duration of the longest post, in microseconds.
    pub worst_us: f64,
    /// Start of the longest post, in milliseconds after the start of the run.
    pub worst_at_ms: f64,
    /// Scheduling delay during the longest post, in microseconds: the time that posters and testers
    /// were ready to run but had no processor. The value is the sum over these threads; their
    /// delays may overlap.
    pub worst_delay_us: f64,
    /// Maximum over all posts of the duration minus the scheduling delay, in microseconds.
    /// Overlapping delays make it too small.
    pub worst_own_us: f64,
    /// Test calls per second, summed over all testers.
    pub tests_per_s: f64,
}

/// Pause of a poster after each pair of posts. It stands for the time in which a program computes
/// its next request.
const PAUSE: Duration = Duration::from_micros(50);
/// Maximum number of outstanding operations of a poster.
const OUTSTANDING: u64 = 64;
/// Maximum number of completions and messages that one test collects.
const BATCH: usize = 64;

/// Minimum duration of a post for which the scheduling delay is measured.
const SLOW: Duration = Duration::from_micros(20);

/// The timing of one post.
#[derive(Clone, Copy, Debug)]
struct PostTime {
    /// Start of the post, relative to the start of the run.
    at: Duration,
    time: Duration,
    /// Scheduling delay of posters and testers during the post; zero if the post took less than
    /// [`SLOW`].
    delay: Duration,
}

impl PostTime {
    fn own(&self) -> Duration {
        self.time.saturating_sub(self.delay)
    }
}

/// State that the threads of a run share.
#[derive(Debug)]
struct Shared {
    bmi: Bmi,
    context: ContextId,
    own: Addr,
    begin: Instant,
    /// For each poster, the number of its operations whose completions have not been collected.
    outstanding: Vec<AtomicU64>,
    /// Kernel thread identifiers of the posters, followed by the testers; 0 until the thread runs.
    threads: Vec<AtomicI32>,
    tests: AtomicU64,
    is_over: AtomicBool,
}

/// Runs posters and testers over the BMI method `method` for `time`. Returns the durations of the
/// posts.
///
/// # Errors
/// BMI cannot be opened, a post or a test fails, or no post is made within `time`.
pub fn measure(method: &str, load: Load, time: Duration) -> anyhow::Result<Times> {
    let bmi = Bmi::initialize(Config::server(&format!("{method}://localhost")))?;
    let url = bmi.urls().pop().context("BMI listens at no URL")?;
    let shared = Shared {
        context: bmi.open_context()?,
        own: bmi.addr_lookup(&url)?,
        bmi,
        begin: Instant::now(),
        outstanding: (0..load.posters).map(|_| AtomicU64::new(0)).collect(),
        threads: (0..load.testers + load.posters)
            .map(|_| AtomicI32::new(0))
            .collect(),
        tests: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let begin = shared.begin;
    let mut post_times = thread::scope(|scope| {
        let shared = &shared;
        for _ in 0..load.background {
            scope.spawn(|| {
                while !shared.is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let testers: Vec<_> = (0..load.testers)
            .map(|tester| scope.spawn(move || shared.test(tester, load.idle)))
            .collect();
        let posters: Vec<_> = (0..load.posters)
            .map(|poster| scope.spawn(move || shared.post(poster, begin + time)))
            .collect();
        let post_times: anyhow::Result<Vec<_>> = posters
            .into_iter()
            .map(|poster| poster.join().expect("a poster does not panic"))
            .collect();
        shared.is_over.store(true, Ordering::Relaxed);
        testers
            .into_iter()
            .try_for_each(|tester| tester.join().expect("a tester does not panic"))?;
        post_times
    })?
    .concat();
    post_times.sort_unstable_by_key(|post| post.time);
    let worst = *post_times
        .last()
        .with_context(|| format!("no post was made in {time:?}"))?;
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let sum: Duration = post_times.iter().map(|post| post.time).sum();
    let own = post_times.iter().map(PostTime::own).max();
    Ok(Times {
        posts: post_times.len(),
        mean_us: us(sum) / post_times.len() as f64,
        p99_us: us(post_times[post_times.len() * 99 / 100].time),
        worst_us: us(worst.time),
        worst_at_ms: us(worst.at) / 1e3,
        worst_delay_us: us(worst.delay),
        worst_own_us: us(own.unwrap_or_default()),
        tests_per_s: shared.tests.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64(),
    })
}

impl Shared {
    /// Collects completions until the run is over and no operation is outstanding.
    fn test(&self, tester: usize, idle: Duration) -> anyhow::Result<()> {
        self.register(self.outstanding.len() + tester);
        while !self.is_over.load(Ordering::Relaxed) || self.has_outstanding() {
            let mut failed = Ok(0);
            self.bmi.testcontext(BATCH, idle, self.context, |done| {
                self.outstanding[done.user as usize].fetch_sub(1, Ordering::Relaxed);
                if done.outcome.is_err() {
                    failed = done.outcome;
                }
            })?;
            failed?;
            self.tests.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn has_outstanding(&self) -> bool {
        let is_outstanding = |count: &AtomicU64| count.load(Ordering::Relaxed) > 0;
        self.outstanding.iter().any(is_outstanding)
    }

    /// Posts pairs of a receive and a send, addressed to this process, until `end`. Returns the
    /// timing of each post.
    fn post(&self, poster: usize, end: Instant) -> anyhow::Result<Vec<PostTime>> {
        let outstanding = &self.outstanding[poster];
        self.register(poster);
        let threads = self.threads()?;
        let delay = || {
            threads
                .iter()
                .map(|it| it.read().run_delay)
                .sum::<Duration>()
        };
        let mut post_times = Vec::new();
        while Instant::now() < end {
            while outstanding.load(Ordering::Relaxed) + 2 > OUTSTANDING && Instant::now() < end {
                thread::sleep(PAUSE);
            }
            outstanding.fetch_add(2, Ordering::Relaxed);
            let mut delayed = delay();
            for post in [Self::post_recv, Self::post_send] {
                let start = Instant::now();
                let posted = post(self, poster)?;
                let mut one = PostTime {
                    at: start - self.begin,
                    time: start.elapsed(),
                    delay: Duration::ZERO,
                };
                if one.time >= SLOW {
                    one.delay = delay().saturating_sub(delayed);
                    delayed += one.delay;
                }
                post_times.push(one);
                if let Posted::Done(_) = posted {
                    outstanding.fetch_sub(1, Ordering::Relaxed);
                }
            }
            thread::sleep(PAUSE);
        }
        Ok(post_times)
    }

    fn register(&self, thread: usize) {
        self.threads[thread].store(gettid().as_raw(), Ordering::Relaxed);
    }

    /// Waits until all posters and testers run, and opens their scheduler statistics. Each of these
    /// threads may hold the lock that a post waits for.
    fn threads(&self) -> anyhow::Result<Vec<SchedStat>> {
        let threads = self.threads.iter().map(|thread| {
            while thread.load(Ordering::Relaxed) == 0 {
                thread::sleep(PAUSE);
            }
            SchedStat::of(thread.load(Ordering::Relaxed))
        });
        let threads: Result<_, _> = threads.collect();
        threads.context("the scheduler's statistics")
    }

    fn post_recv(&self, poster: usize) -> Result<Posted<Completion>, PostError> {
        self.bmi.post_recv(self.empty(poster))
    }

    fn post_send(&self, poster: usize) -> Result<Posted<Completion>, PostError> {
        self.bmi.post_send(self.empty(poster))
    }

    /// An empty message. The user value of its completion is the index of the poster.
    fn empty(&self, poster: usize) -> Post<Vec<u8>> {
        Post::new(self.own, Vec::new(), poster as i32, self.context).with_user(poster as u64)
    }
}
